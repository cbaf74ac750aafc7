"""The cost of each node in an hour, by the second and at the price of each moment, and the results of moves.

Nodes of other software are booked as well, as long as the cluster shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODEPOOL,
    ON_DEMAND,
    RESERVED,
    ZONE,
)
from nodesmith.model.apimachinery.quantities import NOTHING, Resources
from nodesmith.model.costs.allocations import (
    HOUR,
    OUTCOME_AFTER,
    MoveOutcome,
    cost_of,
    microseconds,
    nano_usd,
)
from nodesmith.model.ec2.catalog import LINUX, Catalog, product_of, sold_as
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.moves import Move
from nodesmith.model.snapshot import Snapshot

MANAGER, KARPENTER, AUTO_MODE, NODE_GROUP, OTHER = (
    "nodesmith",
    "karpenter",
    "eks-auto-mode",
    "node-group",
    "other",
)
"""The software that manages a node"""
_NODE_GROUPS = ("eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name")
_EKS_CAPACITY_TYPE, _COMPUTE_TYPE = "eks.amazonaws.com/capacityType", "eks.amazonaws.com/compute-type"
LONGEST_TEXT = 253
"""The longest text that is booked: no name or value in Kubernetes is longer."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a node in nano-dollars an hour."""

    hourly: int
    estimated: bool = False


UNKNOWN = Price(0, estimated=True)


@dataclass(frozen=True, slots=True)
class Prices:
    """The catalogue's prices by `price_key`: `latest` since `changed_at`, and `before` until then."""

    latest: Mapping[str, Price]
    before: Mapping[str, Price] = field(default_factory=dict)
    changed_at: datetime | None = None

    def at(self, key: str, moment: datetime) -> Price | None:
        """Return the price at a moment, None if it is unknown."""
        is_before = self.changed_at is not None and moment < self.changed_at
        price = (self.before if is_before else self.latest).get(key)
        return None if price == UNKNOWN else price


def price_key(product: str, capacity_type: str, instance_type: str, zone: str) -> str:
    """Return what identifies a price. Reserved capacity has the on-demand price."""
    priced_as = ON_DEMAND if capacity_type == RESERVED else capacity_type
    return f"{product}/{priced_as}/{instance_type}/{zone}"


def prices_of(catalog: Catalog, keys: Iterable[str]) -> dict[str, Price]:
    """Return the catalogue's prices for those of these keys that it knows."""
    prices = {}
    for key in sorted(set(keys)):
        product, capacity_type, kind, zone = key.split("/", 3)
        for offering in sold_as(catalog, kind, product):
            if (offering.zone, offering.capacity_type) == (zone, capacity_type) and not offering.reservation:
                prices[key] = Price(nano_usd(offering.price_hourly_usd), offering.estimated)
                break
    return prices


@dataclass(frozen=True, slots=True)
class Period:
    """A time within the hour in which a node had one price; `is_stopped` if only its volumes were paid for."""

    start: datetime
    end: datetime
    price: Price
    is_stopped: bool = False

    @property
    def cost(self) -> int:
        """What it cost, in nano-dollars."""
        return cost_of(self.price.hourly, self.end - self.start)


