"""Running pods: their preferences decide where they go next only if that costs no more."""

from __future__ import annotations

from collections.abc import Callable

from nodesmith.decisions.provisioning.search.alternatives import Attempt
from nodesmith.decisions.scheduling.preferences import PreferenceMode

Try = Callable[[PreferenceMode], tuple[Attempt, float]]
"""Decide once, with preferences of running pods counting as given; returns the best attempt and its bound."""


def sparing(decided: Try, *, heeds_zones: bool = False) -> tuple[Attempt, float]:
    """Return the cheapest decision; between decisions of equal cost, the one that meets more preferences.

    Which pods get free capacity may change what is bought for the rest; if the decision does both, also try without
    preferences. With `heeds_zones`, spreads over zones may cost something nevertheless.
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
