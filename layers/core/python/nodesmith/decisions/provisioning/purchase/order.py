"""The rules of a purchase, its result or refusal, what purchases learn from each other, and the nodes they would buy.

A decision compares many purchases and makes one: names, tags and launch templates are computed for that one alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from itertools import count
from math import fsum

from nodesmith.decisions.launch import Templates
from nodesmith.decisions.packing import GOOD_ENOUGH, PartPlans
from nodesmith.decisions.provisioning.plan import FIRST_TIME, PlannedNode, RepetitionOf
from nodesmith.decisions.provisioning.purchase.claims import (
    WarmFor,
    another,
    claim_name,
    kind_of,
    planned_node,
    requests_of,
)
from nodesmith.decisions.provisioning.purchase.flexibility import Cut, Options
from nodesmith.decisions.scheduling.demands import Choices, Demand
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import PARTITION
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.nodeclasses.status import ClusterInfo
from nodesmith.model.policies import NodeSettings


class Filter(IntEnum):
    """What a NodePool is checked for, in this order: the later it fails, the nearer it came."""

    ABSENT = 1
    LABEL = 2
    TAINT = 3
    REQUIREMENT = 4
    NODEPOOL = 5
    OFFERING = 6
    HOST_PORT = 7
    RESOURCE = 8
    MIN_VALUES = 9
    OBSTRUCTED = 10
    LIMIT = 11
    UNFINISHED = 12


LOWER_MIN_VALUES = "lower minValues, or allow more instance types"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The filter, the reason in a sentence, the one thing in the way, and what would help (as `Reason` has it)."""

    filter: Filter
    reason: str
    blocking: str
    fix: str = ""


@dataclass(slots=True)
class Purchase:
    """The purchases, the demands that are left, and the reasons why some of them were refused.

    `tiers` are the templates with what is left of their limits; `refusals` go by shape, zone and NodePool.
    """

    tiers: list[list[Template]] = field(default_factory=list)
    nodes: list[NodePurchase] = field(default_factory=list)
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

    @property
    def cost_hourly_usd(self) -> float:
        """The total price of its nodes with their surcharges, USD an hour."""
        return fsum(node.price_hourly_usd + node.options.surcharge_hourly_usd for node in self.nodes)

    @property
    def least_nodes(self) -> int:
        """How many of its nodes are from tiers whose plans have as few nodes as possible."""
        return sum(node.options.offers[0].template.least_nodes for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Learned:
    """What the purchases of one decision learn from each other: plans of parts, and what minValues always refuse."""

    plans: PartPlans = field(default_factory=dict)
    cuts: dict[Cut, None] = field(default_factory=dict)

    def learn(self, refused: Iterable[Cut]) -> None:
        """Record what was refused, except for what only limits refuse."""
        self.cuts.update((cut, None) for cut in refused if not cut.by_limits)


@dataclass(frozen=True, slots=True)
class Order:
    """The rules of a purchase. All purchases of one decision share `learned`."""

    settings: NodeSettings
    choices: Choices = field(default_factory=Choices)
    good_enough: float = GOOD_ENOUGH
    learned: Learned = field(default_factory=Learned)
    quick: bool = False
    """True for a quick feasibility check."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What nodes get from the decision that buys them.

    `numbers` count the nodes, `templates` are launch templates reused between them. `warm` is set for instances that
    are stopped once they are prepared.
    """

    decision: str
    cluster: ClusterInfo
    now: datetime
    numbers: Iterator[int] = field(default_factory=count)
    templates: Templates = field(default_factory=Templates)
    warm: WarmFor | None = None
    repetition_of: RepetitionOf = lambda _: FIRST_TIME
    """Returns how often nodes were bought for the pods of a node."""


@dataclass(frozen=True, slots=True)
class NodePurchase:
    """One node: its options, and its pods with the demands for them. Nodes of the same kind share `options`."""

    options: Options
    demands: tuple[Demand, ...]
    pods: tuple[Pod, ...]

    @property
    def nodepool(self) -> str:
        """The name of its NodePool."""
        return self.options.offers[0].template.name

    @property
    def price_hourly_usd(self) -> float:
        """Its price, USD an hour."""
        return self.options.price_hourly_usd


def written_down(purchases: Iterable[NodePurchase], origin: Origin) -> tuple[PlannedNode, ...]:
    """Return the nodes as intents, in their order. Nodes of a kind (see `kind_of`) are planned once.

    Where zones have several subnets, this applies only to nodes that follow each other, so that others go to the subnet
    with most free addresses.
    """
    nodes: list[PlannedNode] = []
    nodes_by_kind: dict[object, tuple[PlannedNode, Counter[str]]] = {}
    about = origin.decision, origin.cluster, origin.now, origin.templates
    for purchase in purchases:
        name = claim_name(purchase.nodepool, origin.decision, next(origin.numbers))
        template = purchase.options.offers[0].template
        kind = kind_of(purchase.options, purchase.demands, purchase.pods)
        repetition = origin.repetition_of(purchase.pods)
        # Each node of a partition group may be in another partition.
        similar = None if PARTITION in template.requirements else nodes_by_kind.get(kind)
        if similar is not None and origin.templates.takes_again(template.status, similar[1]):
            details = requests_of(purchase.options, purchase.pods), repetition
            nodes.append(another(similar[0], purchase.pods, name, *details))
        else:
            node = planned_node(purchase.options, purchase.demands, purchase.pods, name, *about, origin.warm)
            claim = replace(node.claim, attempts=repetition.attempts, removals_before=repetition.removals)
            node = replace(node, claim=claim)
            if len({subnet.zone for subnet in template.status.subnets}) < len(template.status.subnets):
                nodes_by_kind.clear()
            nodes_by_kind[kind] = node, Counter(origin.templates.last)
            nodes.append(node)
    return tuple(nodes)
