"""Pods, the shapes that identical pods share, and the reasons why pods cannot be placed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.problems import Problem, at, shown
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements, Selector
from nodesmith.model.apimachinery.resources import NOTHING, PODS, Resources, parse_resources, total
from nodesmith.model.apimachinery.taints import Taint, Toleration, first_untolerated
from nodesmith.model.apimachinery.times import nanoseconds
from nodesmith.model.kubernetes.devices import PodClaim
from nodesmith.model.policies import NODE_SURCHARGE, read_surcharge

DEFAULT_GRACE_SECONDS = 30
LEAST_PRIORITY = -(2**31) - 1
"""Below the priority of every pod that an API server accepts, and so of planned pods that keep room for others."""
CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint. `hard` means DoNotSchedule. With `selector` None, it counts no pods."""

    topology_key: str
    max_skew: int
    hard: bool
    selector: Selector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False

    def selects(self, other: Shape, namespace: str) -> bool:
        """Return whether the constraint of a pod in `namespace` counts pods of the shape `other`."""
        return (
            self.selector is not None and other.namespace == namespace and self.selector.matches(other.labels)
        )


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A pod affinity or anti-affinity term: required if `weight` is 0, else preferred (1-100).

    `namespaces` are those whose pods it selects from, None for all. With `selector` None, it selects no pods.
    """

    topology_key: str
    selector: Selector | None
    anti: bool
    namespaces: frozenset[str] | None
    weight: int = 0

    def selects(self, other: Shape) -> bool:
        """Return whether it selects pods of a shape."""
        return (
            self.selector is not None
            and (self.namespaces is None or other.namespace in self.namespaces)
            and self.selector.matches(other.labels)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Everything about a pod that decisions use, except for its name, age and node.

    Shapes are compared by identity: each snapshot has one object for each shape, and lookups are very frequent.

    `own_terms` are the alternatives of the required node affinity, each already intersected with the node selector.
    `terms` are the same, narrowed to where the pod's volumes are reachable; one of them must hold. (A spread counts
    pods on all nodes that `own_terms` allow.) `preferred_terms` are the preferred node affinity: weight (1-100) and
    term. `owner` is `Kind/name`. `grace_seconds` is the termination grace period. `critical` is True if the priority
    class is one of the two that Kubernetes reserves for critical components of a cluster or node. If
    `shuns_soft_taints` is True, PreferNoSchedule counts as NoSchedule when nodes are bought. `refusal` is why no node
    can be provisioned for these pods, whatever the NodePools offer, empty if there is no such reason.
    """

    namespace: str
    labels: Mapping[str, str]
    owner: str = ""
    requests: Resources = NOTHING
    terms: tuple[Requirements, ...] = (NO_REQUIREMENTS,)
    own_terms: tuple[Requirements, ...] = (NO_REQUIREMENTS,)
    tolerations: tuple[Toleration, ...] = ()
    spreads: tuple[Spread, ...] = ()
    affinities: tuple[PodAffinityTerm, ...] = ()
    preferred_terms: tuple[tuple[int, Requirements], ...] = ()
    host_ports: tuple[tuple[str, int, str], ...] = ()
    priority: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""
    shuns_soft_taints: bool = False
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    critical: bool = False
    claims: tuple[PodClaim, ...] = ()
    """Claims to devices. No node takes the pods until `scheduling.devices` turns these into requests and terms."""
    devices: str = ""
    """What its claims asked for, once they are turned into requests and terms: `2 of gpu.example.com`."""
    drivers: frozenset[str] = frozenset()
    """The drivers of devices that its claims may get."""

    @property
    def is_daemon(self) -> bool:
        return self.owner.startswith("DaemonSet/")

    @property
    def is_static(self) -> bool:
        """True for mirror pods of static pods, whose owner is their node."""
        return self.owner.startswith("Node/")

    @property
    def moves(self) -> bool:
        """Whether such pods need another node when theirs goes: all except DaemonSet and static pods."""
        return not (self.is_daemon or self.is_static)

    @property
    def comes_back(self) -> bool:
        """True for pods of a StatefulSet, which creates the same pod again only once it is gone."""
        return self.owner.startswith("StatefulSet/")

    @property
    def is_room(self) -> bool:
        """True for planned pods that keep room for others. They never run, so they are never evicted."""
        return self.priority <= LEAST_PRIORITY

    def untolerated(self, taints: Iterable[Taint]) -> Taint | None:
        """Return the first taint of a new node that these pods do not tolerate, None if they tolerate all."""
        return first_untolerated(taints, self.tolerations, soft=self.shuns_soft_taints)