@dataclass(frozen=True, slots=True)
class BookedNode:
    """A node of any software, and the periods of the hour in which it was paid for. `claim` is empty if foreign."""

    name: str
    instance_id: str
    provider_id: str
    nodepool: str
    instance_type: str
    zone: str
    capacity_type: str
    manager: str
    product: str
    capacity: Resources = NOTHING
    claim: str = ""
    periods: tuple[Period, ...] = ()

    @property
    def price_key(self) -> str:
        """The key of its price in the catalogue."""
        return price_key(self.product, self.capacity_type, self.instance_type, self.zone)

    @property
    def is_committable(self) -> bool:
        """Whether Savings Plans and Reserved Instances may apply: on-demand Linux on shared hardware."""
        return self.capacity_type == ON_DEMAND and self.product == LINUX


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as it was from `start` to `end`."""

    start: datetime
    end: datetime
    snapshot: Snapshot


def ended_at(claim: NodeClaim) -> datetime | None:
    """Return when a claim's instance ended, None while it runs.

    If EC2 took the instance, that is when nodesmith noticed, unless EC2 has said when it was. The instance of a claim
    that is given up ends then.
    """
    noticed_at = (
        claim.terminating_at
        if claim.cause in {InterruptionCause.TERMINATED, InterruptionCause.STOPPED}
        else None
    )
    given_up_at = claim.phase_since if claim.phase is Phase.GIVEN_UP else None
    moments = [
        moment for moment in (noticed_at, claim.terminated_at, claim.instance_gone_at) if moment is not None
    ]
    return min(moments, default=given_up_at)


def nodes_of(
    claims: Iterable[NodeClaim], views: Sequence[View], start: datetime, end: datetime
) -> list[BookedNode]:
    """Return all nodes of an hour with periods without prices: those of claims, and those of other software."""
    nodes_of_claims = [node for claim in claims if (node := _of_claim(claim, views, start, end)) is not None]
    provider_ids = {node.provider_id for node in nodes_of_claims} | {claim.provider_id for claim in claims}
    return [*nodes_of_claims, *_foreign(views, provider_ids)]


def _of_claim(claim: NodeClaim, views: Sequence[View], start: datetime, end: datetime) -> BookedNode | None:
    if not claim.instance_id or claim.launched_at is None:
        return None
    ended = ended_at(claim) or end
    turns = [(claim.launched_at, False)]
    steps = (step for step in claim.history if step.phase in {Phase.STOPPED, Phase.STARTING})
    turns += [(step.at, step.phase is Phase.STOPPED) for step in steps]
    ends = [*(at for at, _ in turns[1:]), ended]
    periods = [
        Period(max(since, start), min(until, ended, end), _own_price(claim, is_stopped), is_stopped)
        for (since, is_stopped), until in zip(turns, ends, strict=True)
    ]
    observed = next((node for v in reversed(views) if (node := v.snapshot.node_of(claim)) is not None), None)
    return BookedNode(
        name=truncated(claim.node_name or (observed.name if observed else "") or claim.name),
        instance_id=claim.instance_id,
        provider_id=claim.provider_id,
        nodepool=claim.nodepool,
        instance_type=claim.instance_type,
        zone=claim.zone,
        capacity_type=claim.capacity_type,
        manager=MANAGER,
        product=product_of(claim.labels),
        capacity=(observed.capacity if observed else NOTHING) or claim.capacity,
        claim=claim.name,
        periods=tuple(period for period in periods if period.end > period.start),
    )


def _own_price(claim: NodeClaim, is_stopped: bool) -> Price:
    """Return what the ledger knows of a claim's price."""
    usd = claim.stopped_price_hourly_usd if is_stopped else claim.price_hourly_usd
    return Price(nano_usd(usd), estimated=not usd)


def _foreign(views: Sequence[View], known_ids: set[str]) -> Iterator[BookedNode]:
    """Yield the nodes without a claim. Each is paid for from its creation until the first view without it."""
    by_provider_id: dict[str, tuple[Node, list[Period]]] = {}
    for view in views:
        for node in view.snapshot.nodes:
            if node.provider_id in known_ids or not node.provider_id.startswith("aws:///"):
                continue
            earlier, periods = by_provider_id.get(node.provider_id, (node, []))
            since = max(view.start, min(node.created_at, earlier.created_at))
            if since < view.end:
                periods.append(Period(since, view.end, UNKNOWN))
            by_provider_id[node.provider_id] = node, periods
    for provider_id, (node, periods) in sorted(by_provider_id.items()):
        labels = node.labels
        group = next((labels[key] for key in _NODE_GROUPS if key in labels), "")
        capacity_type = labels.get(CAPACITY_TYPE) or labels.get(_EKS_CAPACITY_TYPE, ON_DEMAND)
        yield BookedNode(
            name=truncated(node.name),
            instance_id=truncated(provider_id.rpartition("/")[2]),
            provider_id=provider_id,
            nodepool=truncated(labels.get(NODEPOOL) or group),
            instance_type=truncated(labels.get(INSTANCE_TYPE, "")),
            zone=truncated(labels.get(ZONE, "")),
            capacity_type=truncated(capacity_type.lower().replace("_", "-")),
            manager=_manager(labels, group),
            product=product_of(labels),
            capacity=node.capacity,
            periods=tuple(_joined(periods)),
        )


def truncated(text: str) -> str:
    """Return the beginning of a text that the cluster supplies."""
    return text[:LONGEST_TEXT]


