"""Tests for pod templates in snapshots and the planned pods that are rendered from them."""

from __future__ import annotations

from typing import Any

from nodesmith.model.apimachinery.resources import format_amount
from nodesmith.model.kubernetes.pods import LEAST_PRIORITY, PodTemplate, is_planned, planned_pods
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.pods import reduce_pod, reduce_pod_template
from nodesmith.observation.reduction.podspecs import reduce_limit_range, reduce_runtime_class
from tests.builders import CLUSTER, NOW
from tests.world import pod_manifest

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


def test_planned_pods_share_a_shape_and_have_keys_that_no_real_pod_can_have() -> None:
    template = template_in(Observed(podtemplates=[reduce_pod_template(manifest(nodeSelector={"a": "b"}))]))
    pods = planned_pods(template, "CapacityBuffer/room", 2, NOW, LEAST_PRIORITY)
    assert [pod.key for pod in pods] == ["shop/capacitybuffer~room~0", "shop/capacitybuffer~room~1"]
    assert [is_planned(key) for key in (pods[0].key, "shop/web-1")] == [True, False]
    assert pods[0].shape is pods[1].shape
    assert pods[0].unschedulable
    assert (pods[0].shape.owner, pods[0].shape.priority) == ("CapacityBuffer/room", LEAST_PRIORITY)
    assert pods[0].shape.terms == template.shape.terms
