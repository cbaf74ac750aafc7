"""Relaxation: which variants of a shape are tried for its pods, and in which order, as far as they have preferences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nodesmith.decisions.scheduling.placement.placement import Placement, PlacementContext
from nodesmith.decisions.scheduling.preferences import RULES, PreferenceMode
from nodesmith.decisions.scheduling.topology.affinity import shares_node
from nodesmith.model.apimachinery.labels import HOSTNAME
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.policies import PreferencePolicy

Variants = Mapping[Shape, tuple[Shape, ...]]
"""The variants to try for the pods of each shape, see `preferences`; the last is the shape itself."""


class Relaxation:
    """How one assignment treats preferences: by policy, and by `preference_mode` for pods that already run."""

    def __init__(
        self,
        context: PlacementContext,
        tried: Variants,
        policy: PreferencePolicy,
        preference_mode: PreferenceMode = PreferenceMode.RULE,
    ) -> None:
        self._context, self._tried = context, tried
        self._ignores, self._preference_mode = policy == PreferencePolicy.IGNORE, preference_mode

    def rules(self, shape: Shape, pods: Sequence[Pod]) -> tuple[Shape, ...]:
        """Return the variants to try, in order, for pods that find no available capacity.

        Pods that must share a node with others are placed on existing and new nodes in one step, so the preferences of
        those that already run do not count.
        """
        tried = self._tried[shape]
        if self._ignores or self._preference_mode in RULES or not all(pod.node for pod in pods):
            return tried
        return tried if self._preference_mode is PreferenceMode.BUY and not shares_node(shape) else (shape,)

    def in_free_room(self, shape: Shape, pods: list[Pod], siblings: Sequence[Shape]) -> list[Pod]:
        """Place, by their preferences, the pods that must take available capacity first; return those that find none.

        Preferred spreads count only the domains that have nodes, as in kube-scheduler.
        """
        if len(self._tried[shape]) < 2 or shares_node(shape):
            return pods
        left = [pod for pod in pods if self._takes_room_first(pod)]
        waiting = [pod for pod in pods if not self._takes_room_first(pod)]
        for variant in self._on_existing_nodes(shape):
            if not left:
                break
            there = None if variant is shape else self._there(shape)
            placement = Placement(self._context, variant, shape, siblings, only=lambda _: True, present=there)
            left, _ = placement.place(left)
        return [*left, *waiting]

    def _takes_room_first(self, pod: Pod) -> bool:
        return self._ignores or bool(pod.node and self._preference_mode not in RULES)

    def _on_existing_nodes(self, shape: Shape) -> list[Shape]:
        if self._ignores or self._preference_mode is PreferenceMode.NONE:
            return [shape]
        return [one for one in self._tried[shape] if not shares_node(one)]

    def _there(self, shape: Shape) -> dict[str, Collection[str]]:
        """Return the values that nodes have of the keys over which a shape only prefers to spread."""
        hard = {spread.topology_key for spread in shape.spreads if spread.hard}
        keys = {spread.topology_key for spread in shape.spreads} - hard - {HOSTNAME}
        existing_nodes = self._context.available.existing_nodes.values()
        return {
            key: {existing.labels[key] for existing in existing_nodes if key in existing.labels}
            for key in sorted(keys)
        }
