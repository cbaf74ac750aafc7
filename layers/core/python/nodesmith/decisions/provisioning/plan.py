"""What a provisioning decision depends on, and its result: nodes to buy, and why the rest of the pods stay pending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from math import fsum
from typing import NamedTuple, TypeAlias

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.launches import LaunchRequest, LaunchTemplate
from nodesmith.model.karpenter.capacitybuffers import is_room
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.podannotations import SCALE_UP_DELAY
from nodesmith.model.kubernetes.pods import OPTED_OUT, Pod, Reason
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeconfiguration import NodeSettings
from nodesmith.model.snapshot import Snapshot

BACK_OFF = "back-off"
"""What blocks pods for which nodes were bought in vain: see `attempts`."""
DELAYED = "scale-up delay"
"""What blocks pods whose SCALE_UP_DELAY has not ended."""


def of_delay(pod: Pod, until: datetime) -> Reason:
    """Return why nothing is bought for a pod whose SCALE_UP_DELAY ends at `until`."""
    asked = f"it is annotated {SCALE_UP_DELAY}={pod.shape.annotations[SCALE_UP_DELAY]}"
    text = f"{asked}: no node is bought for it before {until:%Y-%m-%d %H:%M:%S} UTC"
    return Reason(text, blocking=DELAYED)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything a decision may depend on. `decision` is its id, from which the claims' names are derived.

    `tried` lists pods that earlier decisions left without a node and that come after others: see `fairness.Shares`.
    With None the decision covers all pods, however long it takes.
    """

    snapshot: Snapshot
    ledger: Ledger
    catalog: Catalog
    settings: NodeSettings
    now: datetime
    decision: str
    tried: tuple[str, ...] | None = None


class Repetition(NamedTuple):
    """How often nodes were bought for the pods of a node before.

    `attempts` are the numbers of this attempt by workload, 0 for pods that run. `again` is how many nodes in a row
    nodesmith has removed from under these pods.
    """

    attempts: Mapping[str, int] = FrozenMap()
    again: int = 0


