"""The NodePool of a group: its labels, taints, types, sizes and how its nodes are renewed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodesmith.model.apimachinery.labels import (
    ARCH,
    CAPACITY_TYPE,
    OS,
    PARTITION,
    RESERVED,
    TENANCY,
    WELL_KNOWN,
    is_label_value,
    normalised,
    restriction,
)
from nodesmith.model.apimachinery.quantities import QuantityError, parse_resources
from nodesmith_cli.migration.nodegroups.fields import Account, Path
from nodesmith_cli.migration.nodegroups.groups import NODEGROUP, SCALING_GROUP, TEMPLATE, Group, GroupContext
from nodesmith_cli.migration.nodegroups.nodeclasses import GeneratedNodeClass, nodeclass_of
from nodesmith_cli.migration.nodegroups.types import allows, capacity_types, type_requirements

IDENTITY_LABELS = (
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kops.k8s.io/instancegroup",
)
"""Labels whose value is the name of the group."""
_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
_NODE_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
_STARTING = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "node.cilium.io/",
)
_OF_TYPES = ("cpu", "memory", "ephemeral-storage", "pods")
_TAGS = (SCALING_GROUP, "Tags")
_MIN = "nodes exist while pods need them: for room in advance create a CapacityBuffer, or a NodePool with replicas"
_UNNEEDED_TIME = "10m"
"""How long Cluster Autoscaler leaves an unneeded node alone by default."""
_DURATION = re.compile(r"^([0-9]+(s|m|h))+$")
_LB = "register the target group by the AWS Load Balancer Controller (TargetGroupBinding) instead"
_SCALING_LOSSES: Mapping[str, str] = {
    "HealthCheckType": "nodesmith observes Nodes and instances: see nodesmith.dev/node-repair",
    "LoadBalancerNames": _LB,
    "TargetGroupARNs": _LB,
    "TrafficSources": _LB,
    "WarmPoolConfiguration": "nodes are never stopped and started: create a CapacityBuffer for room in advance",
    "NewInstancesProtectedFromScaleIn": "protect pods by karpenter.sh/do-not-disrupt",
    "DeletionProtection": "no one deletes a NodePool but you",
    "InstanceLifecyclePolicy": "lifecycle hooks have no equal: use startup taints, or preStop hooks of pods",
}
_SCALING_QUIET: Mapping[str, str] = {
    "DefaultCooldown": "a cooldown",
    "HealthCheckGracePeriod": "a time to start, instead of which nodes have nodesmith.dev/registration-timeout",
    "DefaultInstanceWarmup": "a warm-up time",
    "DesiredCapacityType": "a unit of sizes",
    "TerminationPolicies": "nodes are removed by what that saves and disrupts",
    "SuspendedProcesses": "processes of EC2 Auto Scaling",
    "EnabledMetrics": "metrics of the group",
    "AvailabilityZoneDistribution": "pods decide about zones, by their topology spread",
    "AvailabilityZoneImpairmentPolicy": "nodesmith follows zonal shifts of the cluster",
    "InstanceMaintenancePolicy": "replacements are launched before nodes are removed",
}
_IDENTITY: Mapping[Path, str] = {
    **{
        (NODEGROUP, name): "the group's identity or state"
        for name in "nodegroupName nodegroupArn clusterName createdAt modifiedAt status resources health".split()
    },
    **{
        (SCALING_GROUP, name): "the group's identity or state"
        for name in (
            "AutoScalingGroupName AutoScalingGroupARN CreatedTime Status PredictedCapacity ServiceLinkedRoleARN "
            "WarmPoolSize LaunchConfigurationName LaunchTemplate Instances Operator"
        ).split()
    },
    (NODEGROUP, "launchTemplate"): "the reference to the launch template, whose fields are listed",
}


@dataclass(slots=True)
class Converted:
    """A group as a NodePool and an EC2NodeClass, without their names. `sizes` is the limit of nodes."""

    group: Group
    account: Account
    pool: dict[str, Any]
    nodeclass: dict[str, Any]
    annotations: dict[str, str] = field(default_factory=dict)
    capacity: dict[str, str] = field(default_factory=dict)
    """extended resources for a NodeOverlay"""
    limit: int | None = None
    identity: dict[str, str] = field(default_factory=dict)
    """the labels with the group's name that pods select by"""


