"""NodeOverlays on the command line and in the whole local system."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from typer.testing import CliRunner

from nodesmith.decisions.provisioning import decide, record
from nodesmith.decisions.provisioning.nodepools.onsale import considered
from nodesmith.model.apimachinery.labels import INSTANCE_FAMILY
from nodesmith_cli.audit import Kind, audit
from nodesmith_cli.main import app
from nodesmith_cli.planning.inputs import plan_inputs
from nodesmith_cli.planning.manifests import read_manifests
from nodesmith_cli.planning.report import plan_json
from nodesmith_cli.sharing.ownership import ClusterOwnership
from nodesmith_cli.sharing.removalplan import classes, definitions
from nodesmith_cli.views.explaining.commands import pool_item, pool_lines
from nodesmith_cli.views.explaining.decision import explain
from tests import builders
from tests.aws.account import REGION, account
from tests.builders import expression
from tests.objects.nodeoverlays import family, overlay
from tests.processes.localrun import local_run, report_of
from tests.processes.plancommand import Run, plan_command, written
from tests.scenarios.moves import MOVING
from tests.smallworld.world import World, pod_manifest

FUSE = "smarter-devices/fuse"
CHEAP_M5 = overlay("cheap-m5", family("m5"), priceAdjustment="-90%", weight=2)
DEVICES = overlay("devices", family("m5"), capacity={FUSE: "2"})
ONE, OTHER = (overlay(name, family("c5"), price="1") for name in ("one", "other"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return plan_command(monkeypatch, capsys)


def pod(name: str, **requests: str) -> dict[str, Any]:
    """Return a pod. An extended resource is requested as much as it is limited."""
    resources = {"requests": {"cpu": "1", "memory": "1Gi", **requests}, "limits": requests}
    containers = [{"name": "c", "image": "busybox", "resources": resources}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


PODS = [pod("plain"), *(pod(f"fuse-{n}", **{FUSE: "1"}) for n in range(3))]


def pool_manifest() -> dict[str, Any]:
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **builders.nodepool_manifest()}


def test_a_plan_uses_the_overlaid_price_and_shows_both(run: Run, tmp_path: Path) -> None:
    file = written(tmp_path, "all.json", pool_manifest(), CHEAP_M5, DEVICES, *PODS)

    ran = run("-f", file, "--audit", "-o", "json")

    assert ran.status == 0, ran.err
    assert "no violations found" in ran.err
    assert ran.plan["unplaced"] == []
    nodes = ran.plan["nodes"]
    assert {node["instanceType"].partition(".")[0] for node in nodes} == {"m5"}
    assert {node["overlay"] for node in nodes} == {"cheap-m5"}
    assert all(node["listPriceHourly"] == pytest.approx(node["priceHourly"] * 10) for node in nodes)
    table = run("-f", file).out
    assert "NodeOverlay cheap-m5 prices" in table
    assert "for which AWS charges $" in table


def test_a_plan_tells_which_overlays_contradict_or_cannot_be_read(run: Run, tmp_path: Path) -> None:
    wrong = overlay("wrong", pirce="1", priceAdjustment="10%")
    file = written(tmp_path, "all.json", pool_manifest(), ONE, OTHER, wrong, pod("plain"))

    ran = run("-f", file, "-o", "json")

    assert ran.status == 0
    assert ran.plan["unplaced"] == []
    reported = " ".join(ran.err.split())
    assert "NodeOverlay/one: contradicts NodeOverlay other, which has the same weight" in reported
    assert "spec.priceAdjustment: is '10%'" in reported
    assert "did you mean 'price'?" in reported


def audited(*of: dict[str, Any], plan_of: tuple[dict[str, Any], ...]) -> set[Kind]:
    """Return the violations that an audit with the NodeOverlays `of` finds in a plan made with those of `plan_of`."""
    with_plan, with_audit = (
        read_manifests((), [builders_document(each) for each in (pool_manifest(), *PODS, *overlays)])
        for overlays in (plan_of, of)
    )
    inputs = plan_inputs(with_plan, builders.catalog())
    manifests = [document.manifest for document in with_audit.documents]
    found = audit(manifests, inputs.catalog, plan_json(decide(inputs)), settings=inputs.settings)
    return {violation.kind for violation in found if not violation.is_warning}


def builders_document(manifest: dict[str, Any]) -> Any:
    from nodesmith_formats.manifests.manifests import Document

    return Document(manifest, "test", 1)


def test_an_audit_reads_overlays_on_its_own() -> None:
    contradicting = overlay("also-m5", family("m5", "c5"), priceAdjustment="+5%", weight=2)
    mine = (CHEAP_M5, DEVICES, contradicting)
    assert audited(*mine, plan_of=mine) == set()
    assert Kind.PRICE in audited(DEVICES, plan_of=(CHEAP_M5, DEVICES))
    assert Kind.PRICE in audited(CHEAP_M5, DEVICES, overlay("b", price="3"), plan_of=(DEVICES,))
    assert audited(CHEAP_M5, plan_of=(CHEAP_M5, DEVICES))


def validated(folder: Path, *manifests: dict[str, Any]) -> list[dict[str, Any]]:
    ran = CliRunner().invoke(app, ["validate", "-f", written(folder, "v.json", *manifests), "-o", "json"])
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return [each for each in found if each["object"].startswith("NodeOverlay/")]


def test_validate_names_both_of_two_contradicting_overlays(tmp_path: Path) -> None:
    (found,) = validated(tmp_path, pool_manifest(), builders_class(), ONE, OTHER)
    assert (found["severity"], found["object"]) == ("error", "NodeOverlay/one")
    assert "contradicts NodeOverlay other" in found["message"]
    assert "the price of c5." in found["message"]


def test_validate_compares_overlays_without_a_nodepool_too(tmp_path: Path) -> None:
    (found,) = validated(tmp_path, ONE, OTHER, CHEAP_M5)
    assert (found["severity"], found["object"]) == ("error", "NodeOverlay/one")
    assert "contradicts NodeOverlay other" in found["message"]


def test_uninstalling_deletes_overlays_unless_another_controller_reads_them() -> None:
    survey = ClusterOwnership(crds={"nodeoverlays.karpenter.sh": ""}, nodeoverlays=(CHEAP_M5,))
    assert [str(target) for target in classes(survey)] == ["NodeOverlay/cheap-m5"]
    assert classes(replace(survey, karpenter=("holds the lease",))) == []
    _, kept = definitions(survey)
    assert [each.reason for each in kept] == ["has 1 object left"]


def test_validate_tells_fields_versions_and_overlays_that_match_nothing(tmp_path: Path) -> None:
    sound = overlay("sound", family("m5"), price="0.1")
    assert validated(tmp_path, pool_manifest(), builders_class(), sound) == []
    old = {**sound, "apiVersion": "karpenter.sh/v1"}
    reported = validated(tmp_path, pool_manifest(), builders_class(), old)
    assert any("karpenter.sh/v1alpha1" in each["message"] for each in reported)
    typo = overlay("typo", [expression(INSTANCE_FAMILY, "In", "m5.large")], price="0.1")
    (found,) = validated(tmp_path, pool_manifest(), builders_class(), typo)
    assert (found["severity"], found["message"]) == ("warning", "match no instance type of any NodePool here")
    (cpu,) = validated(tmp_path, overlay("cpu", capacity={"cpu": "4"}))
    assert cpu["field"].startswith("spec.capacity")
    assert "instance types decide this resource" in cpu["message"]


def builders_class() -> dict[str, Any]:
    return {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", **builders.nodeclass_manifest()}


def test_convert_leaves_an_overlay_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "o.yaml"
    file.write_text(yaml.safe_dump(CHEAP_M5))
    ran = CliRunner().invoke(app, ["convert", "-f", str(file)])
    assert ran.exit_code == 0, ran.output
    converted = yaml.safe_load(ran.stdout)
    assert (converted["apiVersion"], converted["spec"]) == (CHEAP_M5["apiVersion"], CHEAP_M5["spec"])


def test_explain_nodepool_shows_what_overlays_change_and_which_are_left_out() -> None:
    overlays = (CHEAP_M5, DEVICES, ONE, OTHER, overlay("wrong", price="cheap"))
    (pool,) = considered(builders.inputs(snapshot=builders.snapshot(nodeoverlays=overlays)))
    lines = [line.strip() for line in pool_lines(pool) if line.strip().startswith("overlay")]
    assert lines[0].startswith("overlay   cheap-m5 (weight 2): price -90% for ")
    assert ", which AWS sells at $" in lines[0]
    assert any(f"devices (weight 0): {FUSE} 2 for" in line for line in lines)
    assert any("one: left out, because it contradicts NodeOverlay other" in line for line in lines)
    assert any("wrong: left out: spec.price is 'cheap'" in line for line in lines)
    assert len(pool_item(pool)["overlays"]) == len(lines) == 5


def test_explain_decision_names_the_overlay_and_both_prices() -> None:
    from nodesmith.decisions.provisioning import decide

    snapshot = builders.snapshot(pods=builders.pods(builders.shape(), 1), nodeoverlays=(CHEAP_M5,))
    inputs = builders.inputs(snapshot=snapshot)
    written_down = record(inputs, decide(inputs), "ff" * 32, {})
    lines = [line.strip() for line in explain(written_down)]
    assert any(line.startswith("priced by NodeOverlay cheap-m5; AWS charges $") for line in lines)


@pytest.mark.parametrize(
    ("market", "strategy", "bought"),
    [
        ("on-demand", "lowest-price", "m5.large"),
        ("on-demand", "prioritized", "m5.4xlarge"),
        ("spot", "capacity-optimized-prioritized", "m5.4xlarge"),
    ],
)
def test_simulated_ec2_follows_priorities_only_if_the_strategy_does(
    market: str, strategy: str, bought: str
) -> None:
    with account() as here:
        ec2 = boto3.client("ec2", region_name=REGION)
        image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        ec2.create_launch_template(LaunchTemplateName="nodes", LaunchTemplateData={"ImageId": image})
        subnet = next(iter(here.network.subnets.values()))
        overrides = [
            {"InstanceType": kind, "SubnetId": subnet, "Priority": priority}
            for kind, priority in (("m5.large", 1.0), ("m5.4xlarge", 0.0))
        ]
        config = {
            "LaunchTemplateSpecification": {"LaunchTemplateName": "nodes", "Version": "1"},
            "Overrides": overrides,
        }
        options = {
            "OnDemandOptions" if market == "on-demand" else "SpotOptions": {"AllocationStrategy": strategy}
        }
        target = {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": market}
        answer = ec2.create_fleet(
            Type="instant", LaunchTemplateConfigs=[config], TargetCapacitySpecification=target, **options
        )
    assert answer["Instances"][0]["InstanceType"] == bought


def shown(world: World, name: str) -> tuple[str, str, str]:
    """Return status, reason and message of a NodeOverlay's ValidationSucceeded."""
    conditions = (world.cluster.nodeoverlays[name].get("status") or {}).get("conditions") or ()
    found = next(c for c in conditions if c["type"] == "ValidationSucceeded")
    return found["status"], found["reason"], found["message"]


