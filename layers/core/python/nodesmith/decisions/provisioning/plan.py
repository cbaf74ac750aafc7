"""What a provisioning decision depends on, its result, and the record of both.

The result is nodes to buy, and why the rest of the pods stay pending.

The record is enough to explain the decision to a person and to repeat it with identical bytes. It is JSON. `inputs`
holds the ledger and settings as they were and names snapshot and catalogue by their content; `plan` is the decision.
`plan` depends on nothing but the inputs, so a replay returns the same bytes on any machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from math import fsum
from typing import Any, NamedTuple, TypeAlias

from nodesmith.model.apimachinery.frozen import NO_ITEMS, CanonicalText, FrozenMap, canonical_text
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.launches import LaunchRequest, LaunchTemplate
from nodesmith.model.karpenter.capacitybuffers import is_room
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.podannotations import SCALE_UP_DELAY
from nodesmith.model.kubernetes.pods import OPTED_OUT, Pod, Reason
from nodesmith.model.ledger.items import ClaimTexts, claim_to_item, ledger_item, read_ledger
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot

BACK_OFF = "back-off"
"""What blocks pods for which nodes were bought in vain: see `attempts`."""
DELAYED = "scale-up delay"
"""What blocks pods whose SCALE_UP_DELAY has not ended."""


def of_delay(pod: Pod, until: datetime) -> Reason:
    """Return why nothing is bought for a pod whose SCALE_UP_DELAY ends at `until`."""
    annotation = f"it is annotated {SCALE_UP_DELAY}={pod.shape.annotations[SCALE_UP_DELAY]}"
    text = f"{annotation}: no node is bought for it before {until:%Y-%m-%d %H:%M:%S} UTC"
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

    `attempts` are the numbers of this attempt by workload, 0 for pods that run. `removals` is how many nodes in a row
    nodesmith has removed from under these pods.
    """

    attempts: Mapping[str, int] = FrozenMap()
    removals: int = 0


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
    cause: Reason

    @property
    def reason(self) -> str:
        """The reason, in a sentence."""
        return self.cause.text


@dataclass(frozen=True, slots=True)
class Room:
    """The room of one CapacityBuffer (namespace/name), counted in pods.

    `wanted` is what the buffer asks for, `count` as much of it as the caps allow. Of these, `ready` have room on nodes,
    `launching` on nodes that do not run yet, and more nodes are bought for `bought`. `reason` says why the rest has no
    room, or why the buffer asks for none; empty without such a reason.
    """

    buffer: str
    wanted: int
    count: int
    ready: int = 0
    launching: int = 0
    bought: int = 0
    reason: str = ""
    stopped: int = 0
    """For a buffer of stopped instances: how many there are. `ready` counts the pods that they hold."""
    warming: int = 0
    """For such a buffer: how many instances are being prepared."""


@dataclass(frozen=True, slots=True)
class Forthcoming:
    """The pods that a workload (`Kind/namespace/name`) lacks since it has grown, and that are planned already.

    Of `pods`, `ready` have places on nodes that run, `launching` on nodes that do not run yet, and more nodes are
    bought for `bought`. `reason` says why the rest has no place, empty if there is no rest.
    """

    workload: str
    pods: int
    ready: int = 0
    launching: int = 0
    bought: int = 0
    reason: str = ""


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
    without_types: Mapping[str, str] = NO_ITEMS
    """NodePools from which nothing can be bought now: no instance type is left, or too few for minValues."""
    problems: tuple[str, ...] = ()
    bound_hourly_usd: float = 0.0
    cost_bound_hourly_usd: float = 0.0
    fewest: int = 0
    weights: str = ""
    """Whether the bound on the price holds for plans that prefer NodePools as their weights demand (`kept`), or for all
    plans (`disregarded`). Empty if no weights differ.
    """
    limits: str = ""
    """`disregarded` if limits may keep plans from reaching the bounds, which do not count them."""
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
    def room_hourly_usd(self) -> float:
        """The price of those that are bought for CapacityBuffers alone."""
        return fsum(node.price_hourly_usd for node in self.nodes if node.is_room)

    @property
    def backed_off(self) -> int:
        """How many pods wait because nodes were bought for them in vain."""
        return sum(len(group.pods) for group in self.unplaced if group.cause.blocking == BACK_OFF)

    @property
    def refused(self) -> tuple[Unplaced, ...]:
        """The ignored pods that ask for what no node can provide. The rest wait for the scheduler or have opted out."""
        return tuple(u for u in self.ignored if u.cause.blocking and not u.cause.text.startswith(OPTED_OUT))

    @property
    def is_idle(self) -> bool:
        """True if there was no pod to decide about."""
        return not (self.nodes or self.starts or self.placed or self.waiting or self.unplaced)


FORMAT, VERSION = "nodesmith-decision", 1
SCHEMA = "https://nodesmith.dev/schemas/decision.schema.json"
"""The JSON schema of a record, for editors; no reader needs it."""
MANY_CLAIMS = 1000
"""The number of claims from which a record is first written without them: 15,000 take seconds to write."""
_ID_DIGITS = 8
_CLAIM_TEXTS = ClaimTexts()


def decision_id(snapshot_digest: str, ledger_version: int, now: datetime) -> str:
    """Return the id of a decision, derived from its time and its inputs; ids sort by time."""
    content = hashlib.sha256(f"{snapshot_digest}/{ledger_version}/{now.isoformat()}".encode()).hexdigest()
    return f"{now:%Y%m%dT%H%M%SZ}-{content[:_ID_DIGITS]}"


