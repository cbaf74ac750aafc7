"""A snapshot taken before a node was tainted lacks its last pods and volumes, and terminates nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from nodesmith.decisions.termination import next_steps
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.commands import Advance, TerminateInstances
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from tests.builders import NOW, claim, node, snapshot

ENDING: dict[str, Any] = {
    "terminating_at": NOW - timedelta(minutes=5),
    "phase_since": NOW - timedelta(minutes=5),
}


def ending(**fields: Any) -> NodeClaim:
    return claim(phase=Phase.TERMINATING, **{**ENDING, **fields})


def steps(of: NodeClaim, **seen: Any) -> Sequence[type]:
    """Return the commands for a claim whose node is empty, as one snapshot shows it."""
    shown = snapshot(nodes=(node(provider_id=of.provider_id, **seen),))
    done = [type(command) for command in next_steps([of], shown, {}, (), NOW)]
    return [kind for kind in done if kind in (Advance, TerminateInstances)]


def test_a_snapshot_from_before_the_taint_does_not_terminate_an_empty_node() -> None:
    assert steps(ending()) == []


def test_an_empty_node_that_is_shown_with_the_taint_is_terminated() -> None:
    assert steps(ending(), taints=[DISRUPTED], deleting=True) == [TerminateInstances]


def test_at_its_deadline_a_node_is_terminated_whatever_the_snapshot_shows() -> None:
    assert steps(ending(deadline=NOW)) == [TerminateInstances]
