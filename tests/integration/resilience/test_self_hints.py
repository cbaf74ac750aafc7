"""A function that sends hints to itself: Lambda does not stop the chain, and the chain does not branch."""

from __future__ import annotations

from datetime import timedelta

from nodesmith.model.functions import Concern
from tests.experiments.selfhints import held_nodes, long_drain, longest_stall, throttled_launches

LONGEST_STALL = timedelta(seconds=10)


def test_a_drain_of_40_minutes_is_checked_every_few_seconds() -> None:
    world = long_drain()
    assert longest_stall(world) <= LONGEST_STALL
    assert world.dropped == []


def test_with_lambdas_loop_detection_a_drain_stalls_after_16_runs() -> None:
    world = long_drain("Terminate")
    assert longest_stall(world) > LONGEST_STALL
    assert {message.concern for message in world.dropped} == {Concern.TERMINATION}


def test_a_drain_has_one_pending_hint_of_termination_to_itself() -> None:
    assert long_drain().most_pending[Concern.TERMINATION] == 1


def test_long_deferred_launches_have_one_pending_hint_of_provisioning_to_itself() -> None:
    assert throttled_launches(timedelta(minutes=4)).most_pending[Concern.PROVISIONING] == 1


def test_a_held_node_has_one_pending_hint_of_lifecycle_to_itself() -> None:
    world = held_nodes(timedelta(minutes=3))
    assert any(claim.held_until for claim in world.store.claims.values())
    assert world.most_pending[Concern.LIFECYCLE] == 1
