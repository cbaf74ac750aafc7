"""A month of a cluster with a daily rhythm, changing prices and images: nodesmith next to N to 1 moves as in Karpenter.

Every hour, pods come and go, nodes are bought for pending pods, and a search runs until it finds nothing more. The
savings of each search are relative to a third run, in which only empty nodes are removed. Nodes with old images are
replaced in all three runs in the same way; evictions of their pods are not counted, since they do not save money.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.methods import remove_empty, renew
from nodesmith.decisions.disruption.search.search import DEFAULT_STEPS, propose
from nodesmith.decisions.disruption.search.searchpass import Pass
from nodesmith.decisions.provisioning import Inputs, decide
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.shadow.karpenter import one_command
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.moves import Reason
from tests import builders
from tests.benchmarks.disruption.consolidated import price_hourly_usd
from tests.benchmarks.disruption.days import HOUR, ClusterPorts, begun_anew, image_of
from tests.benchmarks.disruption.fleets import launched
from tests.benchmarks.figures import Figure
from tests.objects.fleets import Worker, fleet, pool
from tests.smallworld.moved import after

Search = Callable[[Inputs], Sequence[Proposal]]
_MOST_ROUNDS = 12
"""of a search within an hour"""


@dataclass(slots=True)
class Life:
    """One run. `repeated` counts states that occur twice within an hour, `spent_usd` is the price of all nodes."""

    inputs: Inputs
    spent_usd: float = 0.0
    evictions: int = 0
    renewed: int = 0
    repeated: int = 0
    outside: ClusterPorts = field(default_factory=ClusterPorts)


def figures(*, days: int) -> list[Figure]:
    """Run the days with each of the three searches."""
    ours, theirs, idle = (lived(days, search) for search in (_ours, _theirs, _empty_only))
    saved, beside = idle.spent_usd - ours.spent_usd, idle.spent_usd - theirs.spent_usd
    rate, other = ours.evictions / max(saved, 1e-9), theirs.evictions / max(beside, 1e-9)
    note = (
        f"{days} days: ${idle.spent_usd:.0f} with only empty nodes removed; ours ${ours.spent_usd:.0f} by"
        f" {ours.evictions} evictions, N to 1 ${theirs.spent_usd:.0f} by {theirs.evictions};"
        f" replaced nodes: {ours.renewed}, {theirs.renewed}, {idle.renewed}"
    )
    return [
        Figure("month-evictions-per-usd-ratio", rate / other, "× N to 1's", 0.5, note),
        Figure("month-price-ratio", ours.spent_usd / theirs.spent_usd, "× N to 1's", 1.03, note),
        Figure(
            "repeated-states", ours.repeated, "states", 0, "that occurred twice while nothing outside changed"
        ),
    ]


def lived(days: int, search: Search) -> Life:
    """Run the days hour by hour."""
    either = pool(after="30s", budgets=[{"nodes": "30%"}])
    life = Life(fleet([], pools=[either]))
    for hour in range(24 * days):
        life.inputs, touched = life.outside.goes_on(life.inputs, hour)
        _see(life, life.inputs.snapshot.pods, touched)
        _buy(life)
        _consolidate(life, search)
        life.spent_usd += price_hourly_usd(life.inputs)
        now = builders.NOW + (hour + 1) * HOUR
        life.inputs = replace(life.inputs, now=now, snapshot=replace(life.inputs.snapshot, taken_at=now))
    return life


def _see(life: Life, pods: Iterable[Pod], touched: Iterable[str]) -> None:
    now, names = life.inputs.now, frozenset(touched)
    nodes = tuple(
        replace(n, last_pod_event_at=now) if n.name in names else n for n in life.inputs.snapshot.nodes
    )
    life.inputs = replace(life.inputs, snapshot=replace(life.inputs.snapshot, pods=tuple(pods), nodes=nodes))


def _buy(life: Life) -> None:
    """Assign every pending pod to a node, and buy nodes if capacity is missing."""
    inputs = replace(life.inputs, decision=f"buy-{life.outside.born}-{life.inputs.now:%d%H}")
    plan = decide(inputs)
    come = [_booted(node, inputs) for node in plan.nodes]
    places = {pod: name for name, pods in (plan.placed or {}).items() for pod in pods}
    for worker, node in zip(come, plan.nodes, strict=True):
        places |= dict.fromkeys(node.claim.nominated, worker.node.name)
    pods = [
        replace(p, node=places[p.key], unschedulable=False) if p.key in places else p
        for p in inputs.snapshot.pods
    ]
    snapshot = replace(inputs.snapshot, nodes=(*inputs.snapshot.nodes, *(w.node for w in come)))
    ledger = replace(inputs.ledger, claims=(*inputs.ledger.claims, *(w.claim for w in come)))
    life.inputs = replace(inputs, snapshot=snapshot, ledger=ledger)
    _see(life, pods, places.values())


def _booted(node: PlannedNode, inputs: Inputs) -> Worker:
    """Return the node that a planned node becomes, with today's image."""
    worker = launched(node, inputs.now)
    image = image_of(worker.claim.labels, inputs.ledger)
    return Worker(worker.node, replace(worker.claim, image_id=image))


