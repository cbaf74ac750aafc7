"""Sparing: pods that run already are given another place for their wishes only where that costs no more."""

from __future__ import annotations

from collections.abc import Callable

from nodesmith.decisions.provisioning.search.alternatives import Attempt
from nodesmith.decisions.scheduling.preferences import PreferenceMode

Try = Callable[[PreferenceMode], tuple[Attempt, float]]
"""decides once, with wishes of pods that run already counting for so much; gives the best attempt and its bound"""


def sparing(decided: Try, *, heeds_zones: bool = False) -> tuple[Attempt, float]:
    """Decide so that wishes cost nothing: the cheapest way, and as pods wish where that is as cheap.

    Who gets free room may change what is bought for others; where both is done, it is tried without wishes too. Where
    zones are heeded, spreads over them may cost something nevertheless.
    """
    found, least = decided(PreferenceMode.ZONES if heeds_zones else PreferenceMode.CHOOSE)
    if not (found.purchase.nodes or found.unplaced):
        return found, least
    tried = [(found, least)]
    if found.assignment.placed and not heeds_zones:
        tried.append(decided(PreferenceMode.NONE))
    preferred = decided(PreferenceMode.RULE if heeds_zones else PreferenceMode.BUY)
    best = min((preferred, *tried), key=lambda one: one[0].cost)
    best[0].purchase.steps = sum(attempt.purchase.steps for attempt, _ in (preferred, *tried))
    return best
