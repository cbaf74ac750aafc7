"""Shapes: the properties that are identical for the scheduler in many pods, stored once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements, Selector
from nodesmith.model.apimachinery.resources import NOTHING, Resources
from nodesmith.model.apimachinery.taints import Taint, Toleration, first_untolerated

DEFAULT_GRACE_SECONDS = 30
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

    @property
    def is_daemon(self) -> bool:
        return self.owner.startswith("DaemonSet/")

    @property
    def is_static(self) -> bool:
        """True for mirror pods of static pods, whose owner is their node."""
        return self.owner.startswith("Node/")

    def untolerated(self, taints: Iterable[Taint]) -> Taint | None:
        """Return the first taint of a new node that these pods do not tolerate, None if they tolerate all."""
        return first_untolerated(taints, self.tolerations, soft=self.shuns_soft_taints)
