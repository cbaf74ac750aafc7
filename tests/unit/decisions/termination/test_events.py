"""Events on pods, Nodes and NodeClaims when pods leave."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nodesmith.decisions.reporting.events import (
    of_deadline,
    of_deletions,
    of_evictions,
    of_interruption,
    of_waiting,
)
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.evictions import BUDGET, Evicted, Eviction, EvictionRefused, Gone, PodOnNode
from tests.builders import claim

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
CLAIM = replace(claim(), cause="Expired", deadline=NOW + timedelta(minutes=5))
PODS = [PodOnNode(f"default/web-{number}", "n1") for number in range(4)]


def test_node_and_nodeclaim_get_an_event_with_their_deadline() -> None:
    reported = of_deadline(CLAIM, "n1")
    assert [(each.kind, each.name, each.reason, each.warning) for each in reported] == [
        ("NodeClaim", CLAIM.name, "TerminationGracePeriodExpiring", True),
        ("Node", "n1", "TerminationGracePeriodExpiring", True),
    ]
    assert "2026-11-21T08:05:00Z" in reported[0].message
    assert [each.kind for each in of_deadline(CLAIM, "")] == ["NodeClaim"]
    assert of_deadline(replace(CLAIM, deadline=None), "n1") == []


@pytest.mark.parametrize(
    ("cause", "reason", "is_warned_of"),
    [
        (InterruptionCause.SPOT, "SpotInterrupted", True),
        (InterruptionCause.REBALANCE, "SpotRebalanceRecommendation", False),
        (InterruptionCause.RESERVATION, "CapacityReservationInstanceInterrupted", True),
        (InterruptionCause.STOPPED, "InstanceStopping", True),
        (InterruptionCause.TERMINATED, "InstanceTerminating", True),
        (InterruptionCause.SCHEDULED, "InstanceUnhealthy", True),
    ],
)
def test_node_and_nodeclaim_get_an_event_on_what_ec2_does_to_their_instance(
    cause: InterruptionCause, reason: str, is_warned_of: bool
) -> None:
    ending = claim().terminating(cause, "EC2 takes it at 08:02", NOW)
    reported = of_interruption(ending, "n1")
    assert [(each.kind, each.reason, each.warning) for each in reported] == [
        ("NodeClaim", reason, is_warned_of),
        ("Node", reason, is_warned_of),
    ]
    assert all("EC2 takes it at 08:02" in each.message for each in reported)


def test_a_termination_without_an_interruption_causes_no_interruption_event() -> None:
    assert of_interruption(claim().terminating("Expired", "", NOW), "n1") == []


def test_an_evicted_pod_gets_an_event_with_the_cause_and_its_node_one_with_the_first_refusal() -> None:
    answers: dict[str, Eviction] = {
        "default/web-0": Evicted(),
        "default/web-9": Evicted(before=True),
        "default/web-1": EvictionRefused(BUDGET, "web needs 2 healthy pods and has 2"),
        "default/web-2": EvictionRefused(BUDGET, "web needs 2 healthy pods and has 2"),
        "default/web-3": Gone(),
    }
    told_before = PodOnNode("default/web-9", "n1")
    assert of_evictions(CLAIM, [*PODS, told_before], answers) == [
        ObjectEvent("Pod", "default/web-0", "Evicted", "evicted: Node n1 is being terminated (Expired)"),
        ObjectEvent(
            "Node",
            "n1",
            "FailedDraining",
            "pod default/web-1 stays for now: web needs 2 healthy pods and has 2",
            warning=True,
        ),
    ]


def test_a_deleted_pod_gets_an_event_with_its_nodes_deadline() -> None:
    answers: dict[str, Eviction] = {
        "default/web-0": Evicted(),
        "default/web-1": Gone(),
        "default/web-2": Evicted(before=True),
    }
    assert of_deletions(CLAIM, PODS, answers) == [
        ObjectEvent(
            "Pod",
            "default/web-0",
            "Disrupted",
            "deleted: the termination grace period of Node n1 ends at 2026-11-21T08:05:00Z",
        )
    ]


@pytest.mark.parametrize(
    ("phase", "reason", "reported"),
    [
        (
            Phase.TERMINATING,
            "PodDisruptionBudget",
            [("NodeClaim", "PodDisruptionBudget", True), ("Node", "FailedDraining", True)],
        ),
        (Phase.TERMINATING, "Draining", [("Node", "FailedDraining", True)]),
        (Phase.TERMINATING, "AwaitingReplacement", [("NodeClaim", "AwaitingReplacement", False)]),
        (
            Phase.DRAINED,
            "AwaitingVolumeDetachment",
            [("NodeClaim", "AwaitingVolumeDetachment", False), ("Node", "AwaitingVolumeDetachment", False)],
        ),
        (Phase.DRAINED, "", []),
    ],
)
def test_a_node_gets_events_on_its_remaining_pods_and_volumes_and_its_nodeclaim_on_unusual_waits(
    phase: Phase, reason: str, reported: list[tuple[str, str, bool]]
) -> None:
    waiting = replace(CLAIM, phase=phase, reason=reason, message="pod a is still there", node_name="n1")
    events = of_waiting(waiting)
    assert [(event.kind, event.reason, event.warning) for event in events] == reported
    assert {event.message for event in events} <= {"pod a is still there"}
