"""Shapes: what pods that are alike to the scheduler have in common, held once however many pods there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodesmith.model.apimachinery.labelselectors import Selector
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements
from nodesmith.model.apimachinery.resources import NOTHING, Resources
from nodesmith.model.apimachinery.taints import Taint, Toleration, first_untolerated

DEFAULT_GRACE_SECONDS = 30
CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint. `hard` is DoNotSchedule; no `selector` counts no pod."""

    topology_key: str
    max_skew: int
    hard: bool
    selector: Selector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False

    def selects(self, other: Shape, namespace: str) -> bool:
        """Return whether it counts pods of a shape, as one of pods in `namespace`."""
        return (
            self.selector is not None and other.namespace == namespace and self.selector.matches(other.labels)
        )


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A pod (anti-)affinity term: required where `weight` is 0, else preferred (1-100).

    `namespaces` are those whose pods it looks at; None means all. No `selector` selects no pod.
    """

    topology_key: str
    selector: Selector | None
    anti: bool
    namespaces: frozenset[str] | None
    weight: int = 0

    def selects(self, other: Shape) -> bool:
        """Return whether it looks at pods of a shape."""
        return (
            self.selector is not None
            and (self.namespaces is None or other.namespace in self.namespaces)
            and self.selector.matches(other.labels)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Everything about a pod that a decision reads, but for its name, age and node.

    Compared by identity: there is one object a shape and snapshot, and it is looked up very often.

    `own_terms` are the alternatives of the required node affinity, each already intersected with the node selector;
    `terms` are the same, narrowed to where the volumes can be reached from; one of them must hold. (A spread counts on
    all nodes that the own ones allow.) `preferred_terms` are preferred node affinity: weight (1-100) and term.
    `owner` reads `Kind/name`.
    `grace_seconds` is how long a pod may take to end, `critical` that its priority class is one of the two that
    Kubernetes keeps for what a node or cluster cannot do without.
    One that `shuns_soft_taints` takes PreferNoSchedule for NoSchedule where nodes are bought.
    `refusal` is why nothing can be provisioned for such a pod whatever the NodePools offer, empty when there is none.
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
        """True for mirror pods, which belong to their node."""
        return self.owner.startswith("Node/")

    def untolerated(self, taints: Iterable[Taint]) -> Taint | None:
        """Return the first of a new node's taints that keeps these pods off it."""
        return first_untolerated(taints, self.tolerations, soft=self.shuns_soft_taints)
