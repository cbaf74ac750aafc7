"""What is bought, by what rules, and what is learned of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import fsum

from nodesmith.decisions.packing import GOOD_ENOUGH, Known
from nodesmith.decisions.provisioning.purchase.bought import Bought
from nodesmith.decisions.provisioning.purchase.minvalues import Cut
from nodesmith.decisions.provisioning.reasons.refusals import Refusal
from nodesmith.decisions.scheduling.choices import Choices
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.kubernetes.shapes import Shape
from nodesmith.model.nodeclasses.nodeconfiguration import NodeSettings


@dataclass(slots=True)
class Purchase:
    """What was bought, what is left, and why something that was tried did not go.

    `tiers` are the templates with what is left of their limits; `refusals` go by shape, zone and NodePool.
    """

    tiers: list[list[Template]] = field(default_factory=list)
    nodes: list[Bought] = field(default_factory=list)
    left: list[Demand] = field(default_factory=list)
    refused: list[Demand] = field(default_factory=list)
    """what could not be bought as it was demanded; some of it may have been bought without the wishes in it"""
    refusals: dict[tuple[Shape, str | None, str], Refusal] = field(default_factory=dict)
    bound_hourly_usd: float = 0.0
    is_bounded: bool = True
    steps: int = 0
    given_up: int = 0
    """wishes of pods that were not granted"""
    served_by: Counter[int] = field(default_factory=Counter)
    """pods by the number of the tier that their nodes are bought of"""

    @property
    def price_hourly_usd(self) -> float:
        """What its nodes cost together, USD an hour."""
        return fsum(node.price_hourly_usd for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Learned:
    """What purchases of one decision learn for each other: plans of parts, and what minValues refuse in any case."""

    plans: Known = field(default_factory=dict)
    cuts: dict[Cut, None] = field(default_factory=dict)

    def learn(self, refused: Iterable[Cut]) -> None:
        """Note what was refused, but for what limits alone refuse."""
        self.cuts.update((cut, None) for cut in refused if not cut.by_limits)


@dataclass(frozen=True, slots=True)
class Order:
    """By what is bought. The purchases of one decision share what is `known`: what has been packed, what is refused."""

    settings: NodeSettings
    choices: Choices = field(default_factory=Choices)
    good_enough: float = GOOD_ENOUGH
    known: Learned = field(default_factory=Learned)
    quick: bool = False
    """whether it is only to be seen what can be bought at all"""
