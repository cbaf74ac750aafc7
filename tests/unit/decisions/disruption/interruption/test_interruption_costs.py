"""The costs of interruptions: seconds until nodes were replaced and empty, and pods killed without their grace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.interruption import (
    InterruptionCosts,
    displaced,
    interruption_costs,
    noticed_at,
    waiting_since,
)
from nodesmith.model.commands import Advance, DeletePods, Release, TerminateInstances, TerminationCommand
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import PodOnNode
from nodesmith.model.kubernetes.pods import Pod
from tests import builders
from tests.builders import NOW

NOTICED = NOW - timedelta(seconds=80)
HEARD = NOTICED + timedelta(seconds=3)


def interrupted(cause: str = "SpotInterrupted", **fields: Any) -> NodeClaim:
    running = builders.claim("victim", phase=Phase.INITIALIZED, instance_id="i-0")
    return replace(running.terminating(cause, "", HEARD, NOTICED + timedelta(minutes=2)), **fields)


def drained(cause: str = "SpotInterrupted") -> NodeClaim:
    return interrupted(cause).advanced(Phase.DRAINED, NOW)


def bought(number: int, decision: str = "d1", ready: datetime | None = NOW, created: int = 4) -> NodeClaim:
    at = NOTICED + timedelta(seconds=created)
    known: dict[str, Any] = {
        "launched_at": at + timedelta(seconds=number),
        "initialized_at": ready,
        "decision": decision,
    }
    return builders.claim(f"new-{number}", created_at=at, **known)


def pods(**fields: Any) -> Pod:
    return replace(builders.bind(builders.shape(grace_seconds=30), "n-0")[0], **fields)


def looked(
    commands: Sequence[TerminationCommand], claims: Sequence[NodeClaim] = (), *seen: Pod
) -> InterruptionCosts:
    return interruption_costs(commands, claims, builders.snapshot(pods=seen), NOW)


@pytest.mark.parametrize("command", [Advance(drained()), TerminateInstances(drained(), ("i-0",))])
def test_a_node_that_has_become_empty_counts_the_seconds_since_the_notice(
    command: TerminationCommand,
) -> None:
    ready = [NOW - timedelta(seconds=20), NOW - timedelta(seconds=10)]
    plan = [bought(1, ready=ready[0]), bought(2, ready=ready[1])]
    later = bought(3, "d2", ready=None, created=30)
    assert looked([command], [*plan, later]) == InterruptionCosts((6.0,), (70.0,), (80.0,))


def test_a_stopped_instance_that_was_started_counts_from_its_start() -> None:
    started_at = NOTICED + timedelta(seconds=3)
    warm = replace(bought(1, ready=NOW - timedelta(seconds=60), created=-3600), started_at=started_at)
    assert looked([Advance(drained())], [warm]) == InterruptionCosts((3.0,), (20.0,), (80.0,))


def test_if_nothing_was_bought_only_the_drain_is_counted() -> None:
    before = bought(1, created=-500)
    assert looked([Advance(drained())], [before]) == InterruptionCosts(drained=(80.0,))


def test_a_replacement_that_is_not_ready_yet_is_not_told() -> None:
    assert looked([Advance(drained())], [bought(1, ready=None)]) == InterruptionCosts((5.0,), (), (80.0,))


def test_ends_that_ec2_did_not_announce_are_no_interruptions() -> None:
    commands = [Advance(drained("Deleted")), Advance(drained(InterruptionCause.TERMINATED))]
    assert looked(commands, [bought(1)]) == InterruptionCosts()
    assert displaced([drained("Deleted")], NOW) is None


def test_pods_whose_grace_is_cut_short_are_killed_and_others_are_not() -> None:
    pod = pods()
    for seconds, killed in ((0, 1), (29, 1), (30, 0), (None, 0)):
        command = DeletePods(interrupted(), (PodOnNode(pod.key, "n-0", seconds),))
        assert looked([command], (), pod).killed == killed


def test_pods_that_were_still_ending_when_the_instance_went_are_killed() -> None:
    ending = pods(deleting=True, deletion_at=NOW + timedelta(seconds=2))
    over = replace(ending, key="default/over", deletion_at=NOW)
    elsewhere = replace(ending, key="default/elsewhere", node="n-1")
    gone = replace(interrupted(), instance_gone_at=NOW)
    assert looked([Release(gone, "n-0")], (), ending, over, elsewhere).killed == 1
    before = replace(gone, instance_gone_at=NOW - timedelta(seconds=9))
    assert looked([Release(before, "n-0")], (), ending, over, elsewhere).killed == 0, "counted already"


def test_a_notice_with_a_deadline_dates_from_two_minutes_before_it() -> None:
    assert noticed_at(interrupted(), NOW) == NOTICED
    assert noticed_at(interrupted(deadline=None), NOW) == HEARD
    assert noticed_at(interrupted(InterruptionCause.SCHEDULED), NOW) == HEARD
    assert noticed_at(interrupted(deadline=NOW), NOW) == HEARD  # when the instance was seen to be gone


def test_pods_that_have_waited_since_the_first_notice_are_counted_and_others_are_not() -> None:
    since = displaced([interrupted(), drained("Deleted")], NOW)
    assert since == NOTICED
    new = pods(key="default/new", node="", created_at=NOW)
    others = [pods(), replace(new, created_at=NOTICED - timedelta(seconds=1)), replace(new, deleting=True)]
    assert waiting_since(NOTICED, [new, *others]) == 1