RepetitionOf: TypeAlias = Callable[[Iterable[Pod]], Repetition]
FIRST_TIME = Repetition()


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node to buy: the intent, the request to EC2, and the launch templates that the request refers to.

    The claim's price is what AWS charges for the request's cheapest offering: it is set here and overrides any earlier
    price.
    """

    claim: NodeClaim
    request: LaunchRequest
    templates: tuple[LaunchTemplate, ...]
    surcharge_hourly_usd: float = 0.0
    """What it costs beyond its instance, by annotations of its NodePool and DaemonSets; no part of its price."""

    def __post_init__(self) -> None:
        """Set the claim's price."""
        price = self.request.paid_hourly_usd
        if self.claim.price_hourly_usd != price:
            object.__setattr__(self, "claim", replace(self.claim, price_hourly_usd=price))

    @property
    def price_hourly_usd(self) -> float:
        """The price of its cheapest offering, USD an hour; 0 for a reservation, which is paid for anyway.

        NodeOverlays may have set it: AWS's price is the claim's.
        """
        return self.request.price_hourly_usd

    @property
    def is_room(self) -> bool:
        """Whether it is bought for CapacityBuffers alone."""
        return bool(self.claim.nominated) and all(map(is_room, self.claim.nominated))

    @property
    def estimated(self) -> bool:
        """Whether that price is an estimate, not one published by AWS."""
        return self.request.cheapest.estimated


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Pods (namespace/name) for which nothing is bought, and why."""

    pods: tuple[str, ...]
    why: Reason

    @property
    def reason(self) -> str:
        """The reason, in a sentence."""
        return self.why.text


@dataclass(frozen=True, slots=True)
class Room:
    """The room of one CapacityBuffer (namespace/name), counted in pods.

    `wanted` is what the buffer asks for, `count` as much of it as the caps allow. Of these, `there` have room on nodes,
    `coming` on nodes that do not run yet, and more nodes are bought for `bought`. `why` says why the rest has no room,
    empty if there is no rest.
    """

    buffer: str
    wanted: int
    count: int
    there: int = 0
    coming: int = 0
    bought: int = 0
    why: str = ""
    stopped: int = 0
    """For a buffer of stopped instances: how many there are. `there` counts the pods that they hold."""
    warming: int = 0
    """For such a buffer: how many instances are being prepared."""


@dataclass(frozen=True, slots=True)
class Forthcoming:
    """The pods that a workload (`Kind/namespace/name`) lacks since it has grown, and that are planned already.

    Of `pods`, `there` have places on nodes that run, `coming` on nodes that do not run yet, and more nodes are bought
    for `bought`. `why` says why the rest has no place, empty if there is no rest.
    """

    workload: str
    pods: int
    there: int = 0
    coming: int = 0
    bought: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """One decision. Prices are USD an hour.

    `placed` is pods by the node (or claim in flight) that has capacity for them, `waiting` maps pods to the claim they
    wait for. `bound_hourly_usd` is a lower bound on the price of any set of nodes for the same pods, and
    `cost_bound_hourly_usd` on price and surcharges together. `fewest` is a lower bound on the number of nodes, 0 unless
    a NodePool asks for few; the bounds in dollars then hold for all plans with as few nodes as this one. `problems` are
    objects that could not be used, each in a sentence; `obstacles` say per NodePool why it buys nothing.
    """

    nodes: tuple[PlannedNode, ...] = ()
    placed: Mapping[str, tuple[str, ...]] | None = None
    waiting: Mapping[str, str] | None = None
    unplaced: tuple[Unplaced, ...] = ()
    ignored: tuple[Unplaced, ...] = ()
    obstacles: Mapping[str, str] | None = None
    barren: tuple[str, ...] = ()
    """NodePools from which nothing can be bought now, because no instance type is left."""
    problems: tuple[str, ...] = ()
    bound_hourly_usd: float = 0.0
    cost_bound_hourly_usd: float = 0.0
    fewest: int = 0
    steps: int = 0
    new: int = 0
    """How many pods wait for their turn and have not been part of any decision."""
    tried: tuple[str, ...] = ()
    """Pods that the next decision takes up after others: see `fairness.Shares`."""
    rooms: tuple[Room, ...] = ()
    starts: tuple[NodeClaim, ...] = ()
    """The claims of stopped instances as they are started, with the pods that they are nominated for."""
    forthcoming: tuple[Forthcoming, ...] = ()
    due: datetime | None = None
    """When pods held by a back-off or a delay must be decided about again."""

    @property
    def price_hourly_usd(self) -> float:
        """The total price of the nodes to buy, each at its cheapest offering."""
        return fsum(node.price_hourly_usd for node in self.nodes)

    @property
    def surcharge_hourly_usd(self) -> float:
        """What the nodes to buy cost beyond their price."""
        return fsum(node.surcharge_hourly_usd for node in self.nodes)

    @property
    def start_hourly_usd(self) -> float:
        """The total price of the instances to start."""
        return fsum(claim.price_hourly_usd for claim in self.starts)

    @property
    def room_hourly_usd(self) -> float:
        """The price of those that are bought for CapacityBuffers alone."""
        return fsum(node.price_hourly_usd for node in self.nodes if node.is_room)

    @property
    def backed_off(self) -> int:
        """How many pods wait because nodes were bought for them in vain."""
        return sum(len(group.pods) for group in self.unplaced if group.why.blocking == BACK_OFF)

    @property
    def refused(self) -> tuple[Unplaced, ...]:
        """The ignored pods that ask for what no node can provide. The rest wait for the scheduler or have opted out."""
        return tuple(u for u in self.ignored if u.why.blocking and not u.why.text.startswith(OPTED_OUT))

    @property
    def is_idle(self) -> bool:
        """True if there was no pod to decide about."""
        return not (self.nodes or self.starts or self.placed or self.waiting or self.unplaced)
