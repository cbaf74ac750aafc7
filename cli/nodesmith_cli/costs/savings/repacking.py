"""The cluster's cost on nodesmith's nodes: with all pods planned from scratch, and after single moves.

Both are the decisions of the deployed functions: the planner of provisioning, and the search of disruption.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import fsum

from nodesmith.decisions.disruption.costs import price_of
from nodesmith.decisions.disruption.proposals import Blocker, Proposal
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Inputs, Plan, PlannedNode, decide
from nodesmith.decisions.shadow.fleet import lasting_claim, launched, types_of
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import RESERVED
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith_cli.costs.commitments import covered_hourly_usd
from nodesmith_cli.costs.savings.fleet import reshaped, unprotected

_ROUNDS = 5
"""How often pods that found no new node may keep their present ones. After that, all of them do."""
_STEPS = 100_000
"""The step limit of one search for moves. It is generous, since no tick waits for it."""
_PASSES = 8
SCHEDULING = 0.06
"""Allowance for moved pods that kube-scheduler puts elsewhere than planned: a share of the price of their nodes.

Simulated clusters that nodesmith had managed for an hour cost this much more than their moves had promised
(`tests/experiments/savingsaccuracy.py`).
"""
_BETWEEN = timedelta(days=1)
"""Time between two searches, in which no pods come or go: a saving then counts for as long as it ever does."""


@dataclass(frozen=True, slots=True)
class Repacked:
    """All pods planned anew. Prices are USD an hour and include the nodes that are `kept`.

    `kept` maps the names of nodes that stay to a sentence why; `bound_hourly_usd` is a price that no plan can undercut.
    """

    hourly_usd: float
    bound_hourly_usd: float
    nodes: tuple[PlannedNode, ...]
    kept: Mapping[str, str]

    @property
    def number(self) -> int:
        """How many nodes there would be."""
        return len(self.nodes) + len(self.kept)

    @property
    def estimated_hourly_usd(self) -> float:
        """The part of the price of new nodes that is an estimate."""
        return fsum(node.price_hourly_usd for node in self.nodes if node.estimated)


def repacked(inputs: Inputs, kept: Mapping[str, str] | None = None) -> Repacked:
    """Plan all pods on new nodes, except on the nodes in `kept` (with the reason), whose pods stay.

    PodDisruptionBudgets and do-not-disrupt do not count, because they only delay. Pods that no NodePool accepts keep
    their nodes. Nodes of static NodePools stay, because these keep their number of nodes, and so do nodes of capacity
    reservations, which cost nothing more.
    """
    inputs = replace(inputs, snapshot=replace(reshaped(inputs.snapshot, _freed), budgets=()))
    staying = {**_static(inputs), **(kept or {})}
    priced = {claim.node_name for claim in inputs.ledger.claims}
    plan = Plan()
    for attempt in range(_ROUNDS):
        plan = decide(_without(inputs, priced - staying.keys()))
        homeless = _with_unplaced_pods(inputs, plan, staying)
        if not homeless:
            break
        if attempt == _ROUNDS - 1:
            homeless = dict.fromkeys(priced - staying.keys(), "the pods on it found no other place together")
            plan = Plan()
        staying |= homeless
    staying_hourly_usd = fsum(
        price_of(claim, node, inputs.catalog) for claim, node in _pairs(inputs) if claim.node_name in staying
    )
    staying_hourly_usd -= covered_hourly_usd(_without(inputs, priced - staying.keys()))
    bound = min(plan.bound_hourly_usd, plan.price_hourly_usd)
    priced_staying = {name: reason for name, reason in staying.items() if name in priced}
    return Repacked(
        plan.price_hourly_usd + staying_hourly_usd, bound + staying_hourly_usd, plan.nodes, priced_staying
    )


def _freed(pod: Pod) -> Callable[[Shape], Shape]:
    del pod
    return unprotected


def _static(inputs: Inputs) -> dict[str, str]:
    static = {name for name, pool in parsed_nodepools(inputs.snapshot.nodepools).items() if pool.is_static}
    reserved = "it runs in a capacity reservation"
    reserved_by_node = {c.node_name: reserved for c in inputs.ledger.claims if c.capacity_type == RESERVED}
    return reserved_by_node | {
        claim.node_name: f"its NodePool {claim.nodepool} has spec.replicas"
        for claim in inputs.ledger.claims
        if claim.nodepool in static
    }


def _pairs(inputs: Inputs) -> list[tuple[NodeClaim, Node]]:
    pairs = ((claim, inputs.snapshot.node_of(claim)) for claim in inputs.ledger.claims)
    return [(claim, node) for claim, node in pairs if node is not None]


def _without(inputs: Inputs, names: Collection[str]) -> Inputs:
    """Return the inputs as if these nodes were going away."""
    nodes = tuple(replace(n, deleting=True) if n.name in names else n for n in inputs.snapshot.nodes)
    claims = tuple(claim for claim in inputs.ledger.claims if claim.node_name not in names)
    snapshot = replace(inputs.snapshot, nodes=nodes)
    return replace(inputs, snapshot=snapshot, ledger=replace(inputs.ledger, claims=claims))


def _with_unplaced_pods(inputs: Inputs, plan: Plan, staying: Mapping[str, str]) -> dict[str, str]:
    """Return the nodes with pods that the plan leaves without a place, each with the reason."""
    placed = {key for node in plan.nodes for key in node.claim.nominated}
    placed |= {key for keys in (plan.placed or {}).values() for key in keys}
    reasons = {key: group.reason for group in (*plan.unplaced, *plan.ignored) for key in group.pods}
    unpriced = {node.name for node in inputs.snapshot.nodes} - {c.node_name for c in inputs.ledger.claims}
    reasons_by_node: dict[str, str] = {}
    for pod in inputs.snapshot.pods:
        stays = pod.node in staying or pod.node in unpriced or pod.deleting or not pod.shape.moves
        if not stays and pod.key not in placed:
            reason = reasons.get(pod.key, "no NodePool accepts it")
            reasons_by_node.setdefault(pod.node, f"pod {pod.key}: {reason}")
    return reasons_by_node


@dataclass(frozen=True, slots=True)
class Reached:
    """Where moves lead, each of which is worth its evictions and allowed by budgets and annotations.

    `moves` are in the order in which they would begin. `blocked` are the nodes that may not be moved now, with the rule
    that keeps them. `is_finished` is False if there was no time to look for all moves.
    """

    hourly_usd: float
    nodes: int
    moves: tuple[Proposal, ...] = ()
    blocked: Mapping[str, Blocker] = FrozenMap()
    is_finished: bool = True

    @property
    def evictions(self) -> int:
        """How many pods restart, each as often as it moves."""
        return sum(len(move.destinations) for move in self.moves)


def reached(inputs: Inputs, has_time: Callable[[], bool] = lambda: True) -> Reached:
    """Simulate the moves that the search of disruption finds, pass by pass, until it finds none.

    The price includes the allowance `SCHEDULING`. `has_time` is called before every pass but the first.
    """
    moves, blocked = list[Proposal](), dict[str, Blocker]()
    is_finished = False
    for number in range(_PASSES):
        if number and not has_time():
            break
        proposals = propose(inputs, steps=_STEPS)
        if not number:
            names = {claim.name: claim.node_name for claim in inputs.ledger.claims}
            blocked = {names[name]: blocker for name, blocker in proposals.blocked.items()}
        if not proposals.proposals:
            is_finished = proposals.is_finished
            break
        moves += proposals.proposals
        inputs = after(inputs, proposals.proposals, inputs.now + _BETWEEN, f"{inputs.decision}-{number}")
    touched = {name for move in moves for name in move.destinations.values()}
    price = fleet_hourly_usd(inputs) + SCHEDULING * fleet_hourly_usd(inputs, touched)
    return Reached(price, len(inputs.ledger.claims), tuple(moves), blocked, is_finished)


def fleet_hourly_usd(inputs: Inputs, only: Collection[str] | None = None) -> float:
    """Return what the nodes with a NodeClaim cost, USD an hour, or only those with these names.

    Nodes that commitments pay for are left out, except named ones: it is not known which of them would be covered.
    """
    paid = covered_hourly_usd(inputs) if only is None else 0.0
    pairs = ((c, node) for c, node in _pairs(inputs) if only is None or node.name in only)
    return fsum(price_of(claim, node, inputs.catalog) for claim, node in pairs) - paid


def after(inputs: Inputs, done: Iterable[Proposal], now: datetime, decision: str) -> Inputs:
    """Return the inputs of a later decision, after exactly these moves have been carried out."""
    done = list(done)
    removed = {name for proposal in done for name in proposal.sources}
    places = {pod: at for proposal in done for pod, at in proposal.destinations.items()}
    types, pools = types_of(inputs), parsed_nodepools(inputs.snapshot.nodepools)
    launches = [launched(node, types, inputs.now) for proposal in done for node in proposal.replacements]
    vacated = {claim.node_name for claim in inputs.ledger.claims if claim.name in removed}
    touched = set(places.values())
    nodes = [
        replace(node, last_pod_event_at=inputs.now) if node.name in touched else node
        for node in inputs.snapshot.nodes
        if node.name not in vacated
    ]
    pods = tuple(
        replace(pod, node=places[pod.key]) if pod.key in places else pod
        for pod in inputs.snapshot.pods
        if pod.key in places or pod.node not in vacated
    )
    snapshot = replace(
        inputs.snapshot, pods=pods, nodes=(*nodes, *(node for node, _ in launches)), taken_at=now
    )
    claims = (
        *(claim for claim in inputs.ledger.claims if claim.name not in removed),
        *(lasting_claim(node, pool, pools) for node, pool in launches),
    )
    ledger = replace(inputs.ledger, claims=tuple(sorted(claims, key=lambda claim: claim.name)))
    return replace(inputs, snapshot=snapshot, ledger=ledger, now=now, decision=decision)


def best_moves(moves: Sequence[Proposal], most: int = 10) -> list[Proposal]:
    """Return the moves that save most an hour."""
    ordered = sorted(enumerate(moves), key=lambda item: (-item[1].saving_hourly_usd, item[0]))
    return [move for _, move in ordered[:most]]
