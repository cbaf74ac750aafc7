"""NodePool, karpenter.sh/v1: which nodes may be bought, how many, and how they may be disrupted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.labels import PROVISIONER_NAME, Taint, is_label_value, is_temporary
from nodesmith.model.apimachinery.problems import (
    Parsed,
    ParseOnce,
    Report,
    at,
    did_you_mean,
    report_unknown_annotations,
    shown,
)
from nodesmith.model.apimachinery.quantities import NODES as NODES
from nodesmith.model.apimachinery.quantities import NOTHING, Resources, parse_resources
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements, read_requirements
from nodesmith.model.apimachinery.times import NEVER, duration_seconds
from nodesmith.model.ec2.instancetypes import GpuParts, read_gpu_parts
from nodesmith.model.hashes import content_hash, nodepool_hash, spec_digest
from nodesmith.model.karpenter.disruption import (
    BUDGET_TIMEZONE,
    MOST_AN_HOUR,
    REBALANCE_ZONES,
    SCHEDULE,
    USUAL_DISRUPTION,
    Disruption,
    Window,
    read_disruption,
    read_windows,
)
from nodesmith.model.karpenter.nodeclaims import NodeClassRef, read_taints
from nodesmith.model.policies import (
    NODE_SURCHARGE,
    RESET_LAUNCHES,
    USD_PER_HOUR,
    USD_PER_MONTH,
    read_reset,
    read_surcharge,
    read_usd,
    read_usd_of_month,
)
from nodesmith.model.schema.nodepools import NODE_POOL
from nodesmith.model.schema.reading import read_manifest

# An annotation that cannot be read affects only its own option: the problem is reported, and the default is used.
LAUNCH_TIMEOUT = "nodesmith.dev/launch-timeout"
"""On a NodePool: how long the launch of a NodeClaim is tried, 5m by default."""
REGISTRATION_TIMEOUT = "nodesmith.dev/registration-timeout"
"""On a NodePool: how long a node may take to register, 15m by default, counted from the decision to buy it."""
PROVISIONER = "nodesmith.dev/provisioner"
"""On a NodePool: the Provisioner that it was converted from."""
PROVISIONER_UID = "nodesmith.dev/provisioner-uid"
"""The uid of that Provisioner while it is still an object of the cluster. It then owns the NodeClaims."""
DAEMONSET_HOLD = "nodesmith.dev/hold-until-daemonsets"
"""On a NodePool: `true` if pods of DaemonSets start on a new node before others."""
NODE_REPAIR = "nodesmith.dev/node-repair"
"""On a NodePool: whether unhealthy nodes are replaced: `Off`, `Report` or `On`."""
REBALANCE = "nodesmith.dev/rebalance"
"""On a NodePool: what EC2's rebalance recommendations cause."""
SPOT_TYPES = "nodesmith.dev/spot-to-spot-types"
"""On a NodePool: how many types must be cheaper to move from spot to spot, or `Never`."""
GPU_PARTS = "nodesmith.dev/gpu-resources"
"""What the NVIDIA device plugin offers for each GPU; NodeClaims carry it as well."""
LIMIT_USD_PER_HOUR = "nodesmith.dev/limit-usd-per-hour"
"""The most that the nodes of the NodePool may cost an hour together."""
OBJECTIVE = "nodesmith.dev/objective"
"""On a NodePool: `LeastNodes` to have few nodes rather than a low price."""
LIMIT_USD_PER_MONTH = "nodesmith.dev/limit-usd-per-month"
"""The most that the nodes of the NodePool may cost in a calendar month together."""
_DOLLARS = {
    LIMIT_USD_PER_HOUR: (USD_PER_HOUR, read_usd),
    LIMIT_USD_PER_MONTH: (USD_PER_MONTH, read_usd_of_month),
}
_NO_LIMITS: FrozenMap[int] = FrozenMap()
_KNOWN = frozenset(
    {
        NODE_SURCHARGE,
        LAUNCH_TIMEOUT,
        REGISTRATION_TIMEOUT,
        PROVISIONER,
        PROVISIONER_UID,
        DAEMONSET_HOLD,
        NODE_REPAIR,
        REBALANCE,
        RESET_LAUNCHES,
        SPOT_TYPES,
        GPU_PARTS,
        LIMIT_USD_PER_HOUR,
        LIMIT_USD_PER_MONTH,
        OBJECTIVE,
        BUDGET_TIMEZONE,
        MOST_AN_HOUR,
        REBALANCE_ZONES,
        SCHEDULE,
    }
)
_MOST_SPOT_TYPES = 60
"""the maximum number of types that a launch may name"""
_SHORTEST, _LONGEST = timedelta(minutes=1), timedelta(hours=24)
_USUAL_HOLD, _LONGEST_HOLD = timedelta(minutes=5), timedelta(hours=1)
Value = TypeVar("Value")
Word = TypeVar("Word", bound=StrEnum)
_DURATION = re.compile(r"([0-9]+[smh])+", re.ASCII)


