"""Preferences of pods, treated as required as long as that works: preferred affinities and ScheduleAnyway spreads.

Under the policy Respect, a pod is placed as if all its preferences were required. If it cannot be placed so,
preferences are dropped one by one in Karpenter's order: preferred pod affinity, preferred anti-affinity, preferred node
affinity, spreads, and last the aversion to NodePools with a PreferNoSchedule taint; within each kind the heaviest
first. Of preferred node affinity only the heaviest remaining term counts. Existing nodes are used whatever such taints
they have, unlike in Karpenter: before a new node came up, kube-scheduler would have bound the pods to them. Under
Ignore a preference costs nothing: preferred node affinity decides between options of the same price, and everything
else is left to kube-scheduler's scoring.

Pods that already run on a node that is going away got their nodes before: see `PreferenceMode`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto

from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.decisions.scheduling.placement import Placement, PlacementContext
from nodesmith.decisions.scheduling.topology.domains import shares_node
from nodesmith.model.apimachinery.labels import HOSTNAME, ZONE
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.kubernetes.pods import Pod, PodAffinityTerm, Shape
from nodesmith.model.policies import PreferencePolicy

Variants = Mapping[Shape, tuple[Shape, ...]]
"""The variants to try for the pods of each shape, see `preferences`; the last is the shape itself."""


class PreferenceMode(Enum):
    """How much the preferences of pods on ending nodes count under Respect. Those of pending pods are always rules."""

    RULE = auto()
    """As for pending pods: they may cost a node although other nodes have capacity."""
    BUY = auto()
    """They choose between available capacity, which is used first, and then decide what is bought, at any price."""
    CHOOSE = auto()
    """They choose between available capacity, which is used first; the cheapest nodes are bought for the rest."""
    NONE = auto()
    """They do not count."""
    ZONES = auto()
    """Spreads over zones are rules; all other preferences do not count."""


_MOST_OF_KIND = 16
"""Preferences of one kind that count: the heaviest. A pod may have thousands, and each adds a variant with all."""
RULES = frozenset({PreferenceMode.RULE, PreferenceMode.ZONES})
"""The modes in which preferences may cost a node although other nodes have capacity."""


def has_preferences(shape: Shape) -> bool:
    """Return whether pods prefer anything about their nodes or about nearby pods."""
    soft = any(not spread.hard for spread in shape.spreads)
    return soft or bool(shape.preferred_terms) or any(term.weight for term in shape.affinities)


def variants(
    shape: Shape, policy: PreferencePolicy, launching: Launching, *, zones_only: bool = False
) -> tuple[Shape, ...]:
    """Return a shape with its preferences as rules, then with ever fewer of them, and last the shape itself.

    With `zones_only`, only preferred spreads over zones count.
    """
    if zones_only:
        spread = variants(_spread_over_zones(shape), policy, launching)
        return (*(replace(variant, shuns_soft_taints=False) for variant in spread[:-1]), shape)
    attracted = _heaviest_first(shape, anti=False)[:_MOST_OF_KIND]
    repelled = _heaviest_first(shape, anti=True)[:_MOST_OF_KIND]
    preferred = [term for _, term in sorted(shape.preferred_terms, key=lambda pair: -pair[0])][:_MOST_OF_KIND]
    soft = [spread for spread in shape.spreads if not spread.hard][:_MOST_OF_KIND]
    shuns = policy == PreferencePolicy.RESPECT and launching.softly_tainted(shape)
    if not (attracted or repelled or preferred or soft or shuns):
        return (shape,)
    if policy == PreferencePolicy.IGNORE:
        variant = _variant(shape, [], [], preferred, 0)
        costs_more = variant is None or launching.price(variant, (), ()) > launching.price(shape, (), ())
        return (shape,) if variant is None or costs_more else (variant, shape)
    steps = [(attracted[n:], repelled, preferred, len(soft)) for n in range(len(attracted))]
    steps += [([], repelled[n:], preferred, len(soft)) for n in range(len(repelled))]
    steps += [([], [], preferred[n:], len(soft)) for n in range(len(preferred))]
    steps += [([], [], [], count) for count in range(len(soft), 0, -1)]
    steps += [([], [], [], 0)] * shuns
    stricter = [_variant(shape, *step) for step in steps]
    return (
        *(replace(variant, shuns_soft_taints=shuns) for variant in stricter if variant is not None),
        shape,
    )


def _spread_over_zones(shape: Shape) -> Shape:
    """Return a shape without any preference except its spreads over zones."""
    return replace(
        shape,
        preferred_terms=(),
        affinities=tuple(term for term in shape.affinities if not term.weight),
        spreads=tuple(spread for spread in shape.spreads if spread.hard or spread.topology_key == ZONE),
    )


def _heaviest_first(shape: Shape, *, anti: bool) -> list[PodAffinityTerm]:
    terms = [term for term in shape.affinities if term.weight and term.anti is anti]
    return sorted(terms, key=lambda term: -term.weight)


def _variant(
    shape: Shape,
    attracted: list[PodAffinityTerm],
    repelled: list[PodAffinityTerm],
    preferred: list[Requirements],
    spreads: int,
) -> Shape | None:
    """Return a shape that requires these preferences and its last `spreads` preferred spreads.

    None if its terms would contradict each other.
    """
    terms = shape.terms
    if preferred:
        terms = tuple(
            term.union(preferred[0])
            for term in terms
            if term.conflict(preferred[0], undefined=frozenset(preferred[0])) is None
        )
    if not terms and shape.terms:
        return None
    required = [term for term in shape.affinities if not term.weight]
    first_kept = sum(not spread.hard for spread in shape.spreads) - spreads
    applied = []
    for spread in shape.spreads:
        if spread.hard:
            applied.append(spread)
        elif first_kept > 0:
            first_kept -= 1
        else:
            applied.append(replace(spread, hard=True))
    now_required = [replace(term, weight=0) for term in (*attracted, *repelled)]
    return replace(
        shape, terms=terms, affinities=(*required, *now_required), spreads=tuple(applied), preferred_terms=()
    )


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
        all_variants = self._tried[shape]
        if shape in self._context.unavailable.without_preferences:
            return (shape,)
        if self._ignores or self._preference_mode in RULES or not all(pod.node for pod in pods):
            return all_variants
        return (
            all_variants
            if self._preference_mode is PreferenceMode.BUY and not shares_node(shape)
            else (shape,)
        )

    def has_variants(self, shape: Shape) -> bool:
        """Return whether the shape has preferences to try."""
        return len(self._tried[shape]) > 1

    def in_free_room(self, shape: Shape, pods: list[Pod], siblings: Sequence[Shape]) -> list[Pod]:
        """Place, by their preferences, the pods that must take available capacity first; return those that find none.

        Preferred spreads count only the domains that have nodes, as in kube-scheduler.
        """
        if not self.has_variants(shape) or shares_node(shape):
            return pods
        unplaced = [pod for pod in pods if self._takes_room_first(pod)]
        waiting = [pod for pod in pods if not self._takes_room_first(pod)]
        for variant in self._on_existing_nodes(shape):
            if not unplaced:
                break
            present = None if variant is shape else self._present_values(shape)
            placement = Placement(
                self._context, variant, shape, siblings, only=lambda _: True, present=present
            )
            unplaced, _ = placement.place(unplaced)
        return [*unplaced, *waiting]

    def _takes_room_first(self, pod: Pod) -> bool:
        return self._ignores or bool(pod.node and self._preference_mode not in RULES)

    def _on_existing_nodes(self, shape: Shape) -> list[Shape]:
        if self._ignores or self._preference_mode is PreferenceMode.NONE:
            return [shape]
        return [variant for variant in self._tried[shape] if not shares_node(variant)]

    def _present_values(self, shape: Shape) -> dict[str, Collection[str]]:
        """Return the values that nodes have of the keys over which a shape only prefers to spread."""
        hard = {spread.topology_key for spread in shape.spreads if spread.hard}
        keys = {spread.topology_key for spread in shape.spreads} - hard - {HOSTNAME}
        return {key: self._context.available.values(key) for key in sorted(keys)}
