"""`nodesmith migrate` as users run it: groups in moto's EKS, EC2 and Auto Scaling, and a cluster with their nodes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodesmith_cli.migration.nodegroups.command import MigrateRequest, run
from nodesmith_local.aws.account import Network, make_network
from tests.aws.account import REGION, ZONES, client, strict_aws
from tests.aws.nodegroups import CLUSTER, NODE_CONFIG, Clients, managed, thirty
from tests.objects.savingsclusters import node, pod
from tests.processes.plancommand import Run, command
from tests.servers.recordingserver import RecordingServer

Json = dict[str, Any]
ROLE = "arn:aws:iam::123456789012:role/NodeRole"


@pytest.fixture
def network() -> Iterator[Network]:
    """Yield the network of a cluster with a managed group, one with a launch template, and an Auto Scaling group."""
    with strict_aws():
        made = make_network(client("ec2"), CLUSTER, ZONES)
        subnets = list(made.subnets.values())
        client("eks").create_cluster(
            name=CLUSTER, version="1.34", roleArn=ROLE, resourcesVpcConfig={"subnetIds": subnets}
        )
        data = {
            "ImageId": "ami-0123456789abcdef0",
            "UserData": base64.b64encode(NODE_CONFIG.encode()).decode(),
            "InstanceType": "m7g.large",
            "IamInstanceProfile": {"Name": "nodes"},
            "SecurityGroupIds": [made.security_group_id],
        }
        template = client("ec2").create_launch_template(LaunchTemplateName="own", LaunchTemplateData=data)
        id_ = template["LaunchTemplate"]["LaunchTemplateId"]
        given = {"clusterName": CLUSTER, "subnets": subnets, "nodeRole": ROLE}
        client("eks").create_nodegroup(
            nodegroupName="plain", instanceTypes=["m5.large"], diskSize=30, **given
        )
        client("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName="own",
            LaunchTemplate={"LaunchTemplateId": id_, "Version": "$Latest"},
            MinSize=0,
            MaxSize=3,
            VPCZoneIdentifier=",".join(subnets),
            Tags=[
                {"Key": f"k8s.io/cluster-autoscaler/{CLUSTER}", "Value": "owned", "PropagateAtLaunch": True}
            ],
        )
        client("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName="other",
            LaunchTemplate={"LaunchTemplateId": id_, "Version": "1"},
            MinSize=0,
            MaxSize=3,
            VPCZoneIdentifier=",".join(subnets),
        )
        yield made


@pytest.fixture
def migrate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return `nodesmith migrate` as a function of its arguments, with made-up credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    return command(monkeypatch, capsys, "migrate", "--region", REGION)


def test_groups_of_an_account_become_manifests_on_standard_output(network: Network, migrate: Run) -> None:
    ran = migrate(CLUSTER)
    found = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in yaml.safe_load_all(ran.out)}
    assert set(found) == {(kind, name) for kind in ("NodePool", "EC2NodeClass") for name in ("plain", "own")}
    own = found["EC2NodeClass", "own"]
    assert sorted(term["id"] for term in own["subnetSelectorTerms"]) == sorted(network.subnets.values())
    assert own["amiFamily"] == "AL2023"
    assert own["kubelet"] == {"maxPods": 42}
    group = {"tags": {"aws:eks:cluster-name": CLUSTER}}  # moto does not name the cluster's security group
    assert found["EC2NodeClass", "plain"]["securityGroupSelectorTerms"] == [group]
    assert found["NodePool", "own"]["limits"] == {"nodes": "3"}
    assert "launchTemplate.ImageId" in ran.err
    assert ran.status == 0


@pytest.mark.usefixtures("network")
def test_files_are_written_and_the_report_names_every_field(migrate: Run, tmp_path: Path) -> None:
    ran = migrate(CLUSTER, "--write", str(tmp_path / "pools"), "-o", "json", "--group", "plain")
    assert [file.name for file in (tmp_path / "pools").iterdir()] == ["plain.yaml"]
    (pool,) = json.loads(ran.out)["nodePools"]
    fields = {each["field"]: each["outcome"] for each in pool["groups"][0]["fields"]}
    assert fields["nodegroup.diskSize"] == "kept"
    assert migrate(CLUSTER, "--write", str(tmp_path / "all.yaml"), "-o", "table").status == 0
    assert len(list(yaml.safe_load_all((tmp_path / "all.yaml").read_text()))) == 4


@pytest.mark.usefixtures("network")
def test_an_unknown_cluster_or_group_is_refused_with_a_suggestion(migrate: Run) -> None:
    ran = migrate("wep")
    assert (ran.status, "there is no cluster 'wep'" in ran.err, "clusters: web" in ran.err) == (2, True, True)
    ran = migrate(CLUSTER, "--group", "plan")
    assert (ran.status, "did you mean 'plain'" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--drain", "--undo"), "--drain, --undo and --status are mutually exclusive"),
        (("--drain",), "--drain needs the groups: --group NAME, which may be repeated"),
        (("--undo",), "--undo needs the groups"),
        (("--yes",), "--yes and --dry-run need --drain or --undo"),
        (("--drain", "--group", "plain", "--write", "x"), "--write and --one-per-group convert groups"),
        (("--drain", "--group", "plain", "--timeout", "soon"), "--timeout 'soon': expected a duration"),
        (
            ("--drain", "--group", "plain", "--max-unavailable", "all"),
            "--max-unavailable 'all': expected a number",
        ),
        (("--status", "--kubeconfig", "nowhere"), "--kubeconfig nowhere"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    migrate: Run, options: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    ran = migrate(CLUSTER, *options)
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert said in ran.err


def live(tmp_path: Path, *more: Json) -> tuple[RecordingServer, str]:
    """Return a cluster of two nodes of the group `general` with four pods, a daemon and a node of no group."""
    found = [
        node("n-1"),
        node("n-2", zone="us-east-1b"),
        node("mine", labels={"eks.amazonaws.com/nodegroup": ""}),
    ]
    found += [pod(f"p-{n}", f"n-{1 + n % 2}") for n in range(4)]
    found += [pod("daemon", "n-1", "daemon", owner="DaemonSet"), pod("elsewhere", "mine", "else")]
    server = RecordingServer([*found, *more])
    return server, server.kubeconfig(tmp_path)


def report(kubeconfig: str, capsys: pytest.CaptureFixture[str], *groups: Json) -> tuple[int, Json]:
    wanted = MigrateRequest(CLUSTER, kubeconfig=kubeconfig)
    status = run(wanted, Clients(list(groups)), REGION, "json")
    found: Json = json.loads(capsys.readouterr().out)
    return status, found


def test_pods_of_a_live_cluster_find_a_place_on_the_new_nodepools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, kubeconfig = live(tmp_path)
    with server:
        status, found = report(kubeconfig, capsys, managed("general", instanceTypes=["m5.xlarge"]))
    assert (found["pods"]["nodes"], found["pods"]["pods"], found["pods"]["unplaced"]) == (2, 4, [])
    assert found["pods"]["planned"] >= 1
    assert status == 0
    assert server.writes == []


def test_pods_that_fit_no_new_nodepool_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = pod("big", "n-1", "big", "3", "4Gi")
    picky = pod("picky", "n-2", "picky", nodeSelector={"example.com/by-hand": "yes"})
    server, kubeconfig = live(tmp_path, big, picky)
    with server:
        status, found = report(kubeconfig, capsys, managed("general", instanceTypes=["m5.large"]))
    assert [each["pod"] for each in found["pods"]["unplaced"]] == ["default/big", "default/picky"]
    assert {each["group"] for each in found["pods"]["unplaced"]} == {"general"}
    assert all(each["reason"] for each in found["pods"]["unplaced"])
    assert status == 1


def test_the_limit_of_nodes_counts_for_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"minSize": 0, "maxSize": 1, "desiredSize": 1}
    more = [pod(f"wide-{n}", "n-1", "wide", "1500m") for n in range(2)]
    server, kubeconfig = live(tmp_path, *more)
    with server:
        _, found = report(kubeconfig, capsys, managed("general", scalingConfig=sizes))
    assert found["pods"]["planned"] == 1
    assert found["pods"]["unplaced"]


def test_pods_that_select_the_group_by_its_label_keep_a_nodepool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bound = pod("bound", "n-1", "bound", nodeSelector={"eks.amazonaws.com/nodegroup": "general"})
    server, kubeconfig = live(tmp_path, bound)
    with server:
        status, found = report(kubeconfig, capsys, managed("general", instanceTypes=["m5.xlarge"]))
    assert (status, found["pods"]["unplaced"]) == (0, [])
    (pool,) = (each for each in found["manifests"] if each["kind"] == "NodePool")
    keys = [each["key"] for each in pool["spec"]["template"]["spec"]["requirements"]]
    assert "eks.amazonaws.com/nodegroup" in keys


def test_joined_groups_still_serve_pods_that_select_one_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label = "eks.amazonaws.com/nodegroup"
    server = RecordingServer(
        [
            *(node(f"n-{name}", labels={label: f"pool-{name}"}) for name in "ab"),
            *(pod(f"p-{name}", f"n-{name}", name, nodeSelector={label: f"pool-{name}"}) for name in "ab"),
        ]
    )
    with server:
        groups = [managed(f"pool-{name}", instanceTypes=["m5.xlarge"]) for name in "ab"]
        status, found = report(server.kubeconfig(tmp_path), capsys, *groups)
    assert [each["name"] for each in found["nodePools"]] == ["pool"]
    assert (status, found["pods"]["planned"], found["pods"]["unplaced"]) == (0, 2, [])


def test_pods_on_a_capacity_block_find_a_place_in_its_reservation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = (each for each in thirty() if each.get("nodegroupName") == "block")
    taken = {"eks.amazonaws.com/nodegroup": "block"}
    server = RecordingServer([node("g-1", "p5.48xlarge", labels=taken), pod("train", "g-1", "train", "100")])
    with server:
        status, found = report(server.kubeconfig(tmp_path), capsys, block)
    assert (status, found["pods"]["planned"], found["pods"]["unplaced"]) == (0, 1, [])


def test_a_cluster_without_any_node_of_the_groups_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, kubeconfig = live(tmp_path)
    with server:
        status, found = report(kubeconfig, capsys, managed("elsewhere"))
    assert (status, found["pods"]["nodes"]) == (1, 0)
    assert "is it web?" in found["problems"][0]


def test_a_cluster_that_cannot_be_read_is_reported_and_the_groups_are_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = RecordingServer([], forbidden=["Pod"])
    with server:
        status, found = report(server.kubeconfig(tmp_path), capsys, managed("general"))
    assert (status, found["pods"]) == (1, None)
    assert "pods were not planned" in found["problems"][0]
    assert [each["name"] for each in found["nodePools"]] == ["general"]
