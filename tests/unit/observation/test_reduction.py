"""What a snapshot contains, and what it never contains."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_custom, reduce_node
from nodesmith.observation.reduction.pods import reduce_daemonset, reduce_pod
from tests.objects.clusters import Manifest, deployment_pod, node, rolled

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def a_pod(**spec: Any) -> Manifest:
    return deployment_pod(1, rolled(7), **spec)


def snapshot_text(*pods: Manifest) -> str:
    return repr(decode(encode("c", NOW, Observed(pods=[p for p in map(reduce_pod, pods) if p]))))


def read(*pods: Manifest) -> dict[str, Pod]:
    reduced = [p for p in map(reduce_pod, pods) if p]
    return {pod.key: pod for pod in decode(encode("c", NOW, Observed(pods=reduced))).pods}


def only(*pods: Manifest) -> Pod:
    (pod,) = read(*pods).values()
    return pod


@pytest.mark.parametrize(
    "secret", ["s3cr3t-value", "s3cr3t-argument", "registry.example", "projected", "prometheus"]
)
def test_env_values_commands_images_and_volume_contents_never_reach_the_snapshot(secret: str) -> None:
    assert secret in json.dumps(a_pod())
    assert secret not in snapshot_text(a_pod())


def test_init_container_env_values_never_reach_the_snapshot() -> None:
    container = {"name": "init", "env": [{"name": "TOKEN", "value": "hush"}], "args": ["hush"]}
    assert "hush" not in snapshot_text(a_pod(initContainers=[container]))


def test_a_pod_keeps_what_it_requests() -> None:
    assert only(a_pod()).shape.requests == Resources({"cpu": 101, "memory": 256 * 2**20, "pods": 1})


def test_a_daemonset_template_with_limits_alone_requests_its_limits() -> None:
    resources = {"limits": {"cpu": "2"}}
    template = {"spec": {"containers": [{"name": "a", "resources": resources}]}}
    manifest = {"metadata": {"name": "logs", "namespace": "kube-system"}, "spec": {"template": template}}
    (shape,) = decode(encode("c", NOW, Observed(daemonsets=[reduce_daemonset(manifest)]))).daemonsets
    assert shape.owner == "DaemonSet/logs"
    assert shape.is_daemon
    assert shape.namespace == "kube-system"
    assert shape.requests.cpu_milli == 2000


def test_a_daemonset_with_host_network_uses_host_ports_that_only_its_pods_state() -> None:
    containers = [{"name": "a", "ports": [{"containerPort": 9100}]}]
    template = {"spec": {"hostNetwork": True, "containers": containers}}
    manifest = {"metadata": {"name": "logs", "namespace": "kube-system"}, "spec": {"template": template}}
    (shape,) = decode(encode("c", NOW, Observed(daemonsets=[reduce_daemonset(manifest)]))).daemonsets
    assert shape.host_ports == (("0.0.0.0", 9100, "TCP"),)  # noqa: S104


def test_a_pod_being_resized_keeps_its_allocated_resources() -> None:
    pod = a_pod(nodeName="n1")
    pod["status"]["containerStatuses"] = [
        {"name": "main", "allocatedResources": {"cpu": "3"}, "image": "hush"}
    ]
    assert only(pod).shape.requests.cpu_milli == 3000
    assert "hush" not in snapshot_text(pod)


def test_a_sidecar_being_resized_keeps_its_allocated_resources() -> None:
    pod = a_pod(nodeName="n1", containers=[{"name": "main", "resources": {"requests": {"cpu": "1"}}}])
    sidecar = {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
    pod["spec"]["initContainers"] = [sidecar]
    pod["status"]["initContainerStatuses"] = [{"name": "proxy", "allocatedResources": {"cpu": "2"}}]
    assert only(pod).shape.requests.cpu_milli == 3000


@pytest.mark.parametrize(("reason", "cpu_milli"), [("Deferred", 8000), ("Infeasible", 1000)])
def test_an_infeasible_resize_does_not_count(reason: str, cpu_milli: int) -> None:
    pod = a_pod(nodeName="n1", containers=[{"name": "main", "resources": {"requests": {"cpu": "8"}}}])
    pod["status"]["containerStatuses"] = [{"name": "main", "allocatedResources": {"cpu": "1"}}]
    pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    assert only(pod).shape.requests.cpu_milli == cpu_milli


def test_pod_level_resources_are_kept() -> None:
    pod = a_pod(containers=[{"name": "main", "resources": {"requests": {"cpu": "1"}}}])
    pod["spec"]["resources"] = {"requests": {"memory": "2Gi"}, "limits": {"cpu": "4", "memory": "4Gi"}}
    requests = only(pod).shape.requests
    assert (requests.cpu_milli, requests.memory_bytes) == (1000, 2 * 2**30)


def test_a_pod_whose_allocation_equals_its_requests_shares_the_shape_of_one_without_a_status() -> None:
    pod = a_pod()
    started = copy.deepcopy(pod)
    started["metadata"]["name"] = "other"
    requests = dict(started["spec"]["containers"][0]["resources"]["requests"])
    started["status"]["containerStatuses"] = [{"name": "main", "allocatedResources": requests}]
    assert len({p.shape for p in read(pod, started).values()}) == 1


def test_constraints_ports_and_priority_are_kept() -> None:
    affinity = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"tier": "db"}}}
            ]
        }
    }
    pod = a_pod(
        nodeSelector={"kubernetes.io/arch": "arm64"},
        affinity=affinity,
        priority=1000,
        containers=[{"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 53, "hostPort": 53}]}],
    )
    shape = only(pod).shape
    assert shape.terms[0]["kubernetes.io/arch"].values == {"arm64"}
    assert [(term.topology_key, term.anti) for term in shape.affinities] == [("kubernetes.io/hostname", True)]
    assert shape.priority == 1000
    assert shape.host_ports == (("0.0.0.0", 53, "TCP"),)  # noqa: S104
    assert len(shape.tolerations) == 1
    assert shape.spreads[0].selector is not None


def test_device_claims_of_a_pod_are_kept() -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    assert [each.name for each in only(a_pod(resourceClaims=claims)).shape.claims] == ["gpu"]
    assert not only(a_pod(resourceClaims=[])).shape.claims


def test_labels_that_no_selector_uses_are_dropped_and_others_are_kept() -> None:
    labels = only(a_pod()).shape.labels
    assert list(labels) == ["app.kubernetes.io/name"]


def test_a_label_that_another_pods_affinity_uses_is_kept() -> None:
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    }
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    selecting, selected = a_pod(affinity={"podAffinity": affinity}), a_pod()
    selected["metadata"].update(name="selected", labels={"tier": "db", "batch": "77"})
    assert read(selecting, selected)["team-1/selected"].shape.labels == {"tier": "db"}


def test_a_label_named_by_match_label_keys_is_kept() -> None:
    pod = a_pod()
    pod["spec"]["topologySpreadConstraints"][0]["matchLabelKeys"] = ["pod-template-hash"]
    labels = only(pod).shape.labels
    assert set(labels) == {"app.kubernetes.io/name", "pod-template-hash"}


def test_pods_of_different_jobs_share_a_shape() -> None:
    pods = []
    for number in range(3):
        pod = a_pod()
        pod["metadata"]["name"] = f"import-{number}"
        pod["metadata"]["labels"] = {"batch.kubernetes.io/job-name": f"import-{number}"}
        pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": f"import-{number}", "controller": True}]
        pods.append(pod)
    assert len({p.shape for p in read(*pods).values()}) == 1


def test_daemonset_pods_pinned_to_their_nodes_share_a_shape() -> None:
    pods = []
    for name in ("n1", "n2"):
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        pod = a_pod(nodeName=name, affinity={"nodeAffinity": required})
        pod["metadata"]["name"] = f"logs-{name}"
        pod["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "logs", "controller": True}]
        pods.append(pod)
    found = read(*pods)
    assert {pod.shape.owner for pod in found.values()} == {"DaemonSet/logs"}
    assert len({pod.shape for pod in found.values()}) == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_terminal_pod_is_left_out(phase: str) -> None:
    pod = a_pod()
    pod["status"]["phase"] = phase
    assert reduce_pod(pod) is None


def test_node_verdict_and_age_are_not_part_of_the_shape() -> None:
    bound, pending, nominated, deleting = a_pod(nodeName="n1"), a_pod(), a_pod(), a_pod()
    for name, pod in (("b", bound), ("p", pending), ("n", nominated), ("d", deleting)):
        pod["metadata"].update(name=name, creationTimestamp="2026-11-21T11:59:58Z")
    bound["status"]["nominatedNodeName"] = "n0"
    nominated["status"]["nominatedNodeName"] = "n2"
    deleting["metadata"]["deletionTimestamp"] = "2026-11-21T11:59:59Z"
    found = read(bound, pending, nominated, deleting)
    assert {key: (pod.node, pod.nominated_node, pod.deleting) for key, pod in found.items()} == {
        "team-1/b": ("n1", "", False),
        "team-1/p": ("", "", False),
        "team-1/n": ("", "n2", False),
        "team-1/d": ("", "", True),
    }
    assert all(pod.unschedulable for pod in found.values())
    assert {pod.created_at for pod in found.values()} == {datetime(2026, 11, 21, 11, 59, 58, tzinfo=UTC)}


def test_a_pod_without_a_verdict_of_the_scheduler_is_not_unschedulable() -> None:
    pod = a_pod()
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    reduced = reduce_pod(pod)
    assert reduced is not None
    assert not reduced.unschedulable
    assert not reduced.is_provisionable


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_an_unschedulable_pod_that_belongs_to_its_node_is_not_provisionable(kind: str) -> None:
    pod = a_pod()
    pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": "x", "controller": True}]
    reduced = reduce_pod(pod)
    assert reduced is not None
    assert reduced.unschedulable
    assert not reduced.is_provisionable


def test_a_node_keeps_what_decisions_read_without_images_and_managed_fields() -> None:
    manifest = node(1, rolled(1))
    (kept,) = decode(encode("c", NOW, Observed(nodes=[reduce_node(manifest)]))).nodes
    assert kept.name == manifest["metadata"]["name"]
    assert kept.provider_id == manifest["spec"]["providerID"]
    assert kept.labels == manifest["metadata"]["labels"]
    assert kept.annotations == {"karpenter.sh/nodepool-hash": "4512"}
    assert kept.allocatable.cpu_milli == 3920
    assert kept.is_ready
    assert "registry/app" not in repr(kept)
    assert "managedFields" not in json.dumps(reduce_node(manifest))


def test_a_heartbeat_does_not_change_a_reduced_node() -> None:
    manifest = node(1, rolled(1))
    later = copy.deepcopy(manifest)
    later["metadata"]["resourceVersion"] = "999999999"
    later["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-21T23:59:59Z"
    assert reduce_node(later) == reduce_node(manifest)


def test_a_cordoned_node_shows_its_taint() -> None:
    manifest = node(1, rolled(1))
    manifest["spec"]["unschedulable"] = True
    (kept,) = decode(encode("c", NOW, Observed(nodes=[reduce_node(manifest)]))).nodes
    assert [taint.key for taint in kept.taints] == ["node.kubernetes.io/unschedulable"]


def test_a_nodepool_keeps_its_spec_counts_and_conditions_but_not_managed_fields_or_last_applied() -> None:
    last_applied = "kubectl.kubernetes.io/last-applied-configuration"
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T11:00:00Z"}
    manifest = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {
            "name": "default",
            "uid": "u1",
            "generation": 3,
            "annotations": {last_applied: "{}", "team": "infra"},
            "managedFields": [{}],
            "resourceVersion": "5",
        },
        "spec": {"weight": 10, "limits": {}},
        "status": {"resources": {"cpu": "4"}, "mood": [{}], "conditions": [condition]},
    }
    assert reduce_custom(manifest) == {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default", "uid": "u1", "generation": 3, "annotations": {"team": "infra"}},
        "spec": {"weight": 10, "limits": {}},
        "status": {"resources": {"cpu": "4"}, "conditions": [condition]},
    }


@pytest.mark.parametrize(
    ("home", "phase", "starting"),
    [("n1", "Pending", True), ("n1", "Running", False), ("", "Pending", False)],
)
def test_a_pod_is_starting_from_its_binding_until_its_phase_changes(
    home: str, phase: str, starting: bool
) -> None:
    manifest = deployment_pod(1, rolled(7), home)
    manifest["status"]["phase"] = phase
    assert only(manifest).starting is starting
