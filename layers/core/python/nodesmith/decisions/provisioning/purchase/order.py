"""The rules of a purchase, its result, and what purchases learn from each other."""

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
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.nodeclasses.nodeconfiguration import NodeSettings


@dataclass(slots=True)
class Purchase:
    """What was bought, what is left, and why some things could not be bought.

    `tiers` are the templates with what is left of their limits; `refusals` go by shape, zone and NodePool.
    """

    tiers: list[list[Template]] = field(default_factory=list)
    nodes: list[Bought] = field(default_factory=list)
    left: list[Demand] = field(default_factory=list)
    refused: list[Demand] = field(default_factory=list)
    """The demands that could not be bought as they were; their fallbacks may have been bought without preferences."""
    refusals: dict[tuple[Shape, str | None, str], Refusal] = field(default_factory=dict)
    bound_hourly_usd: float = 0.0
    is_bounded: bool = True
    steps: int = 0
    given_up: int = 0
    """How many pods did not get their preferences."""
    served_by: Counter[int] = field(default_factory=Counter)
    """Number of pods by the index of the tier that their nodes are bought from."""

    @property
    def price_hourly_usd(self) -> float:
        """The total price of its nodes, USD an hour."""
        return fsum(node.price_hourly_usd for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Learned:
    """What the purchases of one decision learn from each other: plans of parts, and what minValues always refuse."""

    plans: Known = field(default_factory=dict)
    cuts: dict[Cut, None] = field(default_factory=dict)

    def learn(self, refused: Iterable[Cut]) -> None:
        """Record what was refused, except for what only limits refuse."""
        self.cuts.update((cut, None) for cut in refused if not cut.by_limits)


@dataclass(frozen=True, slots=True)
class Order:
    """The rules of a purchase. All purchases of one decision share `known`."""

    settings: NodeSettings
    choices: Choices = field(default_factory=Choices)
    good_enough: float = GOOD_ENOUGH
    known: Learned = field(default_factory=Learned)
    quick: bool = False
    """True for a quick feasibility check."""
