"""Alternatives: decide small problems several times, each time with other choices, and keep the best plan.

Pods get their domains and nodes before anything is bought, so a choice may prove expensive, or take the only place that
other pods could use. The attempts form a tree: the root makes all choices the usual way, and each child makes one more
of the choices that its parent encountered in another way (limited discrepancy search, Harvey and Ginsberg 1995).
Attempts with fewer discrepancies come first, and among them the children of better plans. There is no second attempt if
there was nothing to choose, or if the lower bound proves that nothing can be cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, islice
from typing import NamedTuple

from nodesmith.decisions.provisioning.purchase.order import Purchase
from nodesmith.decisions.scheduling.demands import LAST, Assignment, Choices, Script, UnavailableDomains
from nodesmith.decisions.scheduling.preferences import PreferenceMode
from nodesmith.model.kubernetes.pods import Pod

_TRIES = ((16, 128), (64, 12), (256, 4))
"""(most pods, most purchases): how many purchases are made at most for up to so many pods."""
_MOST_OFFERINGS = 60_000
"""Most offerings examined over all purchases, which is most of the work.

The NodePools of a region have some thousands.
"""
_ASSIGNED_EACH = 4
"""How many assignments are made at most per purchase: many of them repeat a known assignment."""
_FEW = 16
"""Up to so many pods every attempt is bought thoroughly; of more, only those that look better when bought quickly."""
_MOST_STEPS, _MOST_STEPS_FOR_A_PLACE = 300_000, 1_000_000
"""Packing steps after which the search for a better price, or for places for pods left, ends: tenths of a second."""
_SAME = 1e-9
_MOST_CORRECTIONS, _EXACT_CORRECTIONS = 7, 3
_Assign = Callable[[Choices, UnavailableDomains], Assignment]
_Buy = Callable[[Assignment, Choices, bool], Purchase]
"""The last argument is True for a quick feasibility check."""
_Rank = tuple[bool, int, int, int, int, float, bool, int]
Cost = tuple[bool, int, int, int, float]


class Bounds(NamedTuple):
    """Lower bounds on all plans for the same pods: a price, a price with surcharges, a number of nodes; 0 for no bound.

    The number is known only where plans have as few nodes as possible. The others then hold for plans with no more
    nodes than the plan for which they were computed. If `keeps_weights`, the price holds for plans that prefer
    NodePools as their weights demand; others may cost less.
    """

    price_hourly_usd: float = 0.0
    cost_hourly_usd: float = 0.0
    nodes: int = 0
    keeps_weights: bool = False


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: where pods go, and what is bought for the rest."""

    assignment: Assignment
    purchase: Purchase
    is_sound: bool = True
    """False if pods have no node in domains where other pods count on them."""
    tried: Purchase | None = None
    """The first purchase, if it was not sound: it has the reasons for pods that are not tried again."""
    purchases: int = 1
    """How many purchases were made until one was sound."""

    @property
    def left(self) -> list[Pod]:
        """The pods left without a node."""
        unbought = [pod for demand in self.purchase.left for pod in demand.pods]
        return unbought + [pod for pods, _ in self.assignment.stuck for pod in pods]

    @property
    def unplaced(self) -> int:
        """How many pods are left without a node, or with a place that they may have only if they are bound last."""
        return len(self.left) + self.assignment.last

    @property
    def rank(self) -> _Rank:
        """Sort key: the lowest is the best attempt.

        Attempts are compared in this order: whether they are sound, pods without a node, preferences given up, pods in
        NodePools of less weight, nodes where few are asked for, price with surcharges, domains given up because nothing
        could be bought there, nodes.
        """
        given_up = self.assignment.given_up + self.purchase.given_up
        unsound, unplaced, lighter, few, price = self.cost
        without = self.tried is not None  # a domain is left empty that another purchase may fill
        return unsound, unplaced, given_up, lighter, few, price, without, len(self.purchase.nodes)

    @property
    def cost(self) -> Cost:
        """The rank without preferences: soundness, pods without a node, pods in NodePools of less weight, price.

        Before the price comes the number of nodes where few are asked for.
        """
        lighter, few = (
            sum(tier * pods for tier, pods in self.purchase.served_by.items()),
            self.purchase.least_nodes,
        )
        return not self.is_sound, self.unplaced, lighter, few, round(self.purchase.cost_hourly_usd, 9)

    def is_best(self, least: Bounds, unschedulable: int) -> bool:
        """Return whether no attempt can be better.

        It is sound at the first purchase, leaves no more pods than `unschedulable`, and costs no more than the lower
        bounds.
        """
        is_whole = self.is_sound and self.unplaced <= unschedulable and self.tried is None
        is_least = self.purchase.least_nodes <= least.nodes
        return is_whole and is_least and self.purchase.cost_hourly_usd <= least.cost_hourly_usd + _SAME


