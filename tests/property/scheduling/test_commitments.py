"""Whatever the commitments and pods: AWS's rules pay for no more than there is, and plans count on no more."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.provisioning import decide
from nodesmith.decisions.scheduling.offerings.commitments import applied, applied_now, on_demand_prices
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.ledger.commitments import (
    Commitment,
    CommitmentBook,
    CommitmentKind,
    Commitments,
    quarter_units,
)
from tests.builders import (
    NOW,
    ZONES,
    catalog,
    expression,
    inputs,
    ledger,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)

TYPES = ("m5.large", "m5.xlarge", "m5.2xlarge", "c5.large", "c5.xlarge", "r5.large", "g5.xlarge")
PRICES = on_demand_prices(catalog())
SMALL = 1e-6


@st.composite
def commitments(draw: st.DrawFn) -> Commitment:
    kind, scope = draw(st.sampled_from(CommitmentKind)), draw(st.sampled_from(TYPES))
    number, ends = draw(st.integers(1, 6)), NOW + timedelta(days=draw(st.integers(1, 400)))
    name = f"{kind.name}-{scope}-{draw(st.integers(0, 99))}"
    if not kind.is_plan:
        zone = ZONES[0] if kind is CommitmentKind.ZONAL else ""
        amount = number if zone else number * quarter_units(scope)
        return Commitment(name, kind, amount, ends, scope, zone)
    family = scope.partition(".")[0] if kind is CommitmentKind.EC2_INSTANCE else ""
    discount = draw(st.sampled_from((0.2, 0.4)))
    rates = {
        kind: round(price * (1 - discount) * 1_000_000)
        for (kind, zone), price in PRICES.items()
        if zone == ZONES[0] and family in ("", kind.partition(".")[0])
    }
    return Commitment(name, kind, number * 70_000, ends, family, rates=FrozenMap(rates))


BOOKS = st.lists(commitments(), min_size=1, max_size=5, unique_by=lambda each: each.id).map(
    lambda found: CommitmentBook(NOW, tuple(found))
)
USAGES = st.dictionaries(
    st.tuples(st.sampled_from(TYPES), st.sampled_from(ZONES[:2])), st.integers(0, 5).map(float), max_size=5
)


@given(BOOKS, USAGES)
def test_commitments_pay_for_no_more_than_runs_and_no_more_than_they_have(
    book: CommitmentBook, usage: dict[tuple[str, str], float]
) -> None:
    found = applied(book.pools(NOW), usage, PRICES)
    pools = {pool.name: pool for pool in found.pools}
    used: Counter[str] = Counter()
    for key, by_pool in found.paid.items():
        assert sum(by_pool.values()) <= usage[key] + SMALL
        for name, count in by_pool.items():
            used[name] += count * pools[name].use(*key)  # type: ignore[assignment]
    assert all(abs(pool.amount - used[name] - found.left[name]) <= 1 for name, pool in pools.items())
    without = applied(book.pools(NOW)[1:], usage, PRICES)
    assert found.uncovered_hourly_usd <= without.uncovered_hourly_usd + SMALL


@given(
    BOOKS,
    USAGES,
    st.lists(st.sampled_from(("500m", "1500m", "3")), min_size=1, max_size=3),
    st.integers(1, 12),
)
def test_a_plan_counts_on_no_more_than_is_left_and_costs_no_less_than_its_bound(
    book: CommitmentBook, usage: dict[tuple[str, str], float], cpus: list[str], count: int
) -> None:
    reported = Commitments(CommitmentBook(NOW, book.commitments, {"": usage}))
    waiting = [pod for n, cpu in enumerate(cpus) for pod in pods(shape(cpu, "2Gi", app=f"a{n}"), count)]
    pool = nodepool_manifest(
        requirements=(
            expression("node.kubernetes.io/instance-type", "In", *TYPES, "m5a.xlarge", "c6a.2xlarge"),
        )
    )
    asked = inputs(snapshot=snapshot(pods=waiting, nodepools=(pool,)), ledger=ledger(commitments=reported))
    there = applied_now(asked.ledger, asked.catalog, NOW)
    assert there is not None
    plan = decide(asked)
    assert not plan.unplaced
    assert plan.bound_hourly_usd <= plan.price_hourly_usd + SMALL
    taken: Counter[str] = Counter()
    pools = {pool.name: pool for pool in there.pools}
    for node in plan.nodes:
        first = node.request.cheapest
        if first.commitment:
            share = 1 - first.price_hourly_usd / first.listed_hourly_usd
            taken[first.commitment] += share * pools[first.commitment].use(first.instance_type, first.zone)  # type: ignore[assignment]
    assert all(amount <= there.left[name] * 1.001 + 2 for name, amount in taken.items())
