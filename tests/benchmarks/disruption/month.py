"""Days of a cluster whose Deployments follow the day, at moving prices: ours beside N to 1 as Karpenter does it.

Every hour pods come and go, what waits is bought for, and a search may have its way until it finds nothing more. What
each search saves is counted against a third run in which nothing but empty nodes ever goes.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search import propose
from nodesmith.decisions.provisioning import Inputs, decide
from nodesmith.model.catalog import Catalog
from nodesmith.model.moves import Reason
from nodesmith.model.pods import Pod
from nodesmith.model.shapes import Shape
from tests import builders
from tests.benchmarks.disruption.consolidated import price_hourly_usd
from tests.benchmarks.disruption.fleets import launched
from tests.benchmarks.figures import Figure
from tests.fleets import fleet, pool
from tests.moved import after
from tests.problems.greedyconsolidation import one_command

Search = Callable[[Inputs], Sequence[Proposal]]
_HOUR = timedelta(hours=1)
_MOST_ROUNDS = 12
"""of a search within an hour"""
_APPS = ((250, 500, 40), (500, 2000, 30), (1000, 2000, 16), (2000, 8000, 6), (100, 400, 60), (750, 3500, 12))
"""cpu (milli), memory (MiB) and most replicas of each Deployment"""
_PRICES_MOVE = 0.06
"""standard deviation of the logarithm of a pool's spot price from day to day"""


@dataclass(slots=True)
class Life:
    """One run. `repeated` counts states that came twice within an hour, `spent_usd` is what the nodes have cost."""

    inputs: Inputs
    spent_usd: float = 0.0
    evictions: int = 0
    repeated: int = 0
    dice: random.Random = field(default_factory=lambda: random.Random(5))  # noqa: S311
    replicas: Counter[str] = field(default_factory=Counter)
    born: int = 0


def figures(*, days: int) -> list[Figure]:
    """Live the days three times."""
    ours, theirs, idle = (lived(days, search) for search in (_ours, _theirs, _empty_only))
    saved, beside = idle.spent_usd - ours.spent_usd, idle.spent_usd - theirs.spent_usd
    rate, other = ours.evictions / max(saved, 1e-9), theirs.evictions / max(beside, 1e-9)
    note = (
        f"{days} days: ${idle.spent_usd:.0f} with empty nodes gone only; ours ${ours.spent_usd:.0f} by"
        f" {ours.evictions} evictions, N to 1 ${theirs.spent_usd:.0f} by {theirs.evictions}"
    )
    return [
        Figure("month-evictions-per-usd-ratio", rate / other, "× N to 1's", 0.5, note),
        Figure("month-price-ratio", ours.spent_usd / theirs.spent_usd, "× N to 1's", 1.03, note),
        Figure(
            "repeated-states", ours.repeated, "states", 0, "that came twice while nothing outside changed"
        ),
    ]


def lived(days: int, search: Search) -> Life:
    """Live so many days, hour by hour."""
    either = pool(after="30s", budgets=[{"nodes": "30%"}])
    life = Life(fleet([], pools=[either]))
    shapes = [builders.shape(f"{cpu}m", f"{mem}Mi", app=f"app-{n}") for n, (cpu, mem, _) in enumerate(_APPS)]
    for hour in range(24 * days):
        if hour % 24 == 0:
            life.inputs = replace(life.inputs, catalog=_moved(life.inputs.catalog, life.dice))
        _scale(life, shapes, hour)
        _buy(life)
        _consolidate(life, search)
        life.spent_usd += price_hourly_usd(life.inputs)
        now = builders.NOW + (hour + 1) * _HOUR
        life.inputs = replace(life.inputs, now=now, snapshot=replace(life.inputs.snapshot, taken_at=now))
    return life