def converted(group: Group, context: GroupContext) -> Converted | str:
    """Return the objects of a group, or the reason why it has none. Every field of the group is accounted for."""
    account = Account(group.sources)
    made = nodeclass_of(group, context, account)
    if isinstance(made, str):
        return made
    requirements, unknown = type_requirements(account, context.catalog)
    if unknown:
        return unknown
    result = Converted(group, account, {}, made.spec)
    requirements = [*_base(made, account, made.spec), *requirements, *_placement(account)]
    labels, taints, startup = _labels(result, made, context), *_taints(made, account)
    result.pool = {
        "template": {
            **({"metadata": {"labels": labels}} if labels else {}),
            "spec": {
                **({"taints": taints} if taints else {}),
                **({"startupTaints": startup} if startup else {}),
                "requirements": requirements,
                "expireAfter": _expiry(account),
            },
        },
        "disruption": _disruption(result),
    }
    _sizes(result)
    _repair(result)
    _tags(result)
    for name, remedy in _SCALING_LOSSES.items():
        is_default = account.get(SCALING_GROUP, name) in (False, "EC2", "none", [], {})
        account.lost((SCALING_GROUP, name), remedy, is_quiet=is_default)
    account.lost((NODEGROUP, "warmPoolConfig"), _SCALING_LOSSES["WarmPoolConfiguration"])
    for name, purpose in _SCALING_QUIET.items():
        account.lost((SCALING_GROUP, name), f"{purpose}: nothing to do", is_quiet=True)
    _health(account)
    account.about(_IDENTITY)
    for path in ((SCALING_GROUP, "MixedInstancesPolicy", "LaunchTemplate", "LaunchTemplateSpecification"),):
        account.about({path: "the reference to the launch template, whose fields are listed"})
    return result


def _health(account: Account) -> None:
    """Report a group that is converted although it is not well: its nodes' problems may be those of new nodes."""
    if account.get(NODEGROUP, "status") == "DEGRADED":
        reason = (
            "the group is DEGRADED: new nodes may meet what its health issues name, so resolve them first"
        )
        account.lost((NODEGROUP, "status"), reason)
        account.lost((NODEGROUP, "health"), reason)