Manifest = Mapping[str, Any]
_ONE_POD = Resources({PODS: 1})


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `key` is `namespace/name`, and `node` is the name of the node that it is bound to, or empty.

    `unschedulable` is kube-scheduler's verdict: PodScheduled has the reason Unschedulable. `nominated_node` is the node
    on which kube-scheduler has reserved room for a pod that is not bound yet, mostly by preempting others. `deleting`
    is True if the pod has a deletionTimestamp, and `deletion_at` is that timestamp: when its grace period ends.
    `started_at` (status.startTime) is set if a decision depends on it. `ready` is the pod's Ready condition.
    `startup_minutes` is how long the pod takes to become ready if that is long, see `observation.reduction.startups`.
    `refusal` is why no node fits this pod; `Shape.refusal` is the same for all pods of its shape.
    """

    key: str
    shape: Shape
    created_at: datetime
    node: str = ""
    unschedulable: bool = False
    nominated_node: str = ""
    deleting: bool = False
    refusal: str = ""
    deletion_at: datetime | None = None
    started_at: datetime | None = None
    ready: bool = True
    startup_minutes: int = 0


_PLANNED = "~"
"""Part of the keys of planned pods. No object of Kubernetes has it in its name."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod template of an object of the cluster, with the shape of the pods that would be created from it.

    The shape has no volumes, and the changes that LimitRanges and the RuntimeClass make at admission are part of it.
    """

    kind: str
    name: str
    shape: Shape
    generation: int = 0
    replicas: int = 0
    """How many pods the object wants; 0 for a PodTemplate, which wants none."""
    images: tuple[str, ...] = ()
    """The images of its containers; empty unless a CapacityBuffer wants them pulled in advance."""

    @property
    def key(self) -> str:
        """`Kind/namespace/name`."""
        return f"{self.kind}/{self.shape.namespace}/{self.name}"


GROWING = ("ReplicaSet", "StatefulSet", "Job")
"""The kinds whose controllers create as many pods as their size says."""
_GROWING = frozenset(kind.lower() for kind in GROWING)
LACKING_FOR = timedelta(minutes=5)
"""How long after a workload's growth its missing pods are planned. A controller creates 5,000 pods in that time."""


@dataclass(frozen=True, slots=True)
class GrownWorkload:
    """A workload of a namespace with proactive scale-up whose controller is still to create pods.

    `lacking` is how many are missing of those that it wants since it has grown at `grown_at`.
    """

    template: PodTemplate
    lacking: int
    grown_at: datetime

    def pods(self, most: int, now: datetime) -> list[Pod]:
        """Return at most `most` of the missing pods, as if they had just been created and waited for a node.

        After further growth they have other keys, so that they do not count as those that nodes were bought for.
        """
        about = self.template
        names = about.kind.lower(), about.name, f"{int(self.grown_at.timestamp()):x}"
        stem = f"{about.shape.namespace}/{_PLANNED.join(names)}"
        keys = (f"{stem}{_PLANNED}{number}" for number in range(min(self.lacking, most)))
        return [Pod(key, about.shape, now, unschedulable=True) for key in keys]


def planned_pods(
    template: PodTemplate, owner: str, count: int, created_at: datetime, priority: int
) -> list[Pod]:
    """Return `count` pods that do not exist, as if they waited for a node. They share one shape.

    `owner` is `Kind/name` of the object that asks for them, in the template's namespace.
    """
    shape = replace(template.shape, owner=owner, priority=priority)
    stem = f"{shape.namespace}/{owner.lower().replace('/', _PLANNED)}"
    keys = (f"{stem}{_PLANNED}{number}" for number in range(count))
    return [Pod(key, shape, created_at, unschedulable=True) for key in keys]


def is_planned(key: str) -> bool:
    """Return whether a pod's key (namespace/name) is that of a planned pod."""
    return _PLANNED in key


def is_forthcoming(key: str) -> bool:
    """Return whether a pod's key (namespace/name) is that of a pod that a workload is about to create."""
    return key.partition("/")[2].partition(_PLANNED)[0] in _GROWING and is_planned(key)