def _scale(life: Life, shapes: Sequence[Shape], hour: int) -> None:
    """Bring each Deployment to its replicas of this hour: most at noon, few at night, a little at random."""
    seen = life.inputs.snapshot
    pods = list(seen.pods)
    touched: set[str] = set()
    for shape, (_, _, most) in zip(shapes, _APPS, strict=True):
        day = 0.55 - 0.45 * math.cos(2 * math.pi * (hour % 24) / 24)
        wanted = max(1, round(most * day * life.dice.uniform(0.93, 1.07)))
        mine = [pod for pod in pods if pod.shape is shape]
        gone = {pod.key for pod in life.dice.sample(mine, max(0, len(mine) - wanted))}
        touched |= {pod.node for pod in mine if pod.key in gone}
        pods = [pod for pod in pods if pod.key not in gone]
        for _ in range(wanted - len(mine)):
            life.born += 1
            key = f"default/{shape.labels['app']}-{life.born:06d}"
            pods.append(Pod(key, shape, life.inputs.now, unschedulable=True))
    _see(life, pods, touched)


def _see(life: Life, pods: Iterable[Pod], touched: set[str]) -> None:
    now = life.inputs.now
    nodes = tuple(
        replace(n, last_pod_event_at=now) if n.name in touched else n for n in life.inputs.snapshot.nodes
    )
    life.inputs = replace(life.inputs, snapshot=replace(life.inputs.snapshot, pods=tuple(pods), nodes=nodes))


def _buy(life: Life) -> None:
    """Give every pod that waits a node, bought where none has room."""
    inputs = replace(life.inputs, decision=f"buy-{life.born}-{life.inputs.now:%d%H}")
    plan = decide(inputs)
    come = [launched(node, inputs.now) for node in plan.nodes]
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
    _see(life, pods, set(places.values()))


def _consolidate(life: Life, search: Search) -> None:
    """Let a search have its way until it finds nothing more, a minute after what came before."""
    states = {_state(life.inputs)}
    for number in range(_MOST_ROUNDS):
        now = life.inputs.now + timedelta(minutes=1)
        seen = replace(life.inputs, now=now, snapshot=replace(life.inputs.snapshot, taken_at=now))
        found = search(replace(seen, decision=f"move-{now:%d%H%M}-{number}"))
        if not found:
            return
        life.evictions += sum(len(proposal.destinations) for proposal in found)
        touched = {at for proposal in found for at in proposal.destinations.values()}
        life.inputs = after(seen, found, launched, now, f"move-{number}")
        _see(life, life.inputs.snapshot.pods, touched)
        state = _state(life.inputs)
        life.repeated += state in states
        states.add(state)


def _state(inputs: Inputs) -> frozenset[tuple[object, ...]]:
    """Give what runs on what, whatever the nodes are called."""
    kinds = {c.node_name: (c.instance_type, c.zone, c.capacity_type) for c in inputs.ledger.claims}
    held: dict[str, list[str]] = {name: [] for name in kinds}
    for pod in inputs.snapshot.pods:
        if pod.node in held:
            held[pod.node].append(pod.key)
    return frozenset((*kinds[name], *sorted(pods)) for name, pods in held.items())


def _moved(catalog: Catalog, dice: random.Random) -> Catalog:
    """Give the catalogue of the next day: each pool of spot capacity a little dearer or cheaper."""
    offerings = {
        name: tuple(
            replace(o, price_hourly_usd=o.price_hourly_usd * math.exp(dice.gauss(0, _PRICES_MOVE)))
            if o.capacity_type == "spot"
            else o
            for o in sold
        )
        for name, sold in sorted(catalog.offerings.items())
    }
    return Catalog.of(catalog.region, catalog.made_at, catalog.facts, offerings)


def _ours(inputs: Inputs) -> Sequence[Proposal]:
    return propose(inputs).proposals


def _theirs(inputs: Inputs) -> Sequence[Proposal]:
    found = one_command(inputs)
    return [found] if found is not None else []


def _empty_only(inputs: Inputs) -> Sequence[Proposal]:
    return [p for p in propose(inputs, steps=0).proposals if p.reason is Reason.EMPTY]
