"""What a purchase would buy, and how that is written down once it is known which purchase is made.

A decision compares many purchases and makes one: names, tags and launch templates are worked out for that one alone.
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
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.nodeclasses.status import ClusterInfo


@dataclass(frozen=True, slots=True)
class Origin:
    """What nodes have from the decision that buys them; `numbers` count them, `templates` are kept between them."""

    decision: str
    cluster: ClusterInfo
    now: datetime
    numbers: Iterator[int] = field(default_factory=count)
    templates: Templates = field(default_factory=Templates)


@dataclass(frozen=True, slots=True)
class Bought:
    """One node: what it may be, and its pods with what was demanded for them. Nodes alike share `options`."""

    options: Options
    demands: tuple[Demand, ...]
    pods: tuple[Pod, ...]

    @property
    def nodepool(self) -> str:
        """The name of its NodePool."""
        return self.options.offers[0].template.name

    @property
    def price_hourly_usd(self) -> float:
        """What it costs, USD an hour."""
        return self.options.price_hourly_usd


def written_down(bought: Iterable[Bought], origin: Origin) -> tuple[PlannedNode, ...]:
    """Write nodes down as intents, in their order."""
    nodes: list[PlannedNode] = []
    first: Bought | None = None
    for one in bought:
        name = claim_name(one.nodepool, origin.decision, next(origin.numbers))
        template = one.options.offers[0].template
        is_same = first is not None and one.options is first.options
        if is_same and origin.templates.takes_again(template.status):
            nodes.append(another(nodes[-1], template, one.pods, name, origin.cluster))
        else:
            first, about = one, (origin.decision, origin.cluster, origin.now, origin.templates)
            nodes.append(planned_node(one.options, one.demands, one.pods, name, *about))
    return tuple(nodes)
