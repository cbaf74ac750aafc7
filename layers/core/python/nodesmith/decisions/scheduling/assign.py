"""Assign pending pods to existing and in-flight nodes, and turn the rest into demands for new nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nodesmith.decisions.scheduling.colocation import Colocation
from nodesmith.decisions.scheduling.conflicts import LabelSets, PodConflicts
from nodesmith.decisions.scheduling.demands import LAST, Assignment, Choices, UnavailableDomains, by_shape
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.placement import AvailableCapacity, Placement, PlacementContext
from nodesmith.decisions.scheduling.preferences import PreferenceMode, Relaxation, Variants, variants
from nodesmith.decisions.scheduling.sharing import shared
from nodesmith.decisions.scheduling.topology.domains import (
    FOLLOWS,
    TopologyDependencies,
    UnsatisfiedAffinity,
    affinity_group,
    followed,
    leaders_first,
    shares_node,
)
from nodesmith.decisions.scheduling.topology.topology import (
    Topology,
    affinity_terms,
    anti_affinity_terms,
    keyed_spreads,
)
from nodesmith.model.kubernetes.pods import Pod, PodAffinityTerm, Shape, Spread
from nodesmith.model.policies import PreferencePolicy

_MOST_RETURNS, _MOST_RETURNING = 3, 64
_MOST_TOGETHER = 16
_ONE_BY_ONE = 256
"""Up to so many pods each shape is placed alone, which gives the search for a better plan more choices."""
_Waiting = dict[Shape, list[Pod]]


@dataclass(frozen=True, slots=True)
class ShapeFacts:
    """Facts about shapes that hold whichever of their pods are placed: rules for sharing a node, variants to try."""

    conflicts: PodConflicts
    tried: Variants

    @classmethod
    def of(
        cls,
        shapes: Iterable[Shape],
        others: Iterable[Shape],
        launching: Launching,
        policy: PreferencePolicy = PreferencePolicy.RESPECT,
        *,
        zones_only: bool = False,
    ) -> ShapeFacts:
        """Compute these facts for the shapes of pods to place.

        `others` are the shapes that these pods may meet on a node. For `zones_only` see `variants`.
        """
        variants_of = {shape: variants(shape, policy, launching, zones_only=zones_only) for shape in shapes}
        return cls(
            PodConflicts([*(variant for group in variants_of.values() for variant in group), *others]),
            variants_of,
        )


NOWHERE_FOR_SALE = "rules about other pods: no node can be bought in the domains that they allow"
"""Why pods stay pending that an earlier correction excluded for good."""


def assign(
    pending: Iterable[Pod],
    existing_nodes: Sequence[ExistingNode],
    launching: Launching,
    templates: Sequence[Template] = (),
    daemonsets: Sequence[Shape] = (),
    policy: PreferencePolicy = PreferencePolicy.RESPECT,
    choices: Choices | None = None,
    unavailable: UnavailableDomains | None = None,
    facts: ShapeFacts | None = None,
    preference_mode: PreferenceMode = PreferenceMode.RULE,
) -> Assignment:
    """Assign pods to existing nodes and turn the rest into demands. `choices` decides between equally sound options.

    `facts` saves work: it must cover the shapes of these pods and all shapes on the existing nodes. `preference_mode`
    says how much the preferences of pods that already run count under the policy Respect. `unavailable` holds what
    earlier purchases of this decision could not buy.
    """
    choices = choices or Choices()
    unavailable = unavailable or UnavailableDomains()
    given_up, wanted = _split(pending, unavailable)
    waiting = dict(by_shape(wanted))
    if facts is None:
        hosted = [shape for existing in existing_nodes for shape in (*existing.hosted, *existing.expected)]
        facts = ShapeFacts.of(waiting, [*daemonsets, *hosted], launching, policy)
    conflicts, tried = facts.conflicts, {shape: facts.tried[shape] for shape in waiting}
    available = AvailableCapacity(existing_nodes, conflicts)
    context = PlacementContext(
        conflicts,
        available,
        Topology(existing_nodes, conflicts.sets, launching),
        launching,
        TopologyDependencies(_within_reach(waiting, available, launching), conflicts.sets, launching),
        choices,
        unavailable,
    )
    if given_up:
        context.result.stuck.append((tuple(given_up), NOWHERE_FOR_SALE))
    in_turn = {shape: waiting[shape] for shape in _in_turn(context, tried)}
    _Round(context, in_turn, Relaxation(context, tried, policy, preference_mode)).place_all()
    context.result.demands = shared(context.result.demands, conflicts, templates, daemonsets)
    return context.result


def _split(pending: Iterable[Pod], unavailable: UnavailableDomains) -> tuple[list[Pod], list[Pod]]:
    """Split off the pods that an earlier correction excluded for good: return these first, then the others."""
    split: tuple[list[Pod], list[Pod]] = [], []
    for pod in pending:
        split[pod.key not in unavailable.pods].append(pod)
    return split


def _within_reach(shapes: Iterable[Shape], available: AvailableCapacity, launching: Launching) -> list[Shape]:
    """Leave out shapes that no node can take: their rules about other pods have no effect."""
    return [
        shape
        for shape in shapes
        if not (shape.spreads or shape.affinities)
        or launching.domains(shape, ())
        or next(available.candidates(shape), None)
    ]


def _in_turn(context: PlacementContext, tried: Variants) -> list[Shape]:
    """Order shapes by their turn (see `TopologyDependencies.turn`); within a turn the order of `by_shape` stays.

    Shapes for which nothing can be bought come first in their turn, and those of the last turn move to the first. A
    choice may put any shape first or last, except that shapes with required pod affinity are never last: where their
    leaders are must be known.
    """
    turns = {shape: context.dependencies.turn(each[0]) for shape, each in tried.items()}
    existing_only = {
        s for s in turns if context.available.existing_nodes and not context.launching.domains(s, ())
    }
    turns |= {shape: 0 for shape in existing_only if turns[shape] > FOLLOWS}
    first = [shape for shape in turns if len(turns) > 1 and context.choices.pick(("turn", shape), 2)]
    free = [shape for shape, turn in turns.items() if len(turns) > 1 and turn != FOLLOWS]
    last = [shape for shape in free if context.choices.pick((LAST, shape), 2)]
    before = sorted(
        (s for s, turn in turns.items() if turn < FOLLOWS), key=lambda s: (turns[s], s not in existing_only)
    )
    strictest = {tried[s][0]: s for s in dict.fromkeys((*first, *turns)) if turns[s] == FOLLOWS}
    following = leaders_first(strictest, context.conflicts.sets)
    after = [s for s, turn in turns.items() if turn > FOLLOWS]
    early = [s for s in first if turns[s] != FOLLOWS]
    usual = (*early, *before, *(strictest[one] for one in following), *after)
    return list(dict.fromkeys((*(shape for shape in usual if shape not in last), *last)))


def _interchangeable(
    waiting: Iterable[Shape], relaxation: Relaxation, sets: LabelSets
) -> dict[Shape, list[Shape]]:
    """Return, for each shape without preferences, the shapes that are alike in all of its domains.

    They may differ in their requests and in rules about sharing a node.
    """
    groups: dict[tuple[object, ...], list[Shape]] = {}
    for shape in waiting:
        if not (relaxation.has_variants(shape) or shares_node(shape)):
            apart = (*affinity_terms(shape), *anti_affinity_terms(shape))
            rules = (*map(_spread_key, keyed_spreads(shape)), *map(_affinity_key, apart))
            conditions = shape.terms, shape.own_terms, shape.tolerations, shape.shuns_soft_taints
            groups.setdefault((sets.number(shape), shape.namespace, *conditions, rules), []).append(shape)
    return {shape: alike for alike in groups.values() if len(alike) > 1 for shape in alike}


def _spread_key(spread: Spread) -> tuple[object, ...]:
    selected = (
        spread.selector.key if spread.selector is not None else None
    )  # hashing a selector takes much longer
    honored = spread.honor_affinity, spread.honor_taints
    return spread.topology_key, spread.max_skew, spread.hard, selected, spread.min_domains, *honored


def _affinity_key(term: PodAffinityTerm) -> tuple[object, ...]:
    selected = term.selector.key if term.selector is not None else None
    return term.topology_key, selected, term.anti, term.namespaces, term.weight


class _Round:
    """The shapes that still wait for a place, in their turn."""

    def __init__(self, context: PlacementContext, waiting: _Waiting, relaxation: Relaxation) -> None:
        self._context, self._waiting, self._relaxation = context, waiting, relaxation
        sets = context.conflicts.sets
        self._left: dict[Shape, tuple[list[Pod], str]] = {}
        self._left_at: dict[Shape, int] = {}
        self._begun: list[Shape] = []
        self._late = [shape for shape in waiting if (LAST, shape) in context.choices.script]
        self._halved: set[Shape] = set()
        self._affinity_groups: dict[tuple[object, ...], list[Shape]] = {}
        for shape in waiting:
            if affinity_terms(shape):
                self._affinity_groups.setdefault(affinity_group(shape, sets), []).append(shape)
        self._known_values: dict[str, tuple[frozenset[str], int]] = {}
        self._alike: dict[Shape, list[Shape]] = {}
        if sum(map(len, waiting.values())) > _ONE_BY_ONE and context.unavailable.is_empty:
            self._alike = _interchangeable(waiting, relaxation, sets)

    def place_all(self) -> None:
        """Place shape by shape; shapes that follow pods without a place are retried after these.

        Retry shapes that a spread blocked after other pods are placed, since those may have opened a domain. Retry
        shapes that empty domains blocked once it is known that no node will be bought in those domains.
        """
        self._place_waiting()
        for _ in range(_MOST_RETURNS):
            returning = self._returning()
            for shape in returning:
                self._waiting[shape], _ = self._left.pop(shape)
                self._left_at.pop(shape)
            if not returning:
                break
            self._place_waiting()
        for shape, (pods, reason) in self._left.items():
            spread = sorted({s.topology_key for s in keyed_spreads(shape)})
            if spread and not shares_node(shape):
                present = {key: self._values(key) for key in spread}
                left, still = Placement(self._context, shape, shape, present=present).place(pods)
                placed = len(pods) - len(left)
                self._context.result.given_up += placed  # these ignore domains that may still open
                self._left[shape] = left, still if placed else reason
        for shape, (pods, reason) in self._left.items():
            self._stuck(self._place_last(shape, pods), reason)
        unsatisfied = UnsatisfiedAffinity(self._waiting, self._context.conflicts.sets)
        for shape, pods in self._waiting.items():
            self._stuck(pods, unsatisfied.unsatisfied_reason(shape))

    def _place_last(self, shape: Shape, pods: Sequence[Pod]) -> list[Pod]:
        """Place on existing nodes the pods that only the spreads of other pods block; return those left.

        This concerns pods without such rules of their own. kube-scheduler may bind them there at any time, but the pods
        with the spreads must get their places first. Pods that already run stay where they are.
        """
        asks = keyed_spreads(shape) or affinity_terms(shape) or anti_affinity_terms(shape)
        waiting = [pod for pod in pods if not pod.node]
        if asks or not waiting or not list(self._context.topology.held_over(shape)):
            return list(pods)
        placement = Placement(self._context, shape, shape, only=lambda _: True, last=True)
        left, _ = placement.place(waiting)
        self._context.result.last += len(waiting) - len(left)
        return [*left, *(pod for pod in pods if pod.node)]

    def _returning(self) -> list[Shape]:
        """Return the blocked shapes worth retrying because other pods have been placed since; none if too many."""
        grown = self._context.topology.size
        returning = [
            shape for shape, seen in self._left_at.items() if seen < grown and not shares_node(shape)
        ]
        for one in self._begun:  # its leaders, if placed only now, would have to be in its domain
            returning = [shape for shape in returning if not self._is_followed_by(one)(shape)]
        return returning if len(returning) <= _MOST_RETURNING else []

    def _place_waiting(self) -> None:
        moved = True
        while moved:
            moved = False
            for shape in list(self._waiting):
                if shape in self._waiting and not self._must_wait(shape):
                    self._place(shape)
                    moved = True

    def _values(self, key: str) -> frozenset[str]:
        """Return the values of a key that existing nodes have or that demanded nodes may have."""
        demands = self._context.result.demands
        values, seen = self._known_values.get(key, (frozenset[str](), 0))
        if not seen:
            values |= self._context.available.values(key)
        for demand in demands[seen:]:
            pinned = demand.pins.get(key)
            if pinned is None:
                values |= {value for (value,) in self._context.launching.domains(demand.shape, (key,))}
            elif pinned not in values:
                values |= {pinned}
        self._known_values[key] = values, len(demands)
        return values

    def _must_wait(self, shape: Shape) -> bool:
        if not affinity_terms(shape):
            return False
        late = [one for one in self._late if one in self._waiting]
        if late and self._begins(shape) and any(map(self._is_followed_by(shape), late)):
            return True
        if shares_node(shape) and Colocation(self._context, shape, shape, ()).follows_nobody:
            return True
        return self._context.domains(shape).follows_nobody

    def _begins(self, shape: Shape) -> bool:
        """Return whether none of the pods that this shape must follow has a place, so that its own may be first."""
        return not followed(shape, self._context.conflicts.sets) & self._context.topology.numbers

    def _is_followed_by(self, follower: Shape) -> Callable[[Shape], bool]:
        """Return a predicate: whether `follower` must follow pods of a shape that itself follows none."""
        sets = self._context.conflicts.sets
        leaders = followed(follower, sets)
        return lambda shape: bool(leaders >> sets.number(shape) & 1) and not affinity_terms(shape)

    def _place(self, shape: Shape) -> None:
        if affinity_terms(shape) and self._begins(shape):
            self._begun.append(shape)
        if shape in self._alike and self._place_together(shape):
            return
        left = self._pods_of(shape)
        like = self._waiting_like(shape)
        reason, tried = "", self._relaxation.rules(shape, left)
        left = self._relaxation.in_free_room(shape, left, like)
        for given_up, variant in enumerate(tried if left else ()):
            before = len(left)
            if shares_node(variant):
                others = [
                    (sibling, self._waiting[sibling])
                    for sibling in like
                    if sibling in self._waiting and shares_node(sibling)
                ]
                outcome = Colocation(self._context, variant, shape, [(shape, left), *others]).place()
                left, reason = outcome.pop(shape)
                for other, (unplaced, other_reason) in outcome.items():
                    del self._waiting[other]
                    self._stuck(unplaced, other_reason)
            else:
                left, reason = Placement(self._context, variant, shape, like).place(left)
            self._context.result.given_up += given_up * (before - len(left))
            if not left:
                break
        if left:
            self._left[shape] = [*self._left.get(shape, ((), ""))[0], *left], reason
            self._left_at[shape] = self._context.topology.size
        elif shape not in self._waiting and shape not in self._left:
            self._context.dependencies.placed(shape)

    def _waiting_like(self, shape: Shape) -> list[Shape]:
        """Return the shapes with the same affinity that still wait; none if the shape has no affinity."""
        if not affinity_terms(shape):
            return []
        group = self._affinity_groups[affinity_group(shape, self._context.conflicts.sets)]
        return [sibling for sibling in group if sibling in self._waiting]

    def _place_together(self, shape: Shape) -> bool:
        """Place the pods of a shape and of others that may go to the same domains.

        Return False, having placed none, if there is no other such shape. Shapes that an existing node could take are
        placed alone.
        """
        context = self._context
        siblings = [sibling for sibling in self._waiting_like(shape) if sibling is not shape]
        placement = Placement(context, shape, shape, siblings, mixed=True)
        keys = placement.keys
        domains, existing_nodes = context.launching.domains(shape, keys), context.available.existing_nodes
        together: list[Shape] = []
        pods: list[Pod] = []
        for sibling in self._alike[shape]:
            is_like = sibling in self._waiting and context.launching.domains(sibling, keys) == domains
            if is_like and (not existing_nodes or next(context.available.candidates(sibling), None) is None):
                together.append(sibling)
                pods += self._waiting[sibling]
            if len(pods) >= _MOST_TOGETHER:
                break
        if len(together) < 2 or shape is not together[0]:
            return False
        for sibling in together:
            del self._waiting[sibling]
        self._alike[shape][:] = [sibling for sibling in self._alike[shape] if sibling in self._waiting]
        left, reason = placement.place(pods)
        for sibling, unplaced in by_shape(left) if left else ():
            self._left[sibling] = unplaced, reason
            self._left_at[sibling] = context.topology.size
        for sibling in together:
            if sibling not in self._left:
                context.dependencies.placed(sibling)
        return True

    def _pods_of(self, shape: Shape) -> list[Pod]:
        """Take the pods of a shape whose turn it is; a choice may take only half of those that spread.

        Two shapes that count each other may have to grow alternately.
        """
        pods = self._waiting.pop(shape)
        spreads = len(pods) > 1 and shape not in self._halved and bool(keyed_spreads(shape))
        if spreads and self._context.choices.pick(("half", shape), 2):
            self._halved.add(shape)
            half = -(-len(pods) // 2)
            pods, self._waiting[shape] = pods[:half], pods[half:]
        return pods

    def _stuck(self, pods: Sequence[Pod], reason: str) -> None:
        if pods:
            self._context.result.stuck.append((tuple(pods), reason))
