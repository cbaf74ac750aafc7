"""What do three clusters pay that share Savings Plans for five families, relative to a linear program that knows all?

A trace of hours: in each, pods come to all clusters at once, and earlier ones leave. The clusters decide from the same
state, so that the second and third must find out that the first has used it. What is paid beyond the commitments
follows from AWS's rules, not from what plans expect.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import fsum

from nodesmith.adapters.dynamodb.regionitems import DynamoCommitments
from nodesmith.controllers.region.commitments import UsageKeeper, claim_commitments
from nodesmith.decisions.packing import undominated
from nodesmith.decisions.packing.columngeneration.columns import mix
from nodesmith.decisions.packing.reduction import filled, usable
from nodesmith.decisions.provisioning import Inputs, Plan, decide
from nodesmith.decisions.provisioning.nodepools.tiers import pools
from nodesmith.decisions.provisioning.planner import Planner
from nodesmith.decisions.provisioning.purchase.packingproblem import packing_problem
from nodesmith.decisions.scheduling.demands import by_shape
from nodesmith.decisions.scheduling.offerings.commitments import Applied, applied, on_demand_prices, usage_of
from nodesmith.decisions.scheduling.offerings.options import Pricing
from nodesmith.decisions.scheduling.preferences import PreferenceMode
from nodesmith.errors import Conflict
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.apimachinery.quantities import NOTHING
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.commitments import Commitment, CommitmentBook, CommitmentKind
from tests.benchmarks.figures import Figure
from tests.builders import (
    NOW,
    ZONES,
    catalog,
    cluster_info,
    expression,
    inputs,
    ledger,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)
from tests.fakes.table import FakeTable

_FAMILIES = ("m5", "c5", "r5", "m6i", "c6i")
_CLUSTERS = ("first", "second", "third")
_HOURLY_USD, _COMPUTE_USD = 14.0, 20.0
_DISCOUNT, _COMPUTE_DISCOUNT = 0.40, 0.30
_SHAPES = (
    ("250m", "512Mi"),
    ("500m", "1Gi"),
    ("500m", "2Gi"),
    ("1", "2Gi"),
    ("1", "4Gi"),
    ("1", "8Gi"),
    ("2", "4Gi"),
    ("2", "8Gi"),
    ("2", "16Gi"),
    ("4", "16Gi"),
)
_KINDS, _MOST_PODS = 5, 260
_HOURS, _LIVES = 6, 3
_STEPS, _ROUNDS = 100_000_000, 12


def _commitments() -> tuple[Commitment, ...]:
    prices = {kind: price for (kind, zone), price in on_demand_prices(catalog()).items() if zone == ZONES[0]}

    def plan(name: str, hourly: float, discount: float, family: str) -> Commitment:
        rates = {
            kind: round(price * (1 - discount) * 1_000_000)
            for kind, price in prices.items()
            if family in ("", kind.partition(".")[0])
        }
        kind = CommitmentKind.EC2_INSTANCE if family else CommitmentKind.COMPUTE
        ends, amount = NOW + timedelta(days=300), round(hourly * 1_000_000)
        return Commitment(name, kind, amount, ends, family, rates=FrozenMap(rates), hourly_usd=hourly)

    families = (plan(family, _HOURLY_USD, _DISCOUNT, family) for family in _FAMILIES)
    return (*families, plan("compute", _COMPUTE_USD, _COMPUTE_DISCOUNT, ""))


@dataclass(slots=True)
class _World:
    """The clusters with their claims by batch, and sums over all decisions. `capacity` is what NodePools may buy."""

    capacity: tuple[str, ...]
    store: DynamoCommitments
    book: CommitmentBook
    claims: dict[str, list[tuple[NodeClaim, ...]]] = field(default_factory=dict)
    paid_usd: float = 0.0
    linear_usd: float = 0.0
    used: list[float] = field(default_factory=list)
    conflicts: int = 0
    overshoots: int = 0

    def applied(self) -> Applied:
        usage: dict[tuple[str, str], float] = {}
        for batches in self.claims.values():
            for key, count in usage_of(claim for batch in batches for claim in batch).items():
                usage[key] = usage.get(key, 0.0) + count
        return applied(self.book.pools(NOW), usage, on_demand_prices(catalog()))

    def given(self, cluster: str, waiting: Sequence[Pod]) -> Inputs:
        """Return the input of a cluster's decision."""
        pool = nodepool_manifest(
            requirements=(
                expression("karpenter.sh/capacity-type", "In", *self.capacity),
                expression("karpenter.k8s.aws/instance-category", "In", "c", "m", "r"),
                expression("karpenter.k8s.aws/instance-generation", "Gt", "4"),
                expression("kubernetes.io/arch", "In", "amd64"),
            )
        )
        mine = tuple(claim for batch in self.claims.get(cluster, ()) for claim in batch)
        known = ledger(
            claims=mine, cluster=replace(cluster_info(), name=cluster), commitments=self.store.load()
        )
        return inputs(snapshot=snapshot(pods=waiting, nodepools=(pool,)), ledger=known)


def _waiting(random_: random.Random, name: str) -> list[Pod]:
    found: list[Pod] = []
    for number in range(_KINDS):
        cpu, memory = random_.choice(_SHAPES)
        found += pods(shape(cpu, memory, app=f"{name}-{number}"), random_.randint(20, _MOST_PODS))
    return found


