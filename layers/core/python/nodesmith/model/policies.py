"""What an operator decides once for all scheduling: how much wishes and flexibility may cost, and default spreads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nodesmith.model.defaultspreads import DefaultSpread


class PreferencePolicy(StrEnum):
    """Whether preferred affinity, ScheduleAnyway spreads and PreferNoSchedule taints count before they give way."""

    RESPECT = "Respect"
    IGNORE = "Ignore"


class MinValuesPolicy(StrEnum):
    """What becomes of a node that cannot have its NodePool's minValues: not bought, or bought with fewer."""

    STRICT = "Strict"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """The policies of one cluster; defaults are Karpenter's."""

    preference_policy: PreferencePolicy = PreferencePolicy.RESPECT
    min_values_policy: MinValuesPolicy = MinValuesPolicy.STRICT
    default_spreads: tuple[DefaultSpread, ...] = ()
    """for pods without a topology spread constraint of their own"""
