"""The nodes a purchase would buy, and how they are written down once the purchase is chosen.

A decision compares many purchases and makes one: names, tags and launch templates are computed for that one alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from nodesmith.decisions.launch import Templates
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.purchase.claims import another, claim_name, planned_node
from nodesmith.decisions.provisioning.purchase.flexibility import Options
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.model.apimachinery.labels import PARTITION
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.nodeclasses.status import ClusterInfo


@dataclass(frozen=True, slots=True)
class Origin:
    """What nodes get from the decision that buys them.

    `numbers` count the nodes, `templates` are launch templates reused between them.
    """

    decision: str
    cluster: ClusterInfo
    now: datetime
    numbers: Iterator[int] = field(default_factory=count)
    templates: Templates = field(default_factory=Templates)


@dataclass(frozen=True, slots=True)
class Bought:
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


def written_down(bought: Iterable[Bought], origin: Origin) -> tuple[PlannedNode, ...]:
    """Return the nodes as intents, in their order."""
    nodes: list[PlannedNode] = []
    first: Bought | None = None
    for one in bought:
        name = claim_name(one.nodepool, origin.decision, next(origin.numbers))
        template = one.options.offers[0].template
        # Each node of a partition group may be in another partition.
        is_apart = PARTITION in template.requirements
        is_same = first is not None and one.options is first.options and not is_apart
        if is_same and origin.templates.takes_again(template.status):
            nodes.append(another(nodes[-1], template, one.pods, name, origin.cluster))
        else:
            first, about = one, (origin.decision, origin.cluster, origin.now, origin.templates)
            nodes.append(planned_node(one.options, one.demands, one.pods, name, *about))
    return tuple(nodes)
