"""The steps of connect, in AWS and then in the cluster. Pure functions from what was observed to rows with actions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nodesmith.registration import Registration, default_node_role, parameter_name
from nodesmith_cli.connecting.applying import State, reference
from nodesmith_cli.connecting.manifests import ADMISSION, CRD, FORWARDER, NAMESPACE
from nodesmith_cli.connecting.observed import Account, ClusterReading, Entry, Object, Tagged
from nodesmith_cli.connecting.request import (
    NODE_POLICIES,
    ConnectRequest,
    function_entries,
    readable,
    registration,
)
from nodesmith_cli.connecting.steps.actions import (
    AGENT,
    Apply,
    Associate,
    AttachPolicies,
    ChangeEntry,
    InstallAgent,
    MakeEntry,
    MakeNodeRole,
    MakeSpotRole,
    Register,
    ReplaceEntry,
    RestartForwarder,
    Row,
    SetMode,
    Tag,
    Unregister,
    changed,
    made,
    present,
)
from nodesmith_formats.wording import some

EC2_LINUX, EC2_WINDOWS, STANDARD = "EC2_LINUX", "EC2_WINDOWS", "STANDARD"


def rows(request: ConnectRequest, account: Account, reading: ClusterReading) -> list[Row]:
    """Return a row for each resource of a connected cluster, in the order of creation."""
    target = registration(request, account)
    aws = list(_cluster(request, account))
    if not target.observed:
        aws += [_spot_role(account), *_network(request, account), *_nodes(target, account)]
    functions = list(_functions(target, account))
    return [
        *aws,
        *functions,
        _forwarder(account),
        _registered(target, account),
        *_no_longer_observed(target, account),
        *installed(reading),
        *restarted(reading),
    ]


def _cluster(request: ConnectRequest, account: Account) -> Iterator[Row]:
    if account.cluster.mode != "CONFIG_MAP":
        yield present("authentication mode", account.cluster.mode)
    elif request.is_to_switch_mode:
        yield changed("authentication mode", "API_AND_CONFIG_MAP; this cannot be undone", SetMode())
    if account.has_agent or account.cluster.is_auto_mode:
        yield present(f"add-on {AGENT}", "part of EKS Auto Mode" if not account.has_agent else "")
    else:
        yield made(f"add-on {AGENT}", "", InstallAgent())


def _spot_role(account: Account) -> Row:
    role = "service-linked role of EC2 Spot"
    return present(role) if account.has_spot_role else made(role, "", MakeSpotRole())


def _network(request: ConnectRequest, account: Account) -> Iterator[Row]:
    tag = f"karpenter.sh/discovery={account.cluster.name}"
    own_subnets = [subnet for subnet in account.subnets if subnet.id in account.cluster.subnets]
    own_groups = [group for group in account.groups if group.id == account.cluster.security_group]
    for what, there, own in (
        ("subnets", account.subnets, own_subnets),
        ("security groups", account.groups, own_groups),
    ):
        already_tagged = [resource for resource in there if resource.discovery == account.cluster.name]
        if already_tagged:
            yield present(f"{what} with {tag}", some(resource.id for resource in already_tagged))
        elif request.is_to_tag and own and not any(resource.discovery for resource in own):
            ids = _ids(own)
            yield made(f"{what} with {tag}", some(ids), Tag(ids))


def _ids(tagged: list[Tagged]) -> tuple[str, ...]:
    return tuple(resource.id for resource in tagged)


def _nodes(target: Registration, account: Account) -> Iterator[Row]:
    for name in target.node_roles:
        role = account.node_roles.get(name)
        what = f"role {name}"
        if role is None:
            if name == default_node_role(target.cluster):
                yield made(what, f"with {', '.join(NODE_POLICIES)}", MakeNodeRole(name))
            else:
                continue
        elif name == default_node_role(target.cluster):
            yield _policies(what, name, role.policies, account)
        else:
            yield present(what)
        yield _entry(account, account.role_arn(name), EC2_LINUX, "")


def _policies(what: str, name: str, attached: frozenset[str], account: Account) -> Row:
    """Attach missing policies only if AmazonEKSWorkerNodePolicy is missing, since users may replace the others."""
    bare = {arn.rpartition("/")[2] for arn in attached}
    if {"AmazonEKSWorkerNodePolicy"} <= bare:
        return present(what)
    missing = tuple(
        policy_arn(account, node_policy) for node_policy in NODE_POLICIES if node_policy not in bare
    )
    return changed(
        what, f"attach {', '.join(arn.rpartition('/')[2] for arn in missing)}", AttachPolicies(name, missing)
    )


def policy_arn(account: Account, policy: str) -> str:
    """Return the ARN of an AWS managed policy."""
    return f"arn:{account.partition}:iam::aws:policy/{policy}"


def _functions(target: Registration, account: Account) -> Iterator[Row]:
    entries = function_entries(account, target.reached_from, observed=target.observed)
    for principal, username in entries.items():
        yield _entry(account, principal, STANDARD, username)


def _entry(account: Account, principal: str, kind: str, username: str) -> Row:
    what, there = f"access entry of {principal.rpartition('/')[2]}", account.entries.get(principal)
    if there is None:
        return made(what, username or kind, MakeEntry(principal, kind, username))
    if there.is_stale:
        # EKS keeps the id of the role, which the new role of the same name does not have.
        kept = there.kind if username == "" and there.kind == EC2_WINDOWS else kind
        return changed(
            what, "older than the role, so that it has no effect", ReplaceEntry(principal, kept, username)
        )
    if (there.kind, kind) == (EC2_WINDOWS, EC2_LINUX):  # what Linux nodes may do, and what Windows nodes need
        return present(what, there.kind)
    if there.kind != kind:
        detail = f"type {kind} instead of {there.kind}"
        return changed(what, detail, ReplaceEntry(principal, kind, username))
    if username and there != Entry(kind, username, (), there.is_made):
        return changed(what, username, ChangeEntry(principal, username))
    return present(what, username or kind)


def _forwarder(account: Account) -> Row:
    what = f"Pod Identity association of {NAMESPACE}/{FORWARDER}"
    role = account.stack.forwarder_role if account.stack else ""
    bare, there = role.rpartition("/")[2], account.association
    if there is None:
        return made(what, bare, Associate(role))
    if there.role != role:
        return changed(what, bare, Associate(role, there.id))
    return present(what, bare)


def _registered(target: Registration, account: Account) -> Row:
    name = parameter_name(target.cluster, observed=target.observed)
    what, there = f"registration {name}", account.watched if target.observed else account.parameter
    text = target.to_json()
    if there is None:
        return made(what, text, Register(text, is_new=True, observed=target.observed))
    existing = readable(target.cluster, there)
    if existing is not None and replace(existing, observed=target.observed) == target:
        return present(what, text)
    return changed(what, _difference(there, text), Register(text, is_new=False, observed=target.observed))


def _no_longer_observed(target: Registration, account: Account) -> Iterator[Row]:
    if account.watched is not None and not target.observed:
        name = parameter_name(target.cluster, observed=True)
        yield changed(f"registration {name}", "removed: the cluster is served", Unregister())


def _difference(before: str, after: str) -> str:
    try:
        was: Any = json.loads(before)
    except ValueError:
        was = None
    if not isinstance(was, dict):
        return after
    now = json.loads(after)
    names = [name for name in now if was.get(name) != now[name]]
    return ", ".join(f"{name}: {json.dumps(now[name])}" for name in names) or after


def installed(reading: ClusterReading) -> Iterator[Row]:
    """Yield a row for each group of objects that connect installs."""
    for what, kinds in (
        ("CRDs", (CRD,)),
        ("RBAC of the functions", ("ClusterRole", "ClusterRoleBinding")),
        ("admission policies", ADMISSION),
        ("forwarder", ("Namespace", "ServiceAccount", "NetworkPolicy", "ConfigMap", "Deployment")),
    ):
        of_kinds = [obj for obj in reading.objects if obj.manifest["kind"] in kinds]
        found = [obj for obj in of_kinds if obj.state is not State.UNKNOWN_KIND]
        if found:
            yield _group(what, found)


def _group(what: str, objects: list[Object]) -> Row:
    due = [obj for obj in objects if is_due(obj)]
    if not due:
        return present(what)
    names = some(_named(obj) for obj in due)
    action = Apply(tuple(obj.manifest for obj in due))
    is_new = len(due) == len(objects) and all(obj.state is State.MISSING for obj in due)
    return made(what, names, action) if is_new else changed(what, names, action)


def is_due(object: Object) -> bool:  # noqa: A002
    """Return whether an object must be applied."""
    return not object.leave and object.state in (State.MISSING, State.DIFFERENT)


def restarted(reading: ClusterReading) -> Iterator[Row]:
    """Yield the replacement of pods without credentials. EKS injects them only after the association exists."""
    if reading.without_credentials:
        detail = f"replace {some(reading.without_credentials)}, created before the Pod Identity association"
        yield changed("pods of the forwarder", detail, RestartForwarder())


def _named(one: Object) -> str:
    """Return `Kind/name` for an object, or only the name for a CRD."""
    is_crd = one.manifest["kind"] == CRD
    return str(one.manifest["metadata"]["name"]) if is_crd else reference(one.manifest)
