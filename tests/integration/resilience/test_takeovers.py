"""Karpenter's nodes are adopted and released while pods come, nodes join and the command dies; Karpenter returns."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from nodesmith.model.ledger.ledger import Handover
from nodesmith_cli.migration.adopting.assessment import State, assess
from nodesmith_cli.migration.adopting.sequence import adopt
from tests.samples import sampled
from tests.scenarios.takeovers import (
    HOUR,
    PATIENT,
    STRAY,
    Load,
    adopted,
    contended,
    karpenters_world,
    released,
    report,
    takeover,
)
from tests.smallworld.world import World

SEED = 6


@pytest.fixture(scope="module")
def base() -> World:
    return karpenters_world(SEED)


@pytest.mark.exhaustive
def test_nothing_is_evicted_drifted_leaked_forgotten_or_doubled_wherever_the_command_dies() -> None:
    found = report(range(2, sampled(3, whole=12)), stride=sampled(12, whole=3))
    assert found.crashes > 5
    assert (found.evictions, found.violations, found.contended) == (0, [], [])


def test_disruption_is_paused_for_an_hour_from_the_end_of_the_adoption(base: World) -> None:
    world, _ = adopted(base, SEED)
    pause = world.store.paused
    assert pause is not None
    assert pause.until is not None
    assert timedelta(minutes=50) < pause.until - world.now <= HOUR


def test_an_adoption_that_is_complete_changes_nothing_when_it_runs_again(base: World) -> None:
    world, _ = adopted(base, SEED)
    claims, tags = dict(world.store.claims), dict(world.cloud.tags)
    result = adopt(takeover(Load(world, random.Random(0))), timedelta(0), PATIENT)  # noqa: S311
    assert result.is_done
    assert {row.state for row in result.rows} == {State.ADOPTED, State.SKIPPED}
    assert claims.keys() <= world.store.claims.keys()
    assert tags.items() <= world.cloud.tags.items()


def test_a_nodeclaim_without_an_instance_is_reported_and_skipped(base: World) -> None:
    rows = assess(takeover(Load(base, random.Random(0))).read()).rows  # noqa: S311
    (stray,) = (row for row in rows if row.object == f"NodeClaim/{STRAY}")
    assert stray.state is State.SKIPPED
    assert "status.providerID is missing" in stray.detail


def test_an_instance_without_a_nodeclaim_is_reported_and_stays_as_it_is(base: World) -> None:
    read = takeover(Load(base, random.Random(0))).read()  # noqa: S311
    lost = read.machines[0].instance
    others = [
        each for each in read.nodeclaims if (each.get("status") or {}).get("providerID") != lost.provider_id
    ]
    rows = assess(
        type(read)(**{name: getattr(read, name) for name in read.__slots__} | {"nodeclaims": others})
    ).rows
    (row,) = (row for row in rows if row.object == f"Instance/{lost.id}")
    assert row.state is State.SKIPPED
    assert "has Karpenter's tags, but no NodeClaim" in row.detail


def test_a_nodeclaim_that_the_snapshot_does_not_show_yet_waits(base: World) -> None:
    read = takeover(Load(base, random.Random(0))).read()  # noqa: S311
    unseen = type(read)(**{name: getattr(read, name) for name in read.__slots__} | {"snapshot": None})
    assert State.ADOPT not in {row.state for row in assess(unseen).rows}
    assert assess(unseen).is_waiting


def test_when_karpenter_comes_back_in_the_middle_the_command_stops_and_nodesmith_does_nothing_more(
    base: World,
) -> None:
    found, boundaries = contended(base, SEED, back_at=15)
    assert boundaries > 15
    assert found == []


def test_a_released_cluster_stays_karpenters_until_the_user_takes_it_back(base: World) -> None:
    world, _ = released(adopted(base, SEED)[0], SEED)
    world.cluster.karpenter = False
    world.add("later", cpu="7")
    world.live(timedelta(minutes=10))
    assert world.store.claims == {}
    world.store.hand_over(Handover(world.now))
    world.live(timedelta(minutes=5))
    assert world.pods["later"]["spec"].get("nodeName")
