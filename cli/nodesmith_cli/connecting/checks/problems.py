"""Problems in AWS and in a cluster that keep nodesmith from serving it. Pure functions of what was observed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodesmith import __version__
from nodesmith.adapters.ownedresources import bare_role_name
from nodesmith.registration import CLUSTER_NAME, LONGEST_ROLE_NAME, LONGEST_VALUE, default_node_role
from nodesmith.settings import role_name
from nodesmith_cli.connecting.applying import State, reference
from nodesmith_cli.connecting.checks.findings import Finding, error, info, warning
from nodesmith_cli.connecting.manifests import ADMISSION
from nodesmith_cli.connecting.observed import Account, ClusterReading, RegionStack
from nodesmith_cli.connecting.request import (
    ConnectRequest,
    concerns_with_api_access,
    is_observed,
    registration,
)
from nodesmith_cli.sharing import findings as sharing
from nodesmith_formats.wording import some

OLDEST = (1, 25)
"""The validation rules in the CRDs require Kubernetes 1.25."""
_VERSION = re.compile(r"(\d+)\.(\d+)")
_SHARED = "shared-crds"
_OTHER_MACHINES = frozenset({"EC2", "FARGATE_LINUX", "HYBRID_LINUX", "HYPERPOD_LINUX"})
"""Types of access entries with which nodes of EKS Auto Mode (`EC2`) and other machines join a cluster."""


def problems(request: ConnectRequest, account: Account) -> Iterator[Finding]:
    """Yield the problems in AWS that connect does not fix."""
    for sentence in account.denied:
        yield error(
            "rights",
            "your AWS credentials",
            sentence,
            "ask an administrator of the account for this permission",
        )
    yield from _cluster(request, account)
    yield from _stack(account)
    yield from _endpoint(request, account)
    yield from _size(request, account)
    if is_observed(request, account):
        yield from _served_already(request, account)
    else:
        yield from _observed_before(request, account)
        yield from node_problems(request, account)


def _observed_before(request: ConnectRequest, account: Account) -> Iterator[Finding]:
    if account.watched is not None and account.parameter is None:
        yield warning(
            "registration",
            f"cluster {request.cluster}",
            "nodesmith has only observed it so far, and will serve it: functions will launch and end nodes",
            f"to keep it observed: nodesmith connect {request.cluster} --observe",
        )


def _size(request: ConnectRequest, account: Account) -> Iterator[Finding]:
    size = len(registration(request, account).to_json().encode())
    if size > LONGEST_VALUE:
        yield error(
            "registration",
            f"cluster {request.cluster}",
            f"its settings take {size:,} bytes, and Parameter Store holds {LONGEST_VALUE:,} bytes",
            "shorten a setting, or remove one with --setting NAME=",
        )


def _served_already(request: ConnectRequest, account: Account) -> Iterator[Finding]:
    if account.parameter is not None:
        yield error(
            "registration",
            f"cluster {request.cluster}",
            "nodesmith serves it, so it cannot be only observed: functions would leave its nodes alone from then on",
            f"leave out --observe, or hand its nodes over first: nodesmith release {request.cluster}, then "
            f"nodesmith disconnect {request.cluster} --keep-nodes",
        )


def _cluster(request: ConnectRequest, account: Account) -> Iterator[Finding]:
    cluster, where = account.cluster, f"cluster {account.cluster.name}"
    command = f"aws eks update-cluster-config --region {account.region} --name {cluster.name}"
    if not CLUSTER_NAME.fullmatch(cluster.name):
        yield error(
            "name",
            where,
            "its name must have 2 to 64 letters, digits, - and _",
            "this cluster is not supported",
        )
    if cluster.status not in ("ACTIVE", "UPDATING"):
        yield error("status", where, f"is {cluster.status}, not ACTIVE", "wait until it is ACTIVE")
    match = _VERSION.match(cluster.version)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        wanted_version = ".".join(map(str, OLDEST))
        yield error(
            "version",
            where,
            f"runs Kubernetes {cluster.version or 'of an unknown version'}; {wanted_version} is the oldest supported",
            f"aws eks update-cluster-version --region {account.region} --name {cluster.name}",
        )
    if cluster.mode == "CONFIG_MAP" and not request.is_to_switch_mode:
        yield error(
            "authentication-mode",
            where,
            "its authentication mode is CONFIG_MAP, which does not support access entries",
            f"{command} --access-config authenticationMode=API_AND_CONFIG_MAP (this cannot be undone), "
            "or use --set-authentication-mode",
        )


def _stack(account: Account) -> Iterator[Finding]:
    where, deploy = f"stack nodesmith-{account.region}", deploy_command(account.region)
    stack = account.stack
    if stack is None:
        yield error("stack", where, "is not deployed in this account and region", deploy)
        return
    if stack.missing:
        yield error(
            "stack", where, f"has no output {some(stack.missing)}: it is older than this command", deploy
        )
    elif stack.version and stack.version != __version__:
        yield warning(
            "stack", where, f"has version {stack.version}, but this command has {__version__}", deploy
        )


def _endpoint(request: ConnectRequest, account: Account) -> Iterator[Finding]:
    cluster, vpc = account.cluster, registration(request, account).reached_from
    where = f"cluster {cluster.name}"
    if not cluster.is_open and not vpc:
        how = "private" if not cluster.is_public else f"public for {some(cluster.public_cidrs)} only"
        yield error(
            "endpoint",
            where,
            f"the endpoint of its API server is {how}: functions outside the VPC cannot reach it",
            "add the VPC to `vpcs` in cdk.json, deploy, and use --vpc NAME",
        )
    observed = is_observed(request, account)
    missing = missing_roles(account, vpc, observed=observed)
    if account.stack is None or not missing:
        return
    if vpc and len(missing) == len(concerns_with_api_access(observed=observed)):
        detail = f"VPC {vpc!r} has no functions in this region"
        yield error(
            "vpc",
            f"registration of {cluster.name}",
            detail,
            f"add it to `vpcs` in cdk.json, then run {deploy_command(account.region)}",
        )
        return
    for role in missing:
        yield error("function-role", f"role {role}", "does not exist", deploy_command(account.region))


def missing_roles(account: Account, vpc: str, *, observed: bool = False) -> list[str]:
    """Return the missing roles of the functions that call the API server."""
    roles = talking_roles(account.region, vpc, observed=observed)
    return [role for role in roles if role not in account.roles]


def talking_roles(region: str, vpc: str, *, observed: bool = False) -> list[str]:
    """Return the roles of the functions that call the API server."""
    return [role_name(concern, region, vpc) for concern in concerns_with_api_access(observed=observed)]


def node_problems(request: ConnectRequest, account: Account) -> Iterator[Finding]:
    """Yield findings about node roles, and about the discovery of subnets and security groups."""
    yield from _node_roles(request, account)
    yield from _discovery(request, account)


def deploy_command(region: str) -> str:
    """Return the command that deploys the region's stack from a checkout."""
    return f".venv/bin/python -m infra.cdk deploy nodesmith-{region}"


