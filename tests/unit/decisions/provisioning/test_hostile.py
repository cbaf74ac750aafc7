"""Odd pods of one tenant do not cost others their nodes: demands for unknown resources are set aside before packing."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from nodesmith.controllers.launching.launch import committable
from nodesmith.decisions.provisioning import decide
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.times import LONGEST_SECONDS, duration_seconds
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.items import claim_to_item
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from tests.builders import inputs, nodeclass_manifest, nodepool_manifest, pods, shape, snapshot


def odd_pods(count: int, names_each: int) -> list[Pod]:
    """Return pods that each request different resources, which no node has."""
    shapes = [
        shape(requests={f"odd.example.com/r{i}-{j}": "1" for j in range(names_each)}) for i in range(count)
    ]
    return [replace(pods(each)[0], key=f"odd/pod-{i:04d}") for i, each in enumerate(shapes)]


def test_pods_that_request_unknown_resources_do_not_affect_others() -> None:
    usual = decide(inputs(pods=tuple(pods(shape(), 5))))
    plan = decide(inputs(pods=(*pods(shape(), 5), *odd_pods(3, 2))))
    assert plan.nodes == usual.nodes
    assert plan.steps == usual.steps > 0
    assert [u.pods for u in plan.unplaced] == [(f"odd/pod-{i:04d}",) for i in range(3)]
    assert "odd.example.com/r0-" in plan.unplaced[0].reason


def test_thousands_of_unknown_resources_do_not_slow_a_decision() -> None:
    odd = odd_pods(400, 10)
    before = time.process_time()
    plan = decide(inputs(pods=(*pods(shape(), 5), *odd)))
    assert time.process_time() - before < 10  # minutes, if each were a dimension of every node
    assert plan.nodes
    assert sum(len(u.pods) for u in plan.unplaced) == 400


def test_the_longest_names_there_are_do_not_make_a_commit_too_large_for_dynamodb() -> None:
    name = "n" * 63 + "/" + "p" * 253
    one = decide(inputs(pods=tuple(pods(shape(), 1)))).nodes[0]
    full = replace(one, claim=replace(one.claim, nominated=tuple(f"{name}{i:03d}" for i in range(110))))
    taken = committable([full] * 90)
    assert 1 < len(taken) < 90
    assert sum(len(json.dumps(claim_to_item(node.claim)).encode()) for node in taken) < 4_000_000
    assert len(committable([one] * 200)) == 90
    assert len(committable([replace(full, claim=replace(full.claim, nominated=(name,) * 10_000))])) == 1
    many = FrozenMap({f"default/web-{number}": 1 for number in range(3_000)})  # 60,000 characters
    assert len(committable([replace(one, claim=replace(one.claim, attempts=many))] * 90)) == 33


@pytest.mark.parametrize("text", ["x", "é", '"'])
def test_the_longest_annotations_there_are_do_not_make_a_commit_too_large_for_dynamodb(text: str) -> None:
    one = decide(inputs(pods=tuple(pods(shape(), 1)))).nodes[0]
    written = len(json.dumps(text)) - 2
    annotated = FrozenMap({"example.com/about": text * (262_000 // written)})
    pool = nodepool_manifest()
    pool["spec"]["template"]["metadata"] = {"annotations": dict(annotated)}
    assert parse_nodepool(pool).value is not None
    full = replace(one, claim=replace(one.claim, annotations=annotated))
    taken = committable([full] * 90)
    sizes = [len(json.dumps(claim_to_item(node.claim)).encode()) for node in taken]
    assert 1 < len(taken) < 90
    assert sum(sizes) < 4_000_000
    assert max(sizes) < 400_000


def test_a_nodepool_with_more_annotations_than_a_nodeclaim_may_have_launches_nothing() -> None:
    pool = nodepool_manifest("large")
    pool["spec"]["template"]["metadata"] = {"annotations": {"example.com/about": "x" * 300_000}}
    seen = snapshot(pods=tuple(pods(shape(), 5)), nodepools=(nodepool_manifest(), pool))
    plan = decide(inputs(snapshot=seen))
    assert {node.claim.nodepool for node in plan.nodes} == {"default"}
    (problem,) = plan.problems
    assert "spec.template.metadata.annotations" in problem
    assert "at most 262,144 bytes" in problem
    assert len(problem) < 500


@pytest.mark.parametrize("field", ["expireAfter", "terminationGracePeriod"])
def test_a_nodepool_with_a_duration_of_thousands_of_digits_does_not_stop_others(field: str) -> None:
    odd = nodepool_manifest("odd", weight=1)
    odd["spec"]["template"]["spec"][field] = "9" * 5_000 + "h"
    plan = decide(inputs(snapshot=snapshot(pods=pods(shape(), 2), nodepools=[odd, nodepool_manifest()])))
    assert plan.nodes


def test_a_duration_never_exceeds_what_kubernetes_can_count() -> None:
    assert duration_seconds("9" * 5_000 + "h") == duration_seconds("3000000h") == LONGEST_SECONDS
    assert duration_seconds("2000000h") == 7_200_000_000


def test_a_nodeclass_with_an_endless_quantity_does_not_stop_others() -> None:
    odd = nodeclass_manifest("odd", kubelet={"evictionHard": {"memory.available": "9" * 5_000}})
    pools = [nodepool_manifest("odd", nodeclass="odd", weight=1), nodepool_manifest()]
    plan = decide(
        inputs(
            snapshot=snapshot(pods=pods(shape(), 2), nodepools=pools, nodeclasses=[odd, nodeclass_manifest()])
        )
    )
    assert [node.claim.nodepool for node in plan.nodes] == ["default"]
    assert "at most 64 characters" in str(parse_nodeclass(odd).fatal[0])


def spreads(count: int, when: str) -> list[dict[str, object]]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": f"example.com/k{number}",
            "whenUnsatisfiable": when,
            "labelSelector": {},
        }
        for number in range(count)
    ]


def test_thousands_of_preferences_of_one_pod_do_not_slow_a_decision() -> None:
    terms = [
        {"weight": 1, "podAffinityTerm": {"topologyKey": f"k{i}", "labelSelector": {}}} for i in range(1000)
    ]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    odd = shape(affinity=affinity, topologySpreadConstraints=spreads(60, "ScheduleAnyway"))
    before = time.process_time()
    plan = decide(inputs(pods=(*pods(shape(app="api"), 5), *pods(odd, 1))))
    assert time.process_time() - before < 10  # minutes, if each were tried
    assert sum(len(node.claim.nominated) for node in plan.nodes) == 6


def test_a_pod_with_more_spreads_than_are_simulated_waits_alone() -> None:
    odd = shape(topologySpreadConstraints=spreads(300, "DoNotSchedule"))
    assert "300 topology spread constraints that must hold, and at most 64" in odd.refusal
    assert not shape(topologySpreadConstraints=spreads(64, "DoNotSchedule")).refusal
    assert decide(inputs(pods=(*pods(shape(app="api"), 5), *pods(odd, 1)))).nodes