# Requests follow kube-scheduler (k8s.io/component-helpers, resource.PodRequests). The requests of containers and
# restartable init containers (sidecars) are added. An ordinary init container needs its own requests plus those of
# the sidecars that start before it. The larger of both counts. Pod-level requests replace the sum, and pod-level
# limits are used for resources that no container requests. The runtime class's overhead is added. While a
# container is resized in place, the larger of its requested and its allocated resources counts.
def pod_requests(spec: Manifest, container_statuses: Sequence[Manifest] = ()) -> Resources:
    """Return the resources that a pod uses on a node, including the pod itself (`pods: 1`). Raises QuantityError."""
    allocated = {
        str(status.get("name")): _allocated(status)
        for status in container_statuses
        if status.get("allocatedResources") or (status.get("resources") or {}).get("requests")
    }
    containers = total([_container(c, allocated) for c in spec.get("containers") or ()])
    effective = _with_init_containers(containers, spec.get("initContainers") or (), allocated)
    own = spec.get("resources") or {}
    limits, requests = parse_resources(own.get("limits")), parse_resources(own.get("requests"))
    effective = Resources({**limits.amounts, **effective.amounts, **requests.amounts})
    return effective + parse_resources(spec.get("overhead")) + _ONE_POD


def _with_init_containers(
    containers: Resources, init_containers: Sequence[Manifest], allocated: Mapping[str, Resources]
) -> Resources:
    sidecars, peak = NOTHING, NOTHING
    for container in init_containers:
        needed = _container(container, allocated)
        if container.get("restartPolicy") == "Always":
            sidecars = sidecars + needed
            peak = peak.at_least(sidecars)
        else:
            peak = peak.at_least(sidecars + needed)
    return (containers + sidecars).at_least(peak)


def _container(container: Manifest, allocated: Mapping[str, Resources]) -> Resources:
    return _requests(container.get("resources") or {}).at_least(
        allocated.get(container.get("name", ""), NOTHING)
    )


def _requests(resources: Manifest) -> Resources:
    """Return the requests. A limit without a request counts as the request, which is the API server's default."""
    return Resources(
        {
            **parse_resources(resources.get("limits")).amounts,
            **parse_resources(resources.get("requests")).amounts,
        }
    )


def _allocated(status: Manifest) -> Resources:
    actual = parse_resources((status.get("resources") or {}).get("requests"))
    return parse_resources(status.get("allocatedResources")).at_least(actual)


OPTED_OUT = "opted out"
"""Start of the reason for pods that exclude nodes of NodePools."""
CONTRADICT = "contradict each other on"
NOT_ALL_VOLUMES = "no node reaches all its volumes"
"""Part of the reason for pods whose own constraints exclude every node, whatever the NodePools offer"""


@dataclass(frozen=True, slots=True, order=True)
class Reason:
    """Why pods cannot be placed. `text` explains it to users in a sentence, and may already end with the fix.

    `fix` is what would help, empty if unknown. `nodepool` is the NodePool that came closest to accepting the pods, and
    `blocking` is the one obstacle there, such as `taint gpu=true:NoSchedule`, `requirement kubernetes.io/arch In
    [arm64]`, `resource cpu` or `limit nodes`. Both are empty if there is none.
    """

    text: str
    nodepool: str = ""
    blocking: str = ""
    fix: str = ""

    def __str__(self) -> str:
        return self.text if self.text.endswith(self.fix) else f"{self.text}; {self.fix}"


SCALE_UP_DELAY = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
"""On a pod: how long after its creation no node is bought for it, as a Go duration."""
ON_DEMAND_BASE, ON_DEMAND_PERCENT = "nodesmith.dev/on-demand-base", "nodesmith.dev/on-demand-percent"
"""On a pod: how many pods of its controller, and how many percent of them, stay off spot: see `Split`."""
PROACTIVE = "nodesmith.dev/proactive-scale-up"
"""On a Namespace: `true` if its workloads' pods are planned before they exist. On a workload: `false` leaves it out."""
DAEMON_EVICTION = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"
"""On a pod of a DaemonSet: whether it is evicted when its node is drained."""


