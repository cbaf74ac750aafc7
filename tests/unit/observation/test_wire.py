"""The snapshot's bytes: stable, small, and with clear errors if they are invalid."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.errors import Rejected
from nodesmith.observation.decoding import LARGEST_BYTES, decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import VERSION, Observed
from nodesmith.observation.reduction.objects import reduce_namespace, reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from tests.objects.clusters import cluster, deployment_pod, node, rolled

NOW = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)


def observed(nodes: int = 10, pods: int = 50) -> Observed:
    made = cluster(nodes, pods, deployments=5)
    return Observed(
        pods=[p for p in map(reduce_pod, made["pods"]) if p],
        nodes=[reduce_node(manifest) for manifest in made["nodes"]],
    )


def rewritten(**fields: Any) -> bytes:
    document = json.loads(gzip.decompress(encode("c", NOW, observed())))
    return gzip.compress(json.dumps({**document, **fields}).encode())


def test_equal_clusters_give_equal_bytes_whatever_the_order_of_their_objects() -> None:
    first = observed()
    pods, nodes = list(first.pods), list(first.nodes)
    rolled(1).shuffle(pods)
    rolled(2).shuffle(nodes)
    assert encode("c", NOW, Observed(pods=pods, nodes=nodes)) == encode("c", NOW, first)


def test_cluster_name_and_time_are_kept() -> None:
    snapshot = decode(encode("east", NOW, Observed()))
    assert (snapshot.cluster, snapshot.taken_at) == ("east", NOW)


@pytest.mark.parametrize(
    "made",
    [
        lambda: gzip.compress(b'{"format":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        lambda: gzip.compress(b'{"format":' + b"9" * 5_000 + b"}"),
        lambda: gzip.compress(json.dumps({"format": "nodesmith-snapshot", "version": 1}).encode()),
        lambda: rewritten(problems=7),
        lambda: rewritten(takenAt=1e300),
        lambda: gzip.compress(b" " * (LARGEST_BYTES + 2), compresslevel=1),
    ],
    ids=["nested deeply", "a number of many digits", "fields missing", "no list", "no time", "a bomb"],
)
def test_a_malicious_snapshot_is_rejected(made: Callable[[], bytes]) -> None:
    data = made()
    with pytest.raises(Rejected, match="snapshot: "):
        decode(data)


@pytest.mark.parametrize(
    "change",
    [{"created": [1e300]}, {"created": [10**30]}, {"shape": {"spec": {"priority": float("inf")}}}],
    ids=["no moment", "a moment beyond all time", "a boundless priority"],
)
def test_a_malicious_pod_is_a_problem_or_refused(change: dict[str, Any]) -> None:
    odd = {"shape": {}, "names": ["odd"], "created": [1], "nodes": [-1], "flags": [0], **change}
    good = {**odd, "shape": {}, "names": ["good"], "created": [1]}
    snapshot = decode(rewritten(pods=[odd, good]))
    assert "default/good" in {pod.key for pod in snapshot.pods if not pod.shape.refusal}
    assert snapshot.problems or any(pod.shape.refusal for pod in snapshot.pods)


def test_the_names_of_a_pods_scheduling_gates_are_kept() -> None:
    held = reduce_pod(deployment_pod(1, rolled(1), schedulingGates=[{"name": "example.com/quota"}]))
    assert held is not None
    (pod,) = decode(encode("c", NOW, Observed(pods=[held]))).pods
    assert pod.shape.gates == ("example.com/quota",)


def test_a_pod_may_be_on_a_node_that_no_longer_exists() -> None:
    first = observed()
    snapshot = decode(encode("c", NOW, Observed(pods=first.pods)))
    assert {pod.node for pod in snapshot.pods} == {pod.node for pod in first.pods}
    assert snapshot.nodes == ()


def test_one_unreadable_node_is_a_problem_and_the_rest_is_read() -> None:
    bad = reduce_node(node(99, rolled(1)))
    bad["status"]["allocatable"] = {"memory": "1gb"}
    first = observed()
    snapshot = decode(encode("c", NOW, Observed(pods=first.pods, nodes=[*first.nodes, bad])))
    assert len(snapshot.nodes) == 10
    assert len(snapshot.pods) == 50
    (problem,) = snapshot.problems
    assert bad["metadata"]["name"] in problem
    assert "1gb" in problem
    assert "1G" in problem


def test_one_pod_with_an_invalid_quantity_is_refused_alone() -> None:
    made = cluster(2, 10, deployments=5)["pods"]
    made[3]["spec"]["containers"][0]["resources"] = {"requests": {"memory": "1gb"}}
    snapshot = decode(encode("c", NOW, Observed(pods=[p for p in map(reduce_pod, made) if p])))
    refused = [pod for pod in snapshot.pods if pod.shape.refusal]
    assert [pod.key.split("/")[1] for pod in refused] == [made[3]["metadata"]["name"]]
    assert "1gb" in refused[0].shape.refusal


def test_pods_with_columns_of_different_lengths_are_a_problem_and_the_rest_is_read() -> None:
    document = json.loads(gzip.decompress(encode("c", NOW, observed())))
    document["pods"][0]["flags"].pop()
    snapshot = decode(gzip.compress(json.dumps(document).encode()))
    assert len(snapshot.pods) == 40
    assert document["pods"][0]["names"][0] in snapshot.problems[0]


def test_problems_found_while_reducing_are_kept() -> None:
    assert decode(encode("c", NOW, Observed(problems=["Pod/x: no"]))).problems == ("Pod/x: no",)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_truncated_snapshot_is_rejected(share: float) -> None:
    data = encode("c", NOW, observed())
    with pytest.raises(Rejected, match="snapshot: truncated or damaged"):
        decode(data[: int(len(data) * share)])


def test_a_snapshot_with_a_damaged_byte_is_rejected() -> None:
    data = bytearray(encode("c", NOW, observed()))
    data[-6] ^= 0xFF  # in the checksum
    with pytest.raises(Rejected, match="snapshot: "):
        decode(bytes(data))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "0 bytes"),
        (b"<html>denied</html>", "<html>denied"),
        (gzip.compress(b"not json"), "JSON"),
        (gzip.compress(b"[]"), "found 'list'"),
        (gzip.compress(b'{"format": "catalog"}'), "found 'catalog'"),
    ],
)
def test_data_that_is_not_a_snapshot_is_rejected_with_what_was_found(data: bytes, found: str) -> None:
    with pytest.raises(Rejected, match="snapshot: ") as caught:
        decode(data)
    assert found in str(caught.value)


def test_a_snapshot_of_a_newer_format_is_rejected_with_the_remedy() -> None:
    with pytest.raises(Rejected, match=r"'version' is 5, this release reads 1 to 4: deploy .* same release"):
        decode(rewritten(version=5))


def test_a_snapshot_of_a_newer_format_is_read_if_it_states_compatibility() -> None:
    newer = decode(rewritten(version=VERSION + 1, readableFrom=VERSION, addedLater=[1]))
    assert repr(newer) == repr(decode(rewritten()))


@pytest.mark.parametrize("oldest", [VERSION + 1, None, "1", [1]])
def test_a_snapshot_of_a_newer_format_is_rejected_if_it_is_incompatible(oldest: object) -> None:
    with pytest.raises(Rejected, match="same release"):
        decode(rewritten(version=VERSION + 1, readableFrom=oldest))


def test_a_snapshot_of_the_first_format_is_read_except_for_pods_with_volumes() -> None:
    document = json.loads(gzip.decompress(encode("c", NOW, observed(pods=2))))
    mounting, plain = document["pods"]
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}
    mounting["shape"]["spec"]["volumes"] = [claim]
    snapshot = decode(gzip.compress(json.dumps({**document, "version": 1}).encode()))
    refusals = {pod.key.partition("/")[2]: pod.shape.refusal for pod in snapshot.pods}
    assert refusals[plain["names"][0]] == ""
    assert "lacks the node affinity of its volumes: update the forwarder" in refusals[mounting["names"][0]]


def choosing(selector: dict[str, Any] | None) -> dict[str, Any]:
    """Return an encoded cluster: a pod with anti-affinity to namespaces, two of which are known."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": selector}
    pod = deployment_pod(1, rolled(1))
    pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    labels = {"shop": {"team": "a", "cost-center": "7"}, "ops": {"cost-center": "7"}}
    namespaces = [reduce_namespace({"metadata": {"name": n, "labels": own}}) for n, own in labels.items()]
    reduced = reduce_pod(pod)
    assert reduced is not None
    document = gzip.decompress(encode("c", NOW, Observed(pods=[reduced], namespaces=namespaces)))
    written: dict[str, Any] = json.loads(document)
    return written


