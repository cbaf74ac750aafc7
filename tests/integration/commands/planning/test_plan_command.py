"""`nodesmith plan` as users run it: files and clusters as input, a plan as output, and the exit status."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from nodesmith_cli.audit import Kind, Violation
from nodesmith_cli.main import app, main
from nodesmith_formats.localsystem import contexts
from nodesmith_local.apiserver import ApiServer as LocalApiServer
from tests.builders import expression, node_affinity, nodeclass_manifest, nodepool_manifest
from tests.objects.nodeclassfields import SPEC
from tests.processes.plancommand import Run, kwok, plan_command, written
from tests.scenarios.gangs import request_manifest, template_manifest
from tests.servers.served import CRDS, created, now

REPOSITORY = Path(__file__).parents[4]
EXPRESS = str(REPOSITORY / "examples" / "express-test")
POOL = f"{EXPRESS}/nodepool.yaml"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return plan_command(monkeypatch, capsys)


def pod(name: str, cpu: str = "1", **metadata: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": containers},
    }


def test_the_example_of_twenty_pods_is_planned_and_its_audit_finds_nothing(run: Run) -> None:
    ran = run("-f", EXPRESS, "--audit", "-o", "json")

    assert ran.status == 0, ran.err
    assert len(ran.pods) == 20
    assert ran.plan["unplaced"] == []
    assert "no violations found" in ran.err


def test_the_table_shows_price_nodes_and_unplaced_pods_with_fixes(run: Run, tmp_path: Path) -> None:
    file = written(tmp_path, "pods.json", pod("small"), pod("huge", "100000"))

    ran = run("-f", EXPRESS, file)

    assert ran.status == 0
    assert "pending: 22 pods" in ran.out
    assert "/hour" in ran.out
    assert "█" in ran.out
    assert "default/huge" in ran.out
    assert "→ " in ran.out


def test_json_and_yaml_have_the_same_content(run: Run) -> None:
    as_json, as_yaml = (
        run("-f", EXPRESS, "-o", "json").plan,
        yaml.safe_load(run("-f", EXPRESS, "-o", "yaml").out),
    )

    assert {**as_json, "seconds": 0} == {**as_yaml, "seconds": 0}


def test_standard_input_folders_and_compressed_files_are_read_together(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zipped = tmp_path / "zipped"
    zipped.mkdir()
    (zipped / "pods.json.gz").write_bytes(gzip.compress(json.dumps(pod("zipped")).encode()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(pod("piped")).encode())))

    ran = run("-f", POOL, "-f", "-", str(zipped), "-o", "json")

    assert ran.pods == ["default/piped", "default/zipped"]


def test_an_invalid_object_is_reported_and_the_others_are_planned(run: Run, tmp_path: Path) -> None:
    bad = pod("bad")
    bad["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1x"
    file = written(
        tmp_path,
        "pods.json",
        bad,
        pod("good"),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
    )

    ran = run("-f", file, "-f", POOL, "-o", "json")

    assert (ran.status, ran.pods) == (0, ["default/good"])
    assert f"{file}:1 (document 1, Pod/bad): " in ran.err
    assert "spec.containers[0].resources.requests.cpu" in ran.err
    assert "ignored: ConfigMap (1)" in ran.err


def test_an_invalid_nodepool_is_reported_once_and_the_others_launch_nodes(run: Run) -> None:
    ran = run("-f", str(REPOSITORY / "examples" / "mistakes.yaml"), "-o", "json")

    assert {node["nodePool"] for node in ran.plan["nodes"]} == {"healthy"}
    assert ran.err.count("Inn") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to read: use -f FILE"),
        (("-f", "missing.yaml"), "missing.yaml: No such file or directory"),
        (("-f", EXPRESS, "-f", "missing.yaml"), "missing.yaml: No such file or directory"),
        (("-f", EXPRESS, "-f", ""), "'': is no file name"),
        (("-f", f"{EXPRESS}/deployment.yaml"), "no NodePool"),
        (("-f", EXPRESS, "--pool", "defualt"), "did you mean 'default'?"),
        (("-f", EXPRESS, "--catalog", "missing.json"), "--catalog missing.json: No such file"),
        (("-f", EXPRESS, "--region", "us-east-7"), "us-east-7"),
        (("-f", EXPRESS, "--kubeconfig", "nowhere"), "--kubeconfig nowhere"),
        (("-f", EXPRESS, "-o", "xml"), "xml"),
    ],
)
def test_unusable_input_exits_with_status_2_and_the_reason(
    run: Run, arguments: Sequence[str], message: str
) -> None:
    ran = run(*arguments)

    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


def test_a_failed_audit_exits_with_status_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    warning = Violation(Kind.COULD_FIT, "default/a", "there is room on n1")
    wrong = Violation(Kind.PRICE, "default-abc", "costs more than it says")

    monkeypatch.setattr("nodesmith_cli.audit.audit", lambda *_, **__: [warning])
    assert run("-f", EXPRESS, "--audit").status == 0

    monkeypatch.setattr("nodesmith_cli.audit.audit", lambda *_, **__: [warning, wrong])
    ran = run("-f", EXPRESS, "--audit")
    assert ran.status == 1
    assert "price: default-abc: costs more than it says" in ran.err


def selecting(name: str, key: str, operator: str, *values: str) -> dict[str, Any]:
    found = pod(name, "100m")
    found["spec"]["affinity"] = node_affinity([expression(key, operator, *values)])
    return found


def test_a_catalogue_in_kwoks_format_defines_the_instance_types(run: Run, tmp_path: Path) -> None:
    catalog = tmp_path / "kwok.json.gz"
    catalog.write_bytes(gzip.compress(json.dumps([kwok("fake", 0.5, "2")]).encode()))
    file = written(
        tmp_path, "all.json", nodepool_manifest(requirements=[]), pod("a", "1900m"), pod("b", "1901m")
    )

    ran = run("-f", file, "--catalog", str(catalog), "-o", "json")

    (node,) = ran.plan["nodes"]
    assert (node["instanceType"], node["zone"], node["priceHourly"]) == ("fake", "test-zone-1", 0.5)
    assert node["pods"] == ["default/a"], "100m of a type's cpu are the node's own in this format"
    assert [entry["pod"] for entry in ran.plan["unplaced"]] == ["default/b"]


def test_pods_and_nodepools_may_require_the_labels_of_kwoks_types(run: Run, tmp_path: Path) -> None:
    own = "karpenter.kwok.sh/instance"
    catalog = tmp_path / "kwok.json"
    catalog.write_text(json.dumps([kwok("c-4x", 0.2), kwok("m-4x", 0.3), kwok("m-8x", 0.4, "8")]))
    asked = {
        "cpu": (f"{own}-cpu", "Gt", "5"),
        "family": (f"{own}-family", "In", "c"),
        "size": (f"{own}-size", "NotIn", "8"),
        "memory": (f"{own}-memory", "In", "16Gi"),
        "none": (f"{own}-cpu", "In", "16"),
        "aws": ("karpenter.k8s.aws/instance-family", "In", "c"),
    }
    pods = [selecting(name, *what) for name, what in asked.items()]

    def bought(*requirements: dict[str, Any]) -> dict[str, list[str]]:
        file = written(tmp_path, "all.json", nodepool_manifest(requirements=requirements), *pods)
        ran = run("-f", file, "--catalog", str(catalog), "-o", "json", "--audit")
        assert ran.status == 0, ran.err
        return {name: node["instanceTypes"] for node in ran.plan["nodes"] for name in node["pods"]}

    of_any = bought()
    assert of_any.keys() == {f"default/{name}" for name in asked} - {"default/none", "default/aws"}
    assert of_any["default/cpu"] == ["m-8x"]
    assert of_any["default/family"] == ["c-4x"]
    of_m = bought(expression(f"{own}-family", "In", "m"))
    assert of_m.keys() == {"default/cpu", "default/memory", "default/size"}
    assert {name for types in of_m.values() for name in types} <= {"m-4x", "m-8x"}


def test_types_added_for_min_values_are_in_the_nodes_own_zone(run: Run, tmp_path: Path) -> None:
    catalog = tmp_path / "kwok.json"
    catalog.write_text(json.dumps([kwok("small", 0.1, "2", "b", "c"), kwok("large", 0.9, "8", "a", "b")]))
    choice = expression("node.kubernetes.io/instance-type", "Exists", minValues=2)
    file = written(tmp_path, "all.json", nodepool_manifest(requirements=[choice]), pod("a"))

    ran = run("-f", file, "--catalog", str(catalog), "-o", "json", "--audit")

    (node,) = ran.plan["nodes"]
    assert (node["zone"], node["instanceTypes"]) == ("b", ["small", "large"])
    assert ran.status == 0


def reservation(name: str, instance_type: str, zone: str, **shown: Any) -> dict[str, Any]:
    """Return a capacity reservation as the status of an EC2NodeClass shows it."""
    return {
        "id": name,
        "instanceType": instance_type,
        "availabilityZone": zone,
        "instanceMatchCriteria": "open",
        "ownerID": "123456789012",
        **shown,
    }


def test_reserved_capacity_is_used_first_and_up_to_what_is_free(run: Run, tmp_path: Path) -> None:
    shown = [
        reservation("cr-1", "m5.2xlarge", "us-east-1a", availableInstanceCount=2),
        reservation("cr-2", "m5.4xlarge", "us-east-1b"),
        reservation("cr-3", "m5.4xlarge", "us-east-1b", availableInstanceCount=9, state="expiring"),
    ]
    nodeclass = {**nodeclass_manifest(), "status": {"capacityReservations": shown}}
    pool = nodepool_manifest(requirements=[expression("kubernetes.io/arch", "In", "amd64")])
    file = written(tmp_path, "all.json", nodeclass, pool, *(pod(f"p{i}", "6") for i in range(6)))

    ran = run("-f", file, "-o", "json", "--audit")

    assert ran.status == 0, ran.err
    id_ = "karpenter.k8s.aws/capacity-reservation-id"
    used = [
        (node["labels"][id_], node["instanceTypes"], node["zone"], node["priceHourly"])
        for node in ran.plan["nodes"]
        if node["capacityType"] == "reserved"
    ]
    assert sorted(used) == [
        ("cr-1", ["m5.2xlarge"], "us-east-1a", 0),
        ("cr-1", ["m5.2xlarge"], "us-east-1a", 0),
        ("cr-2", ["m5.4xlarge"], "us-east-1b", 0),
    ]
    assert len(ran.pods) == 6
    assert (
        "status.capacityReservations[1].availableInstanceCount: is missing: the number of free instances"
        in ran.err
    )


def test_types_that_no_image_of_the_nodeclass_supports_are_not_launched(run: Run, tmp_path: Path) -> None:
    arm = {"id": "ami-1", "requirements": [expression("kubernetes.io/arch", "In", "arm64")]}
    nodeclass = {**nodeclass_manifest(), "status": {"amis": [arm]}}
    file = written(tmp_path, "all.json", nodeclass, nodepool_manifest(requirements=[]), pod("a"))

    ran = run("-f", file, "-o", "json", "--audit")

    assert ran.status == 0, ran.err
    families = {name.partition(".")[0] for node in ran.plan["nodes"] for name in node["instanceTypes"]}
    assert families
    assert all("g" in family[1:] for family in families), (
        "Graviton's families have a g behind their generation"
    )


def test_the_output_of_the_catalog_command_is_accepted(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["nodesmith", "catalog", "c6a.*", "m6a.*", "-o", "json"])
    with pytest.raises(SystemExit):
        main()
    listing = tmp_path / "listing.json"
    listing.write_text(capsys.readouterr().out)

    plan = run("-f", EXPRESS, "--catalog", str(listing), "-o", "json").plan

    assert {name.partition(".")[0] for node in plan["nodes"] for name in node["instanceTypes"]} <= {
        "c6a",
        "m6a",
    }
    assert sum(len(node["pods"]) for node in plan["nodes"]) == 20


def test_the_region_is_that_of_the_zones_in_the_files(run: Run, tmp_path: Path) -> None:
    here = pod("a")
    here["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": "eu-central-1b"}

    (node,) = run("-f", POOL, written(tmp_path, "a.json", here), "-o", "json").plan["nodes"]

    assert node["zone"] == "eu-central-1b"


def test_the_settings_of_a_deployment_are_read_from_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}
    file = written(
        tmp_path, "all.json", nodepool_manifest(requirements=[only]), *(pod(f"p{i}", "1m") for i in range(60))
    )
    assert len(run("-f", file, "-o", "json").plan["nodes"]) == 3  # of 29 pods, as its interfaces carry

    monkeypatch.setenv("PREFIX_DELEGATION", "true")
    assert len(run("-f", file, "-o", "json", "--audit").plan["nodes"]) == 1

    monkeypatch.setenv("PREFIX_DELEGATION", "maybe")
    assert "PREFIX_DELEGATION='maybe'" in run("-f", file).err


ZONES = [f"us-east-1{letter}" for letter in "abc"]
ALONE = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}


def spread_pods(tmp_path: Path, **pool: Any) -> str:
    """Write six pods that spread over zones and hosts, and a NodePool."""
    of = pod("web")
    spread = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": ALONE["labelSelector"]}
    of["spec"]["topologySpreadConstraints"] = [{**spread, "topologyKey": "topology.kubernetes.io/zone"}]
    of["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ALONE]}}
    pods = [
        {**of, "metadata": {**of["metadata"], "name": f"web-{i}", "labels": {"app": "web"}}} for i in range(6)
    ]
    return written(tmp_path, "all.json", {**nodepool_manifest(), **pool}, *pods)


@pytest.mark.parametrize("zone", ["us-east-1a", "use1-az6"])
def test_a_shifted_zone_gets_no_nodes(run: Run, tmp_path: Path, zone: str) -> None:
    file = spread_pods(tmp_path)
    assert {node["zone"] for node in run("-f", file, "-o", "json").plan["nodes"]} == {*ZONES}
    ran = run("-f", file, "-o", "json", "--shifted-zone", zone, "--audit")
    assert ran.status == 0, ran.err
    assert {node["zone"] for node in ran.plan["nodes"]} == {"us-east-1b", "us-east-1c"}
    assert "zone us-east-1a (use1-az6) is shifted away from by an autoshift" in ran.err


def test_shifts_that_nodepools_show_hold_in_a_plan(run: Run, tmp_path: Path) -> None:
    message = "zone us-east-1b (use1-az1) is shifted away from by an autoshift until AWS ends it"
    condition = {"type": "ZoneShifted", "status": "True", "reason": "ZonalShift", "message": message}
    ran = run("-f", spread_pods(tmp_path, status={"conditions": [condition]}), "-o", "json")
    assert {node["zone"] for node in ran.plan["nodes"]} == {"us-east-1a", "us-east-1c"}
    assert message in ran.err


def test_an_unknown_zone_is_refused_with_the_likely_one(run: Run, tmp_path: Path) -> None:
    ran = run("-f", spread_pods(tmp_path), "--shifted-zone", "us-east-1z")
    assert ran.status == 2
    assert "--shifted-zone us-east-1z: the catalogue has no such zone, did you mean" in ran.err


def test_a_nodeclass_with_every_field_is_known_and_buys_nodes(run: Run, tmp_path: Path) -> None:
    nodeclass = {**nodeclass_manifest(), "spec": SPEC}
    file = written(tmp_path, "all.json", nodepool_manifest(), nodeclass, pod("web"))
    ran = run("-f", file, "-o", "json")
    assert len(ran.plan["nodes"]) == 1
    assert "EC2NodeClass" not in ran.err
    checked = CliRunner().invoke(app, ["validate", "-f", str(file)])
    assert (checked.exit_code, "EC2NodeClass" in checked.output) == (0, False)


def test_pods_of_an_ipv6_cluster_are_limited_by_the_kubelet_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}
    waiting = [pod(f"p{i}", "1m") for i in range(60)]
    file = written(tmp_path, "all.json", nodepool_manifest(requirements=[only]), *waiting)
    monkeypatch.setenv("CLUSTER_SERVICE_CIDR", "fd12::/108")
    assert len(run("-f", file, "-o", "json", "--audit").plan["nodes"]) == 1


def test_the_ip_family_is_that_of_the_nodes_in_the_manifests(run: Run, tmp_path: Path) -> None:
    only = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}
    waiting = [pod(f"p{i}", "1m") for i in range(60)]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "full"},
        "spec": {"unschedulable": True},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "2600:1f18::5"}],
            "capacity": {"cpu": "1", "memory": "1Gi", "pods": "1"},
        },
    }
    dns = nodeclass_manifest("other", kubelet={"clusterDNS": ["10.100.0.10"]})
    classes = nodeclass_manifest("default"), dns
    pools = nodepool_manifest(requirements=[only]), nodepool_manifest("other", nodeclass="other")
    file = written(tmp_path, "all.json", *classes, *pools, node, *waiting)
    ran = run("-f", file, "-o", "json")
    assert [each["nodePool"] for each in ran.plan["nodes"]] == ["default"]
    assert "an IPv4 address, but the cluster is IPv6" in ran.err


def test_policies_of_a_deployment_are_read_from_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = expression("node.kubernetes.io/instance-type", "In", "m5.large", "m5.xlarge", minValues=2)
    lonely = [pod(f"p{i}", "3") for i in range(2)]
    file = written(tmp_path, "all.json", nodepool_manifest(requirements=[choice]), *lonely)
    assert len(run("-f", file, "-o", "json").unplaced) == 2  # only one type holds 3 cpu

    monkeypatch.setenv("MIN_VALUES_POLICY", "BestEffort")
    assert run("-f", file, "-o", "json").pods == ["default/p0", "default/p1"]

    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod("any")["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template},
    }
    file = written(tmp_path, "all.json", nodepool_manifest(), deployment)
    monkeypatch.setenv("FRAGILITY_TOLERANCE", "0")
    assert len(run("-f", file, "-o", "json").plan["nodes"]) == 1

    constraint = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    monkeypatch.setenv("SCHEDULER_CONFIG", json.dumps({"defaultConstraints": [constraint]}))
    assert len(run("-f", file, "-o", "json").plan["nodes"]) == 3

    monkeypatch.setenv("PREFERENCE_POLICY", "Ignore")
    assert len(run("-f", file, "-o", "json").plan["nodes"]) == 1

    monkeypatch.setenv("PREFERENCE_POLICY", "ignore")
    assert "PREFERENCE_POLICY='ignore': must be Respect or Ignore" in run("-f", file).err


def test_only_the_named_nodepools_launch_nodes(run: Run, tmp_path: Path) -> None:
    file = written(
        tmp_path, "all.json", nodepool_manifest("one"), nodepool_manifest("two", weight=5), pod("a")
    )

    def bought(*pools: str) -> set[str]:
        return {node["nodePool"] for node in run("-f", file, *pools, "-o", "json").plan["nodes"]}

    assert bought() == {"two"}
    assert bought("--pool", "one") == {"one"}
    assert bought("--pool", "one", "--pool", "two") == {"two"}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Any:
    """A cluster with a NodePool and a pending pod, and its kubeconfig."""
    with LocalApiServer(crds=CRDS, now=now) as server:
        created(server.store, "nodepools", nodepool_manifest())
        created(server.store, "pods", pod("live", namespace="default"))
        yield kubeconfig_of(server.url, tmp_path)


def kubeconfig_of(url: str, folder: Path) -> Path:
    """Write a kubeconfig with the context `here`; return its path."""
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(contexts.kubeconfig_of("here", url, "anybody")))
    return path


def test_a_live_cluster_is_read_by_file_context_or_neither(
    run: Run, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--kubeconfig", str(kubeconfig), "-o", "json").pods == ["default/live"]

    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))  # which the client reads when it is imported
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    assert run("--kubeconfig", "here", "-o", "json").pods == ["default/live"]
    assert run("-o", "json", "--kubeconfig").pods == ["default/live"]
    assert run("--kubeconfig", "-o", "json").pods == ["default/live"]
    assert "did you mean 'here'?" in run("--kubeconfig", "herre").err


def test_files_can_be_combined_with_a_live_cluster(run: Run, kubeconfig: Path, tmp_path: Path) -> None:
    more = written(tmp_path, "more.json", pod("more"))

    assert run("--kubeconfig", str(kubeconfig), "-f", more, "-o", "json").pods == [
        "default/live",
        "default/more",
    ]


def test_an_unreachable_cluster_exits_with_status_2(run: Run, tmp_path: Path) -> None:
    away = tmp_path / "kubeconfig"
    away.write_text(yaml.safe_dump(contexts.kubeconfig_of("c", "http://127.0.0.1:1")))

    ran = run("--kubeconfig", str(away))

    assert (ran.status, ran.out) == (2, "")
    assert ran.err.count("\n") == 1


def test_no_pending_pods_is_not_an_error(run: Run) -> None:
    ran = run("-f", POOL)

    assert (ran.status, ran.out) == (0, "nothing to do: no pending pods\n")


def test_the_same_files_give_the_same_plan_whatever_the_hash_seed(tmp_path: Path) -> None:
    def plan(seed: str) -> dict[str, Any]:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        reported = subprocess.run(
            [sys.executable, "-m", "nodesmith_cli.main", "plan", "-f", EXPRESS, "-o", "json"],
            env=environment,
            capture_output=True,
            check=True,
            cwd=tmp_path,
        )
        found: dict[str, Any] = json.loads(reported.stdout)
        return {**found, "seconds": 0}

    assert plan("1") == plan("2")


def test_a_nodeclass_that_cannot_launch_nodes_is_not_used(run: Run, tmp_path: Path) -> None:
    toml = {"amiFamily": "Bottlerocket", "userData": "a = 1\na = 2\n"}
    broken = nodeclass_manifest("default", amiSelectorTerms=[{"id": "ami-1"}], **toml)
    file = written(tmp_path, "all.json", nodepool_manifest(), broken, pod("web"))

    ran = run("-f", file, "-o", "json")

    assert "cannot launch nodes" in ran.err
    assert ran.plan["nodes"] == []
    assert "EC2NodeClass 'default' is not ready" in ran.unplaced["default/web"]["reason"]


@pytest.mark.parametrize(
    ("alias", "selector"),
    [
        ("al2@latest", {}),
        ("bottlerocket@v1.50.0", {}),
        ("windows2022@latest", {"kubernetes.io/os": "windows"}),
        ("windows2025@latest", {"node.kubernetes.io/windows-build": "10.0.26100"}),
    ],
)
def test_nodes_of_every_image_family_are_planned(
    alias: str, selector: dict[str, str], run: Run, tmp_path: Path
) -> None:
    of_family = nodeclass_manifest("default", amiSelectorTerms=[{"alias": alias}])
    asking = pod("web")
    asking["spec"]["nodeSelector"] = selector
    file = written(tmp_path, "all.json", nodepool_manifest(), of_family, asking)

    ran = run("-f", file, "-o", "json", "--audit")

    assert len(ran.plan["nodes"]) == 1, ran.err
    assert "no violations found" in ran.err


def test_a_nodeclass_that_is_not_ready_by_its_status_is_not_used(run: Run, tmp_path: Path) -> None:
    denied = nodeclass_manifest()
    denied["status"] = {"conditions": [{"type": "Ready", "status": "False", "message": "not approved"}]}
    file = written(tmp_path, "all.json", nodepool_manifest(), denied, pod("web"))

    ran = run("-f", file, "-o", "json")

    assert ran.plan["nodes"] == []
    assert "not approved" in ran.unplaced["default/web"]["reason"]


def static(replicas: int, **labels: str) -> dict[str, Any]:
    pool = nodepool_manifest("fixed")
    pool["spec"]["replicas"] = replicas
    pool["spec"]["template"].setdefault("metadata", {})["labels"] = labels
    return pool


def test_the_nodes_of_a_static_nodepool_are_planned_and_take_the_pods_that_fit(
    run: Run, tmp_path: Path
) -> None:
    needy = pod("needy", "500m")
    needy["spec"]["nodeSelector"] = {"team": "web"}
    file = written(tmp_path, "all.json", static(2, team="web"), nodeclass_manifest(), needy)

    ran = run("-f", file, "-o", "json", "--audit")

    assert ran.status == 0, ran.err
    assert [node["nodePool"] for node in ran.plan["nodes"]] == ["fixed", "fixed"]
    assert ran.pods == ["default/needy"]
    assert ran.plan["unplaced"] == []
    assert ran.plan["priceHourly"] == pytest.approx(sum(n["priceHourly"] for n in ran.plan["nodes"]))
    assert ran.plan["lowerBoundHourly"] <= ran.plan["priceHourly"] + 1e-9
    assert "buys nothing" not in ran.err


def test_existing_nodes_of_a_static_nodepool_are_not_planned_again(run: Run, tmp_path: Path) -> None:
    labels = {"karpenter.sh/nodepool": "fixed", "kubernetes.io/hostname": "there"}
    there = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "there", "labels": labels},
        "spec": {"providerID": "aws:///us-east-1a/i-1"},
        "status": {"capacity": {"cpu": "2", "memory": "4Gi", "pods": "10"}},
    }
    file = written(tmp_path, "all.json", static(2), nodeclass_manifest(), there)

    assert len(run("-f", file, "-o", "json").plan["nodes"]) == 1


def test_a_static_nodepool_without_pods_is_planned_in_a_table_too(run: Run, tmp_path: Path) -> None:
    file = written(tmp_path, "all.json", static(3), nodeclass_manifest())

    ran = run("-f", file)

    assert ran.status == 0
    assert "3 nodes to launch" in ran.out


def test_a_preferred_zone_of_another_region_does_not_choose_the_region(run: Run, tmp_path: Path) -> None:
    term = {
        "weight": 1,
        "preference": {"matchExpressions": [expression("topology.kubernetes.io/zone", "In", "eu-west-1a")]},
    }
    moved = pod("moved")
    moved["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    stays = pod("stays")
    stays["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": "us-east-1b"}
    file = written(tmp_path, "all.json", nodepool_manifest(), nodeclass_manifest(), moved, stays)

    ran = run("-f", file, "-o", "json")

    assert ran.status == 0, ran.err
    assert ran.pods == ["default/moved", "default/stays"]


def test_no_fix_suggests_a_hostname_label_for_new_nodes(run: Run, tmp_path: Path) -> None:
    tied = pod("tied")
    tied["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
    file = written(tmp_path, "all.json", nodepool_manifest(), nodeclass_manifest(), tied)

    reported = run("-f", file, "-o", "json").unplaced["default/tied"]

    assert reported["fix"].startswith("remove kubernetes.io/hostname from the pods")
    assert "the label" not in reported["fix"]


@pytest.mark.parametrize("asks", ["pool", "pod"])
def test_an_image_of_another_architecture_is_reported(run: Run, tmp_path: Path, asks: str) -> None:
    arm = expression("kubernetes.io/arch", "In", "arm64")
    pool = nodepool_manifest(requirements=(arm,) if asks == "pool" else ())
    image = {"id": "ami-0123", "requirements": [expression("kubernetes.io/arch", "In", "amd64")]}
    nodeclass = nodeclass_manifest()
    nodeclass["status"] = {"amis": [image]}
    web = pod("web")
    if asks == "pod":
        web["spec"]["nodeSelector"] = {"kubernetes.io/arch": "arm64"}
    file = written(tmp_path, "all.json", pool, nodeclass, web)

    reported = run("-f", file, "-o", "json").unplaced["default/web"]

    assert "ami-0123 boots kubernetes.io/arch In [amd64] only" in reported["reason"]
    assert reported["fix"] == "let its EC2NodeClass select images of an architecture that it may buy"


def test_provisioning_requests_get_nodes_for_all_pods_or_none_and_say_so(run: Run, tmp_path: Path) -> None:
    pool = nodepool_manifest(limits={"cpu": "64"})
    templates = [template_manifest(f"{name}-0", cpu) for name, cpu in (("fits", "3"), ("large", "30"))]
    requests = [request_manifest("fits", 4), request_manifest("large", 4), request_manifest("lacking", 1)]
    file = written(tmp_path, "all.yaml", pool, *templates, *requests, pod("web"))
    ran = run("-f", file, "--audit", "-o", "json")
    assert ran.status == 0, ran.err
    assert any(not node["pods"] for node in ran.plan["nodes"]), "the request that fits"
    assert "ProvisioningRequest default/fits gets room on 0 existing nodes and" in ran.err
    assert "ProvisioningRequest default/large gets no room: " in ran.err
    assert "PodTemplate default/lacking-0 does not exist" in ran.err


def test_nodes_for_gangs_are_not_among_those_for_single_pods(run: Run, tmp_path: Path) -> None:
    """The lower bound is that of pods. A gang's price beside it looked like a plan far above the cheapest possible."""
    objects = (nodepool_manifest(), template_manifest("gang-0", "3"), request_manifest("gang", 4), pod("web"))
    file = written(tmp_path, "all.yaml", *objects)

    shown = run("-f", file).out.splitlines()
    nodes = run("-f", file, "-o", "json").plan["nodes"]
    page = run("-f", file, "-o", "html").out

    assert shown[0] == "pending: 1 pod"
    assert "1 on 1 node to launch at " in shown[1]
    assert "the cheapest possible: no nodes for these pods cost less" in shown[1]
    gang = [node for node in nodes if node.get("forGang")]
    price = sum(node["priceHourly"] for node in gang)
    assert shown[2].split() == f"0 on {len(gang)} nodes to launch for gangs at ~${price:.4f}/hour".split()
    assert [node["pods"] for node in nodes if node not in gang] == [["default/web"]]
    assert "the plan is the cheapest possible" in page
    assert f"{len(nodes)} nodes to launch for 1 pod, {len(gang)} nodes of them for gangs" in page


