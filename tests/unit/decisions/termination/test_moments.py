"""When time alone lets the termination of a node go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.termination.evictions import PRESSING
from nodesmith.decisions.termination.steps import next_change
from nodesmith.decisions.termination.waiting import FIRST_LOOK, HEAD_START, LONGEST_WAIT
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT, TERMINATION_TIMESTAMP
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.learned import DrainTime
from tests import builders
from tests.builders import NOW

CLAIM = builders.claim("default-a", phase=Phase.INITIALIZED, instance_id="i-default-a")
NODE = builders.node("node-a", provider_id=CLAIM.provider_id)


def ending(cause: str, ago: timedelta = timedelta(0)) -> NodeClaim:
    return CLAIM.terminating(cause, "its time has come", NOW - ago)


def pod(value: str, started: datetime | None = NOW, node: str = "node-a", *, deleting: bool = False) -> Pod:
    shape = replace(builders.shape(), annotations={DO_NOT_DISRUPT: value})
    (made,) = builders.bind(shape, node, started_at=started, deleting=deleting)
    return made


def change(
    claim: NodeClaim, *pods: Pod, now: datetime = NOW, drain_times: Mapping[str, DrainTime] = FrozenMap()
) -> datetime | None:
    return next_change([claim], builders.snapshot(nodes=(NODE,), pods=pods), now, drain_times)


def test_the_end_of_a_pods_protection_is_foreseen() -> None:
    assert change(ending("Deleted"), pod("1m"), pod("2m")) == NOW + timedelta(minutes=1)
    assert change(ending("Deleted"), pod("1m", NOW - timedelta(seconds=57))) == NOW + timedelta(seconds=3)


def test_a_protection_that_never_ends_or_delays_nothing_is_no_such_moment() -> None:
    others = pod("true"), pod("1m", None), pod("1m", deleting=True), pod("1m", node="another")
    assert change(ending("Deleted"), *others) is None
    assert change(ending("Deleted"), pod("1m", NOW - timedelta(minutes=1))) is None


def test_the_end_of_the_wait_for_a_replacement_is_foreseen() -> None:
    assert change(ending("Expired")) == NOW + FIRST_LOOK
    assert change(ending("Expired", FIRST_LOOK)) == NOW - FIRST_LOOK + LONGEST_WAIT
    assert change(ending("Expired", LONGEST_WAIT)) is None
    assert change(ending("Deleted")) is None


def test_the_last_moments_that_leave_pods_their_grace_are_foreseen_and_so_is_the_deadline() -> None:
    deadline = NOW + timedelta(minutes=2)
    claim = replace(ending("Deleted"), deadline=deadline)
    assert change(claim) == deadline
    kept = pod("true")
    grace = timedelta(seconds=kept.shape.grace_seconds)
    found, now = [], NOW
    while (moment := change(claim, kept, now=now)) is not None:
        found.append(deadline - moment)
        now = moment
    assert found == [grace + PRESSING, grace, timedelta(0)]
    assert change(replace(claim, phase=Phase.TERMINATED)) is None


def test_pods_of_an_interrupted_node_have_a_head_start_which_is_longer_after_long_drains() -> None:
    claim = replace(ending("SpotInterrupted", LONGEST_WAIT), deadline=NOW + timedelta(minutes=9))
    kept = pod("true")
    asked = NOW + timedelta(minutes=9) - timedelta(seconds=kept.shape.grace_seconds) - HEAD_START
    assert change(claim, kept) == asked - PRESSING
    assert change(claim, kept, drain_times={"default": DrainTime(40, NOW)}) == asked - timedelta(seconds=40)


def test_an_earlier_annotated_deadline_counts() -> None:
    claim = replace(ending("Deleted"), deadline=NOW + timedelta(minutes=9))
    annotated = {TERMINATION_TIMESTAMP: format_time(NOW + timedelta(minutes=1))}
    shown = {"metadata": {"name": claim.name, "annotations": annotated}}
    snapshot = builders.snapshot(nodes=(NODE,), nodeclaims=(shown,))
    assert next_change([claim], snapshot, NOW) == NOW + timedelta(minutes=1)


def test_a_node_that_is_not_ending_has_no_such_moment() -> None:
    assert change(CLAIM, pod("1m")) is None
