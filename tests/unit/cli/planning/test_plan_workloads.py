from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nodesmith_cli.planning import Manifests, read_manifests
from nodesmith_formats.manifests.manifests import Document

Manifest = dict[str, Any]
TEMPLATE: Manifest = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
}
API_VERSIONS = {"Pod": "v1", "ReplicationController": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}


def thing(kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> Manifest:
    about = {"name": name, "namespace": "shop", **metadata}
    return {
        "apiVersion": API_VERSIONS.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": about,
        "spec": dict(spec),
    }


def workload(kind: str, name: str = "web", **spec: Any) -> Manifest:
    selector: Manifest = {"matchLabels": {"app": "web"}}
    if kind == "ReplicationController":
        selector = {"app": "web"}
    given = {} if kind == "Job" else {"selector": selector}
    policy = {"restartPolicy": "Never"} if kind == "Job" else {}
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], **policy}}
    return thing(kind, name, {**given, "template": template, **spec})


def owned(child: Manifest, kind: str, name: str) -> Manifest:
    reference = {"apiVersion": "v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return {**child, "metadata": {**child["metadata"], "ownerReferences": [reference]}}


def pod(name: str, owner: tuple[str, str], phase: str = "Running", **metadata: Any) -> Manifest:
    made = owned(thing("Pod", name, TEMPLATE["spec"], labels={"app": "web"}, **metadata), *owner)
    return {**made, "status": {"phase": phase}}


def read(*manifests: Manifest) -> Manifests:
    found = read_manifests((), [Document(manifest, "test", n) for n, manifest in enumerate(manifests)])
    assert not found.faults, found.faults[0]
    return found


def pods(*manifests: Manifest) -> list[str]:
    """Return the names of all pods, both given and created."""
    return sorted(str(pod["metadata"]["name"]) for pod in read(*manifests).of_kind("Pod"))


def made(*manifests: Manifest) -> int:
    """Return the number of created pods."""
    given = [manifest for manifest in manifests if manifest["kind"] == "Pod"]
    return len(pods(*manifests)) - len(given)


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"])
@pytest.mark.parametrize(("replicas", "expected"), [({}, 1), ({"replicas": 3}, 3), ({"replicas": 0}, 0)])
def test_a_workload_without_pods_gets_its_replicas(kind: str, replicas: Manifest, expected: int) -> None:
    assert made(workload(kind, **replicas)) == expected


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])
def test_existing_pods_are_not_created_again(kind: str) -> None:
    there = [pod(f"web-{i}", (kind, "web")) for i in "abc"]

    assert made(workload(kind, replicas=5), *there) == 2
    assert made(workload(kind, replicas=3), *there) == 0
    assert made(workload(kind, replicas=1), *there) == 0


