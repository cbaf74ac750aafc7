"""The requests of a DaemonSet's next pod, as a snapshot contains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import ARCH
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.pods import ReducedPod, reduce_daemonset, reduce_pod
from nodesmith.observation.reduction.podspecs import reduce_limit_range, reduce_runtime_class
from tests.objects.clusters import Manifest

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def template(requests: Mapping[str, str], **spec: Any) -> Manifest:
    return {"containers": [{"name": "a", "resources": {"requests": dict(requests)}}], **spec}


def daemonset(spec: Manifest, name: str = "logs", namespace: str = "kube-system") -> Manifest:
    return reduce_daemonset(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {"template": {"spec": spec}}}
    )


def pod(
    name: str, requests: Mapping[str, str], *, minute: int = 0, owner: str = "logs", **spec: Any
) -> ReducedPod:
    """Return a DaemonSet's pod, created this many minutes after noon and pinned to its node."""
    reduced = reduce_pod(made(name, requests, minute=minute, owner=owner, **spec))
    assert reduced is not None
    return reduced


def made(
    name: str, requests: Mapping[str, str], *, minute: int = 0, owner: str = "logs", **spec: Any
) -> Manifest:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-of-{name}"]}]}]
    return {
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "uid": name,
            "creationTimestamp": f"2026-11-21T12:{minute:02}:00Z",
            "ownerReferences": [{"kind": "DaemonSet", "name": owner, "controller": True}],
        },
        "spec": {
            **template(requests),
            "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
            **spec,
        },
    }


def only(observed: Observed) -> Shape:
    (shape,) = decode(encode("c", NOW, observed)).daemonsets
    return shape


def test_a_daemonset_without_pods_requests_what_its_template_requests() -> None:
    shape = only(Observed(daemonsets=[daemonset(template({"cpu": "100m"}))], pods=[]))
    assert shape.requests.cpu_milli == 100


def test_a_daemonset_requests_what_its_newest_pod_requests() -> None:
    pods = [
        pod("z-old", {"cpu": "3"}),
        pod("resized", {"cpu": "2"}, minute=9),
        pod("between", {"cpu": "1"}, minute=5),
    ]
    shape = only(Observed(daemonsets=[daemonset(template({"cpu": "100m"}))], pods=pods))
    assert shape.requests.cpu_milli == 2000


def test_the_newest_pod_counts_while_it_ends_but_a_failed_one_does_not() -> None:
    leaving, sound = pod("leaving", {"cpu": "2"}, minute=9), pod("a", {"cpu": "1"})
    at_its_end = replace(leaving, deletion=leaving.created + 60)
    manifest = daemonset(template({"cpu": "100m"}))
    assert only(Observed(daemonsets=[manifest], pods=[at_its_end, sound])).requests.cpu_milli == 2000
    for phase in ("Failed", "Succeeded"):
        assert reduce_pod({**made("evicted", {"cpu": "2"}, minute=9), "status": {"phase": phase}}) is None


def test_a_daemonset_keeps_the_affinity_of_its_template_since_its_pods_are_pinned() -> None:
    expression = {"key": ARCH, "operator": "In", "values": ["arm64"]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}
    pinned = daemonset(template({"cpu": "100m"}, affinity=affinity))
    shape = only(Observed(daemonsets=[pinned], pods=[pod("a", {"cpu": "2"})]))
    assert not shape.refusal
    assert [term[ARCH].values for term in shape.terms] == [{"arm64"}]
    assert shape.requests.cpu_milli == 2000


def test_pods_of_another_daemonset_are_ignored() -> None:
    others = [
        pod("a", {"cpu": "2"}, owner="metrics"),
        pod("b", {"cpu": "2"}, owner="logs"),
    ]
    elsewhere = daemonset(template({"cpu": "100m"}), namespace="default")
    assert only(Observed(daemonsets=[elsewhere], pods=others)).requests.cpu_milli == 100


