"""Tests for pod templates in snapshots and the planned pods that are rendered from them."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.apimachinery.quantities import format_amount
from nodesmith.model.kubernetes.pods import LEAST_PRIORITY, PodTemplate, is_planned, planned_pods
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.pods import reduce_growing, reduce_pod, reduce_pod_template
from nodesmith.observation.reduction.podspecs import reduce_limit_range, reduce_runtime_class
from tests.builders import CLUSTER, NOW
from tests.smallworld.world import pod_manifest

ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"tier": "front"}},
                "namespaceSelector": {"matchLabels": {"team": "a"}},
            }
        ]
    }
}


def manifest(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "i", "env": [{"name": "KEY", "value": "secret"}]}]
    return {
        "metadata": {"namespace": "shop", "name": "room", "generation": 3},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers, **spec}},
    }


def template_in(observed: Observed) -> PodTemplate:
    return decode(encode(CLUSTER, NOW, observed)).podtemplates["PodTemplate/shop/room"]


def test_a_pod_template_is_observed_with_what_admission_adds() -> None:
    limits = {"type": "Container", "defaultRequest": {"cpu": "300m"}}
    observed = Observed(
        podtemplates=[reduce_pod_template(manifest(runtimeClassName="kata"))],
        limitranges=[
            reduce_limit_range(
                {"metadata": {"namespace": "shop", "name": "limits"}, "spec": {"limits": [limits]}}
            )
        ],
        runtimeclasses=[
            reduce_runtime_class({"metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "100m"}}})
        ],
    )
    template = template_in(observed)
    assert (template.kind, template.name, template.generation) == ("PodTemplate", "room", 3)
    assert format_amount("cpu", template.shape.requests.of("cpu")) == "400m"


def test_volumes_and_environment_of_a_template_do_not_get_into_the_snapshot() -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    reduced = reduce_pod_template(manifest(volumes=volumes))
    assert "secret" not in str(reduced)
    assert "claimName" not in str(reduced)
    assert not template_in(Observed(podtemplates=[reduced])).shape.refusal


def test_the_labels_that_a_templates_constraints_select_by_are_observed() -> None:
    pod = pod_manifest("front")
    pod["metadata"] |= {"namespace": "front", "labels": {"tier": "front", "other": "x"}}
    reduced = reduce_pod(pod)
    assert reduced is not None
    observed = Observed(
        pods=[reduced],
        namespaces=[{"metadata": {"name": "front", "labels": {"team": "a", "other": "x"}}}],
        podtemplates=[reduce_pod_template(manifest(affinity=ANTI_AFFINITY))],
    )
    snapshot = decode(encode(CLUSTER, NOW, observed))
    (term,) = snapshot.podtemplates["PodTemplate/shop/room"].shape.affinities
    assert term.namespaces == frozenset({"front"})
    assert term.selects(snapshot.pods[0].shape)


ROLLOUT = ("argoproj.io/v1alpha1", "Rollout")


def buffer_for(group: str, kind: str, **spec: Any) -> dict[str, Any]:
    """Return a reduced CapacityBuffer for an object named web."""
    reference = {"apiGroup": group, "kind": kind, "name": "web"}
    return {"metadata": {"namespace": "shop", "name": "room"}, "spec": {"scalableRef": reference, **spec}}


def controlled(manifest: dict[str, Any], version: str, kind: str) -> dict[str, Any]:
    """Return an object in the namespace shop that an object named web controls."""
    owner = {"apiVersion": version, "kind": kind, "name": "web", "controller": True, "uid": "1"}
    about = {"namespace": "shop", "ownerReferences": [owner]}
    return {**manifest, "metadata": {**manifest["metadata"], **about}}


def replicaset(name: str, replicas: int, cpu: str, day: int) -> dict[str, Any]:
    about = {"name": name, "creationTimestamp": f"2026-11-{day}T10:00:00Z"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_manifest(name, cpu)["spec"]}
    return controlled({"metadata": about, "spec": {"replicas": replicas, "template": template}}, *ROLLOUT)


def controlled_in(observed: Observed, key: str) -> PodTemplate | None:
    return decode(encode(CLUSTER, NOW, observed)).podtemplates.get(key)


def test_a_custom_resource_has_the_template_of_its_newest_replicaset_that_wants_pods() -> None:
    stable, canary, old = (
        replicaset("a", 3, "1", 20),
        replicaset("b", 1, "2", 21),
        replicaset("c", 0, "4", 22),
    )
    other = controlled(replicaset("d", 9, "8", 23), "example.com/v1", "Rollout")
    sets = [reduce_growing(each) for each in (stable, canary, old, other)]
    observed = Observed(replicasets=sets, capacitybuffers=[buffer_for("argoproj.io", "Rollout")])
    found = controlled_in(observed, "Rollout.argoproj.io/shop/web")
    assert found is not None
    assert found.replicas == 4
    assert format_amount("cpu", found.shape.requests.of("cpu")) == "2"
    idle = Observed(replicasets=[sets[2]], capacitybuffers=observed.capacitybuffers)
    kept = controlled_in(idle, "Rollout.argoproj.io/shop/web")
    assert kept is not None
    assert (kept.replicas, format_amount("cpu", kept.shape.requests.of("cpu"))) == (0, "4")


@pytest.mark.parametrize(
    ("version", "kind", "group", "key"),
    [
        ("apps.kruise.io/v1alpha1", "CloneSet", "apps.kruise.io", "CloneSet.apps.kruise.io/shop/web"),
        ("v1", "ReplicationController", "", "ReplicationController/shop/web"),
    ],
)
def test_an_object_that_creates_its_pods_itself_has_the_template_of_the_newest(
    version: str, kind: str, group: str, key: str
) -> None:
    pods = []
    for name, cpu, hour in (("old", "1", "08"), ("new", "2", "09"), ("leaving", "4", "10")):
        made = controlled(pod_manifest(name, cpu), version, kind)
        made["metadata"] |= {"creationTimestamp": f"2026-11-21T{hour}:00:00Z", "labels": {"app": "web"}}
        if name == "leaving":
            made["metadata"] |= {"deletionTimestamp": "2026-11-21T11:00:00Z"}
        pods.append(reduce_pod(made))
    there = [pod for pod in pods if pod is not None]
    observed = Observed(pods=there, capacitybuffers=[buffer_for(group, kind)])
    found = controlled_in(observed, key)
    assert found is not None
    assert (found.replicas, format_amount("cpu", found.shape.requests.of("cpu"))) == (2, "2")
    elsewhere = Observed(pods=there, capacitybuffers=[buffer_for("example.com", kind)])
    assert controlled_in(elsewhere, f"{kind}.example.com/shop/web") is None


def test_planned_pods_share_a_shape_and_have_keys_that_no_real_pod_can_have() -> None:
    template = template_in(Observed(podtemplates=[reduce_pod_template(manifest(nodeSelector={"a": "b"}))]))
    pods = planned_pods(template, "CapacityBuffer/room", 2, NOW, LEAST_PRIORITY)
    assert [pod.key for pod in pods] == ["shop/capacitybuffer~room~0", "shop/capacitybuffer~room~1"]
    assert [is_planned(key) for key in (pods[0].key, "shop/web-1")] == [True, False]
    assert pods[0].shape is pods[1].shape
    assert pods[0].unschedulable
    assert (pods[0].shape.owner, pods[0].shape.priority) == ("CapacityBuffer/room", LEAST_PRIORITY)
    assert pods[0].shape.terms == template.shape.terms
