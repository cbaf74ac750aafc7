"""Problems in AWS that keep nodes from launching or joining. Pure functions of what was observed."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith_cli.connecting.findings import Finding, error, warning
from nodesmith_cli.connecting.observed import Account, RegionStack
from nodesmith_cli.connecting.wanted import Wanted, default_node_role, registration
from nodesmith_formats.wording import some


def node_problems(wanted: Wanted, account: Account) -> Iterator[Finding]:
    """Yield findings about node roles, and about the discovery of subnets and security groups."""
    yield from _node_roles(wanted, account)
    yield from _discovery(wanted, account)


def deploy_command(region: str) -> str:
    """Return the command that deploys the region's stack from a checkout."""
    return f".venv/bin/python -m infra.cdk deploy nodesmith-{region}"


def _node_roles(wanted: Wanted, account: Account) -> Iterator[Finding]:
    default = default_node_role(account.cluster.name)
    for name in registration(wanted, account).node_roles:
        role = account.node_roles.get(name)
        if role is None and name != default:
            yield error(
                "node-role",
                f"role {name}",
                "does not exist",
                f"create it, or omit --node-role to use {default}",
            )
        elif role is not None and not role.is_trusting_ec2:
            yield error(
                "node-role",
                f"role {name}",
                "does not trust ec2.amazonaws.com",
                f"aws iam update-assume-role-policy --role-name {name} --policy-document …",
            )
        if name != default:
            yield from _passable(name, default, account)


def _passable(name: str, default: str, account: Account) -> Iterator[Finding]:
    stack: RegionStack | None = account.stack
    if stack is None or (stack.node_roles is not None and name in stack.node_roles):
        return
    remedy = f"add it to `nodeRoles` of the region in cdk.json, then {deploy_command(account.region)}"
    if stack.node_roles is None:
        found = f"functions may pass {default}; the stack does not show whether they may pass this one"
        yield warning("node-role", f"role {name}", found, remedy)
    else:
        passable = some([default, *stack.node_roles])
        yield error("node-role", f"role {name}", f"functions may not pass it, only {passable}", remedy)


def _discovery(wanted: Wanted, account: Account) -> Iterator[Finding]:
    name = account.cluster.name
    for what, found in (("subnets", account.subnets), ("security groups", account.groups)):
        if any(each.discovery == name for each in found):
            continue
        others = [each for each in found if each.discovery]
        if others:
            yield warning(
                "discovery",
                f"{what} {some(each.id for each in others)}",
                f"carry karpenter.sh/discovery={others[0].discovery}, the tag of another cluster",
                "select them in EC2NodeClasses by id, or by another tag",
            )
        elif not wanted.is_to_tag:
            yield warning(
                "discovery",
                f"{what} of the VPC",
                f"none carries karpenter.sh/discovery={name}",
                "select them in EC2NodeClasses by id, or by another tag",
            )
