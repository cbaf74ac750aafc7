"""Alternatives: small work is decided several times, each time by other lots, and the best plan is kept.

Pods are given their domains and rooms before anything is bought, so a choice among equals may turn out dear, or take
from others the only place they have. Where nothing was left to choose, where the bound proves that nothing cheaper can
be, or where other lots come to what has been tried already, there is no second decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import fsum

from nodesmith.decisions.provisioning.buying import Purchase
from nodesmith.decisions.scheduling.demands import Assignment
from nodesmith.decisions.scheduling.lots import Lots
from nodesmith.decisions.scheduling.unsold import Unsold

_TRIES = ((16, 48), (64, 12), (256, 4))
"""pods up to which, and how many times to buy at most"""
_MOST_OFFERINGS = 60_000
"""how many are looked at in all, which is most of the work: the whole market of a region has some thousands"""
_SAME = 1e-9
_NOTHING_NEW = 12
_MOST_CORRECTIONS, _EXACT_CORRECTIONS = 7, 3
_Assign = Callable[[Lots, Unsold], Assignment]
_Buy = Callable[[Assignment, Lots], Purchase]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One decision: where pods go, and what is bought for the others."""

    assignment: Assignment
    purchase: Purchase
    is_sound: bool = True
    """False where pods have no node in domains in which others were told to expect them"""
    tried: Purchase | None = None
    """what was tried first, if that was not sound: it knows what stands in the way of pods that are not tried again"""
    purchases: int = 1
    """how many times it was bought until it was sound"""

    @property
    def unplaced(self) -> int:
        """How many pods it leaves without a node."""
        left = sum(len(demand.pods) for demand in self.purchase.left)
        return left + sum(len(pods) for pods, _ in self.assignment.stuck)

    @property
    def price_hourly_usd(self) -> float:
        """What it buys costs, USD an hour."""
        return fsum(node.price_hourly_usd for node in self.purchase.nodes)

    @property
    def rank(self) -> tuple[bool, int, bool, int, int, float, int]:
        """What makes it the better one when it is less.

        Sound ones come first; then count pods without a node, wishes given up, pods in NodePools of less weight,
        price and nodes.
        """
        purchase = self.purchase
        given_up = self.assignment.given_up + purchase.given_up
        lighter = sum(tier * pods for tier, pods in purchase.served_by.items())
        price = round(self.price_hourly_usd, 9)
        without = self.tried is not None  # a domain is left empty that other ways of buying may fill
        return not self.is_sound, self.unplaced, without, given_up, lighter, price, len(purchase.nodes)


def best(
    pods: int,
    offerings: int,
    assign: _Assign,
    buy: _Buy,
    bound: Callable[[Attempt], float],
) -> tuple[Attempt, float]:
    """Decide for so many pods on a market of so many offerings, as often as may help and is worth the work.

    Gives the best attempt, in which the steps of all are counted, and its `bound`: a price that none can undercut.
    """
    lots = Lots()
    first = assign(lots, Unsold())
    chosen = usual = _corrected(first, lots, assign, buy)
    steps, least = chosen.purchase.steps, bound(chosen)
    is_whole = not chosen.unplaced and chosen.tried is None
    if not lots.asked or (is_whole and chosen.price_hourly_usd <= least + _SAME):
        return chosen, least
    seen, stale = {_fingerprint(first)}, 0
    left = _tries(pods, offerings) - chosen.purchases
    for number in range(1, _TRIES[0][1]):
        if left <= 0:
            break
        lots = Lots(number)
        assignment = assign(lots, Unsold())
        spelled = _fingerprint(assignment)
        stale = stale + 1 if spelled in seen and not lots.bars else 0
        if stale > _NOTHING_NEW:
            break
        if stale:
            continue
        seen.add(spelled)
        other = _corrected(assignment, lots, assign, buy)
        steps += other.purchase.steps
        left -= other.purchases
        chosen = min(chosen, other, key=lambda attempt: attempt.rank)
    chosen.purchase.steps = steps
    return chosen, least if chosen is usual else bound(chosen)


def _corrected(assignment: Assignment, lots: Lots, assign: _Assign, buy: _Buy) -> Attempt:
    """Buy; where that does not give pods the domains they were meant for, assign again with what has shown."""
    unsold, steps, tried = Unsold(), 0, None
    for number in range(_MOST_CORRECTIONS + 1):
        purchase = buy(assignment, lots)
        steps += purchase.steps
        for_good = number >= _EXACT_CORRECTIONS
        is_sound = not unsold.learn(assignment.demands, purchase.refused, for_good=for_good)
        if is_sound or lots.bars or number == _MOST_CORRECTIONS:  # what was barred might have been had
            break
        tried = tried or purchase
        assignment = assign(lots, unsold)
    purchase.steps = steps
    return Attempt(assignment, purchase, is_sound, tried, number + 1)


def _tries(pods: int, offerings: int) -> int:
    tries = next((tries for most, tries in _TRIES if pods <= most), 1)
    return min(tries, _MOST_OFFERINGS // max(1, offerings))


def _fingerprint(assignment: Assignment) -> tuple[object, ...]:
    placed = ((name, tuple(pods)) for name, pods in assignment.placed.items())
    demands = ((d.shape, d.pins, len(d.pods), d.fallback) for d in assignment.demands)
    return frozenset(placed), frozenset(demands), len(assignment.stuck)
