"""What ending a node requires: budgets of its pods, their start and end, and the volumes still attached to it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest

from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.kubernetes.nodes import VolumeAttachment
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import (
    ATTACHMENTS,
    BUDGETS,
    NODECLAIMS,
    NODES,
    PODS,
    VOLUME_CLAIMS,
    Mirror,
    observed,
)
from nodesmith.observation.reduction.objects import reduce_custom, reduce_node
from tests.builders import NOW
from tests.objects.clusters import budget, cluster, deployment_pod, node, rolled
from tests.objects.storage import Manifest, attachment, claim, mounting

LATER = "2026-11-21T12:00:30Z"


def seen(
    *pods: Manifest,
    budgets: Iterable[Manifest] = (),
    nodes: Iterable[Manifest] = (),
    nodeclaims: Iterable[Manifest] = (),
    claims: Iterable[Manifest] = (),
    attachments: Iterable[Manifest] = (),
) -> Snapshot:
    """Return a cluster as a decision sees it."""
    kinds = {
        PODS: pods,
        BUDGETS: budgets,
        NODES: nodes,
        NODECLAIMS: nodeclaims,
        VOLUME_CLAIMS: claims,
        ATTACHMENTS: attachments,
    }
    mirrors = [Mirror(kind) for kind in kinds]
    for mirror, manifests in zip(mirrors, kinds.values(), strict=True):
        for manifest in manifests:
            mirror.put(manifest)
    return decode(encode("c", NOW, observed(mirrors)))


def only(pod: Manifest) -> Pod:
    (found,) = seen(pod).pods
    return found


def a_pod(node_name: str = "n1", annotations: dict[str, str] | None = None, **spec: Any) -> Manifest:
    pod = deployment_pod(1, rolled(7), node_name, **spec)
    pod["metadata"]["annotations"] = annotations or {}
    pod["status"]["startTime"] = "2026-11-21T11:00:00Z"
    return pod


def a_node(name: str = "n1", *, deleting: bool = False, **spec: Any) -> Manifest:
    manifest = node(1, rolled(1))
    manifest["metadata"]["name"] = name
    if deleting:
        manifest["metadata"]["deletionTimestamp"] = LATER
    manifest["spec"].update(spec)
    return manifest


DISRUPTED = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
DELETED_CLAIM = {
    "metadata": {"name": "c1", "deletionTimestamp": LATER},
    "status": {"nodeName": "n1", "providerID": "aws:///us-east-1a/i-1"},
}


def test_the_end_of_a_deleted_pods_grace_period_is_kept() -> None:
    pod = a_pod()
    assert (only(pod).deleting, only(pod).deletion_at) == (False, None)
    pod["metadata"]["deletionTimestamp"] = LATER
    assert (only(pod).deleting, only(pod).deletion_at) == (True, parse_time(LATER))


def test_the_start_of_a_pod_is_kept_if_it_is_protected_for_a_duration() -> None:
    for_hours = only(a_pod(annotations={"karpenter.sh/do-not-disrupt": "4h"}))
    assert for_hours.started_at == parse_time("2026-11-21T11:00:00Z")
    assert for_hours.shape.annotations == {"karpenter.sh/do-not-disrupt": "4h"}


@pytest.mark.parametrize("annotations", [{}, {"karpenter.sh/do-not-disrupt": "true"}])
def test_the_start_of_a_pod_is_left_out_if_nothing_depends_on_it(annotations: dict[str, str]) -> None:
    assert only(a_pod(annotations=annotations)).started_at is None


def test_a_pod_that_is_protected_for_a_duration_may_not_have_started_yet() -> None:
    pod = a_pod(annotations={"karpenter.sh/do-not-disrupt": "4h"})
    del pod["status"]["startTime"]
    assert only(pod).started_at is None


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_pod_is_ready_by_its_condition(status: str, ready: bool) -> None:
    pod = a_pod()
    pod["status"]["conditions"] = [{"type": "Ready", "status": status}]
    assert only(pod).ready is ready


def test_a_pod_without_a_node_is_not_ready() -> None:
    assert not only(a_pod("")).ready


def test_a_pods_grace_period_and_criticality_are_kept() -> None:
    shape = only(a_pod(terminationGracePeriodSeconds=0, priorityClassName="system-node-critical")).shape
    assert (shape.grace_seconds, shape.critical) == (0, True)
    ordinary = only(a_pod(terminationGracePeriodSeconds=30, priorityClassName="high"))
    assert (ordinary.shape.grace_seconds, ordinary.shape.critical) == (30, False)


def test_a_default_grace_period_or_priority_class_does_not_change_the_shape() -> None:
    said = a_pod(terminationGracePeriodSeconds=30, priorityClassName="high")
    said["metadata"]["name"] = "other"
    assert len({pod.shape for pod in seen(a_pod(), said).pods}) == 1


def test_a_budget_keeps_its_selector_and_counts() -> None:
    (found,) = seen(budgets=[budget(1, 30)]).budgets
    assert (found.key, found.max_unavailable) == ("team-1/catalog-search-1", "10%")
    assert (found.disruptions_allowed, found.desired_healthy, found.expected_pods) == (3, 27, 30)
    assert found.selects(only(a_pod()).shape)


def test_a_budget_of_zero_and_an_empty_selector_are_kept() -> None:
    strict = budget(1, 30)
    strict["spec"] = {"selector": {}, "maxUnavailable": 0}
    (found,) = seen(budgets=[strict]).budgets
    assert found.never_allows
    assert found.selects(only(a_pod()).shape)


def test_labels_that_a_budget_selects_by_are_kept_in_its_namespace_only() -> None:
    guarding = budget(1, 30)
    guarding["spec"]["selector"] = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["db"]}]}
    here, elsewhere = a_pod(topologySpreadConstraints=[]), a_pod(topologySpreadConstraints=[])
    for pod in (here, elsewhere):
        pod["metadata"]["labels"]["tier"] = "db"
    elsewhere["metadata"]["namespace"] = "other"
    found = seen(here, elsewhere, budgets=[guarding])
    assert {pod.shape.namespace: dict(pod.shape.labels) for pod in found.pods} == {
        "team-1": {"tier": "db"},
        "other": {},
    }
    assert {pod.shape.namespace for pod in found.pods if found.budgets[0].selects(pod.shape)} == {"team-1"}


def test_the_disrupted_pods_of_a_budget_are_not_kept() -> None:
    noted = budget(1, 30)
    noted["status"]["disruptedPods"] = {"secret-name": LATER}
    mirror = Mirror(BUDGETS)
    mirror.put(noted)
    assert "secret-name" not in repr(mirror.objects)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"maxUnavailable": "half"}, "'half': must be a number of pods or a percentage"),
        ({"selector": {"matchLabels": ["app"]}}, "is not a mapping"),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}}, "Like"),
    ],
)
def test_one_unreadable_budget_is_a_problem_and_the_rest_is_read(spec: dict[str, Any], why: str) -> None:
    odd = copy.deepcopy(budget(2, 30))
    odd["spec"].update(spec)
    found = seen(budgets=[odd, budget(1, 30)])
    assert [each.key for each in found.budgets] == ["team-1/catalog-search-1"]
    (problem,) = found.problems
    assert problem.startswith("PodDisruptionBudget/team-2/payments-gateway-2: cannot be read and is left out")
    assert why in problem


@pytest.mark.parametrize(
    "objects",
    [
        {"nodes": [a_node(deleting=True)]},
        {"nodes": [a_node(taints=[DISRUPTED])]},
        {"nodes": [a_node()], "nodeclaims": [DELETED_CLAIM]},
    ],
    ids=["deleted", "disrupted", "its NodeClaim deleted"],
)
def test_the_volumes_of_an_ending_node_are_kept_with_the_pods_that_use_them(objects: Any) -> None:
    pod = a_pod(volumes=mounting("data"))
    data = claim("data", bound_to="pv-1")
    data["metadata"]["namespace"] = "team-1"
    held = [attachment("pv-1", "n1"), attachment("pv-2", "n1"), attachment("pv-3", "n2")]
    found = seen(pod, claims=[data], attachments=held, **objects)
    assert found.attachments == (
        VolumeAttachment("n1", "pv-1", (f"team-1/{pod['metadata']['name']}",)),
        VolumeAttachment("n1", "pv-2", ()),
    )


def test_volumes_of_other_nodes_are_not_in_the_snapshot() -> None:
    staying = {"metadata": {"name": "c1"}, "status": {"nodeName": "n1"}}
    found = seen(nodes=[a_node()], nodeclaims=[staying], attachments=[attachment("pv-1", "n1")])
    assert found.attachments == ()


def test_an_inline_volume_is_named_by_its_attachment() -> None:
    inline = attachment("", "n1", name="csi-1")
    found = seen(nodes=[a_node(deleting=True)], attachments=[inline])
    assert found.attachments == (VolumeAttachment("n1", "csi-1"),)


def bound_at(moment: str, **metadata: Any) -> Manifest:
    pod = a_pod()
    pod["metadata"].update(name=f"at-{moment}", **metadata)
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}]
    return pod


def test_a_node_has_the_time_of_its_last_pod_event() -> None:
    pods = (
        bound_at("2026-11-21T11:00:00Z"),
        bound_at("2026-11-21T11:30:00Z"),
        bound_at("2026-11-21T11:15:00Z"),
    )
    found = {node.name: node.last_pod_event_at for node in seen(*pods, nodes=[a_node(), a_node("n2")]).nodes}
    assert found == {"n1": parse_time("2026-11-21T11:30:00Z"), "n2": None}


def test_the_beginning_of_a_pods_end_is_a_later_event_than_its_arrival() -> None:
    ending = bound_at("2026-11-21T11:00:00Z", deletionTimestamp=LATER, deletionGracePeriodSeconds=30)
    assert seen(ending, nodes=[a_node()]).nodes[0].last_pod_event_at == parse_time("2026-11-21T12:00:00Z")


def test_pods_of_daemonsets_and_pods_without_a_node_cause_no_events() -> None:
    owner = {"kind": "DaemonSet", "name": "logs", "uid": "u", "controller": True}
    daemon, waiting = bound_at("2026-11-21T11:00:00Z", ownerReferences=[owner]), a_pod("")
    assert seen(daemon, waiting, nodes=[a_node()]).nodes[0].last_pod_event_at is None


def test_an_observed_departure_is_the_latest_event() -> None:
    mirrors = [Mirror(PODS), Mirror(NODES)]
    mirrors[0].put(bound_at("2026-11-21T11:00:00Z"))
    mirrors[1].put(a_node())
    gone = parse_time("2026-11-21T11:40:00Z")
    written = encode("c", NOW, observed(mirrors, {"n1": int(gone.timestamp()), "gone-node": 1}))
    assert decode(written).nodes[0].last_pod_event_at == gone


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ("2026-11-21T11:40:00Z", "2026-11-21T11:40:00Z"),
        ("2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z"),
        ("yesterday", "2026-11-21T11:00:00Z"),
        ("9999-12-31T23:59:59Z", "2026-11-21T11:00:00Z"),
        (None, "2026-11-21T11:00:00Z"),
    ],
)
def test_a_departure_before_the_watch_began_is_known_from_the_nodeclaim(
    written: str | None, reported: str
) -> None:
    machine = a_node(providerID="aws:///us-east-1a/i-1")
    nodeclaim = {
        "metadata": {"name": "c1"},
        "status": {"providerID": "aws:///us-east-1a/i-1", "lastPodEventTime": written},
    }
    others = {"metadata": {"name": "c2"}, "status": {"lastPodEventTime": LATER}}
    nameless = a_node("n2")
    nameless["spec"].pop("providerID", None)
    found = seen(bound_at("2026-11-21T11:00:00Z"), nodes=[machine, nameless], nodeclaims=[nodeclaim, others])
    assert [each.last_pod_event_at for each in found.nodes] == [parse_time(reported), None]


def test_finalizers_of_nodes_and_of_karpenters_objects_are_kept() -> None:
    ours = ["karpenter.sh/termination"]
    manifest = a_node()
    manifest["metadata"]["finalizers"] = ours
    assert seen(nodes=[manifest]).nodes[0].finalizers == ("karpenter.sh/termination",)
    assert reduce_custom({"metadata": {"name": "c1", "finalizers": ours}})["metadata"]["finalizers"] == ours
    assert "finalizers" not in reduce_node(a_node())["metadata"]


def test_a_budget_for_every_deployment_adds_only_a_few_kilobytes() -> None:
    made = cluster(100, 2_000, deployments=100)
    bare = seen_bytes(made["pods"], ())
    guarded = seen_bytes(made["pods"], made["poddisruptionbudgets"])
    assert len(guarded) - len(bare) < 5_000
    assert len({pod.shape for pod in decode(guarded).pods}) == len({pod.shape for pod in decode(bare).pods})


def seen_bytes(pods: Iterable[Manifest], budgets: Iterable[Manifest]) -> bytes:
    mirrors = [Mirror(PODS), Mirror(BUDGETS)]
    for mirror, manifests in zip(mirrors, (pods, budgets), strict=True):
        for manifest in manifests:
            mirror.put(manifest)
    return encode("c", NOW, observed(mirrors))