class NodeRepair(StrEnum):
    """What to do about unhealthy nodes."""

    OFF = "Off"
    REPORT = "Report"
    """report which nodes would be replaced, and why"""
    ON = "On"


class Rebalance(StrEnum):
    """What to do about spot instances with a rebalance recommendation from EC2."""

    IGNORE = "Ignore"
    REPLACE = "Replace"


class Objective(StrEnum):
    """What a plan for NodePools of one weight minimizes."""

    LOWEST_PRICE = "LowestPrice"
    LEAST_NODES = "LeastNodes"
    """the number of nodes, and of plans with equally many the price"""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one NodePool. Numeric defaults are Karpenter's constants."""

    node_surcharge_hourly_usd: float = 0.0
    """the cost of each node beyond its instance (licences, agents, work)"""
    launch_timeout: timedelta = timedelta(minutes=5)
    """from the decision to the instance"""
    registration_timeout: timedelta = timedelta(minutes=15)
    """from the decision to the Node"""
    provisioner: str = ""
    """the Provisioner that it was converted from, whose name its nodes carry as the label PROVISIONER_NAME"""
    provisioner_uid: str = ""
    """set while the Provisioner is an object of the cluster and this NodePool is not"""
    daemonset_hold: timedelta = timedelta(0)
    """how long at most a new node is held for the pods of its DaemonSets; 0 if it is not held"""
    node_repair: NodeRepair = NodeRepair.REPORT
    rebalance: Rebalance = Rebalance.IGNORE
    spot_types: int | None = 15
    """the number of cheaper types that replacing spot nodes with as many other spot nodes requires; None for never"""
    gpu_parts: GpuParts = ()
    """what the device plugin offers for each GPU, if that is not one `nvidia.com/gpu`"""
    limits_usd: Mapping[str, int] = _NO_LIMITS
    """the most that the nodes may cost together: `USD_PER_HOUR` or `USD_PER_MONTH` in its unit"""
    limit_fault: tuple[str, str] = ("", "")
    """a limit in dollars that cannot be read, and what would be right; nothing is bought until it can"""
    objective: Objective = Objective.LOWEST_PRICE
    """of all NodePools with its weight, as they are packed together"""
    reset_launches: str = ""
    """the last reset of the breaker against runaways that the user asked for; "" for none"""


DEFAULTS = Options()


def read_options(annotations: Mapping[str, str], report: Report) -> Options:
    """Read the options in a NodePool's annotations, and add problems to the report."""
    report_unknown_annotations(annotations, _KNOWN, "nodesmith", report)
    return Options(
        _value(annotations, NODE_SURCHARGE, 0.0, read_surcharge, report),
        _timeout(annotations, LAUNCH_TIMEOUT, DEFAULTS.launch_timeout, report),
        _timeout(annotations, REGISTRATION_TIMEOUT, DEFAULTS.registration_timeout, report),
        _provisioner(annotations, report),
        annotations.get(PROVISIONER_UID, ""),
        _hold(annotations, report),
        _word(annotations, NODE_REPAIR, DEFAULTS.node_repair, report),
        _word(annotations, REBALANCE, DEFAULTS.rebalance, report),
        _spot_types(annotations, report),
        _gpu_parts(annotations, report),
        *_limits(annotations, report),
        _word(annotations, OBJECTIVE, DEFAULTS.objective, report),
        _value(annotations, RESET_LAUNCHES, "", read_reset, report),
    )


