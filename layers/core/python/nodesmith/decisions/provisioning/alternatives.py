"""Alternatives: small work is decided several times, each time by other lots, and the best plan is kept.

Pods are given their domains and rooms before anything is bought, so a choice among equals may turn out dear, or take
from others the only place they have. Where nothing was left to choose, where the bound proves that nothing cheaper can
be, or where other lots come to what has been tried already, there is no second decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nodesmith.decisions.provisioning.buying import Purchase
from nodesmith.decisions.scheduling.demands import Assignment
from nodesmith.decisions.scheduling.lots import Lots

_TRIES = ((16, 48), (64, 12), (256, 4))
"""pods up to which, and how many decisions at most"""
_SAME = 1e-9
_NOTHING_NEW = 12


@dataclass(frozen=True, slots=True)
class Attempt:
    """One decision: where pods go, and what is bought for the others."""

    assignment: Assignment
    purchase: Purchase

    @property
    def unplaced(self) -> int:
        """How many pods it leaves without a node."""
        left = sum(len(demand.pods) for demand in self.purchase.left)
        return left + sum(len(pods) for pods, _ in self.assignment.stuck)

    @property
    def price_hourly_usd(self) -> float:
        """What it buys costs, USD an hour."""
        return sum(node.price_hourly_usd for node in self.purchase.nodes)

    @property
    def rank(self) -> tuple[int, int, int, float, int]:
        """What makes it the better one when it is less.

        First pods without a node, then wishes given up, pods in NodePools of less weight, price and nodes.
        """
        purchase = self.purchase
        given_up = self.assignment.given_up + purchase.given_up
        lighter = sum(tier * pods for tier, pods in purchase.served_by.items())
        return self.unplaced, given_up, lighter, round(self.price_hourly_usd, 9), len(purchase.nodes)


def best(
    pods: int,
    assign: Callable[[Lots], Assignment],
    buy: Callable[[Assignment, Lots], Purchase],
    bound: Callable[[Attempt], float],
) -> Attempt:
    """Decide for so many pods, as often as may help; `bound` gives a price that no such attempt can undercut.

    The steps of all attempts are counted in the best one.
    """
    lots = Lots()
    first = assign(lots)
    chosen = Attempt(first, buy(first, lots))
    steps = chosen.purchase.steps
    if not lots.asked or (not chosen.unplaced and chosen.price_hourly_usd <= bound(chosen) + _SAME):
        return chosen
    seen, stale = {_fingerprint(first)}, 0
    for number in range(1, _tries(pods)):
        lots = Lots(number)
        assignment = assign(lots)
        spelled = _fingerprint(assignment)
        stale = stale + 1 if spelled in seen and not lots.bars else 0
        if stale > _NOTHING_NEW:
            break
        if stale:
            continue
        seen.add(spelled)
        other = Attempt(assignment, buy(assignment, lots))
        steps += other.purchase.steps
        chosen = min(chosen, other, key=lambda attempt: attempt.rank)
    chosen.purchase.steps = steps
    return chosen


def _tries(pods: int) -> int:
    return next((tries for most, tries in _TRIES if pods <= most), 1)


def _fingerprint(assignment: Assignment) -> tuple[object, ...]:
    placed = ((name, tuple(pods)) for name, pods in assignment.placed.items())
    demands = ((d.shape, d.pins, len(d.pods), d.fallback) for d in assignment.demands)
    return frozenset(placed), frozenset(demands), len(assignment.stuck)
