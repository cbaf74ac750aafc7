"""Gangs in the small world: with crashes, visits and pauses, none is partial, and nothing is left of a failed one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.model.functions import Concern
from nodesmith.model.kubernetes.provisioningrequests import BOOKING_EXPIRED, FAILED, PROVISIONED
from tests.samples import sampled
from tests.scenarios import crashes
from tests.scenarios.crashes import Story
from tests.scenarios.gangs import CHECK, GANGS, JobController, ask
from tests.smallworld.laws import true_of
from tests.smallworld.world import World

ALL_BY_NAME = pytest.mark.parametrize("story", GANGS, ids=lambda story: story.name)
WHOLE, SETS, SHORT, SPOT, THROTTLED, LOSES, DELETED = GANGS


def broken(found: object) -> dict[object, list[str]]:
    """Return the runs in which an invariant was violated."""
    return {where: faults for where, faults in found if faults}  # type: ignore[attr-defined]


def shown(world: World, name: str = "job") -> set[str]:
    return true_of(world.cluster.requests[f"default/{name}"])


@pytest.mark.parametrize("story", [WHOLE, SETS, SPOT, THROTTLED, LOSES], ids=lambda story: story.name)
def test_a_gang_gets_all_of_its_nodes_before_its_pods_exist(story: Story) -> None:
    world = story.lived()
    assert crashes.violations(world, most=1000, disturbed=0) == []
    assert PROVISIONED in shown(world)
    assert FAILED not in shown(world)
    assert sum(name.startswith("job-") for name in world.pods) == 3


def test_a_gang_that_cannot_be_had_in_full_fails_and_leaves_no_node() -> None:
    world = SHORT.lived()
    assert crashes.violations(world, most=1000, disturbed=0) == []
    assert FAILED in shown(world)
    assert PROVISIONED not in shown(world)
    assert {claim.nominated for claim in world.store.claims.values()} == {("default/first",)}
    assert world.store.gangs == {}


def test_nothing_is_left_of_a_gang_whose_request_is_deleted() -> None:
    world = DELETED.lived()
    assert crashes.violations(world, most=1000, disturbed=0) == []
    assert {claim.nominated for claim in world.store.claims.values()} == {("default/first",)}
    assert world.store.gangs == {}


def test_a_booking_ends_and_its_gang_is_forgotten() -> None:
    world = WHOLE.lived()
    world.live(timedelta(minutes=13))
    assert BOOKING_EXPIRED in shown(world)
    assert world.store.gangs == {}


def test_a_check_books_the_room_that_is_there_and_a_second_one_waits_for_it() -> None:
    world = Story("two checks", {"first": {"cpu": "1"}}, exact=False).lived()
    world.controllers.append(JobController(cpu="400m"))
    bought = len(world.cloud.instances)
    for name in ("job", "other"):
        ask(world, name, 2, cpu="400m", class_name=CHECK)
    world.live(crashes.SETTLED)
    assert {name: PROVISIONED in shown(world, name) for name in ("job", "other")} == {
        "job": True,
        "other": False,
    }
    assert len(world.cloud.instances) == bought


@pytest.mark.exhaustive
@ALL_BY_NAME
def test_a_crash_before_or_after_any_call_leaves_no_partial_gang(story: Story) -> None:
    assert broken(crashes.crashes(story, sampled(1, whole=0))) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("visitor", [Concern.PROVISIONING, Concern.LIFECYCLE])
@pytest.mark.parametrize("story", [SHORT, SPOT], ids=lambda story: story.name)
def test_a_complete_run_inside_another_leaves_no_partial_gang(story: Story, visitor: Concern) -> None:
    assert broken(crashes.visits(story, visitor, sampled(2, whole=0))) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", [WHOLE, SHORT], ids=lambda story: story.name)
def test_a_function_that_stands_still_leaves_no_partial_gang(story: Story) -> None:
    assert broken(crashes.pauses(story, sampled(2, whole=0))) == {}


def test_a_function_that_stands_still_after_it_has_read_the_snapshot_buys_no_gang_twice() -> None:
    """The nodes that others have bought meanwhile are in the ledger, but not in the snapshot that it has read."""
    found = dict(crashes.pauses(WHOLE, after="FakeBlobs.get"))
    assert len(found) > 1
    assert broken(found.items()) == {}