def test_other_changes_of_admission_to_a_pod_count_too() -> None:
    given = pod("a", {"cpu": "1"}, overhead={"cpu": "250m"}, nodeSelector={ARCH: "arm64"})
    shape = only(Observed(daemonsets=[daemonset(template({"cpu": "100m"}))], pods=[given]))
    assert shape.requests.cpu_milli == 1250
    assert [term[ARCH].values for term in shape.terms] == [{"arm64"}]


def limits(name: str = "limits", namespace: str = "kube-system", **item: Any) -> Manifest:
    limits = [{"type": "Container", **item}]
    return reduce_limit_range(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {"limits": limits}}
    )


@pytest.mark.parametrize(
    ("item", "cpu_milli"),
    [
        ({"default": {"cpu": "2"}}, 2000),
        ({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}, 1000),
        ({"max": {"cpu": "3"}}, 3000),
        ({"max": {"cpu": "3"}, "min": {"cpu": "1"}, "default": {"cpu": "2"}}, 2000),
        ({"min": {"cpu": "500m"}}, 500),
    ],
)
def test_a_template_without_requests_gets_those_of_the_namespaces_limit_range(
    item: Mapping[str, Any], cpu_milli: int
) -> None:
    bare = daemonset(template({}))
    assert only(Observed(daemonsets=[bare], limitranges=[limits(**item)])).requests.cpu_milli == cpu_milli


def test_a_limit_range_does_not_change_a_containers_own_requests() -> None:
    ranged = limits(default={"cpu": "2"})
    own = daemonset(template({"cpu": "100m"}))
    assert only(Observed(daemonsets=[own], limitranges=[ranged])).requests.cpu_milli == 100


def test_a_containers_own_limit_is_its_request_despite_a_limit_range() -> None:
    limited = {"containers": [{"name": "a", "resources": {"limits": {"cpu": "300m"}}}]}
    ranged = limits(default={"cpu": "2"}, defaultRequest={"cpu": "1", "memory": "1Gi"})
    requests = only(Observed(daemonsets=[daemonset(limited)], limitranges=[ranged])).requests
    assert (requests.cpu_milli, requests.memory_bytes) == (300, 2**30)


def test_init_containers_and_sidecars_get_requests_of_the_limit_range_too() -> None:
    sidecar = {"name": "proxy", "restartPolicy": "Always"}
    spec = {"containers": [{"name": "a"}], "initContainers": [{"name": "setup"}, sidecar]}
    ranged = limits(default={"cpu": "2"})
    assert only(Observed(daemonsets=[daemonset(spec)], limitranges=[ranged])).requests.cpu_milli == 4000


def test_limit_ranges_of_other_namespaces_and_of_pods_are_ignored() -> None:
    ranges = [limits(namespace="default", default={"cpu": "2"}), limits(type="Pod", max={"cpu": "2"})]
    assert only(Observed(daemonsets=[daemonset(template({}))], limitranges=ranges)).requests.cpu_milli == 0


def test_each_container_gets_the_default_requests() -> None:
    two = {"containers": [{"name": "a"}, {"name": "b"}]}
    ranges = [limits(default={"cpu": "2"}), limits("more", default={"cpu": "1", "memory": "1Gi"})]
    requests = only(Observed(daemonsets=[daemonset(two)], limitranges=ranges)).requests
    assert (requests.cpu_milli, requests.memory_bytes) == (4000, 2 * 2**30)


def test_a_template_gets_the_additions_of_its_runtime_class() -> None:
    gvisor = reduce_runtime_class(
        {
            "metadata": {"name": "gvisor"},
            "handler": "runsc",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {ARCH: "arm64"}, "tolerations": [{"operator": "Exists"}]},
        }
    )
    within = daemonset(template({"cpu": "1"}, runtimeClassName="gvisor"))
    shape = only(Observed(daemonsets=[within], runtimeclasses=[gvisor]))
    assert shape.requests.cpu_milli == 1250
    assert [term[ARCH].values for term in shape.terms] == [{"arm64"}]
    assert [toleration.operator for toleration in shape.tolerations] == ["Exists"]