def test_pods_of_a_group_without_room_are_told_why(run: Run, tmp_path: Path) -> None:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {"minMember": 3},
    }
    pods = [pod(name, cpu="150", labels={"scheduling.x-k8s.io/pod-group": "job"}) for name in "abc"]
    file = written(tmp_path, "all.yaml", nodepool_manifest(limits={"nodes": "1"}), group, *pods)

    ran = run("-f", file, "-o", "json")

    reported = {entry["reason"] for entry in ran.plan["unplaced"]}
    assert len(reported) == 1
    expected = "gets room for 3 of its pods at once, or for none: 1 of 3 pods find no place once the others"
    assert expected in reported.pop()


def test_a_live_clusters_buffers_are_planned_with_the_workloads_that_they_name(
    run: Run, tmp_path: Path
) -> None:
    crd = yaml.safe_load((REPOSITORY / "overlays" / "capacity-buffers" / "crd.yaml").read_text())
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x")["spec"]}
    selector = {"matchLabels": {"app": "web"}}
    about = {"name": "web", "namespace": "default"}
    named = {"replicas": 0, "selector": selector, "template": template}
    spec = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "replicas": 3}
    with LocalApiServer(crds=CRDS, now=now) as server:
        created(server.store, "nodepools", nodepool_manifest())
        created(server.store, "ec2nodeclasses", nodeclass_manifest())
        created(server.store, "deployments", {"metadata": about, "spec": named})
        server.store.create("customresourcedefinitions", crd)
        created(server.store, "capacitybuffers", {"metadata": {**about, "name": "room"}, "spec": spec})
        path = kubeconfig_of(server.url, tmp_path)
        ran = run("--kubeconfig", str(path), "--audit", "-o", "json")
    assert ran.status == 0, ran.err
    assert [room["bought"] for room in ran.plan["capacityBuffers"]["rooms"]] == [3]