def _linear_usd(given: Inputs, waiting: Sequence[Pod]) -> float:
    """Return the price of the linear program over patterns, in which commitments pay for any part of a node."""
    offers = pools(given.snapshot, given.ledger, given.catalog, given.settings, given.now)
    planner = Planner(given, offers, dict(by_shape(waiting)), ())
    demands = planner.assign(waiting, (), PreferenceMode.RULE).demands
    offered = packing_problem(offers.tiers[0], demands, pricing=Pricing.PRICE)
    plain = [
        replace(one, price=one.price - one.dual_cost, dual_cost=0.0, substitute=None) for one in offered.bins
    ]
    bins = undominated(usable(offered.items, filled(offered.items, plain)))
    found = mix(offered.items, bins, offered.limits.vectors, (), _STEPS)
    return fsum(
        amount * bins[column.bin].price for column, amount in zip(found.columns, found.amounts, strict=True)
    )


def _launched(plan: Plan) -> tuple[NodeClaim, ...]:
    """Return the claims as EC2 launches them, without room for other pods."""
    return tuple(
        replace(
            node.claim,
            phase=Phase.LAUNCHED,
            instance_type=node.request.overrides[0].instance_type,
            zone=node.request.overrides[0].zone,
            allocatable=NOTHING,
            nominated=(),
        )
        for node in plan.nodes
    )


def _decided(world: _World, given: Inputs, cluster: str, waiting: Sequence[Pod]) -> tuple[Inputs, Plan]:
    """Decide, and again if another cluster was first: provisioning looks again in the same run."""
    for _ in range(_ROUNDS):
        plan = decide(given)
        try:
            claim_commitments(world.store, given, plan.nodes, NOW)
            break
        except Conflict:
            world.conflicts += 1
            given = world.given(cluster, waiting)
    return given, plan


def _decide(world: _World, given: Inputs, cluster: str, waiting: Sequence[Pod]) -> None:
    before = world.applied()
    given, plan = _decided(world, given, cluster, waiting)
    world.linear_usd += _linear_usd(given, waiting)
    world.claims.setdefault(cluster, []).append(_launched(plan))
    after = world.applied()
    spot = fsum(node.price_hourly_usd for node in plan.nodes if node.claim.capacity_type == SPOT)
    world.paid_usd += after.uncovered_hourly_usd - before.uncovered_hourly_usd + spot
    expected = fsum(node.price_hourly_usd for node in plan.nodes if node.claim.capacity_type == ON_DEMAND)
    world.overshoots += after.uncovered_hourly_usd - before.uncovered_hourly_usd > expected + 0.01
    UsageKeeper(world.store, lambda: NOW).keep(world.given(cluster, ()))


def _world(capacity: tuple[str, ...]) -> _World:
    book = CommitmentBook(NOW - timedelta(minutes=30), _commitments())
    world = _World(capacity, DynamoCommitments(FakeTable(), "table"), book)
    world.store.keep(book)
    random_ = random.Random(7)  # noqa: S311
    for hour in range(_HOURS):
        order = random_.sample(_CLUSTERS, len(_CLUSTERS))
        for cluster in order:
            world.claims[cluster] = world.claims.get(cluster, [])[-_LIVES + 1 :]
            UsageKeeper(world.store, lambda: NOW).keep(world.given(cluster, ()))
        arrived = {cluster: _waiting(random_, f"{cluster}-{hour}") for cluster in order}
        seen = {cluster: world.given(cluster, waiting) for cluster, waiting in arrived.items()}
        for cluster in order:
            _decide(world, seen[cluster], cluster, arrived[cluster])
        found = world.applied()
        if found.uncovered_hourly_usd or any(
            claim.capacity_type == SPOT for batches in world.claims.values() for b in batches for claim in b
        ):
            world.used.append(1 - sum(found.left.values()) / sum(pool.amount for pool in found.pools))
    return world


def figures() -> list[Figure]:
    """Measure a trace with on-demand NodePools, and one in which NodePools may buy spot as well."""
    return list(_figures())


def _figures() -> Iterator[Figure]:
    committed = fsum(each.hourly_usd for each in _commitments())
    for name, capacity in (("", (ON_DEMAND,)), ("-with-spot", (ON_DEMAND, SPOT))):
        world = _world(capacity)
        decisions = _HOURS * len(_CLUSTERS)
        total = (world.paid_usd + committed) / (world.linear_usd + committed)
        note = (
            f"{decisions} decisions of {len(_CLUSTERS)} clusters; beyond the commitments ${world.paid_usd:.2f}/hour"
            f" where the linear program pays ${world.linear_usd:.2f} ({world.paid_usd / world.linear_usd:.4f})"
        )
        yield Figure(f"commitment-price-ratio{name}", total, "", 1.02, note)
        note = f"the least of the {len(world.used)} hours in which pods filled more than the commitments"
        yield Figure(f"commitment-used{name}", min(world.used), "", note=note, at_least=0.98)
        note = f"decisions that paid more than they expected; {world.conflicts} decided again"
        yield Figure(f"commitment-overshoots{name}", world.overshoots, "decisions", 0, note)