def _value(
    annotations: Mapping[str, str], key: str, default: Value, read: Callable[[str], Value], report: Report
) -> Value:
    text = annotations.get(key)
    try:
        return default if text is None else read(text)
    except ValueError as error:
        _refuse(key, str(text), str(error), report)
    return default


def _timeout(annotations: Mapping[str, str], key: str, default: timedelta, report: Report) -> timedelta:
    text = annotations.get(key)
    if text is None:
        return default
    seconds = duration_seconds(text) if _DURATION.fullmatch(text) else None
    if seconds is not None and _SHORTEST.total_seconds() <= seconds <= _LONGEST.total_seconds():
        return timedelta(seconds=seconds)
    minutes = f"{default.seconds // 60}m"
    _refuse(key, text, f"must be a duration of 1m to 24h, such as 20m or 1h30m; treated as {minutes}", report)
    return default


def _provisioner(annotations: Mapping[str, str], report: Report) -> str:
    name = annotations.get(PROVISIONER, "")
    if is_label_value(name):
        return name
    _refuse(PROVISIONER, name, "must be the name of a Provisioner, at most 63 characters", report)
    return ""


def _hold(annotations: Mapping[str, str], report: Report) -> timedelta:
    text = annotations.get(DAEMONSET_HOLD, "false")
    if text in {"true", "false"}:
        return _USUAL_HOLD if text == "true" else DEFAULTS.daemonset_hold
    seconds = duration_seconds(text) if _DURATION.fullmatch(text) else None
    if seconds is not None and 0 < seconds <= _LONGEST_HOLD.total_seconds():
        return timedelta(seconds=seconds)
    remedy = (
        "must be true, false, or the longest time a node may be held, up to 1h, such as 2m; treated as false"
    )
    _refuse(DAEMONSET_HOLD, text, remedy, report)
    return DEFAULTS.daemonset_hold


def _word(annotations: Mapping[str, str], key: str, default: Word, report: Report) -> Word:
    """Read a member of the enumeration that `default` belongs to."""
    text, kind = annotations.get(key, default.value), type(default)
    if text in set(kind):
        return kind(text)
    *words, last = kind
    choices = f"{', '.join(words)} or {last}"
    hint = did_you_mean(text, frozenset(kind))
    _refuse(key, text, f"must be {choices}{hint}; treated as {default}", report)
    return default


def _spot_types(annotations: Mapping[str, str], report: Report) -> int | None:
    text = annotations.get(SPOT_TYPES, str(DEFAULTS.spot_types))
    if text == NEVER:
        return None
    if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= _MOST_SPOT_TYPES:
        return int(text)
    default = DEFAULTS.spot_types
    remedy = f"must be Never or a number of instance types from 1 to {_MOST_SPOT_TYPES}; treated as {default}"
    _refuse(SPOT_TYPES, text, remedy, report)
    return DEFAULTS.spot_types


def _gpu_parts(annotations: Mapping[str, str], report: Report) -> GpuParts:
    text = annotations.get(GPU_PARTS)
    parts = read_gpu_parts(text) if text is not None else ()
    if parts is None:
        remedy = (
            "must be resources for each GPU, such as nvidia.com/gpu=4 or nvidia.com/mig-1g.10gb=7; ignored"
        )
        _refuse(GPU_PARTS, text or "", remedy, report)
    return parts or ()


def _limits(annotations: Mapping[str, str], report: Report) -> tuple[Mapping[str, int], tuple[str, str]]:
    """Read the limits in dollars, and the first fault. Money must be bounded whatever the cause."""
    limits: dict[str, int] = {}
    fault = "", ""
    for key, (resource, read) in _DOLLARS.items():
        text = annotations.get(key)
        if text is None:
            continue
        try:
            limits[resource] = read(text)
        except ValueError as error:
            _refuse(key, text, f"{error}; nothing is bought until it can be read", report)
            fault = fault if fault[0] else (f"metadata.annotations[{key}] is {shown(text)}", str(error))
    return FrozenMap(limits), fault


def _refuse(key: str, text: str, remedy: str, report: Report) -> None:
    report.add(at("metadata.annotations", key), shown(text), remedy, fatal=False)


