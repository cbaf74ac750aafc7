"""What `nodesmith validate`, `plan`, `status` and `explain node` say about CapacityBuffers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from nodesmith.decisions.disruption.costs import held_for_buffers
from nodesmith.decisions.provisioning import decide, plan_item
from nodesmith.decisions.provisioning.buffers.resolutions import resolutions, status_of
from nodesmith.decisions.provisioning.plan import Room
from nodesmith.model.karpenter.bufferannotations import WARM_CAPACITY
from nodesmith_cli.main import app
from nodesmith_cli.views.explaining.stay import why_it_stays
from nodesmith_cli.views.status import lines, report_of
from nodesmith_formats.decisions.summaries import summary
from tests.builders import NOW, catalog, nodeclass_manifest, nodepool_manifest, pods, shape
from tests.objects.capacitybuffers import TEMPLATE, capacitybuffer
from tests.unit.decisions.provisioning.capacity.test_capacitybuffers import (
    DEPLOYMENT,
    ROLLOUT,
    given,
    of_one_type,
)

POD_SPEC = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}
ROOM = {
    "apiVersion": "v1",
    "kind": "PodTemplate",
    "metadata": {"name": "room", "namespace": "default"},
    "template": {"spec": POD_SPEC},
}


def run(folder: Path, command: str, *objects: Mapping[str, Any], output: str = "json") -> Result:
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return CliRunner().invoke(app, [command, "-f", str(file), "-o", output])


def findings(folder: Path, *objects: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return severity, field and message of each finding."""
    reported = json.loads(run(folder, "validate", *objects).stdout)
    return [(each["severity"], each["field"], each["message"]) for each in reported]


@pytest.mark.parametrize(
    ("buffer", "severity", "field", "words"),
    [
        (capacitybuffer(**TEMPLATE), "error", "spec.replicas", "set replicas or limits"),
        (
            capacitybuffer(**TEMPLATE, **DEPLOYMENT, replicas=1),
            "error",
            "spec.podTemplateRef",
            "leave out one",
        ),
        (capacitybuffer(**TEMPLATE, replicas=1, percentage=5), "warning", "spec.percentage", "scalableRef"),
        (capacitybuffer(**TEMPLATE, limits={"cpu": "4gb"}), "error", "spec.limits.cpu", "did you mean"),
        (capacitybuffer(**DEPLOYMENT, replicas=1), "warning", "spec.scalableRef.name", "no such Deployment"),
        (
            capacitybuffer(**ROLLOUT, replicas=1),
            "warning",
            "spec.scalableRef.name",
            "no such Rollout.argoproj.io",
        ),
        (
            capacitybuffer(podTemplateRef={"name": "rom"}, replicas=1),
            "error",
            "spec.podTemplateRef.name",
            "did you mean 'room'?",
        ),
        (
            capacitybuffer(**TEMPLATE, replicas=1, provisioningStrategy="buffer.x-k8s.io/active-capcity"),
            "warning",
            "spec.provisioningStrategy",
            "did you mean 'buffer.x-k8s.io/active-capacity'?",
        ),
        (
            {**capacitybuffer(**TEMPLATE, replicas=1), "apiVersion": "autoscaling.x-k8s.io/v1"},
            "error",
            "apiVersion",
            "v1beta1",
        ),
        (
            capacitybuffer(annotations={"nodesmith.dev/buffer-schedule": "0 7 * * *"}),
            "error",
            "metadata.annotations[nodesmith.dev/buffer-duration]",
            "must be set together with",
        ),
    ],
)
def test_validate_reports_a_mistake_with_its_field_and_remedy(
    buffer: Mapping[str, Any], severity: str, field: str, words: str, tmp_path: Path
) -> None:
    (found,) = findings(tmp_path, buffer, ROOM)
    assert found[:2] == (severity, field)
    assert words in found[2]


def test_validate_finds_a_custom_resource_by_its_group(tmp_path: Path) -> None:
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "web"}}
    other = {**rollout, "apiVersion": "example.com/v1"}
    assert findings(tmp_path, capacitybuffer(**ROLLOUT, replicas=1), rollout) == []
    assert len(findings(tmp_path, capacitybuffer(**ROLLOUT, replicas=1), other)) == 1