def record(
    inputs: Inputs,
    plan: Plan,
    snapshot_digest: str,
    durations_ms: Mapping[str, float],
    *,
    with_claims: bool = True,
) -> dict[str, Any]:
    """Return the record of a decision. `durations_ms` are informative; a replay leaves them out.

    `superseded` becomes true if the decision had no effect because another run decided first. A record without claims
    explains the decision, but cannot be replayed.
    """
    ledger = inputs.ledger if with_claims else replace(inputs.ledger, claims=())
    return {
        **record_header("provisioning", replace(inputs, ledger=ledger), snapshot_digest),
        "plan": plan_item(plan),
        "durationsMs": {name: round(ms, 1) for name, ms in durations_ms.items()},
    }


def record_header(concern: str, inputs: Inputs, snapshot_digest: str) -> dict[str, Any]:
    """Return who decided, when, and from which inputs."""
    ledger = ledger_item(replace(inputs.ledger, claims=()))
    claims = _CLAIM_TEXTS.of(sorted(inputs.ledger.claims, key=lambda claim: claim.name))
    stated = {
        "snapshot": {"sha256": snapshot_digest, "takenAt": inputs.snapshot.taken_at.isoformat()},
        "catalog": {"region": inputs.catalog.region, "ref": inputs.catalog.ref},
        "ledger": {**ledger, "claims": CanonicalText(f"[{','.join(claims)}]")},
        "settings": asdict(inputs.settings),
        **({} if inputs.tried is None else {"tried": list(inputs.tried)}),
    }
    text = canonical_text(stated)
    return {
        "$schema": SCHEMA,
        "format": FORMAT,
        "version": VERSION,
        "id": inputs.decision,
        "concern": concern,
        "cluster": inputs.snapshot.cluster,
        "at": inputs.now.isoformat(),
        "superseded": False,
        "inputsHash": hashlib.sha256(text.encode()).hexdigest(),
        "inputs": CanonicalText(text),
    }


def inputs_of(written: Mapping[str, Any], snapshot: Snapshot, catalog: Catalog) -> Inputs:
    """Return the inputs of a recorded decision. `snapshot` and `catalog` are those that the record names."""
    tried = written["inputs"].get("tried")
    return Inputs(
        snapshot,
        read_ledger(written["inputs"]["ledger"]),
        catalog,
        NodeSettings.of(written["inputs"]["settings"]),
        datetime.fromisoformat(written["at"]),
        written["id"],
        None if tried is None else tuple(tried),
    )


def plan_item(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON data."""
    return {
        "nodes": [node_item(node) for node in plan.nodes],
        "placed": {name: list(pods) for name, pods in sorted((plan.placed or {}).items())},
        "waiting": dict(sorted((plan.waiting or {}).items())),
        "unplaced": [_unplaced_item(u) for u in plan.unplaced],
        "ignored": [_unplaced_item(u) for u in plan.ignored],
        "obstacles": dict(sorted((plan.obstacles or {}).items())),
        "problems": list(plan.problems),
        "priceHourlyUsd": round(plan.price_hourly_usd, 6),
        "boundHourlyUsd": round(plan.bound_hourly_usd, 6),
        "steps": plan.steps,
        **_surcharged(plan),
        **({"starts": [claim_to_item(claim) for claim in plan.starts]} if plan.starts else {}),
        **({"rooms": [room_item(room) for room in plan.rooms]} if plan.rooms else {}),
        **({"forthcoming": [asdict(each) for each in plan.forthcoming]} if plan.forthcoming else {}),
    }


def room_item(room: Room) -> dict[str, Any]:
    """Return a buffer's room as JSON data; counts of instances only if there are any."""
    return {
        name: value for name, value in asdict(room).items() if value or name not in ("stopped", "warming")
    }


def _surcharged(plan: Plan) -> dict[str, Any]:
    """Return what surcharges, the objective of few nodes, weights and limits add to a plan; empty without them."""
    surcharge = {
        "surchargeHourlyUsd": round(plan.surcharge_hourly_usd, 6),
        "costBoundHourlyUsd": round(plan.cost_bound_hourly_usd, 6),
    }
    fewest = {"fewestNodes": plan.fewest} if plan.fewest else {}
    weights = {"weights": plan.weights} if plan.weights else {}
    limits = {"limits": plan.limits} if plan.limits else {}
    return {**(surcharge if plan.surcharge_hourly_usd else {}), **fewest, **weights, **limits}


def _unplaced_item(unplaced: Unplaced) -> dict[str, Any]:
    reason = unplaced.cause
    return {
        "pods": list(unplaced.pods),
        "reason": reason.text,
        "nodePool": reason.nodepool,
        "blocking": reason.blocking,
        "fix": reason.fix,
    }


def node_item(node: PlannedNode) -> dict[str, Any]:
    """Return a node to buy as JSON data."""
    commitment = node.request.cheapest.commitment
    is_listed = node.request.is_overlaid or bool(commitment)
    return {
        "claim": claim_to_item(node.claim),
        "launch": node.request.to_item(),
        "templates": [template.name for template in node.templates],
        "priceHourlyUsd": node.price_hourly_usd,
        **({"listPriceHourlyUsd": node.claim.price_hourly_usd} if is_listed else {}),
        **({"commitment": commitment} if commitment else {}),
        **({"surchargeHourlyUsd": node.surcharge_hourly_usd} if node.surcharge_hourly_usd else {}),
        "estimated": node.estimated,
    }