@dataclass(frozen=True, slots=True)
class NodePool:
    """A NodePool with its defaults filled in."""

    name: str
    nodeclass: NodeClassRef
    requirements: Requirements = NO_REQUIREMENTS
    labels: Mapping[str, str] = NO_ITEMS
    """From `spec.template.metadata`, like `annotations`."""
    annotations: Mapping[str, str] = NO_ITEMS
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str = "720h"
    """Maximum age of a node, or `Never`."""
    termination_grace_period: str | None = None
    """How long a drain may take before the remaining pods are deleted; None for as long as it takes."""
    disruption: Disruption = USUAL_DISRUPTION
    limits: Resources = NOTHING
    """Limits, including `NODES`. A resource that is not named is not limited; 0 allows nothing."""
    weight: int = 0
    replicas: int | None = None
    options: Options = DEFAULTS
    """The options in nodesmith's annotations."""
    windows: tuple[Window, ...] | None = None
    """When it has nodes; None for always."""
    uid: str = ""
    generation: int = 0
    hash: str = ""
    """Karpenter's hash of the fields whose change replaces nodes (static drift)."""
    content: str = ""
    """Hash of the whole object, see `content_hash`."""
    spec: str = ""
    """Digest of its spec, see `spec_digest`."""
    deleting: bool = False

    @property
    def owner_uid(self) -> str:
        """The uid of the owner of its NodeClaims: itself or the Provisioner that it was converted from, or empty."""
        return self.uid or self.options.provisioner_uid

    @property
    def node_surcharge_hourly_usd(self) -> float:
        """The cost of each node beyond its instance."""
        return self.options.node_surcharge_hourly_usd

    @property
    def is_static(self) -> bool:
        """True if the NodePool keeps a fixed number of nodes, regardless of pods."""
        return self.replicas is not None


def parse_nodepool(manifest: Mapping[str, object]) -> Parsed[NodePool]:
    """Read a NodePool and report all of its problems. Never raises."""
    read = read_manifest(NODE_POOL, manifest)
    if read.report.fatal:
        return Parsed(None, read.report.problems)
    annotations = read.metadata.get("annotations", {})
    options = read_options(annotations, read.report)
    template = read.spec["template"]
    fields = _template(template.get("metadata", {}), template["spec"])
    if options.provisioner:
        fields["labels"] = FrozenMap({**fields["labels"], PROVISIONER_NAME: options.provisioner})
    pool = NodePool(
        **read.identity,
        **fields,
        disruption=read_disruption(
            read.spec["disruption"], annotations, read.report, of_old=bool(options.provisioner)
        ),
        limits=parse_resources(read.spec.get("limits")),
        weight=read.spec.get("weight", 0),
        replicas=read.spec.get("replicas"),
        hash=nodepool_hash(template),
        content=content_hash(read),
        spec=spec_digest(read),
        options=options,
        windows=read_windows(annotations, read.report),
    )
    return Parsed(pool, read.report.problems)


parse_nodepools = ParseOnce(parse_nodepool)


def parsed_nodepools(manifests: tuple[Mapping[str, object], ...]) -> dict[str, NodePool]:
    """Return the NodePools that can be read, by name."""
    pools = (parsed.value for parsed in parse_nodepools(manifests))
    return {pool.name: pool for pool in pools if pool is not None}


def rebalances_zones(pools: Iterable[NodePool]) -> bool:
    """Return whether any NodePool asks for zone rebalancing. If so, moves of all NodePools respect it."""
    return any(pool.disruption.rebalances_zones for pool in pools)


def _template(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the template. Taints that nodes lose by Cluster Autoscaler's rules are startup taints."""
    taints, startup = read_taints(spec.get("taints", ())), read_taints(spec.get("startupTaints", ()))
    return {
        "labels": FrozenMap(metadata.get("labels")),
        "annotations": FrozenMap(metadata.get("annotations")),
        "nodeclass": NodeClassRef(**spec["nodeClassRef"]),
        "requirements": read_requirements(spec["requirements"]),
        "taints": tuple(taint for taint in taints if not is_temporary(taint)),
        "startup_taints": (*startup, *filter(is_temporary, taints)),
        "expire_after": spec["expireAfter"],
        "termination_grace_period": spec.get("terminationGracePeriod"),
    }
