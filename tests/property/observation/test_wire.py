"""Decoding an encoded snapshot returns every pod and node with their requests and allocatable resources."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.kubernetes.nodes import parse_node
from nodesmith.model.kubernetes.pods import Pod, pod_requests
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from tests.objects.clusters import deployment_pod, node, rolled

MOMENTS = st.integers(1_600_000_000, 2_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "ephemeral-storage"]),
    st.sampled_from(["1", "250m", "1Gi", "3e2", "0"]),
)
CONTAINERS = st.builds(
    lambda requests, limits: {"resources": {"requests": requests, "limits": limits}}, AMOUNTS, AMOUNTS
)
DO_NOT_DISRUPT = st.sampled_from([{}, *({"karpenter.sh/do-not-disrupt": value} for value in ("true", "4h"))])
SIDECARS = CONTAINERS.map(lambda container: {**container, "restartPolicy": "Always"})


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    home = draw(st.sampled_from(["", "n1", "gone"]))
    manifest = deployment_pod(draw(st.integers(0, 3)), rolled(draw(st.integers(0, 9))), home)
    containers = draw(st.lists(CONTAINERS, min_size=1, max_size=3))
    manifest["spec"]["containers"] = [{**c, "name": name} for name, c in zip("abc", containers, strict=False)]
    before = draw(st.lists(st.one_of(CONTAINERS, SIDECARS), max_size=3))
    manifest["spec"]["initContainers"] = [{**c, "name": name} for name, c in zip("def", before, strict=False)]
    manifest["spec"]["overhead"] = draw(AMOUNTS)
    if draw(st.booleans()):
        statuses = draw(
            st.lists(st.fixed_dictionaries({"name": st.just("a"), "allocatedResources": AMOUNTS}), max_size=1)
        )
        manifest["status"]["containerStatuses"] = statuses
    if draw(st.booleans()):
        manifest["metadata"]["deletionTimestamp"] = draw(MOMENTS).isoformat()
    manifest["metadata"]["annotations"] = draw(DO_NOT_DISRUPT)
    manifest["status"]["startTime"] = draw(MOMENTS).isoformat()
    conditions = manifest["status"]["conditions"]
    conditions += draw(st.lists(st.sampled_from([{"type": "Ready", "status": "False"}]), max_size=1))
    manifest["spec"]["terminationGracePeriodSeconds"] = draw(st.sampled_from([0, 30, 3600]))
    return manifest


def end(pod: Pod) -> tuple[object, ...]:
    """Return the fields that determine the end of a pod."""
    return pod.key, pod.ready, pod.deletion_at, pod.started_at, pod.shape.grace_seconds


@given(
    MOMENTS,
    st.lists(pods(), max_size=12, unique_by=lambda p: p["metadata"]["name"]),
    st.sets(st.integers(0, 20)),
)
def test_a_decoded_snapshot_has_every_encoded_pod_and_node(
    moment: datetime, manifests: list[dict[str, Any]], numbers: set[int]
) -> None:
    nodes = [node(number, rolled(number)) for number in numbers]
    reduced = Observed([p for p in map(reduce_pod, manifests) if p], [reduce_node(n) for n in nodes])
    snapshot = decode(encode("c", moment, reduced))
    assert {
        (pod.key, pod.node, pod.unschedulable, pod.deleting, pod.shape.requests, pod.shape.owner)
        for pod in snapshot.pods
    } == {
        (
            f"{m['metadata']['namespace']}/{m['metadata']['name']}",
            m["spec"].get("nodeName", ""),
            "nodeName" not in m["spec"],
            "deletionTimestamp" in m["metadata"],
            pod_requests(m["spec"], m["status"].get("containerStatuses") or ()),
            f"ReplicaSet/{m['metadata']['ownerReferences'][0]['name']}",
        )
        for m in manifests
    }
    assert set(map(end, snapshot.pods)) == {
        (
            f"{m['metadata']['namespace']}/{m['metadata']['name']}",
            {c["type"]: c["status"] for c in m["status"]["conditions"]}.get("Ready") == "True",
            _moment(m["metadata"].get("deletionTimestamp")),
            _moment(m["status"]["startTime"]) if "4h" in m["metadata"]["annotations"].values() else None,
            m["spec"]["terminationGracePeriodSeconds"],
        )
        for m in manifests
    }
    assert Counter(n.name for n in snapshot.nodes) == Counter(n["metadata"]["name"] for n in nodes)
    offered = {n["metadata"]["name"]: parse_node(n).allocatable for n in nodes}
    assert {n.name: n.allocatable for n in snapshot.nodes} == offered
    assert snapshot.problems == ()


def _moment(text: str | None) -> datetime | None:
    return parse_time(text) if text else None