@pytest.mark.parametrize(
    "gone",
    [
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
)
def test_a_finished_or_terminating_pod_is_replaced(gone: dict[str, Any]) -> None:
    assert made(workload("ReplicaSet", replicas=1), pod("web-a", ("ReplicaSet", "web"), **gone)) == 1


def test_a_pod_of_another_namespace_or_owner_counts_for_nobody_else() -> None:
    elsewhere = pod("web-a", ("ReplicaSet", "web"), namespace="bank")

    assert made(workload("ReplicaSet", replicas=1), elsewhere, pod("b", ("ReplicaSet", "other"))) == 1


def test_a_deployment_and_its_replicaset_create_pods_once() -> None:
    replicaset = owned(workload("ReplicaSet", "web-1", replicas=4), "Deployment", "web")

    assert made(workload("Deployment", replicas=4), replicaset, pod("web-1-a", ("ReplicaSet", "web-1"))) == 3


def test_a_scaled_up_deployment_gets_the_pods_that_its_replicasets_will_not_create() -> None:
    old = owned(workload("ReplicaSet", "web-0", replicas=0), "Deployment", "web")
    new = owned(workload("ReplicaSet", "web-1", replicas=2), "Deployment", "web")

    assert made(workload("Deployment", replicas=5), old, new, pod("web-1-a", ("ReplicaSet", "web-1"))) == 4


def test_during_a_rollout_old_pods_count_too() -> None:
    old = owned(workload("ReplicaSet", "web-0", replicas=2), "Deployment", "web")
    new = owned(workload("ReplicaSet", "web-1", replicas=3), "Deployment", "web")
    there = [pod(f"web-0-{i}", ("ReplicaSet", "web-0")) for i in "ab"]

    assert made(workload("Deployment", replicas=4), old, new, *there) == 3


def test_a_dump_without_replicasets_creates_no_pod_twice() -> None:
    there = [pod(f"web-5d9c-{i}", ("ReplicaSet", "web-5d9c")) for i in "abc"]
    foreign = pod("webshop-7f-a", ("ReplicaSet", "webshop-7f"))

    assert made(workload("Deployment", replicas=3), *there) == 0
    assert made(workload("Deployment", replicas=4), *there, foreign) == 1


def test_pods_of_a_deployment_carry_the_hash_of_their_template() -> None:
    (made_pod,) = read(workload("Deployment")).of_kind("Pod")

    labels, (owner,) = made_pod["metadata"]["labels"], made_pod["metadata"]["ownerReferences"]
    assert labels["app"] == "web"
    assert (owner["kind"], owner["name"]) == ("ReplicaSet", f"web-{labels['pod-template-hash']}")


def test_new_pods_get_unused_names() -> None:
    there = pod("web-1", ("ReplicaSet", "other"))

    assert pods(workload("ReplicaSet", replicas=2), there) == ["web-1", "web-2", "web-3"]


def test_a_statefulset_creates_missing_ordinals_with_their_claims() -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]
    stateful = workload("StatefulSet", "db", replicas=3, volumeClaimTemplates=claims)
    kept = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-db-2", "namespace": "shop"},
        "spec": {"volumeName": "pv"},
    }

    found = read(stateful, pod("db-1", ("StatefulSet", "db")), kept)

    volumes = {p["metadata"]["name"]: p["spec"].get("volumes") for p in found.of_kind("Pod")}
    assert sorted(volumes) == ["db-0", "db-1", "db-2"]
    assert volumes["db-2"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-2"}}]
    there = {
        c["metadata"]["name"]: c["spec"].get("volumeName") for c in found.of_kind("PersistentVolumeClaim")
    }
    assert there == {"data-db-0": None, "data-db-2": "pv"}


def test_a_statefulset_begins_at_its_first_ordinal() -> None:
    assert pods(workload("StatefulSet", "db", replicas=2, ordinals={"start": 5})) == ["db-5", "db-6"]


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {}, 1),
        ({"parallelism": 3}, {}, 3),
        ({"parallelism": 3, "completions": 2}, {}, 2),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 4}, 1),
        ({"parallelism": 3}, {"succeeded": 1}, 0),
        ({"parallelism": 3, "suspend": True}, {}, 0),
        ({"parallelism": 3}, {"conditions": [{"type": "Complete", "status": "True"}]}, 0),
        ({"parallelism": 3}, {"conditions": [{"type": "Failed", "status": "True"}]}, 0),
    ],
)
def test_a_job_creates_the_pods_it_would_still_start(spec: Manifest, status: Manifest, expected: int) -> None:
    assert made({**workload("Job", **spec), "status": status}) == expected


def test_a_job_counts_the_pods_it_has() -> None:
    assert made(workload("Job", parallelism=3), pod("web-a", ("Job", "web")), pod("b", ("Job", "x"))) == 2


def cronjob(**spec: Any) -> Manifest:
    job = {"spec": workload("Job", parallelism=2)["spec"]}
    return thing("CronJob", "nightly", {"schedule": "0 1 * * *", "jobTemplate": job, **spec})


def test_a_cronjob_creates_one_run() -> None:
    assert pods(cronjob()) == ["nightly-run-1", "nightly-run-2"]
    assert pods(cronjob(suspend=True)) == []


def test_a_cronjob_with_an_active_run_creates_no_second() -> None:
    run = owned(workload("Job", "nightly-1", parallelism=2), "CronJob", "nightly")

    assert made(cronjob(), run) == 2
    over = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert made(cronjob(), {**run, "status": over}) == 2


def test_a_workload_that_is_being_deleted_creates_nothing() -> None:
    leaving = workload("Deployment", replicas=3)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert made(leaving) == 0


def test_a_daemonset_creates_no_pods_but_counts_as_overhead() -> None:
    found = read(workload("DaemonSet", "agent"))

    assert list(found.of_kind("Pod")) == []
    assert [d["metadata"]["name"] for d in found.of_kind("DaemonSet")] == ["agent"]


def test_the_order_of_the_files_does_not_affect_the_count() -> None:
    everything: Sequence[Manifest] = (
        workload("Deployment", replicas=4),
        owned(workload("ReplicaSet", "web-1", replicas=4), "Deployment", "web"),
        pod("web-1-a", ("ReplicaSet", "web-1")),
    )

    assert pods(*everything) == pods(*reversed(everything))


def test_an_excessive_number_of_pods_is_an_error() -> None:
    found = read_manifests((), [Document(workload("Deployment", replicas=2_000_000_000), "test")])

    assert [fault.object for fault in found.faults] == ["Deployment/web"]
    assert "replicas is 2000000000" in found.faults[0].message
    assert list(found.of_kind("Pod")) == []