def _consolidate(life: Life, search: Search) -> None:
    """Run a search until it finds nothing more, with a minute between rounds."""
    states = {_state(life.inputs)}
    for number in range(_MOST_ROUNDS):
        now = life.inputs.now + timedelta(minutes=1)
        seen = replace(life.inputs, now=now, snapshot=replace(life.inputs.snapshot, taken_at=now))
        found = search(replace(seen, decision=f"move-{now:%d%H%M}-{number}"))
        if not found:
            return
        _carry_out(life, seen, found, f"move-{number}")
        state = _state(life.inputs)
        life.repeated += state in states
        states.add(state)


def _carry_out(life: Life, seen: Inputs, found: Sequence[Proposal], decision: str) -> None:
    places = {pod: at for proposal in found for pod, at in proposal.destinations.items()}
    for proposal in found:
        if proposal.reason is Reason.DRIFTED:
            life.renewed += len(proposal.sources)
        else:
            life.evictions += len(proposal.destinations)
    life.inputs = after(seen, found, lambda node, _: _booted(node, seen), seen.now, decision)
    _see(life, begun_anew(life.inputs.snapshot.pods, places, seen), places.values())


def _state(inputs: Inputs) -> frozenset[tuple[object, ...]]:
    """Return which pods run on which kinds of nodes, without the nodes' names."""
    kinds = {
        c.node_name: (c.instance_type, c.zone, c.capacity_type, c.image_id) for c in inputs.ledger.claims
    }
    held: dict[str, list[str]] = {name: [] for name in kinds}
    for pod in inputs.snapshot.pods:
        if pod.node in held:
            held[pod.node].append(pod.key)
    return frozenset((*kinds[name], *sorted(pods)) for name, pods in held.items())


def _ours(inputs: Inputs) -> Sequence[Proposal]:
    return propose(inputs).proposals


def _theirs(inputs: Inputs) -> Sequence[Proposal]:
    """Replace drifted nodes first, as Karpenter does."""
    renewed = _renewals(inputs)
    found = None if renewed else one_command(inputs)
    return renewed or ([found] if found is not None else [])


def _empty_only(inputs: Inputs) -> Sequence[Proposal]:
    under_way = Pass(inputs, DEFAULT_STEPS)
    remove_empty([one for one in under_way.consolidatable() if not one.pods], under_way)
    renew(under_way.survey.candidates, {}, under_way)
    return under_way.proposals


def _renewals(inputs: Inputs) -> Sequence[Proposal]:
    under_way = Pass(inputs, DEFAULT_STEPS)
    if under_way.drift:
        renew(under_way.survey.candidates, {}, under_way)
    return under_way.proposals