def _node_roles(request: ConnectRequest, account: Account) -> Iterator[Finding]:
    default = default_node_role(account.cluster.name)
    for name in registration(request, account).node_roles:
        role = account.node_roles.get(name)
        if role is None and name == default and len(default) > LONGEST_ROLE_NAME:
            yield error(
                "node-role",
                f"role {name}",
                f"its name would have {len(default)} characters, and IAM allows {LONGEST_ROLE_NAME}",
                f"create a role with a shorter name, add it to `nodeRoles` of the region in cdk.json, "
                f"{deploy_command(account.region)}, and use --node-role NAME",
            )
        elif role is None and name != default:
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
        elif role is not None and f"/{name}" != f"{role.path}{bare_role_name(name)}":
            right = f"{role.path}{bare_role_name(name)}".removeprefix("/")
            yield error(
                "node-role",
                f"role {name}",
                f"has the path {role.path} in IAM, so that functions may not pass it",
                f"add {right} to `nodeRoles` of the region in cdk.json, {deploy_command(account.region)}, and use "
                f"--node-role {right}",
            )
        elif (entry := account.entries.get(account.role_arn(name))) and entry.kind in _OTHER_MACHINES:
            yield error(
                "node-role",
                f"role {name}",
                f"its access entry has the type {entry.kind}, which other machines need to join; nodes of EC2 need "
                "EC2_LINUX, and a role has one entry",
                "use another role for nodesmith's nodes: --node-role NAME",
            )
        if name != default:
            yield from _passable(name, default, account)


def _passable(name: str, default: str, account: Account) -> Iterator[Finding]:
    stack: RegionStack | None = account.stack
    if stack is None or (stack.node_roles is not None and name in stack.node_roles):
        return
    remedy = f"add it to `nodeRoles` of the region in cdk.json, then {deploy_command(account.region)}"
    if stack.node_roles is None:
        detail = f"functions may pass {default}; the stack does not show whether they may pass this one"
        yield warning("node-role", f"role {name}", detail, remedy)
    else:
        passable = some([default, *stack.node_roles])
        yield error("node-role", f"role {name}", f"functions may not pass it, only {passable}", remedy)


def _discovery(request: ConnectRequest, account: Account) -> Iterator[Finding]:
    name = account.cluster.name
    for what, resources in (("subnets", account.subnets), ("security groups", account.groups)):
        if any(resource.discovery == name for resource in resources):
            continue
        others = [resource for resource in resources if resource.discovery]
        if others:
            yield warning(
                "discovery",
                f"{what} {some(resource.id for resource in others)}",
                f"carry karpenter.sh/discovery={others[0].discovery}, the tag of another cluster",
                "select them in EC2NodeClasses by id, or by another tag",
            )
        elif not request.is_to_tag:
            yield warning(
                "discovery",
                f"{what} of the VPC",
                f"none carries karpenter.sh/discovery={name}",
                "select them in EC2NodeClasses by id, or by another tag",
            )


def inside_problems(account: Account, reading: ClusterReading) -> Iterator[Finding]:
    """Yield findings about other software in the cluster, and about objects that cannot be installed."""
    where = f"cluster {account.cluster.name}"
    for finding in sharing.findings(reading.ownership):
        if finding.check == _SHARED:
            yield info(finding.check, where, f"{finding.message}: connect leaves them alone")
        else:
            yield Finding(finding.check, finding.severity, where, finding.message, finding.remedy)
    if reading.autoscalers:
        yield warning(
            "cluster-autoscaler",
            f"Deployment {some(reading.autoscalers)}",
            "scales node groups for the same pending pods, so that both may add a node for one pod",
            "scale it to zero replicas, or taint its node groups",
        )
    unknown = [obj for obj in reading.objects if obj.state is State.UNKNOWN_KIND]
    if any(obj.manifest["kind"] in ADMISSION for obj in unknown):
        yield warning(
            "admission-policies",
            where,
            f"Kubernetes {account.cluster.version} has no ValidatingAdmissionPolicies: only RBAC restricts the "
            "functions",
            "run connect again after an upgrade to 1.30",
        )
    for one in reading.objects:
        if one.leave:
            yield warning("crds", reference(one.manifest), f"{one.leave}: connect does not change it")