def chosen(document: dict[str, Any]) -> frozenset[str] | None:
    snapshot = decode(gzip.compress(json.dumps(document).encode()))
    return snapshot.pods[0].shape.affinities[0].namespaces


def test_a_namespace_selector_finds_its_namespaces_in_the_snapshot() -> None:
    assert chosen(choosing({"matchLabels": {"team": "a"}})) == frozenset({"shop"})
    assert chosen(choosing({"matchLabels": {"kubernetes.io/metadata.name": "team-1"}})) == frozenset(
        {"team-1"}
    )
    assert chosen(choosing({})) is None


def test_only_namespace_labels_that_a_selector_uses_are_in_the_snapshot() -> None:
    assert choosing({"matchLabels": {"team": "a"}})["namespaces"] == {
        "ops": {},
        "shop": {"team": "a"},
        "team-1": {},
    }
    assert choosing({})["namespaces"] == {}
    assert choosing(None)["namespaces"] == {}


def test_a_namespace_selector_in_the_second_format_selects_all_namespaces() -> None:
    document = choosing({"matchLabels": {"team": "a"}})
    del document["namespaces"]
    assert chosen({**document, "version": 2}) is None


def test_a_snapshot_of_the_third_format_has_no_budgets_and_only_ready_pods() -> None:
    document = json.loads(gzip.decompress(encode("c", NOW, observed(pods=1))))
    for later in ("poddisruptionbudgets", "volumeattachments", "podEvents"):
        del document[later]
    document["pods"][0]["flags"] = [1]
    snapshot = decode(gzip.compress(json.dumps({**document, "version": 3}).encode()))
    assert (snapshot.budgets, snapshot.attachments, snapshot.problems) == ((), (), ())
    assert {node.last_pod_event_at for node in snapshot.nodes} == {None}
    assert snapshot.pods[0].unschedulable
    assert snapshot.pods[0].ready