def _manager(labels: Mapping[str, str], group: str) -> str:
    if labels.get(_COMPUTE_TYPE) == "auto":
        return AUTO_MODE
    if NODEPOOL in labels:
        return KARPENTER
    return NODE_GROUP if group else OTHER


def _joined(periods: Iterable[Period]) -> Iterator[Period]:
    """Yield periods, those that follow one another as one."""
    last: Period | None = None
    for period in periods:
        if last is not None and last.end == period.start:
            last = replace(last, end=period.end)
            continue
        if last is not None:
            yield last
        last = period
    if last is not None:
        yield last


def priced(node: BookedNode, prices: Prices) -> BookedNode:
    """Return a node with the price of each moment.

    Spot nodes and foreign nodes have the catalogue's price, nodes in reserved capacity the on-demand price. The price
    in the ledger is that at the launch. It stands for one that the catalogue does not know.
    """
    follows = node.capacity_type != ON_DEMAND or not node.claim
    periods: list[Period] = []
    for period in node.periods:
        if period.is_stopped or not (follows or period.price.estimated):
            periods.append(period)
            continue
        for part in _cut(period, prices.changed_at):
            price = prices.at(node.price_key, part.start)
            if price is None and part.price.estimated:  # the present price is closer than none
                price = prices.latest.get(node.price_key)
            periods.append(replace(part, price=price) if price is not None else part)
    return replace(node, periods=tuple(periods))


def _cut(period: Period, at: datetime | None) -> Iterator[Period]:
    if at is None or not period.start < at < period.end:
        yield period
        return
    yield replace(period, end=at)
    yield replace(period, start=at)


def billed_usage(nodes: Iterable[BookedNode]) -> dict[tuple[str, str], float]:
    """Return how many instances of each type and zone were billed on demand during the hour, as fractions.

    Foreign nodes are left out, because they are read from EC2.
    """
    hours: dict[tuple[str, str], float] = {}
    for node in nodes:
        if node.is_committable and node.claim:
            key = node.instance_type, node.zone
            lasted = sum(microseconds(p.end - p.start) for p in node.periods if not p.is_stopped)
            hours[key] = hours.get(key, 0.0) + lasted / microseconds(HOUR)
    return hours


def new_outcome(move: Move, claims: Mapping[str, NodeClaim]) -> MoveOutcome:
    """Return a move whose sources have begun to end, as it is first booked. `claims` are those known, by name."""
    prices = [claims[name].price_hourly_usd for name in move.sources if name in claims]
    replacement_prices = [claims[name].price_hourly_usd for name in move.replacements if name in claims]
    price_before = (
        sum(prices) if len(prices) == len(move.sources) else move.saving_hourly_usd + sum(replacement_prices)
    )
    return MoveOutcome(
        move.id,
        move.reason.value,
        move.stage_since,
        move.message[: 4 * LONGEST_TEXT],
        move.sources,
        move.replacements,
        nano_usd(move.saving_hourly_usd),
        nano_usd(price_before),
    )


def followed(
    move: MoveOutcome, nodes: Mapping[str, BookedNode], claims: Mapping[str, NodeClaim], hour: datetime
) -> MoveOutcome:
    """Return a move with what an hour adds to its outcome, settled if its day ends in the hour.

    `nodes` are the hour's nodes by claim.
    """
    until = min(move.moved_at + OUTCOME_AFTER, hour + HOUR)
    since = max(move.moved_at, hour)
    if since >= until:
        return move
    cost, again = 0, dict(zip(move.moved_again, move.causes, strict=True))
    for name in (*move.sources, *move.replacements):
        periods = nodes[name].periods if name in nodes else ()
        clipped = (replace(p, start=max(p.start, since), end=min(p.end, until)) for p in periods)
        cost += sum(period.cost for period in clipped if period.end > period.start)
    for name in move.replacements:
        claim = claims.get(name)
        if claim is not None and claim.terminating_at is not None and claim.terminating_at < until:
            again[name] = claim.cause or "Unknown"
    return replace(
        move,
        sources_nano_usd=move.sources_nano_usd + cost_of(move.sources_hourly_nano_usd, until - since),
        replacements_nano_usd=move.replacements_nano_usd + cost,
        moved_again=tuple(again),
        causes=tuple(again.values()),
        settled_at=until if until == move.moved_at + OUTCOME_AFTER else None,
    )
