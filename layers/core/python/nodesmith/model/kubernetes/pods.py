"""Pods, the shapes that identical pods share, and the reasons why pods cannot be placed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.apimachinery.labels import Taint, Toleration, first_untolerated
from nodesmith.model.apimachinery.quantities import NOTHING, PODS, Resources, parse_resources, total
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements, Selector
from nodesmith.model.kubernetes.devices import PodClaim

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
    gates: tuple[str, ...] = ()
    """The names of its scheduling gates."""

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
    `starting` is True while the pod is on a node and its phase is still Pending, such as while its images are pulled.
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
    starting: bool = False


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
    resources = spec.get("resources") or {}
    limits, requests = parse_resources(resources.get("limits")), parse_resources(resources.get("requests"))
    effective = Resources({**limits.amounts, **effective.amounts, **requests.amounts})
    return effective + parse_resources(spec.get("overhead")) + _ONE_POD


def _with_init_containers(
    containers: Resources, init_containers: Sequence[Manifest], allocated: Mapping[str, Resources]
) -> Resources:
    sidecars, peak = NOTHING, NOTHING
    for container in init_containers:
        requests_of_one = _container(container, allocated)
        if container.get("restartPolicy") == "Always":
            sidecars = sidecars + requests_of_one
            peak = peak.at_least(sidecars)
        else:
            peak = peak.at_least(sidecars + requests_of_one)
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