def best(
    pods: int,
    offerings: int,
    assign: _Assign,
    buy: _Buy,
    bound: Callable[[Attempt], Bounds],
    unschedulable: Callable[[Iterable[Pod]], int],
    *,
    may_cost_more: bool = False,
) -> tuple[Attempt, Bounds]:
    """Decide about `pods` pods with `offerings` offerings, as often as may help and is worth the work.

    Return the best attempt, with the steps of all attempts added up, and its lower bounds. `unschedulable` counts the
    pods that no attempt could place. `may_cost_more` says that thorough purchases pay for fewer nodes: then quick ones
    are compared with each other only.
    """
    tries = _tries(pods, offerings)
    usual = Choices(is_single=tries <= 1)
    first_assigned = assignment = assign(usual, UnavailableDomains())
    chosen = _corrected(assignment, usual, assign, buy)
    bounds = bound(chosen)
    if not usual.met or chosen.purchases >= tries:
        return chosen, bounds
    in_vain = unschedulable(chosen.left) if chosen.left else 0
    if chosen.is_best(bounds, in_vain):
        return chosen, bounds
    tree = _Tree(tries)
    tree.has_seen(assignment, usual)
    tree.grow(chosen, usual)
    steps, first = chosen.purchase.steps, chosen
    quick = pods > _FEW
    looked: Attempt | None = None
    for choices in tree.scripts():
        if steps > (_MOST_STEPS_FOR_A_PLACE if chosen.unplaced > in_vain else _MOST_STEPS):
            break
        assignment = assign(choices, UnavailableDomains())
        if tree.has_seen(assignment, choices):
            continue
        if quick and looked is None:
            looked = _corrected(first_assigned, usual, assign, buy, quick=True)
        other = _corrected(assignment, choices, assign, buy, quick=quick)
        steps += other.purchase.steps
        is_worse = looked is not None and other.rank >= looked.rank
        if looked is not None and not is_worse:
            looked, over = other, _corrected(other.assignment, choices, assign, buy)
            steps += over.purchase.steps
            other = replace(over, tried=other.tried or over.tried, purchases=other.purchases)
        tree.grow(other, choices)
        if is_worse and may_cost_more:
            continue
        chosen = min(chosen, other, key=lambda attempt: attempt.rank)
        if chosen.is_best(bounds, in_vain):
            break
    chosen.purchase.steps = steps
    return chosen, bounds if chosen is first else bound(chosen)


class _Tree:
    """The attempts to make within a budget of purchases: fewest discrepancies first, then the best parent."""

    def __init__(self, left: int) -> None:
        self._left, self._assigned = left, _ASSIGNED_EACH * left
        self._waiting: list[tuple[int, _Rank, int, Script]] = []
        self._serial = count()
        self._seen: set[object] = set()

    def scripts(self) -> Iterator[Choices]:
        """Yield what to try next, while there is anything and the budget lasts."""
        while self._waiting and self._left > 0 and self._assigned > 0:
            self._assigned -= 1
            yield Choices(heappop(self._waiting)[-1])

    def has_seen(self, assignment: Assignment, choices: Choices) -> bool:
        """Return whether the same assignment has been bought for already; remember it."""
        return self._is_known((_fingerprint(assignment), choices.excluded))

    def grow(self, attempt: Attempt, choices: Choices) -> None:
        """Note an attempt and queue its children, unless another attempt had the same outcome."""
        self._left -= attempt.purchases
        if self._is_known(_outcome(attempt)):
            return
        children = _children(choices, has_all=not attempt.unplaced)
        for script in islice(children, max(0, self._assigned)):
            heappush(self._waiting, (len(script), attempt.rank, next(self._serial), script))

    def _is_known(self, outcome: object) -> bool:
        was_known = outcome in self._seen
        self._seen.add(outcome)
        return was_known


