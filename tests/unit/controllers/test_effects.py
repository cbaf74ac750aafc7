"""Effects: what each command changes in the ledger, in EC2 and in the cluster, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith import effects
from nodesmith.effects import carry_out, carry_out_end, collect, show
from nodesmith.errors import Transient
from nodesmith.model import commands
from nodesmith.model.apimachinery.labels import DISRUPTED, INITIALIZED, REGISTERED, TERMINATION_FINALIZER
from nodesmith.model.commands import (
    Advance,
    ClearNominations,
    Close,
    Command,
    DeletePods,
    Dismiss,
    End,
    Evict,
    Forget,
    GiveUp,
    Initialize,
    Nominate,
    Open,
    Owned,
    OwnedKind,
    Prepare,
    Register,
    Shelve,
    SingleEnding,
    Stop,
    TerminateInstances,
    Wait,
)
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import Evicted, PodOnNode
from tests import builders
from tests.builders import NOW, claim
from tests.fakes.cluster import FakeCluster
from tests.fakes.outside import ClusterPorts

RUNNING = claim(phase=Phase.INITIALIZED, instance_id="i-default-x1", node_name="node-a")
ENDING = RUNNING.terminating("Deleted", "somebody did", NOW)
GONE = "finalizers.example/held"


def manifest_of(node: str = "node-a", of: NodeClaim = RUNNING, *finalizers: str) -> dict[str, Any]:
    metadata = {"name": node, "creationTimestamp": "2026-11-21T07:00:00Z", "finalizers": list(finalizers)}
    return {"metadata": metadata, "spec": {"providerID": of.provider_id}}


def world(*claims: NodeClaim, nodes: Sequence[dict[str, Any]] = ()) -> ClusterPorts:
    """Return a ledger with claims, their NodeClaim objects, and Nodes."""
    outside = ClusterPorts()
    for each in claims:
        outside.store.claims[each.name] = each
        show(each, outside.cluster)
    outside.cluster.nodes.update({node["metadata"]["name"]: node for node in nodes})
    outside.cluster.calls.clear()
    return outside


def do(outside: ClusterPorts, command: Command) -> None:
    snapshot = builders.snapshot(nodes=(builders.node("node-a", provider_id=RUNNING.provider_id),))
    carry_out(command, snapshot, outside.store, outside.cloud, outside.cluster)


def end(outside: ClusterPorts, command: SingleEnding) -> None:
    carry_out_end(command, outside.store, outside.cluster)


def calls(outside: ClusterPorts) -> list[tuple[str, ...]]:
    """Return the writes to EC2 and the cluster, without the texts of Events."""
    every = [*outside.cloud.calls, *outside.cluster.calls]
    return [(each.method, *(() if each.method == "publish" else each.about)) for each in every]


def reasons(outside: ClusterPorts) -> list[tuple[str, str, str]]:
    return [(event.kind, event.name, event.reason) for event in outside.cluster.events]


@pytest.mark.parametrize(
    ("one", "is_made"),
    [
        (RUNNING, True),
        (RUNNING.terminating("Drifted", "", NOW), True),
        (replace(RUNNING, phase=Phase.TERMINATED), False),
        (replace(RUNNING.terminating("Drifted", "", NOW), instance_gone_at=NOW), False),
    ],
    ids=["runs", "drains", "instance terminated", "instance gone"],
)
def test_a_missing_object_is_created_unless_the_instance_has_been_terminated(
    one: NodeClaim, is_made: bool
) -> None:
    cluster = FakeCluster()
    show(one, cluster)
    assert (one.name in cluster.nodeclaims) == is_made


@pytest.mark.parametrize("kind", [Register, Wait, GiveUp, End])
def test_what_a_claim_has_become_is_saved_and_then_shown(kind: Callable[[NodeClaim], Command]) -> None:
    outside = world(RUNNING)
    outside.store.raise_after = lambda _: outside.cluster.calls.clear()
    do(outside, kind(RUNNING.waiting("Slow", "it is slow")))
    assert outside.store.claims[RUNNING.name].reason == "Slow"
    assert calls(outside) == [("apply_nodeclaim", RUNNING.name)], "after the ledger"


def test_showing_a_claim_leaves_the_ledger_as_it_is() -> None:
    outside = world(RUNNING)
    do(outside, commands.Show(RUNNING))
    assert calls(outside) == [("apply_nodeclaim", RUNNING.name)]
    assert outside.store.claims[RUNNING.name] == RUNNING


def test_a_node_is_opened_with_its_claims_labels_and_its_finalizer() -> None:
    outside = world(RUNNING, nodes=[manifest_of()])
    do(outside, Open(RUNNING, "node-a"))
    metadata = outside.cluster.nodes["node-a"]["metadata"]
    assert metadata["labels"][REGISTERED] == "true"
    assert metadata["finalizers"] == [TERMINATION_FINALIZER]
    assert outside.store.claims[RUNNING.name] == RUNNING


def test_an_initialized_node_is_marked_before_the_claim_is_saved() -> None:
    outside = world(RUNNING, nodes=[manifest_of()])
    do(outside, Initialize(replace(RUNNING, phase_since=NOW)))
    assert outside.cluster.nodes["node-a"]["metadata"]["labels"][INITIALIZED] == "true"
    assert outside.store.claims[RUNNING.name].phase_since == NOW
    assert calls(outside) == [("register_node", "node-a"), ("apply_nodeclaim", RUNNING.name)]


@pytest.mark.parametrize(
    "command", [Open(RUNNING, "node-a"), Initialize(RUNNING), Prepare(RUNNING, "node-a")], ids=repr
)
def test_a_node_that_went_away_meanwhile_is_looked_at_again_and_nothing_is_saved(command: Command) -> None:
    outside = world(RUNNING)
    with pytest.raises(Transient, match="node-a went away"):
        do(outside, command)
    assert outside.store.claims[RUNNING.name] == RUNNING


def test_nominations_are_made_and_cleared_on_pending_pods_alone() -> None:
    outside = world(RUNNING)
    outside.cluster.pods["default/web"] = {"metadata": {"name": "web"}, "spec": {}}
    do(outside, Nominate(RUNNING, "node-a", ("default/web",)))
    assert outside.cluster.pods["default/web"]["status"] == {"nominatedNodeName": "node-a"}
    do(outside, ClearNominations(RUNNING, "node-a", ("default/web",)))
    assert outside.cluster.pods["default/web"]["status"] == {}


def test_what_is_left_of_a_claim_is_removed_before_the_ledger_forgets_it() -> None:
    outside = world(RUNNING)
    outside.store.raise_before = lambda _: calls_then.extend(calls(outside))
    calls_then: list[tuple[str, ...]] = []
    do(outside, Forget(RUNNING))
    assert calls_then == [("terminate", "i-default-x1"), ("delete_nodeclaim", RUNNING.name)]
    assert outside.store.claims == {}


def test_a_users_claim_is_removed_but_stays_in_the_ledger() -> None:
    outside = world(RUNNING)
    do(outside, Dismiss(RUNNING))
    assert calls(outside) == [("terminate", "i-default-x1"), ("delete_nodeclaim", RUNNING.name)]
    assert RUNNING.name in outside.store.claims


def test_ec2_is_not_called_for_a_claim_that_never_had_an_instance() -> None:
    outside = world(replace(RUNNING, instance_id=""))
    do(outside, Forget(replace(RUNNING, instance_id="")))
    assert calls(outside) == [("delete_nodeclaim", RUNNING.name)]


def test_a_node_for_warm_capacity_is_cordoned_before_the_claim_is_saved() -> None:
    outside = world(RUNNING, nodes=[manifest_of()])
    do(outside, Prepare(RUNNING.waiting("Warming", ""), "node-a"))
    assert outside.cluster.nodes["node-a"]["spec"]["unschedulable"] is True
    assert outside.store.claims[RUNNING.name].reason == "Warming"
    assert calls(outside) == [("register_node", "node-a"), ("apply_nodeclaim", RUNNING.name)]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_stop_is_recorded_once_before_ec2_is_asked(is_new: bool) -> None:
    outside = world(RUNNING)
    do(outside, Stop(RUNNING, is_new))
    assert [each.method for each in outside.cloud.calls] == ["stop"]
    assert outside.store.claims[RUNNING.name].revision == RUNNING.revision + is_new


def test_an_instance_is_not_stopped_if_that_cannot_be_recorded() -> None:
    outside = world(RUNNING)

    def fail(name: str) -> None:
        raise Transient(name)

    outside.store.raise_before = fail
    with pytest.raises(Transient):
        do(outside, Stop(RUNNING, is_new=True))
    assert outside.cloud.calls == []


def test_a_stopped_claims_node_is_removed_before_the_claim_is_saved() -> None:
    outside = world(RUNNING, nodes=[manifest_of()])
    do(outside, Shelve(RUNNING, "node-a"))
    assert outside.cluster.nodes == {}
    assert calls(outside) == [("release_node", "node-a"), ("apply_nodeclaim", RUNNING.name)]
    assert outside.store.claims[RUNNING.name].revision == RUNNING.revision + 1


def test_a_stopped_claim_waits_for_the_finalizers_of_others() -> None:
    outside = world(RUNNING, nodes=[manifest_of("node-a", RUNNING, GONE)])
    with pytest.raises(Transient, match=GONE):
        do(outside, Shelve(RUNNING, "node-a"))
    assert outside.store.claims[RUNNING.name] == RUNNING


def test_a_stopped_claim_without_a_node_is_saved() -> None:
    outside = world(RUNNING)
    do(outside, Shelve(RUNNING, ""))
    assert calls(outside) == [("apply_nodeclaim", RUNNING.name)]


def test_the_beginning_of_an_end_is_returned_as_saved() -> None:
    outside = world(RUNNING)
    saved = effects.begin_end(End(ENDING), outside.store, outside.cluster)
    assert saved == outside.store.claims[RUNNING.name]
    assert (saved.phase, saved.revision) == (Phase.TERMINATING, RUNNING.revision + 1)
    assert calls(outside) == [("apply_nodeclaim", RUNNING.name)]


def test_closing_keeps_pods_off_the_node_and_marks_both_objects_as_deleted() -> None:
    outside = world(ENDING, nodes=[manifest_of()])
    end(outside, Close(ENDING, "node-a"))
    node = outside.cluster.nodes["node-a"]
    assert [taint["key"] for taint in node["spec"]["taints"]] == [DISRUPTED.key]
    assert node["metadata"]["deletionTimestamp"]
    assert outside.cluster.nodeclaims[ENDING.name]["metadata"]["deletionTimestamp"]
    assert reasons(outside) == [], "somebody deleted it, and there is no deadline"


def test_closing_does_not_delete_another_instances_node_of_the_same_name() -> None:
    outside = world(ENDING, nodes=[manifest_of("node-a", claim("default-x2"))])
    end(outside, Close(ENDING, "node-a"))
    assert "deletionTimestamp" not in outside.cluster.nodes["node-a"]["metadata"]


def test_closing_a_claim_without_a_node_marks_its_object_alone() -> None:
    outside = world(ENDING)
    end(outside, Close(ENDING, ""))
    assert calls(outside) == [("request_deletion", "NodeClaim", ENDING.name)]


def test_closing_tells_of_the_interruption_and_of_the_deadline() -> None:
    interrupted = RUNNING.terminating(InterruptionCause.SPOT, "two minutes", NOW)
    outside = world(interrupted)
    late = replace(interrupted, deadline=NOW + timedelta(minutes=2))
    end(outside, Close(late, "node-a"))
    both = ("NodeClaim", RUNNING.name), ("Node", "node-a")
    reported = ("SpotInterrupted", "TerminationGracePeriodExpiring")
    assert reasons(outside) == [(*about, reason) for reason in reported for about in both]


@pytest.mark.parametrize("kind", [Wait, Advance])
def test_an_end_that_waits_is_saved_shown_and_told(kind: Callable[[NodeClaim], SingleEnding]) -> None:
    outside = world(ENDING)
    end(outside, kind(ENDING.waiting("DoNotDisrupt", "pod default/web stays")))
    assert outside.store.claims[ENDING.name].reason == "DoNotDisrupt"
    assert calls(outside) == [("apply_nodeclaim", ENDING.name), ("publish",)]
    assert reasons(outside) == [
        ("NodeClaim", ENDING.name, "DoNotDisrupt"),
        ("Node", "node-a", "FailedDraining"),
    ]


def test_an_end_that_goes_on_is_saved_without_an_event() -> None:
    outside = world(ENDING)
    end(outside, Advance(replace(ENDING, phase=Phase.DRAINED, reason="")))
    assert outside.store.claims[ENDING.name].phase is Phase.DRAINED
    assert calls(outside) == [("apply_nodeclaim", ENDING.name)]


def test_a_terminated_claim_is_recorded_and_ec2_is_not_called_again() -> None:
    outside = world(ENDING)
    end(outside, TerminateInstances(replace(ENDING, phase=Phase.TERMINATED), ("i-default-x1",)))
    assert outside.store.claims[ENDING.name].phase is Phase.TERMINATED
    assert calls(outside) == [("apply_nodeclaim", ENDING.name)]


def test_a_claim_is_released_node_first_ledger_last() -> None:
    outside = world(ENDING, nodes=[manifest_of("node-a", ENDING, TERMINATION_FINALIZER)])
    assert effects.release(commands.Release(ENDING, "node-a"), outside.store, outside.cluster) is True
    assert calls(outside) == [("release_node", "node-a"), ("delete_nodeclaim", ENDING.name)]
    assert (outside.cluster.nodes, outside.cluster.nodeclaims, outside.store.claims) == ({}, {}, {})


def test_a_claim_without_a_node_is_released() -> None:
    outside = world(ENDING)
    assert effects.release(commands.Release(ENDING, ""), outside.store, outside.cluster) is True
    assert calls(outside) == [("delete_nodeclaim", ENDING.name)]
    assert outside.store.claims == {}


def test_a_node_held_by_others_keeps_its_claim_and_is_told_of_once() -> None:
    outside = world(ENDING, nodes=[manifest_of("node-a", ENDING, TERMINATION_FINALIZER, GONE)])
    assert effects.release(commands.Release(ENDING, "node-a"), outside.store, outside.cluster) is False
    waiting = outside.store.claims[ENDING.name]
    assert (waiting.reason, waiting.revision) == ("AwaitingNodeDeletion", ENDING.revision + 1)
    assert GONE in waiting.message
    assert calls(outside)[1:] == [("apply_nodeclaim", ENDING.name), ("publish",)]
    assert effects.release(commands.Release(waiting, "node-a"), outside.store, outside.cluster) is False
    assert outside.store.claims[ENDING.name] == waiting
    assert calls(outside)[3:] == [("release_node", "node-a")]


def on_node(pod: str) -> PodOnNode:
    return PodOnNode(f"default/{pod}", "node-a", 30)


def running(outside: ClusterPorts, *pods: str) -> None:
    for pod in pods:
        metadata = {"name": pod, "namespace": "default", "uid": f"uid-{pod}"}
        outside.cluster.pods[f"default/{pod}"] = {"metadata": metadata, "spec": {"nodeName": "node-a"}}


def test_pods_of_all_claims_are_evicted_in_one_call() -> None:
    outside = world(ENDING)
    running(outside, "a", "b", "c")
    two = [Evict(ENDING, (on_node("a"), on_node("b"))), Evict(ENDING, (on_node("c"),))]
    answers = effects.evict(two, outside.cluster)
    assert calls(outside) == [("evict", "default/a", "default/b", "default/c")]
    assert answers.keys() == {"default/a", "default/b", "default/c"}
    assert all(isinstance(answer, Evicted) for answer in answers.values())


def test_pods_of_all_claims_are_deleted_in_one_call_and_told_of() -> None:
    outside = world(ENDING)
    running(outside, "a", "b", "c")
    two = [DeletePods(ENDING, (on_node("a"), on_node("b"))), DeletePods(ENDING, (on_node("c"),))]
    effects.delete_pods(two, outside.cluster)
    assert calls(outside) == [("delete_pods", "default/a", "default/b", "default/c"), ("publish",)]
    assert reasons(outside) == [("Pod", f"default/{pod}", "Disrupted") for pod in "abc"]


def test_instances_of_all_claims_are_terminated_in_one_call_each_once() -> None:
    outside = world()
    two = [TerminateInstances(ENDING, ("i-2", "i-1")), TerminateInstances(ENDING, ("i-1", "i-3"))]
    effects.terminate(two, outside.cloud)
    assert calls(outside) == [("terminate", "i-1", "i-2", "i-3")]


PROFILE = Owned(OwnedKind.INSTANCE_PROFILE, "nodesmith-x")


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (commands.Terminate(("i-1", "i-2"), "unclaimed"), [("terminate", "i-1", "i-2")]),
        (commands.EndClaim(ENDING), [("apply_nodeclaim", ENDING.name)]),
        (commands.Correct(ENDING), []),
        (commands.ReleaseNode("node-a", RUNNING.provider_id), [("release_node", "node-a")]),
        (commands.Lift(RUNNING.name), [("delete_nodeclaim", RUNNING.name)]),
        (commands.Remove(PROFILE), [("remove", "instance-profile", "nodesmith-x")]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_garbage_is_removed_by_one_call(
    item: commands.Garbage, expected: list[tuple[str, ...]]
) -> None:
    outside = world(RUNNING, nodes=[manifest_of()])
    collect(item, outside.store, outside.cloud, outside.cluster)
    assert calls(outside) == expected
    is_saved = isinstance(item, commands.EndClaim | commands.Correct)
    assert outside.store.claims[RUNNING.name].phase is (ENDING if is_saved else RUNNING).phase


def test_the_garbage_collector_removes_only_the_node_of_the_instance_that_is_gone() -> None:
    outside = world(nodes=[manifest_of("node-a", claim("default-x2"))])
    collect(
        commands.ReleaseNode("node-a", RUNNING.provider_id), outside.store, outside.cloud, outside.cluster
    )
    assert "node-a" in outside.cluster.nodes


def test_claims_for_unclaimed_instances_are_committed_on_the_version_that_was_read() -> None:
    outside = world()
    outside.store.version = 7
    collect(commands.TakeBack(7, (RUNNING,)), outside.store, outside.cloud, outside.cluster)
    assert outside.store.claims.keys() == {RUNNING.name}
    assert outside.store.decisions == ["garbagecollection"]
