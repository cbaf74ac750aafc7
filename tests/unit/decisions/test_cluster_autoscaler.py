"""What manifests that were written for Cluster Autoscaler mean here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.controllers.launching.unschedulable import publish_pods, publish_unplaced, write_unplaced
from nodesmith.decisions.budgets import paused
from nodesmith.decisions.disruption.candidates import CandidateSelection
from nodesmith.decisions.lifecycle import next_steps as lifecycle_steps
from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.decisions.reporting.events import of_waiting, pod_events
from nodesmith.decisions.scheduling.existing import existing_nodes
from nodesmith.decisions.termination import next_steps
from nodesmith.decisions.termination.evictions import must_go
from nodesmith.decisions.termination.steps import next_change
from nodesmith.model.apimachinery.labels import (
    DISRUPTED,
    PREPARING,
    Effect,
    Taint,
    Toleration,
)
from nodesmith.model.commands import Advance, Evict, Initialize, TerminateInstances, TerminationCommand, Wait
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.kubernetes.nodes import Condition, Node
from nodesmith.model.kubernetes.podannotations import DAEMON_EVICTION, SCALE_UP_DELAY, scale_up_delay
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.ledger.ledger import Ledger, Pause
from nodesmith.observation.reduction.objects import reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from nodesmith_cli.manifests.validating.autoscaler import autoscaler_findings
from nodesmith_cli.manifests.validating.hosting import inputs_of
from nodesmith_formats.manifests.manifests import Document
from tests import builders
from tests.builders import CLUSTER, NOW
from tests.fakes.blobs import FakeBlobs
from tests.fakes.cluster import FakeCluster
from tests.fakes.store import FakeStore
from tests.goparsers import kept
from tests.unit.decisions.termination.test_termination import CLAIM, closed

MINUTE = timedelta(minutes=1)
STARTUP = Taint("startup-taint.cluster-autoscaler.kubernetes.io/cni", Effect.NO_SCHEDULE)
IGNORED = Taint("ignore-taint.cluster-autoscaler.kubernetes.io/gpu", Effect.NO_EXECUTE)
STATUS = Taint("status-taint.cluster-autoscaler.kubernetes.io/disk", Effect.NO_SCHEDULE)


# Delays of purchases
def waiting(delay: str, age: timedelta, app: str = "web") -> Pod:
    """Return a pod that has waited for `age` and is annotated with a delay."""
    shape = replace(builders.shape(app=app), annotations={SCALE_UP_DELAY: delay})
    (pod,) = builders.pods(shape)
    return replace(pod, created_at=NOW - age)


def bought(plan: Plan) -> list[str]:
    return sorted(pod for node in plan.nodes for pod in node.claim.nominated)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300), ("1h30m", 5400), ("1.5h", 5400), (".5s", 0.5), ("0", 0), ("-5m", 0), ("250ms", 0.25)],
)
def test_a_delay_is_a_duration_of_go(text: str, seconds: float) -> None:
    assert scale_up_delay(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "5 m", "five", "5m!", "1d", "m", "." * 70 + "s", "٥m"])
def test_what_is_no_duration_of_go_is_no_delay(text: str) -> None:
    assert scale_up_delay(text) is None


def test_delays_are_as_long_as_go_reads_them() -> None:
    answers = [each for each in kept() if each.case.kind == "duration"]
    short = [each for each in answers if len(each.case.given) <= 64 and each.case.given != "Never"]
    assert len(short) > 100
    for each in short:
        assert scale_up_delay(each.case.given) == timedelta(microseconds=each.found // 1000), each


def test_no_node_is_bought_for_a_pod_before_its_delay_ends_and_the_next_look_is_due_then() -> None:
    pod = waiting("5m", 2 * MINUTE)
    plan = decide(builders.inputs(pods=[pod]))

    assert not plan.nodes
    assert plan.due == NOW + 3 * MINUTE
    (group,) = plan.unplaced
    assert group.pods == (pod.key,)
    assert f"{SCALE_UP_DELAY}=5m" in group.reason
    assert "2026-11-21 12:03:00 UTC" in group.reason


def test_a_node_is_bought_at_the_moment_at_which_the_delay_ends() -> None:
    assert bought(decide(builders.inputs(pods=[waiting("5m", 5 * MINUTE)]))) == ["default/web-0000"]


def test_pods_without_a_delay_get_their_node_beside_pods_that_wait() -> None:
    plan = decide(builders.inputs(pods=[waiting("1h", MINUTE), *builders.pods(builders.shape(app="api"))]))
    assert bought(plan) == ["default/api-0000"]
    assert plan.due == NOW + 59 * MINUTE


def test_a_delay_that_cannot_be_read_delays_nothing_and_an_event_says_what_would_be_right() -> None:
    pod = waiting("5 minutes", timedelta())
    assert bought(decide(builders.inputs(pods=[pod]))) == [pod.key]
    (event,) = pod_events([], [pod], NOW)
    assert (event.reason, event.warning) == ("InvalidScaleUpDelayAnnotation", True)
    assert "'5 minutes'" in event.message
    assert "such as 5m" in event.message


def test_a_pod_that_has_to_leave_its_node_has_waited_before() -> None:
    (pod,) = builders.bind(waiting("1h", MINUTE).shape, "node-1")
    going = builders.node(deleting=True)
    assert bought(decide(builders.inputs(snapshot=builders.snapshot(pods=[pod], nodes=(going,))))) == [
        pod.key
    ]


def test_the_longest_delay_overflows_nothing() -> None:
    plan = decide(builders.inputs(pods=[waiting("9" * 30 + "h", MINUTE)]))
    assert plan.due is not None
    assert plan.due.year > 2300


def test_the_event_of_a_pod_that_wants_to_wait_is_no_warning() -> None:
    pod, blobs, cluster = waiting("5m", MINUTE), FakeBlobs(), FakeCluster()
    write_unplaced(blobs, CLUSTER, decide(builders.inputs(pods=[pod])), NOW)
    seen = builders.snapshot(pods=[pod])
    assert publish_unplaced(blobs, cluster, FakeStore(), seen, {}, NOW, as_autoscaler=True) == 1
    (event,) = cluster.events
    assert (event.reason, event.warning) == ("ScaleUpDelayed", False)


def test_the_annotations_of_pods_are_part_of_what_is_observed() -> None:
    asked = {SCALE_UP_DELAY: "5m", DAEMON_EVICTION: "false", "example.com/other": "x"}
    metadata = {"name": "a", "namespace": "b", "uid": "c", "creationTimestamp": "2026-11-21T12:00:00Z"}
    reduced = reduce_pod({"metadata": {**metadata, "annotations": asked}, "spec": {}})
    assert reduced is not None
    assert f'"{SCALE_UP_DELAY}":"5m"' in reduced.shape
    assert f'"{DAEMON_EVICTION}":"false"' in reduced.shape
    assert "other" not in reduced.shape


# Pods of DaemonSets in a drain
ANYWHERE = Toleration(operator="Exists")
ENDING = CLAIM.terminating("Deleted", "a user deleted it", NOW - MINUTE)


def agent(eviction: str = "", *tolerations: Toleration) -> Shape:
    annotations = {DAEMON_EVICTION: eviction} if eviction else {}
    return replace(builders.daemon(), annotations=annotations, tolerations=tolerations)


def steps(
    claim: NodeClaim, pods: Sequence[Pod] = (), node: Node | None = None, now: datetime = NOW
) -> list[TerminationCommand]:
    shown = {"metadata": {"name": claim.name, "deletionTimestamp": "2026-11-21T11:59:00Z"}}
    seen = builders.snapshot(pods=pods, nodes=(node or closed(),), nodeclaims=(shown,))
    return next_steps([claim], seen, {}, [], now)


def evicted(commands: Sequence[TerminationCommand]) -> list[str]:
    return [pod.pod for command in commands if isinstance(command, Evict) for pod in command.pods]


@pytest.mark.parametrize(
    ("shape", "leaves"),
    [
        pytest.param(agent(), True, id="as in Karpenter"),
        pytest.param(agent("", ANYWHERE), False, id="tolerating, as in Karpenter"),
        pytest.param(agent("true", ANYWHERE), True, id="tolerating, true"),
        pytest.param(agent("false"), False, id="false"),
        pytest.param(agent("no", ANYWHERE), False, id="neither true nor false"),
        pytest.param(
            replace(builders.shape(), annotations={DAEMON_EVICTION: "false"}), True, id="of no DaemonSet"
        ),
    ],
)
def test_a_pod_of_a_daemonset_leaves_or_stays_as_its_annotation_says(shape: Shape, leaves: bool) -> None:
    assert must_go(shape) is leaves


def test_a_daemons_pod_that_tolerates_everything_is_evicted_after_the_other_pods_if_it_asks_for_it() -> None:
    (daemon,) = builders.bind(agent("true", ANYWHERE), "node-a")
    (web,) = builders.bind(builders.shape(), "node-a")
    assert evicted(steps(ENDING, [daemon, web])) == [web.key]
    assert evicted(steps(ENDING, [daemon])) == [daemon.key]


def test_the_drain_does_not_wait_for_the_pod_that_a_daemonset_puts_in_the_place_of_an_evicted_one() -> None:
    (successor,) = builders.bind(agent("true", ANYWHERE), "node-a", created_at=NOW - MINUTE / 2)
    (command,) = steps(ENDING, [successor])
    assert isinstance(command, TerminateInstances)


# Delays of deletions
HOLD = "delay-deletion.cluster-autoscaler.kubernetes.io/drain-volumes"


def test_a_drained_node_waits_for_other_controllers_and_says_for_which() -> None:
    held = closed(annotations={HOLD: "", "delay-deletion.cluster-autoscaler.kubernetes.io/z": "1"})
    (advance,) = steps(ENDING, node=held)
    assert isinstance(advance, Advance)
    assert advance.claim.phase is Phase.DETACHED

    (wait,) = steps(advance.claim, node=held)
    assert isinstance(wait, Wait)
    assert wait.claim.reason == "DeletionDelayed"
    assert f"annotated {HOLD} and 1 more" in wait.claim.message
    assert "12:02:00" in wait.claim.message
    reported = {(event.kind, event.warning) for event in of_waiting(replace(wait.claim, node_name="node-a"))}
    assert reported == {("NodeClaim", False), ("Node", False)}
    assert not steps(wait.claim, node=held, now=NOW + MINUTE)


def test_the_wait_for_other_controllers_ends_with_their_annotation_and_after_two_minutes() -> None:
    drained = ENDING.advanced(Phase.DRAINED, NOW).advanced(Phase.DETACHED, NOW)
    held = closed(annotations={HOLD: ""})
    assert next_change([drained], builders.snapshot(nodes=(held,)), NOW) == NOW + 2 * MINUTE
    assert [type(c) for c in steps(drained, node=closed())] == [TerminateInstances]
    assert [type(c) for c in steps(drained, node=held, now=NOW + 2 * MINUTE)] == [TerminateInstances]


def test_other_controllers_delay_nothing_beyond_the_nodes_deadline() -> None:
    (command,) = steps(replace(ENDING, deadline=NOW), node=closed(annotations={HOLD: ""}))
    assert isinstance(command, TerminateInstances)


def test_annotations_that_delay_a_deletion_are_part_of_what_is_observed() -> None:
    metadata = {"name": "a", "creationTimestamp": "2026-11-21T12:00:00Z"}
    reduced = reduce_node({"metadata": {**metadata, "annotations": {HOLD: "x", "example.com/a": "b"}}})
    assert reduced["metadata"]["annotations"] == {HOLD: "x"}


# Taints that nodes lose
TOLERANT = builders.shape()
JOINED = builders.claim(phase=Phase.REGISTERED, node_name="node-1", registered_at=NOW)


def starting(*taints: Taint) -> Node:
    return builders.node(provider_id=JOINED.provider_id, taints=taints, labels=builders.JOINED)


@pytest.mark.parametrize("taint", [STARTUP, IGNORED, STATUS])
def test_a_starting_node_takes_pods_that_do_not_tolerate_a_taint_that_it_will_lose(taint: Taint) -> None:
    (existing,) = existing_nodes(builders.snapshot(nodes=(starting(taint),)), [JOINED])
    assert existing.admits(TOLERANT)


@pytest.mark.parametrize("taint", [STARTUP, IGNORED, STATUS])
def test_a_node_in_service_with_such_a_taint_takes_none(taint: Taint) -> None:
    node = builders.node(taints=[taint], labels=builders.READY, provider_id=JOINED.provider_id)
    (existing,) = existing_nodes(builders.snapshot(nodes=(node,)), [JOINED])
    assert not existing.admits(TOLERANT)


@pytest.mark.parametrize(
    ("taint", "reason"), [(STARTUP, "StartupTaintsExist"), (IGNORED, "StartupTaintsExist"), (STATUS, "")]
)
def test_a_node_is_initialized_without_its_startup_taints_and_with_its_status_taints(
    taint: Taint, reason: str
) -> None:
    # The claim has the taint from its NodePool, as `parse_nodepool` reads it.
    claim = replace(JOINED, startup_taints=(taint,))
    seen = builders.snapshot(nodes=(starting(taint),))
    found = [c for c in lifecycle_steps([claim], seen, {}, [], NOW) if isinstance(c, Wait | Initialize)]
    assert [c.claim.reason for c in found] == [reason]


def test_a_startup_taint_that_no_nodepool_names_delays_initialization_too() -> None:
    seen = builders.snapshot(nodes=(starting(STARTUP),))
    found = [c for c in lifecycle_steps([JOINED], seen, {}, [], NOW) if isinstance(c, Wait)]
    assert [c.claim.reason for c in found] == ["StartupTaintsExist"]


def test_taints_of_a_nodepool_that_its_nodes_lose_need_no_toleration() -> None:
    taints = [{"key": t.key, "effect": str(t.effect)} for t in (STARTUP, IGNORED, STATUS)]
    lasting = {"key": "team", "effect": "NoSchedule", "value": "a"}
    manifest = builders.nodepool_manifest(taints=[*taints, lasting])
    pool = parse_nodepool(manifest).value
    assert pool is not None
    assert pool.taints == (Taint("team", "NoSchedule", "a"),)
    assert pool.startup_taints == (STARTUP, IGNORED, STATUS)
    seen = builders.snapshot(
        pods=builders.pods(TOLERANT), nodepools=(builders.nodepool_manifest(taints=taints),)
    )
    contents = {"NodePool/default": builders.content_of(seen.nodepools[0])}
    assert bought(decide(builders.inputs(snapshot=seen, ledger=builders.ledger(contents=contents))))


# Unready nodes
def fleet(ready: int, unready: int, **fields: Any) -> list[Node]:
    sick = {"Ready": Condition("Unknown", since=NOW - 5 * MINUTE)}
    return [
        *(builders.node(f"ready-{n}") for n in range(ready)),
        *(replace(builders.node(f"sick-{n}", **fields), conditions=sick) for n in range(unready)),
    ]


def pause(nodes: Sequence[Node], **fields: Any) -> Pause | None:
    return paused(Ledger(**fields), builders.snapshot(nodes=tuple(nodes)), NOW)


@pytest.mark.parametrize(
    ("ready", "unready", "pauses"),
    [(0, 3, False), (0, 4, True), (4, 4, True), (5, 4, False), (11, 9, False), (10, 10, True)],
)
def test_disruption_pauses_while_more_than_three_nodes_and_45_percent_are_unready(
    ready: int, unready: int, pauses: bool
) -> None:
    assert (pause(fleet(ready, unready)) is not None) is pauses


def test_the_pause_says_why_and_since_when() -> None:
    nodes = fleet(2, 5)
    late = {"Ready": Condition("False", since=NOW - MINUTE)}
    nodes[-1] = replace(nodes[-1], conditions=late)
    found = pause(nodes)
    assert found is not None
    assert found.since == NOW - 5 * MINUTE
    assert str(found).endswith("more than 45 % of the cluster's 7 nodes are not Ready")


def test_nodes_that_start_or_end_do_not_count_as_unready() -> None:
    young = {"Ready": Condition("False", since=NOW - 5 * MINUTE)}
    assert pause([replace(n, created_at=NOW - 5 * MINUTE, conditions=young) for n in fleet(0, 9)]) is None
    assert pause([replace(n, created_at=NOW - 9 * MINUTE, conditions=young) for n in fleet(0, 9)]) is not None
    assert pause(fleet(0, 9, deleting=True)) is None
    assert pause(fleet(0, 9, taints=[DISRUPTED])) is None


def test_instances_that_are_stopped_for_later_do_not_count_as_unready() -> None:
    stopping = fleet(0, 9, labels={PREPARING: "true"})
    assert pause([*fleet(8, 0), *stopping]) is None
    assert pause([*fleet(5, 3), *stopping]) is None
    found = pause([*fleet(4, 4), *stopping])
    assert str(found).endswith("more than 45 % of the cluster's 8 nodes are not Ready")


def test_a_users_pause_comes_first() -> None:
    own = Pause(NOW, "a release")
    assert pause(fleet(0, 9), paused=own) is own


def test_no_node_is_a_candidate_while_too_many_are_unready_and_purchases_go_on() -> None:
    nodes = fleet(0, 4)
    claim = builders.claim(
        phase=Phase.INITIALIZED, provider_id="aws:///us-east-1a/i-mine", initialized_at=NOW
    )
    mine = builders.node("mine", provider_id=claim.provider_id, labels=builders.READY)
    pods = builders.pods(builders.shape(cpu="8"))
    inputs = builders.inputs(
        snapshot=builders.snapshot(nodes=(mine, *nodes), pods=pods), ledger=builders.ledger(claims=(claim,))
    )
    survey = CandidateSelection(inputs)
    assert not survey.candidates
    assert survey.blocked[claim.name].rule == "Paused"
    assert bought(decide(inputs)) == ["default/web-0000"]


# Events
def test_pods_get_cluster_autoscalers_events_only_if_the_cluster_asks_for_them() -> None:
    pods = builders.pods(builders.shape(), 2)
    old = builders.claim("default-old", phase=Phase.INITIALIZED, created_at=NOW - 60 * MINUTE)
    new = builders.claim("default-new", nominated=(pods[0].key,))
    pool = parse_nodepool(builders.nodepool_manifest(limits={"nodes": "5"})).value
    assert pool is not None
    seen = builders.snapshot(pods=pods)
    without, with_limit, unlimited = FakeCluster(), FakeCluster(), FakeCluster()
    publish_pods(without, [old, new], seen, {}, NOW)
    publish_pods(with_limit, [old, new], seen, {}, NOW, {"default": pool})
    publish_pods(unlimited, [old, new], seen, {}, NOW, {})

    assert [event.reason for event in without.events] == ["Nominated"]
    assert [(event.reason, event.message) for event in with_limit.events] == [
        ("TriggeredScaleUp", "pod triggered scale-up: [{default 1->2 (max: 5)}]"),
        ("Nominated", "Pod should schedule on: nodeclaim/default-new"),
    ]
    assert unlimited.events[0].message == "pod triggered scale-up: [{default 1->2 (max: 2147483647)}]"


def test_a_scale_up_by_a_stopped_instance_counts_nodes_and_no_other_stopped_instances() -> None:
    pods = builders.pods(builders.shape())
    old = builders.claim("default-old", phase=Phase.INITIALIZED, created_at=NOW - 60 * MINUTE)
    warm = {"buffer": "default/room", "created_at": NOW - 90 * MINUTE}
    stopped = builders.claim("default-stopped", phase=Phase.STOPPED, **warm)
    new = builders.claim(
        "default-new", phase=Phase.STARTING, started_at=NOW, nominated=(pods[0].key,), **warm
    )
    cluster = FakeCluster()
    publish_pods(cluster, [old, stopped, new], builders.snapshot(pods=pods), {}, NOW, {})
    assert cluster.events[0].message == "pod triggered scale-up: [{default 1->2 (max: 2147483647)}]"


def test_pods_without_a_node_get_the_event_that_they_triggered_no_scale_up_with_the_reason() -> None:
    huge = builders.pods(builders.shape(cpu="10000"))
    blobs, cluster = FakeBlobs(), FakeCluster()
    write_unplaced(blobs, CLUSTER, decide(builders.inputs(pods=huge)), NOW)
    seen = builders.snapshot(pods=huge)
    publish_unplaced(blobs, cluster, FakeStore(), seen, {}, NOW, as_autoscaler=True)

    ours, theirs = cluster.events
    assert (ours.reason, ours.warning) == ("FailedScheduling", True)
    assert (theirs.reason, theirs.warning) == ("NotTriggerScaleUp", False)
    assert theirs.message == f"pod didn't trigger scale-up: {ours.message}"


# Validation
def found(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    """Return field and message of each finding about one object."""
    document = Document(manifest, "a.yaml")
    return [(f.fault.field, f.fault.message) for f in autoscaler_findings(document) if not f.is_error]


def annotated(kind: str = "Pod", own: dict[str, Any] | None = None, **template: Any) -> dict[str, Any]:
    inner = {"spec": {"template": {"metadata": {"annotations": template["of"]}}}} if template else {}
    return {"kind": kind, "metadata": {"name": "a", "annotations": own or {}}, **inner}


def test_annotations_that_take_effect_are_not_reported() -> None:
    safe = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    assert not found(annotated(own={SCALE_UP_DELAY: "5m", safe: "false", "example.com/other": "x"}))
    assert not found(annotated("DaemonSet", of={DAEMON_EVICTION: "true"}))
    assert not found(annotated("Node", own={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}))
    assert not found({"kind": "Deployment", "metadata": None, "spec": {"template": ["odd"]}})


@pytest.mark.parametrize(
    ("manifest", "field", "message"),
    [
        (
            annotated(own={SCALE_UP_DELAY: "5"}),
            f"metadata.annotations[{SCALE_UP_DELAY}]",
            "is '5': must be a duration such as 5m or 1h30m",
        ),
        (
            annotated("DaemonSet", of={DAEMON_EVICTION: "yes"}),
            f"spec.template.metadata.annotations[{DAEMON_EVICTION}]",
            'is \'yes\': must be "true" or "false"',
        ),
        (
            annotated("DaemonSet", own={DAEMON_EVICTION: "true"}),
            f"metadata.annotations[{DAEMON_EVICTION}]",
            "write it into spec.template.metadata.annotations",
        ),
        (
            annotated("Deployment", of={DAEMON_EVICTION: "true"}),
            f"spec.template.metadata.annotations[{DAEMON_EVICTION}]",
            "it is for pods of DaemonSets",
        ),
        (
            annotated(own={"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "a,b"}),
            "metadata.annotations[cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes]",
            "is 'a,b': is not needed",
        ),
        (
            annotated(own={"cluster-autoscaler.kubernetes.io/safe-to-evict-pod": "true"}),
            "metadata.annotations[cluster-autoscaler.kubernetes.io/safe-to-evict-pod]",
            "did you mean 'cluster-autoscaler.kubernetes.io/safe-to-evict'",
        ),
    ],
)
def test_validate_reports_annotations_without_effect(
    manifest: dict[str, Any], field: str, message: str
) -> None:
    ((where, said),) = found(manifest)
    assert where == field
    assert message in said


def test_a_plan_shows_the_nodes_that_pods_get_after_their_delay() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "annotations": {SCALE_UP_DELAY: "1h"}},
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]},
    }
    documents = [Document(m, "a.yaml", n) for n, m in enumerate((builders.nodepool_manifest(), pod))]
    inputs, _ = inputs_of(documents, builders.REGION)
    assert bought(decide(inputs)) == ["default/web"]