def _children(choices: Choices, *, has_all: bool) -> Iterator[Script]:
    """Yield the scripts that make one more choice in another way, the likeliest options first.

    If all pods have a place, no shape is put last.
    """
    for option in range(1, max(choices.met.values(), default=0)):
        for name, options in choices.met.items():
            if option < options and name not in choices.script and not (has_all and name[0] == LAST):
                yield {**choices.script, name: option}


def _corrected(
    assignment: Assignment, choices: Choices, assign: _Assign, buy: _Buy, *, quick: bool = False
) -> Attempt:
    """Buy for an assignment. If pods do not get nodes in their domains, assign and buy again with what was learned."""
    unavailable, steps, tried = UnavailableDomains(), 0, None
    for number in range(_MOST_CORRECTIONS + 1):
        purchase = buy(assignment, choices, quick)
        steps += purchase.steps
        for_good = number >= _EXACT_CORRECTIONS
        is_sound = not unavailable.learn(assignment.demands, purchase.refused, for_good=for_good)
        # Barred nodes might have been available.
        if is_sound or choices.excluded or number == _MOST_CORRECTIONS:
            break
        tried = tried or purchase
        assignment = assign(choices, unavailable)
    purchase.steps = steps
    return Attempt(assignment, purchase, is_sound, tried, number + 1)


def _tries(pods: int, offerings: int) -> int:
    tries = next((tries for limit, tries in _TRIES if pods <= limit), 1)
    return min(tries, _MOST_OFFERINGS // max(1, offerings))


def _fingerprint(assignment: Assignment) -> tuple[object, ...]:
    placed = ((name, tuple(pods)) for name, pods in assignment.placed.items())
    demands = ((d.shape, d.pins, len(d.pods), d.fallback) for d in assignment.demands)
    return frozenset(placed), frozenset(demands), len(assignment.stuck)


def _outcome(attempt: Attempt) -> frozenset[object]:
    """Return the outcome of an attempt: which pods are together, and on what."""
    placed = ((name, tuple(pods)) for name, pods in attempt.assignment.placed.items())
    nodes = ((node.nodepool, node.price_hourly_usd, node.pods) for node in attempt.purchase.nodes)
    return frozenset((*nodes, *placed))


Try = Callable[[PreferenceMode], tuple[Attempt, Bounds]]
"""Decide once, with preferences of running pods counting as given; returns the best attempt and its bounds."""


def cheapest(decided: Try, *, respects_zones: bool = False) -> tuple[Attempt, Bounds]:
    """Return the cheapest decision; between decisions of equal cost, the one that meets more preferences.

    Which pods get free capacity may change what is bought for the rest; if the decision does both, also try without
    preferences. With `respects_zones`, spreads over zones may cost something nevertheless.
    """
    result, bounds = decided(PreferenceMode.ZONES if respects_zones else PreferenceMode.CHOOSE)
    if not (result.purchase.nodes or result.unplaced):
        return result, bounds
    tries = [(result, bounds)]
    if result.assignment.placed and not respects_zones:
        tries.append(decided(PreferenceMode.NONE))
    preferred = decided(PreferenceMode.RULE if respects_zones else PreferenceMode.BUY)
    best = min((preferred, *tries), key=lambda pair: pair[0].cost)
    best[0].purchase.steps = sum(attempt.purchase.steps for attempt, _ in (preferred, *tries))
    return best
