"""What must be bought (`Demand`), and the result for all pending pods (`Assignment`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nodesmith.decisions.scheduling.nodes.conflicts import UNLIMITED, Cap
from nodesmith.decisions.scheduling.nodes.existing import by_age
from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.kubernetes.pods import Pod, Shape


@dataclass(frozen=True, slots=True)
class Demand:
    """Pods of one kind that need new nodes.

    `pins` are labels that their nodes must have in addition to what the shape asks; an empty value means that the nodes
    must lack the label. One node takes at most `per_node` of the pods. `groups` and `caps` limit who may share the
    node, see `Item`; `apart` are DaemonSets that keep these pods off every node they run on. `fallback` is what to
    demand if this demand cannot be bought because part of it is only preferred; it has no pods of its own. Pods that
    must share a node are placed `unit` at a time, in their order: then `shape` stands for all of a unit together and
    `members` are the shapes of its pods.
    """

    shape: Shape
    pods: tuple[Pod, ...]
    pins: FrozenMap[str] = NO_ITEMS
    per_node: int = UNLIMITED
    groups: tuple[int, ...] = ()
    caps: tuple[Cap, ...] = ()
    apart: tuple[Shape, ...] = ()
    fallback: Demand | None = None
    unit: int = 1
    members: tuple[Shape, ...] = ()

    @property
    def zone(self) -> str | None:
        """The zone that the pods are pinned to; None for any."""
        return self.pins.get(ZONE)

    @property
    def is_settled(self) -> bool:
        """Whether more has been decided about the nodes than the pods themselves ask for."""
        return bool(self.pins or self.fallback or self.unit > 1)


@dataclass(slots=True)
class Assignment:
    """The result for the pending pods.

    `placed` is pods (namespace/name) by node name, `demands` are for new nodes, `stuck` is pods with the reason.
    `given_up` counts preferences that pods did not get, and pods spread over existing domains only. `last` counts pods
    on existing nodes where the spreads of other pods hold only until these pods arrive.
    """

    placed: dict[str, list[str]] = field(default_factory=dict)
    demands: list[Demand] = field(default_factory=list)
    stuck: list[tuple[tuple[Pod, ...], str]] = field(default_factory=list)
    given_up: int = 0
    last: int = 0


def by_shape(pods: Iterable[Pod]) -> list[tuple[Shape, list[Pod]]]:
    """Group pods by shape: largest cpu first, then largest memory, then the oldest pod (Karpenter's queue order)."""
    groups: dict[Shape, list[Pod]] = {}
    for pod in by_age(pods):
        groups.setdefault(pod.shape, []).append(pod)
    return sorted(
        groups.items(),
        key=lambda g: (
            -g[0].requests.cpu_milli,
            -g[0].requests.memory_bytes,
            g[1][0].created_at,
            g[1][0].key,
        ),
    )