def _base(
    generated_nodeclass: GeneratedNodeClass, account: Account, nodeclass: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    arch = generated_nodeclass.images.arch
    if arch:
        yield allows(ARCH, arch)
    yield allows(OS, "windows" if generated_nodeclass.images.is_windows else "linux")
    allowed_types = capacity_types(account)
    if nodeclass.get("capacityReservationSelectorTerms") and RESERVED not in allowed_types:
        allowed_types = [RESERVED, *allowed_types]
    yield allows(CAPACITY_TYPE, *allowed_types)


def _placement(account: Account) -> Iterator[dict[str, Any]]:
    tenancy = account.get(TEMPLATE, "Placement", "Tenancy")
    path = (TEMPLATE, "Placement", "Tenancy")
    if tenancy == "dedicated":
        yield allows(TENANCY, "dedicated")
        account.record_kept(path, f"NodePool requirement {TENANCY} In dedicated")
    elif tenancy == "host":
        account.lost(path, "dedicated hosts cannot be chosen: keep the group for them")
    else:
        account.record_kept(path, "shared hardware, as by default")
    number = account.get(TEMPLATE, "Placement", "PartitionNumber")
    account.record_kept((TEMPLATE, "Placement", "PartitionNumber"), f"NodePool requirement {PARTITION}")
    if number:
        yield allows(PARTITION, str(number))


def _labels(
    result: Converted, generated_nodeclass: GeneratedNodeClass, context: GroupContext
) -> dict[str, str]:
    """Return the labels that a NodePool may set. The group's name is a requirement, if pods select by it."""
    account, group = result.account, result.group
    labels: dict[str, str] = {}
    given = account.get(NODEGROUP, "labels") or {}
    implied = {IDENTITY_LABELS[0]: group.name} if group.is_managed else {}
    for key, value in {**implied, **generated_nodeclass.user_data.labels, **given}.items():
        path = (NODEGROUP, "labels", key)
        if key in IDENTITY_LABELS:
            _identity(result, key, str(value), context)
        elif reason := _refused(key, str(value)):
            account.lost(path, reason)
        else:
            labels[key] = str(value)
            account.record_kept(path, "NodePool spec.template.metadata.labels")
    for tag in account.get(*_TAGS) or []:
        kind, _, key = str(tag["Key"]).removeprefix(_NODE_TEMPLATE).partition("/")
        value = str(tag.get("Value") or "")
        if tag["Key"].startswith(_NODE_TEMPLATE) and kind == "label" and key not in labels:
            if key in IDENTITY_LABELS:
                _identity(result, key, value, context)
            elif not _refused(key, value):
                labels[key] = value
    return dict(sorted(labels.items()))


def _identity(result: Converted, key: str, value: str, context: GroupContext) -> None:
    path = (NODEGROUP, "labels", key)
    if key in context.selected:
        result.identity[key] = value
        result.account.record_kept(path, f"NodePool requirement {key} In {value}, since pods select by it")
        return
    reason = (
        "new nodes do not carry it, so that the group's nodes can be selected for draining; "
        "no pod read selects by it"
    )
    result.account.lost(path, reason, is_quiet=True)


def _refused(key: str, value: str) -> str:
    if normalised(key) in WELL_KNOWN:
        return "each node gets this label from its instance: set a requirement if pods need one value"
    if reason := restriction(key):
        return reason
    return "" if is_label_value(value) else "the value is not valid for a label"


def _taints(
    generated_nodeclass: GeneratedNodeClass, account: Account
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return taints and startup taints, which a group does not distinguish."""
    taints: dict[tuple[str, str], dict[str, str]] = {}
    for taint in account.get(NODEGROUP, "taints") or []:
        effect = _EFFECTS.get(str(taint.get("effect")), str(taint.get("effect")))
        value = {"value": taint["value"]} if taint.get("value") else {}
        taints[taint["key"], effect] = {"key": taint["key"], **value, "effect": effect}
    for taint in (*generated_nodeclass.user_data.taints, *_tagged_taints(account)):
        if taint.get("key") and taint.get("effect") in _EFFECTS.values():
            taints.setdefault((taint["key"], taint["effect"]), taint)
    account.record_kept((NODEGROUP, "taints"), "NodePool spec.template.spec.taints")
    starting = [taint for taint in taints.values() if _is_starting(taint["key"])]
    return [taint for taint in taints.values() if taint not in starting], starting


def _is_starting(key: str) -> bool:
    """Return whether a taint is one that a known component removes while the node starts."""
    return key.startswith(_STARTING) or key.endswith("/agent-not-ready")


def _tagged_taints(account: Account) -> Iterator[dict[str, str]]:
    for tag in account.get(*_TAGS) or []:
        if tag["Key"].startswith(f"{_NODE_TEMPLATE}taint/"):
            value, _, effect = str(tag.get("Value") or "").rpartition(":")
            key = tag["Key"].removeprefix(f"{_NODE_TEMPLATE}taint/")
            yield {"key": key, **({"value": value} if value else {}), "effect": effect}


def _sizes(result: Converted) -> None:
    """Turn sizes into a limit of nodes, or into replicas if the group always has the same size."""
    account = result.account
    paths = {
        name: next(
            path
            for path in ((NODEGROUP, "scalingConfig", managed), (SCALING_GROUP, own))
            if account.get(*path) is not None or path[0] == SCALING_GROUP
        )
        for name, managed, own in (
            ("min", "minSize", "MinSize"),
            ("max", "maxSize", "MaxSize"),
            ("desired", "desiredSize", "DesiredCapacity"),
        )
    }
    least, most = (account.get(*paths[name]) for name in ("min", "max"))
    if least and least == most:
        result.pool["replicas"] = least
        for name in paths:
            account.record_kept(paths[name], f"NodePool spec.replicas: {least}")
        return
    if most is not None:
        result.limit = int(most)
        account.record_kept(paths["max"], f"NodePool spec.limits.nodes: {most}")
    if least:
        account.lost(paths["min"], f"{_MIN}; it was {least}")
    else:
        account.record_kept(paths["min"], "a NodePool shrinks to no node")
    account.changed(paths["desired"], "", "pods decide how many nodes there are", is_quiet=True)


def _expiry(account: Account) -> str:
    seconds = int(account.get(SCALING_GROUP, "MaxInstanceLifetime") or 0)
    path = (SCALING_GROUP, "MaxInstanceLifetime")
    if not seconds:
        account.record_kept(path, "NodePool spec.template.spec.expireAfter: Never")
        return "Never"
    account.record_kept(path, f"NodePool spec.template.spec.expireAfter: {seconds}s")
    return f"{seconds}s"


def _disruption(result: Converted) -> dict[str, Any]:
    account = result.account
    update: Mapping[str, Any] = account.get(NODEGROUP, "updateConfig") or {}
    share, count = update.get("maxUnavailablePercentage"), update.get("maxUnavailable")
    nodes = f"{share}%" if share else str(count or "")
    became = f"NodePool spec.disruption.budgets: {nodes} for drift"
    for name in ("maxUnavailable", "maxUnavailablePercentage"):
        account.record_kept((NODEGROUP, "updateConfig", name), became)
    reason = "replacements are launched before nodes are drained"
    account.changed((NODEGROUP, "updateConfig", "updateStrategy"), "", reason, is_quiet=True)
    budgets = [
        {"nodes": nodes, "reasons": ["Drifted"]},
        {"nodes": "10%", "reasons": ["Empty", "Underutilized"]},
    ]
    return {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": _UNNEEDED_TIME,
        **({"budgets": budgets} if nodes else {}),
    }


def _repair(result: Converted) -> None:
    account = result.account
    enabled = account.get(NODEGROUP, "nodeRepairConfig", "enabled")
    if enabled:
        result.annotations["nodesmith.dev/node-repair"] = "On"
    account.record_kept(
        (NODEGROUP, "nodeRepairConfig", "enabled"),
        "NodePool annotation nodesmith.dev/node-repair: On" if enabled else "off, as by default",
    )
    reason = "nodesmith has thresholds and policies of its own, see the page about repair"
    config = account.get(NODEGROUP, "nodeRepairConfig") or {}
    for name in config:
        account.lost((NODEGROUP, "nodeRepairConfig", name), reason)
    if account.get(SCALING_GROUP, "CapacityRebalance"):
        result.annotations["nodesmith.dev/rebalance"] = "Replace"
    account.record_kept((SCALING_GROUP, "CapacityRebalance"), "NodePool annotation nodesmith.dev/rebalance")


def _tags(result: Converted) -> None:
    """Account for a group's tags as one field, with what each kind of them became."""
    notes: list[str] = []
    for tag in result.account.get(*_TAGS) or []:
        key, value = str(tag["Key"]), str(tag.get("Value") or "")
        if not key.startswith(_NODE_TEMPLATE):
            continue
        kind, _, name = key.removeprefix(_NODE_TEMPLATE).partition("/")
        if kind == "resources":
            notes += _resource(result, name, value)
        elif kind == "autoscaling-options":
            notes += _option(result, name.lower().replace("-", ""), value)
        elif kind == "label" and (reason := _refused(name, value)) and name not in IDENTITY_LABELS:
            notes.append(f"label {name}: {reason}")
    became = "NodePool labels, taints and settings, EC2NodeClass spec.tags"
    if notes:
        result.account.changed(_TAGS, became, "; ".join(notes))
    else:
        result.account.record_kept(_TAGS, became)


def _resource(result: Converted, name: str, value: str) -> Sequence[str]:
    if name in _OF_TYPES:
        return [] if name != "ephemeral-storage" else ["ephemeral-storage is that of the volumes"]
    try:
        parse_resources({name: value})
    except QuantityError:
        return [f"resource {name}: {value!r} is not a quantity"]
    if name in ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "vpc.amazonaws.com/efa"):
        return []
    result.capacity[name] = value
    return [f"resource {name} is stated by a NodeOverlay"]


def _option(result: Converted, name: str, value: str) -> Sequence[str]:
    if name == "scaledownunneededtime" and _DURATION.match(value):
        result.pool["disruption"]["consolidateAfter"] = value
        return []
    if name == "maxnodeprovisiontime" and _DURATION.match(value):
        result.annotations["nodesmith.dev/registration-timeout"] = value
        return []
    return [f"option {name}: {value} has no equal, since nodes are removed by what that saves"]