def test_validate_warns_of_a_second_buffer_for_one_workload(tmp_path: Path) -> None:
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "web"}}
    first, second = capacitybuffer(**ROLLOUT, replicas=1), capacitybuffer("second", **ROLLOUT, replicas=1)
    ((severity, field, message),) = findings(tmp_path, first, second, rollout)
    assert (severity, field) == ("warning", "spec.scalableRef.name")
    assert "CapacityBuffer room keeps room as well" in message
    warm = capacitybuffer("second", **ROLLOUT, replicas=1, provisioningStrategy=WARM_CAPACITY)
    assert findings(tmp_path, first, warm, rollout) == []


def test_validate_names_the_namespace_of_a_template_elsewhere(tmp_path: Path) -> None:
    elsewhere = {**ROOM, "metadata": {"name": "room", "namespace": "shop"}}
    ((severity, _, message),) = findings(tmp_path, capacitybuffer(), elsewhere)
    assert severity == "error"
    assert "in namespace shop" in message


def test_validate_finds_nothing_wrong_with_sound_buffers_of_both_versions(tmp_path: Path) -> None:
    older = {**capacitybuffer("older"), "apiVersion": "autoscaling.x-k8s.io/v1alpha1"}
    assert findings(tmp_path, capacitybuffer(), older, ROOM) == []


def test_plan_tells_what_buffers_cost(tmp_path: Path) -> None:
    objects = (nodepool_manifest(), nodeclass_manifest(), ROOM, capacitybuffer())
    reported = json.loads(run(tmp_path, "plan", *objects).stdout)
    assert all(node["forBuffers"] for node in reported["nodes"])
    price = reported["capacityBuffers"]["toLaunchHourly"]
    assert (
        price
        == reported["priceHourly"]
        == pytest.approx(sum(node["priceHourly"] for node in reported["nodes"]))
    )
    assert reported["capacityBuffers"]["held"] == []
    assert [(room["buffer"], room["bought"]) for room in reported["capacityBuffers"]["rooms"]] == [
        ("default/room", 2)
    ]
    printed = run(tmp_path, "plan", *objects, output="table").stdout
    assert f"{len(reported['nodes'])} to launch at ~${price:.4f}/hour" in printed
    assert printed.startswith("nothing to do: no pending pods")


def test_plan_says_why_a_buffer_keeps_no_room(tmp_path: Path) -> None:
    unreadable = capacitybuffer(
        "unreadable", annotations={"nodesmith.dev/buffer-quantile": "2"}, **TEMPLATE, replicas=1
    )
    lost = capacitybuffer("lost", podTemplateRef={"name": "rom"}, replicas=1)
    warm = "nodesmith.dev/warm-capacity"
    lost_and_warm = capacitybuffer(
        "warm", podTemplateRef={"name": "rom"}, replicas=1, provisioningStrategy=warm
    )
    for objects in ((unreadable, lost, lost_and_warm), (unreadable, lost, lost_and_warm, capacitybuffer())):
        objects = (nodepool_manifest(), nodeclass_manifest(), ROOM, *objects)
        reported = json.loads(run(tmp_path, "plan", *objects).stdout)
        rooms = {room["buffer"]: room["reason"] for room in reported["capacityBuffers"]["rooms"]}
        assert "must be greater than 0 and less than 1" in rooms["default/unreadable"]
        assert rooms["default/lost"] == "there is no PodTemplate 'rom' in namespace default"
        assert rooms["default/warm"] == rooms["default/lost"]


def test_a_plan_prints_the_titles_of_buffers_in_full_beside_a_long_reason(tmp_path: Path) -> None:
    limit = {"nodesmith.dev/buffer-limit-usd-per-hour": "0.0001"}
    buffer = capacitybuffer("a-buffer-with-a-long-name", annotations=limit, **TEMPLATE, replicas=1)
    objects = (nodepool_manifest(), nodeclass_manifest(), ROOM, buffer)
    printed = run(tmp_path, "plan", *objects, output="table").stdout
    assert "CapacityBuffer" in printed
    for title in ("have room", "launching", "to launch"):
        assert title in printed
    assert " ".join(printed.split()).count("its limit in dollars is reached") == 1
    assert "buffer-limit-usd-per-hour)" in printed


def test_plan_counts_the_replicas_of_a_workload_in_the_files(tmp_path: Path) -> None:
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": POD_SPEC},
        },
    }
    share = capacitybuffer(**DEPLOYMENT, percentage=50)
    reported = json.loads(
        run(tmp_path, "plan", nodepool_manifest(), nodeclass_manifest(), workload, share).stdout
    )
    assert [room["count"] for room in reported["capacityBuffers"]["rooms"]] == [2]
    assert sum(len(node["pods"]) for node in reported["nodes"] if not node.get("forBuffers")) == 4


