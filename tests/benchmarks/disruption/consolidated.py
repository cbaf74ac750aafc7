"""Fleets as first-fit packs them, consolidated until no move is found, next to N to 1 moves as in Karpenter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import fsum
from statistics import mean

from nodesmith.decisions.disruption.costs import price_of
from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.shadow.karpenter import first_fit, one_command
from nodesmith.model.kubernetes.pods import Pod
from tests import builders
from tests.benchmarks.disruption.fleets import launched, machine
from tests.benchmarks.figures import Figure
from tests.benchmarks.packing import markets
from tests.benchmarks.packing.traces import Trace, traces
from tests.objects.fleets import fleet, pool
from tests.smallworld.moved import after

MIB = 2**20
_QUICK = ("microservices",)
_BETWEEN = timedelta(hours=12)
"""time between two searches; the fleets are quiet in between"""
_MOST_PASSES = 400
Search = Callable[[Inputs], Sequence[Proposal]]


@dataclass(frozen=True, slots=True)
class Consolidated:
    """The result of a search on a fleet. `evictions` counts pods moved, `passes` the passes that found a move."""

    before_hourly_usd: float
    after_hourly_usd: float
    evictions: int
    passes: int


def figures(*, quick: bool = False) -> list[Figure]:
    """Measure each trace; the figures are the mean ratios to the bounds."""
    chosen = [trace for trace in traces() if not quick or trace.name in _QUICK]
    fleets = {trace.name: first_fit_fleet(trace) for trace in chosen}
    ours = {name: consolidated(inputs, _ours) for name, inputs in fleets.items()}
    theirs = {name: consolidated(inputs, _theirs) for name, inputs in fleets.items()}
    return [
        _ratio("consolidated-price-ratio", chosen, ours, 1.05),
        _ratio("consolidated-price-ratio-n-to-1", chosen, theirs),
    ]


def _ratio(
    name: str, chosen: Sequence[Trace], found: dict[str, Consolidated], at_most: float = float("inf")
) -> Figure:
    ratios = [found[trace.name].after_hourly_usd / trace.bound_hourly_usd for trace in chosen]
    notes = [
        f"{t.name} {found[t.name].before_hourly_usd / t.bound_hourly_usd:.3f} to {ratio:.3f}"
        f" by {found[t.name].evictions} evictions of {t.pods} pods in {found[t.name].passes} passes"
        for t, ratio in zip(chosen, ratios, strict=True)
    ]
    return Figure(name, mean(ratios), "× the LP bound", at_most, "; ".join(notes))


def first_fit_fleet(trace: Trace) -> Inputs:
    """Return the fleet on which first-fit puts a trace's pods, each node in the zone where its type is cheapest."""
    manifest = pool(requirements=markets.on_demand_cmr()["spec"]["template"]["spec"]["requirements"])
    shapes = {
        (cpu, memory * MIB): builders.shape(f"{cpu}m", f"{memory}Mi", app=f"app-{number}")
        for number, (cpu, memory, _) in enumerate(trace.asks)
    }
    asked = [(cpu, memory * MIB, 1) for cpu, memory, count in trace.asks for _ in range(count)]
    workers, pods = [], []
    for number, node in enumerate(first_fit(asked, markets.kinds(markets.on_demand_cmr()))):
        name = f"node-{number:04d}"
        workers.append(machine(name, node.kind.name, _cheapest_zone(node.kind.name), "on-demand", "default"))
        since = builders.NOW - timedelta(days=2)
        pods += [
            Pod(f"default/{name}-{place:04d}", shapes[cpu, memory], since, name)
            for place, (cpu, memory, _) in enumerate(node.pods)
        ]
    return fleet(workers, pods, pools=[manifest])


def _cheapest_zone(kind: str) -> str:
    sold = [o for o in builders.catalog().offerings[kind] if o.capacity_type == "on-demand"]
    return min((o for o in sold if o.zone in builders.ZONES), key=lambda o: (o.price_hourly_usd, o.zone)).zone


def consolidated(inputs: Inputs, search: Search) -> Consolidated:
    """Carry out what a search finds, pass by pass, with the fleet quiet for half a day after each."""
    before, evictions = price_hourly_usd(inputs), 0
    for number in range(_MOST_PASSES):
        found = search(inputs)
        if not found:
            return Consolidated(before, price_hourly_usd(inputs), evictions, number)
        evictions += sum(len(proposal.destinations) for proposal in found)
        now = inputs.now + _BETWEEN
        inputs = after(replace(inputs, now=now), found, launched, now, f"pass-{number}")
    return Consolidated(before, price_hourly_usd(inputs), evictions, _MOST_PASSES)


def price_hourly_usd(inputs: Inputs) -> float:
    """Return the price of a fleet at present prices."""
    nodes = {node.provider_id: node for node in inputs.snapshot.nodes}
    return fsum(price_of(claim, nodes[claim.provider_id], inputs.catalog) for claim in inputs.ledger.claims)


def _ours(inputs: Inputs) -> Sequence[Proposal]:
    return propose(inputs).proposals


def _theirs(inputs: Inputs) -> Sequence[Proposal]:
    found = one_command(inputs)
    return [found] if found is not None else []
