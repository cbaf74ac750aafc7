"""What a provisioning decision says: nodes to buy, pods that need none, and why the others stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from math import fsum

from nodesmith.model.ec2.launches import LaunchRequest, LaunchTemplate
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.unschedulable import OPTED_OUT, Reason

BACK_OFF = "back-off"
"""What blocks pods for which nodes were bought in vain: see `decisions.attempts`."""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node to buy: the intent, what EC2 will be asked, the launch templates that asks for.

    The claim's price is always that of the request's cheapest offering: it is set here, whatever the claim said before.
    """

    claim: NodeClaim
    request: LaunchRequest
    templates: tuple[LaunchTemplate, ...]

    def __post_init__(self) -> None:
        """Price the claim."""
        price = self.request.price_hourly_usd
        if self.claim.price_hourly_usd != price:
            object.__setattr__(self, "claim", replace(self.claim, price_hourly_usd=price))

    @property
    def price_hourly_usd(self) -> float:
        """What it costs at its cheapest offering, USD an hour; a reservation is paid for anyway."""
        return self.claim.price_hourly_usd

    @property
    def estimated(self) -> bool:
        """Whether that price is a stand-in, not one that AWS has told."""
        return self.request.cheapest.estimated


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Pods (namespace/name) for which nothing is bought, and why."""

    pods: tuple[str, ...]
    why: Reason

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        return self.why.text


@dataclass(frozen=True, slots=True)
class Plan:
    """One decision. Prices are USD an hour.

    `placed` is pods by the node (or claim in flight) that has room for them, `waiting` pods whose claim is on its way.
    `bound_hourly_usd` is a price that no set of nodes for the same pods can undercut. `problems` are objects that
    could not be used, each in a sentence; `obstacles` say per NodePool why it buys nothing.
    """

    nodes: tuple[PlannedNode, ...] = ()
    placed: Mapping[str, tuple[str, ...]] | None = None
    waiting: Mapping[str, str] | None = None
    unplaced: tuple[Unplaced, ...] = ()
    ignored: tuple[Unplaced, ...] = ()
    obstacles: Mapping[str, str] | None = None
    barren: tuple[str, ...] = ()
    """NodePools of which nothing can be bought now whatever is asked, as no instance type is left"""
    problems: tuple[str, ...] = ()
    bound_hourly_usd: float = 0.0
    steps: int = 0
    new: int = 0
    """how many pods wait for their turn and have never been decided about"""
    tried: tuple[str, ...] = ()
    """pods that are decided about after others the next time: see `shares`"""
    due: datetime | None = None
    """when pods that wait for a back-off are to be decided about again"""

    @property
    def price_hourly_usd(self) -> float:
        """What the nodes to buy cost together, each at its cheapest offering."""
        return fsum(node.price_hourly_usd for node in self.nodes)

    @property
    def backed_off(self) -> int:
        """How many pods wait because nodes were bought for them in vain."""
        return sum(len(group.pods) for group in self.unplaced if group.why.blocking == BACK_OFF)

    @property
    def refused(self) -> tuple[Unplaced, ...]:
        """Of the pods that are left alone those that ask for what no node can give; the others know why they wait."""
        return tuple(u for u in self.ignored if u.why.blocking and not u.why.text.startswith(OPTED_OUT))

    @property
    def is_idle(self) -> bool:
        """True where there was no pod to decide about."""
        return not (self.nodes or self.placed or self.waiting or self.unplaced)