def test_status_tells_what_the_nodes_held_for_buffers_cost() -> None:
    known = of_one_type()
    printed = list(lines(report_of(known.snapshot, NOW, held_for_buffers(known))))
    assert "1 CapacityBuffer, 1 node held for them alone at $0.1920/hour" in printed
    assert "  default/room  room for 2 pods: ready for provisioning" in printed


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "there is room for 0 of 2 pods; no NodePool can provide more room now"),
        ({"replicas": 1}, "ready for provisioning"),
        ({"generation": 7}, "ready for provisioning"),
    ],
    ids=["as it is now", "of another size", "of an earlier generation"],
)
def test_status_says_what_room_a_buffer_lacks_and_why(fields: dict[str, int], said: str) -> None:
    known = of_one_type()
    (buffer,) = known.snapshot.capacitybuffers
    (found,) = resolutions(known.snapshot, NOW)
    room = Room(found.key, 2, 2, reason="no NodePool can provide more room now")
    shown = status_of(found, room)
    shown["replicas"] = fields.get("replicas", 2)
    for condition in shown["conditions"]:
        condition["observedGeneration"] = fields.get("generation", found.generation)
    seen = replace(known.snapshot, capacitybuffers=({**buffer, "status": shown},))
    assert f"  default/room  room for 2 pods: {said}" in list(lines(report_of(seen, NOW)))


def test_an_estimated_price_of_held_nodes_is_marked() -> None:
    known = of_one_type()
    (held,) = held_for_buffers(known)
    report = report_of(known.snapshot, NOW, (replace(held, estimated=True),))
    assert report["heldEstimated"] is True
    assert "1 CapacityBuffer, 1 node held for them alone at ~$0.1920/hour" in list(lines(report))
    assert report_of(known.snapshot, NOW, (held,))["heldEstimated"] is False


def test_nodes_held_for_buffers_on_spot_have_an_estimated_price() -> None:
    known = of_one_type()
    offerings = {
        name: tuple(replace(each, estimated=True) for each in each_of)
        for name, each_of in known.catalog.offerings.items()
    }
    estimated = replace(known, catalog=replace(known.catalog, offerings=offerings))
    assert [each.estimated for each in held_for_buffers(known)] == [False]
    assert [each.estimated for each in held_for_buffers(estimated)] == [True]
    (first, *_) = known.ledger.claims
    snapshot = replace(known.snapshot, taken_at=NOW + timedelta(seconds=1))
    stays = why_it_stays(first, known.ledger.claims, snapshot, estimated.catalog, NOW)
    assert stays is not None
    assert "which costs ~$0.1920/hour" in stays.message


def test_a_plan_marks_estimated_prices_of_room(tmp_path: Path) -> None:
    spot = nodepool_manifest()
    spot["spec"]["template"]["spec"]["requirements"] = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    ]
    printed = run(tmp_path, "plan", spot, nodeclass_manifest(), ROOM, capacitybuffer(), output="table")
    assert " to launch at ~$" in printed.stdout
    assert "0 nodes held for buffers alone at $0.0000/hour" in printed.stdout


def test_explain_says_that_a_node_is_held_for_a_buffer_and_at_what_price() -> None:
    known = of_one_type()
    snapshot = replace(known.snapshot, taken_at=NOW + timedelta(seconds=1))
    stays = {
        claim.name: why_it_stays(claim, known.ledger.claims, snapshot, catalog(), NOW)
        for claim in known.ledger.claims
    }
    held, other = stays["claim-a"], stays["claim-b"]
    assert held is not None
    assert (
        held.message
        == "it runs no pods and has room for CapacityBuffer default/room, which costs $0.1920/hour"
    )
    assert other is not None
    assert other.leaves


def test_a_decisions_summary_tells_pods_from_room() -> None:
    known = given(pods=pods(shape("3", "6Gi"), 2))
    reported = summary({"plan": plan_item(decide(known))})
    bare = summary({"plan": plan_item(decide(given()))})
    assert reported.endswith("for 2 pods and CapacityBuffers' room for 1 pod")
    assert bare.endswith("for CapacityBuffers' room for 2 pods")
