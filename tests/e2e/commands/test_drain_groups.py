"""From a node group to nodesmith's nodes and back, on the real control plane, with the commands of docs/migrate.md.

The group is one of moto's EKS with an Auto Scaling group, and its kubelets are a thread that registers a node for each
instance. Scheduling, evictions and PodDisruptionBudgets are Kubernetes' own, the purchases nodesmith's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.eks import eks_backends

from nodesmith_cli.migration.draining.objects import instance_of
from tests.aws.drainable import ENABLED, strict_groups
from tests.e2e.commands.pages import commands, text, typed_from
from tests.e2e.conftest import Start
from tests.e2e.incluster.site import kwok_node
from tests.e2e.systems.region import REGION
from tests.e2e.systems.system import CLUSTER, HURRIED, System
from tests.objects.manifests import budget, deployment

# tests/integration/connecting/test_drain_groups.py covers the steps, with crashes.
pytestmark = pytest.mark.slow

GROUP, SCALING, TYPE = "general", "eks-general", "c6a.large"


def test_a_node_group_is_drained_and_restored_by_the_commands(
    start: Start, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    system = start(speed=HURRIED)
    with strict_groups(lambda settled: settled()):
        make_group(system)
        with kubelets(system):
            system.apply(deployment("web", 4, cpu="700m"), budget("web", maxUnavailable=1), autoscaler())
            system.until_running(4)
            command, typed = commands(system, monkeypatch, folder), typed_from("migrate.md")
            monkeypatch.chdir(folder)

            text(typed("nodesmith", "migrate", "web", "--kubeconfig", "--write", "pools/"))
            text(typed("nodesmith", "validate", "-f", "pools/"))
            system.kubectl(*typed("kubectl", "apply", "-f", "pools/"))
            system.until_nodepools_ready()
            dry = typed("nodesmith", "migrate", "web", "--group", GROUP, "--drain", "--dry-run")
            (hindered,) = command(*dry, expected=1)["groups"]
            assert "Cluster Autoscaler (kube-system/cluster-autoscaler) scales it" in hindered["messages"][0]
            system.kubectl(
                *typed(*"kubectl scale deployment cluster-autoscaler --replicas 0 -n kube-system".split())
            )
            (planned,) = command(*dry)["groups"]
            assert (planned["state"], len(planned["pods"]), planned["messages"]) == ("untouched", 4, [])
            assert planned["plannedNodes"] >= 1

            drain = typed("nodesmith", "migrate", "web", "--group", GROUP, "--drain")
            (drained,) = command(*drain, "--yes")["groups"]
            assert (drained["state"], drained["size"]["desired"]) == ("drained", 0)
            assert drained["before"] == {"min": 1, "desired": 2, "max": 4}
            system.until_running(4)
            ours = {node["metadata"]["name"] for node in system.nodes()}
            assert {pod["spec"]["nodeName"] for pod in system.pods("web")} <= ours
            assert members(system) == []
            (shown,) = (
                each
                for each in command(*typed("nodesmith", "migrate", "web", "--status"))["groups"]
                if each["group"] == GROUP
            )
            assert shown["state"] == "drained"

            undo = typed("nodesmith", "migrate", "web", "--group", GROUP, "--undo")
            (restored,) = command(*undo, "--yes")["groups"]
            assert (restored["state"], len(restored["nodes"])) == ("restored", 2)
            assert restored["size"] == {"min": 1, "desired": 2, "max": 4}

            system.kubectl("delete", "nodepool", GROUP, "--wait=false")
            system.until("the pods have moved back", lambda: back(system), 240)


def back(system: System) -> bool:
    """Return whether all pods run on nodes of the group."""
    theirs = {node["metadata"]["name"] for node in group_nodes(system)}
    pods = [pod for pod in system.pods("web") if not pod["metadata"].get("deletionTimestamp")]
    return len(pods) == 4 and all(pod["spec"].get("nodeName") in theirs for pod in pods)


def make_group(system: System) -> None:
    """Create a managed node group of two instances."""
    network, arn = system.aws.network, f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/{system.aws.role}"
    ec2, subnets = system.aws.client("ec2"), [*network.subnets.values()]
    image = ec2.describe_images(Owners=["self", "amazon"])["Images"][0]["ImageId"]
    data = {"ImageId": image, "InstanceType": TYPE}
    ec2.create_launch_template(LaunchTemplateName="group", LaunchTemplateData=data)
    tags = {f"kubernetes.io/cluster/{CLUSTER}": "owned", "eks:nodegroup-name": GROUP, **ENABLED}
    system.aws.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=SCALING,
        LaunchTemplate={"LaunchTemplateName": "group", "Version": "1"},
        MinSize=1,
        MaxSize=4,
        DesiredCapacity=2,
        VPCZoneIdentifier=",".join(subnets),
        Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": False} for key, value in tags.items()],
    )
    system.aws.client("eks").create_nodegroup(
        clusterName=CLUSTER,
        nodegroupName=GROUP,
        nodeRole=arn,
        subnets=subnets,
        amiType="AL2023_x86_64_STANDARD",
        instanceTypes=[TYPE],
        scalingConfig={"minSize": 1, "desiredSize": 2, "maxSize": 4},
    )
    cluster = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[CLUSTER]
    cluster.nodegroups[GROUP].resources = {"autoScalingGroups": [{"name": SCALING}]}
    cluster.resources_vpc_config["clusterSecurityGroupId"] = network.security_group_id


def members(system: System) -> list[dict[str, Any]]:
    """Return the instances of the group."""
    asked = system.aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[SCALING])
    found: list[dict[str, Any]] = asked["AutoScalingGroups"][0]["Instances"]
    return found


def group_nodes(system: System) -> list[Any]:
    """Return the nodes of the group."""
    nodes = system.cluster.objects.list("nodes")
    return [n for n in nodes if n["metadata"]["labels"].get("eks.amazonaws.com/nodegroup") == GROUP]


@contextmanager
def kubelets(system: System) -> Iterator[None]:
    """Register a node for each instance of the group, and delete the nodes of instances that are gone."""
    over, objects = threading.Event(), system.cluster.objects

    def follow() -> None:
        while not over.wait(0.5):
            there = {instance_of(node): node["metadata"]["name"] for node in group_nodes(system)}
            alive = {each["InstanceId"]: each["AvailabilityZone"] for each in members(system)}
            for instance in sorted(set(alive) - set(there)):
                objects.create("nodes", _node(instance, alive[instance]))
            for instance in sorted(set(there) - set(alive)):
                objects.delete("nodes", there[instance])

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5)


def _node(instance: str, zone: str) -> dict[str, Any]:
    node: dict[str, Any] = kwok_node(f"group-{instance[2:10]}", cpu="2", memory="4Gi", pods="29")
    node["metadata"]["labels"] |= {
        "eks.amazonaws.com/nodegroup": GROUP,
        "node.kubernetes.io/instance-type": TYPE,
        "topology.kubernetes.io/region": REGION,
        "topology.kubernetes.io/zone": zone,
    }
    node["spec"] = {"providerID": f"aws:///{zone}/{instance}"}
    return node


def autoscaler() -> dict[str, Any]:
    """Return the Deployment of Cluster Autoscaler. No node of this cluster takes its pod."""
    labels = {"app.kubernetes.io/name": "aws-cluster-autoscaler"}
    discovery = f"--node-group-auto-discovery=asg:tag={next(iter(ENABLED))}"
    container = {"name": "main", "image": "ca", "args": [discovery]}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "nodeSelector": {"role": "system"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system", "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
