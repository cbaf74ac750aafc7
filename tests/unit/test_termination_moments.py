"""When time alone lets the end of a node go on."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.termination.moments import next_change
from nodesmith.decisions.termination.replacing import FIRST_LOOK, LONGEST_WAIT
from nodesmith.model.labels import DO_NOT_DISRUPT
from nodesmith.model.nodeclaims import NodeClaim, Phase
from nodesmith.model.pods import Pod
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


def change(claim: NodeClaim, *pods: Pod) -> datetime | None:
    return next_change([claim], builders.snapshot(nodes=(NODE,), pods=pods), NOW)


def test_the_end_of_a_pods_protection_is_foreseen() -> None:
    assert change(ending("Deleted"), pod("1m"), pod("2m")) == NOW + timedelta(minutes=1)
    assert change(ending("Deleted"), pod("1m", NOW - timedelta(seconds=57))) == NOW + timedelta(seconds=3)


def test_a_protection_that_does_not_end_or_holds_up_nobody_is_no_such_moment() -> None:
    others = pod("true"), pod("1m", None), pod("1m", deleting=True), pod("1m", node="another")
    assert change(ending("Deleted"), *others) is None
    assert change(ending("Deleted"), pod("1m", NOW - timedelta(minutes=1))) is None


def test_the_end_of_the_wait_for_a_replacement_is_foreseen() -> None:
    assert change(ending("Expired")) == NOW + FIRST_LOOK
    assert change(ending("Expired", FIRST_LOOK)) == NOW - FIRST_LOOK + LONGEST_WAIT
    assert change(ending("Expired", LONGEST_WAIT)) is None
    assert change(ending("Deleted")) is None


def test_a_node_that_does_not_end_has_no_such_moment() -> None:
    assert change(CLAIM, pod("1m")) is None