def test_nodes_are_planned_for_the_pods_of_a_namespace_or_a_selector_alone(run: Run, tmp_path: Path) -> None:
    pods = (
        pod("a", namespace="shop", labels={"app": "web"}),
        pod("b", namespace="shop", labels={"app": "db"}),
        pod("c", namespace="mail", labels={"app": "web"}),
    )
    odd = written(tmp_path, "odd.json", {**pod("odd"), "metadata": {"name": "odd", "labels": ["web"]}})
    file = written(tmp_path, "pods.json", *pods)

    def planned(*options: str) -> list[str]:
        return sorted(run("-f", POOL, file, "-o", "json", *options).pods)

    assert planned("-n", "shop") == ["shop/a", "shop/b"]
    assert planned("-l", "app=web") == ["mail/c", "shop/a"]
    assert planned("-n", "shop", "-l", "app=web") == ["shop/a"]
    assert planned("-A") == ["mail/c", "shop/a", "shop/b"]
    assert run("-f", POOL, odd, "-l", "app=web", "-o", "name").out == ""
    assert "1 object not selected" in run("-f", POOL, file, "-n", "shop").err


def test_names_and_templates_print_nothing_else(run: Run) -> None:
    names = [f"nodeclaim/{node['name']}" for node in run("-f", EXPRESS, "-o", "json").plan["nodes"]]

    assert run("-f", EXPRESS, "-o", "name").out.split() == names
    types = run("-f", EXPRESS, "-o", "jsonpath={.nodes[*].instanceType}").out.split()
    assert len(types) == len(names)


def test_the_report_has_the_alternatives_and_what_a_constraint_costs(run: Run) -> None:
    out = run("-f", POOL, str(REPOSITORY / "examples" / "hard-zone-spread.yaml"), "-o", "html").out

    assert out.startswith("<!doctype html>")
    for title in ("From pods to nodes", "Alternatives with their price", "What each constraint costs"):
        assert f"<h2>{title}</h2>" in out
    assert "zone spread" in out
    assert "Arm processors only" in out


def test_the_report_of_moves_says_if_there_are_none(run: Run) -> None:
    out = run("-f", EXPRESS, "--consolidate", "-o", "html").out

    assert "<h1>Which nodes would be replaced</h1>" in out
    assert "No set of nodes can be consolidated" in out