@pytest.mark.parametrize(
    "fields", [{"takenAt": "yesterday"}, {"nodes": 7}, {"pods": [3]}, {"nodeNames": None}]
)
def test_a_snapshot_with_a_part_of_the_wrong_kind_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="snapshot: a part is missing or wrong"):
        decode(rewritten(**fields))


def test_a_thousand_nodes_and_twenty_thousand_pods_take_less_than_two_megabytes() -> None:
    made = observed(nodes=1_000, pods=20_000)
    assert len(encode("c", NOW, made)) < 2_000_000


def test_a_decompression_bomb_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodesmith.observation.decoding.LARGEST_BYTES", 2**20)

    with pytest.raises(Rejected, match="more than 1 MiB when decompressed"):
        decode(gzip.compress(b" " * 2**22))


def nominated(document: dict[str, Any] | None = None) -> dict[str, tuple[str, str]]:
    """Return the nodes and the nominated nodes of the pods in a snapshot with one nominated pod."""
    pod = replace(observed().pods[0], node="", unschedulable=True, nominated_node="n-7")
    data = encode("c", NOW, Observed(pods=[pod]))
    changed = {**json.loads(gzip.decompress(data)), **(document or {})}
    snapshot = decode(gzip.compress(json.dumps(changed).encode()))
    return {pod.key: (pod.node, pod.nominated_node) for pod in snapshot.pods}


def test_a_nominated_pod_has_its_nominated_node_but_is_not_bound_to_it() -> None:
    assert list(nominated().values()) == [("", "n-7")]


def test_a_nominated_pod_of_a_release_without_nominated_nodes_stays_nominated() -> None:
    before = {"shape": {}, "names": ["old"], "created": [1], "nodes": [-1], "flags": [3]}

    ((node, where),) = nominated({"pods": [before]}).values()

    assert not node
    assert where