def scale_up_delay(text: str | None) -> timedelta | None:
    """Return the length of a SCALE_UP_DELAY, zero without one; None if it is not a Go duration.

    A negative duration is no delay, as in Cluster Autoscaler.
    """
    if text is None or text in _ZEROS:
        return timedelta()
    if len(text) > _LONGEST_DELAY or not _GO_DURATION.fullmatch(text):
        return None
    length = timedelta(microseconds=nanoseconds(text) // 1000)
    return timedelta() if text.startswith("-") else length


_ZEROS = frozenset({"0", "+0", "-0"})
"""The durations that need no unit in Go."""
_LONGEST_DELAY = 64
_GO_DURATION = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
# Annotations that protect from disruption beside Karpenter's current one. Two others of Cluster Autoscaler have no
# meaning here: `safe-to-evict: "true"` and `safe-to-evict-local-volumes` remove protections that only Cluster
# Autoscaler has.
POD_PROTECTIONS: Mapping[str, str] = {
    "karpenter.sh/do-not-evict": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotation on a pod → the value with the meaning of DO_NOT_DISRUPT."""
NODE_PROTECTIONS: Mapping[str, str] = {
    "karpenter.sh/do-not-consolidate": "true",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
}


def surcharge_of(shape: Shape) -> float:
    """Return what each node with a DaemonSet's pod costs beyond its instance, USD an hour; 0 if it cannot be read."""
    text = shape.annotations.get(NODE_SURCHARGE)
    try:
        return read_surcharge(text) if text is not None else 0.0
    except ValueError:
        return 0.0


def surcharge_problems(daemonsets: Iterable[Shape]) -> Iterator[Problem]:
    """Yield the surcharges of DaemonSets that cannot be read."""
    for shape in daemonsets:
        text = shape.annotations.get(NODE_SURCHARGE)
        try:
            read_surcharge("0" if text is None else text)
        except ValueError as error:
            name = f"DaemonSet/{shape.namespace}/{shape.owner.removeprefix('DaemonSet/')}"
            yield Problem(name, at("metadata.annotations", NODE_SURCHARGE), shown(text), str(error), False)


SPLITS = frozenset((ON_DEMAND_BASE, ON_DEMAND_PERCENT))
_MOST_OF_SPLIT = {ON_DEMAND_BASE: 1_000_000, ON_DEMAND_PERCENT: 100}
_RIGHT_SPLIT = {
    ON_DEMAND_BASE: "must be a whole number of pods, such as 2",
    ON_DEMAND_PERCENT: "must be a whole number from 0 to 100, without a percent sign, such as 30",
}


class Split(NamedTuple):
    """How many pods of a workload stay off spot: at least `base`, and at least `percent` of all."""

    base: int
    percent: int

    def wanted(self, pods: int) -> int:
        """Return how many of so many pods stay off spot."""
        return min(pods, max(self.base, -(-pods * self.percent // 100)))

    def __str__(self) -> str:
        given = ((ON_DEMAND_BASE, self.base), (ON_DEMAND_PERCENT, self.percent))
        return ", ".join(f"{key}: {value}" for key, value in given if value)


def split_of(shape: Shape) -> Split | None:
    """Return the split of a workload with pods of this shape, None if there is none or it cannot be read."""
    base, percent = (
        _split_number(key, shape.annotations.get(key)) for key in (ON_DEMAND_BASE, ON_DEMAND_PERCENT)
    )
    return Split(base or 0, percent or 0) if base or percent else None


def split_fault(key: str, value: object) -> str:
    """Return what is wrong with the value of an annotation of splits, empty if nothing is."""
    return (
        ""
        if isinstance(value, str) and _split_number(key, value) is not None
        else f"{_RIGHT_SPLIT[key]}; it is ignored"
    )


def _split_number(key: str, text: str | None) -> int | None:
    if text is None:
        return 0
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_OF_SPLIT[key]))
    return int(text) if is_number and int(text) <= _MOST_OF_SPLIT[key] else None


def with_do_not_disrupt(annotations: Mapping[str, str], others: Mapping[str, str]) -> Mapping[str, str]:
    """Return the annotations with DO_NOT_DISRUPT added if one of `others` implies it. An existing value wins."""
    asked = any(annotations.get(name) == value for name, value in others.items())
    return {DO_NOT_DISRUPT: "true", **annotations} if asked else annotations