def test_statuses_and_events_show_which_overlays_apply_and_writes_are_not_repeated() -> None:
    world = World({"web": pod_manifest("web")})
    world.concerns = MOVING
    for name, price in (("a", "1"), ("b", "2"), ("wrong", "cheap")):
        world.cluster.nodeoverlays[name] = overlay(name, price=price)
    world.settle()
    world.live(timedelta(minutes=2))

    assert shown(world, "b")[:2] == ("True", "ValidationSucceeded")
    assert shown(world, "a")[:2] == ("False", "Conflict")
    assert "contradicts NodeOverlay b" in shown(world, "a")[2]
    assert shown(world, "wrong")[:2] == ("False", "RuntimeValidation")
    assert {event.name for event in world.cluster.events if event.kind == "NodeOverlay"} == {"a", "wrong"}

    writes = len(world.cluster.calls)
    world.live(timedelta(minutes=3))
    assert [c for c in world.cluster.calls[writes:] if "NodeOverlay" in c.about] == []
    world.cluster.nodeoverlays.pop("b")
    world.live(timedelta(minutes=2))
    assert shown(world, "a")[0] == "True"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("overlays")
    file = Path(written(folder, "all.json", CHEAP_M5, DEVICES, ONE, OTHER, *PODS))
    return report_of(local_run(folder, file))


def test_the_local_system_buys_by_overlaid_prices_and_serves_extended_resources(
    outcome: dict[str, Any],
) -> None:
    assert outcome["pendingPods"] == []
    nodes = outcome["nodes"]
    assert {node["instanceType"].partition(".")[0] for node in nodes} == {"m5"}
    assert sum(len(node["pods"]) for node in nodes) == len(PODS)


def test_the_local_systems_bill_is_that_of_aws(outcome: dict[str, Any]) -> None:
    catalog = builders.catalog()
    for node in outcome["nodes"]:
        listed = {
            offering.price_hourly_usd
            for offering in catalog.offerings[node["instanceType"]]
            if (offering.zone, offering.capacity_type) == (node["zone"], node["capacityType"])
        }
        assert node["priceHourly"] in listed
