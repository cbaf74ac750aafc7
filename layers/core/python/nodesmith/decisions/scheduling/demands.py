"""What must be bought, and what has been decided for pods that need nothing bought."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nodesmith.decisions.scheduling.nodes.conflicts import UNLIMITED, Cap
from nodesmith.decisions.scheduling.nodes.existing import by_age
from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.kubernetes.shapes import Shape


@dataclass(frozen=True, slots=True)
class Demand:
    """Pods alike that need new nodes.

    `pins` are labels that their nodes must have, on top of what the shape asks; an empty one they must not have. One
    node takes `per_node` of them at most. `groups` and `caps` say who may share it, see `Item`; `apart` are DaemonSets
    that keep them off every node they run on. `fallback` is what to demand for pods that cannot be had so, for some of
    this is only wished for; it has no pods itself. Where pods must share a node, `unit` of them in a row are placed as
    one: then `shape` stands for all of them together, `members` are theirs.
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
        """The zone they are pinned to, None for any."""
        return self.pins.get(ZONE)

    @property
    def is_settled(self) -> bool:
        """Whether more was settled about its nodes than what its pods ask of them."""
        return bool(self.pins or self.fallback or self.unit > 1)


@dataclass(slots=True)
class Assignment:
    """What came of the pending pods. `placed` is pods by room name, `stuck` pods with the reason.

    `given_up` counts the wishes that were not granted to pods, and pods spread over domains that are there alone.
    `last` counts pods in rooms where spreads of others hold only until they come.
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
