"""Provisioning that uses unused commitments, while other clusters do the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from nodesmith.adapters.dynamodb.regionitems import DynamoCommitments
from nodesmith.controllers.provisioning import Outcome, provision
from nodesmith.controllers.region.commitments import UsageKeeper
from nodesmith.decisions.scheduling.offerings.commitments import on_demand_prices
from nodesmith.errors import Transient
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import ON_DEMAND
from nodesmith.model.ledger.commitments import Commitment, CommitmentBook, CommitmentKind, Commitments
from tests.builders import CLUSTER, ZONES, catalog
from tests.fakes.table import FakeTable
from tests.smallworld.world import World, pod_manifest

DISCOUNT = 0.4


def plan(world: World, hourly_usd: float) -> CommitmentBook:
    """Return a Compute Savings Plan over all types, read just now."""
    rates = {
        kind: round(price * (1 - DISCOUNT) * 1_000_000)
        for (kind, zone), price in on_demand_prices(catalog()).items()
        if zone == ZONES[0]
    }
    amount, ends = round(hourly_usd * 1_000_000), world.now + timedelta(days=90)
    commitment = Commitment("sp", CommitmentKind.COMPUTE, amount, ends, rates=FrozenMap(rates))
    return CommitmentBook(world.now - timedelta(minutes=5), (commitment,))


@dataclass(slots=True)
class Racing:
    """A store of commitments in which another cluster reports just before this one does, once."""

    store: DynamoCommitments
    theirs: dict[tuple[str, str], float]
    loads: int = 0
    done: list[Commitments] = field(default_factory=list)

    def load(self) -> Commitments:
        self.loads += 1
        return self.store.load()

    def report(self, found: Commitments) -> None:
        if not self.done:
            self.done.append(found)
            seen = self.store.load()
            self.store.report(seen.reporting("other", self.theirs, seen.book.read_at + timedelta(minutes=1)))
        self.store.report(found)

    def keep(self, book: CommitmentBook) -> None:
        raise AssertionError(book)


class Unreachable(Racing):
    def load(self) -> Commitments:
        raise Transient("dynamodb:Query: the table is throttled")


def world() -> World:
    made = World({name: pod_manifest(name, "1500m", "3Gi") for name in "ab"})
    made.observe()
    return made


def bought(here: World, store: Any) -> Outcome:
    return provision(replace(here.provisioning(), commitments=store))


def kinds(here: World) -> list[str]:
    return [claim.capacity_type for claim in here.store.claims.values()]


def test_nodes_are_bought_on_unused_commitments_and_what_they_use_is_reported() -> None:
    here, store = world(), DynamoCommitments(FakeTable(), "table")
    store.keep(plan(here, 10.0))
    assert bought(here, store).launched
    assert set(kinds(here)) == {ON_DEMAND}
    assert sum(store.load().reported[CLUSTER].usage.values()) == len(here.store.claims)


def test_without_commitments_the_same_pods_get_spot() -> None:
    here = world()
    assert bought(here, None).launched
    assert ON_DEMAND not in kinds(here)


def test_a_cluster_that_is_second_decides_again_in_the_same_run() -> None:
    here, table = world(), FakeTable()
    store = DynamoCommitments(table, "table")
    store.keep(plan(here, 0.2))
    racing = Racing(store, {("m5.24xlarge", ZONES[0]): 1.0})  # uses up all of it
    outcome = bought(here, racing)
    assert outcome.launched
    assert racing.done, "the first decision counted on it"
    assert ON_DEMAND not in kinds(here), "the second one did not"


def test_purchases_do_not_wait_for_commitments_that_cannot_be_read() -> None:
    here = world()
    assert bought(here, Unreachable(DynamoCommitments(FakeTable(), "table"), {})).launched
    assert ON_DEMAND not in kinds(here)


def test_a_report_follows_the_nodes_that_are_gone() -> None:
    here, store = world(), DynamoCommitments(FakeTable(), "table")
    store.keep(plan(here, 10.0))
    bought(here, store)
    here.store.claims.clear()
    keeper = UsageKeeper(store, here.clock)
    here.cluster.pods.clear()
    here.observe()
    provision(
        replace(here.provisioning(), commitments=store, when_nothing_bought=keeper.keep, rehearse=keeper.keep)
    )
    assert store.load().reported[CLUSTER].usage == {}
