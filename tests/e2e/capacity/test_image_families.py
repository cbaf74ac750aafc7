"""NodePools of other image families than Amazon Linux 2023, on a real control plane.

The tests share a cluster. Each machine reads the user data that its launch template contains, as its family does.
"""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import NODEPOOL, OS, WINDOWS_BUILD
from nodesmith.model.apimachinery.quantities import parse_resources
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement, taint

pytestmark = pytest.mark.slow  # tests/integration/local/test_examples.py runs both families

AMD64 = requirement("kubernetes.io/arch", "amd64")
SETTINGS = """[settings.motd]
text = "one of ours"

[settings.kubernetes.node-labels]
"example.com/rack" = "7"
"""
GIB = 2**30


def nodes_of(system: System, pool: str) -> list[Any]:
    return [node for node in system.nodes() if node["metadata"]["labels"].get(NODEPOOL) == pool]


def systems_of(system: System, app: str) -> set[str]:
    """Return the operating systems of the nodes that an app's pods run on."""
    return set(system.labels_of_nodes(app, OS))


def volumes_of(system: System, node: str) -> dict[str, int]:
    """Return the sizes of the volumes of a node's instance, in GiB, by device."""
    instance = next(each for each in system.instances() if each["PrivateDnsName"] == node)
    devices = {each["Ebs"]["VolumeId"]: each["DeviceName"] for each in instance["BlockDeviceMappings"]}
    volumes = system.aws.client("ec2").describe_volumes(VolumeIds=sorted(devices))["Volumes"]
    return {devices[volume["VolumeId"]]: volume["Size"] for volume in volumes}


def test_bottlerocket_nodes_join_with_the_users_settings_and_both_volumes(shared: System) -> None:
    system = shared
    rocket = nodeclass(
        CLUSTER, "rocket", amiSelectorTerms=[{"alias": "bottlerocket@latest"}], userData=SETTINGS
    )
    pool = nodepool("rocket", nodeclass="rocket", labels={"team": "rocket"}, taints=[taint("rocket", "yes")])
    tolerations = [{"key": "rocket", "operator": "Exists"}]
    system.apply(rocket, pool)
    system.until_nodepools_ready()
    system.apply(deployment("rocket", 6, nodeSelector={"team": "rocket"}, tolerations=tolerations))

    system.until_running(6, "rocket")
    system.until_settled()

    found = nodes_of(system, "rocket")
    assert found
    for node in found:
        assert node["status"]["nodeInfo"]["osImage"].startswith("Bottlerocket")
        assert node["metadata"]["labels"]["example.com/rack"] == "7"
        assert [t["key"] for t in node["spec"]["taints"]] == ["rocket"]
        room = parse_resources(node["status"]["allocatable"])
        assert room.of("ephemeral-storage") == 17 * GIB  # of the data volume's 20; the system has its own 4
        assert volumes_of(system, node["metadata"]["name"]) == {"/dev/xvda": 4, "/dev/xvdb": 20}


def test_windows_pods_run_on_windows_and_linux_pods_never_do(shared: System) -> None:
    system = shared
    windows = nodeclass(CLUSTER, "windows", amiSelectorTerms=[{"alias": "windows2022@latest"}])
    system.apply(
        nodeclass(CLUSTER),
        windows,
        nodepool("a-windows", nodeclass="windows", requirements=[AMD64], taints=[taint("os", "windows")]),
        nodepool("linux", requirements=[AMD64]),
    )
    system.until_nodepools_ready()
    # The taint keeps kube-scheduler, which compares no operating systems, from giving room to Linux pods.
    tolerations = [{"key": "os", "operator": "Equal", "value": "windows"}]
    system.apply(
        deployment("desktop", 5, nodeSelector={OS: "windows"}, tolerations=tolerations),
        deployment("plain", 5),
        deployment("linux", 5, nodeSelector={OS: "linux"}),
    )

    for app in ("desktop", "plain", "linux"):
        system.until_running(5, app)
    system.until_settled()

    assert systems_of(system, "desktop") == {"windows"}
    assert systems_of(system, "linux") == {"linux"}
    assert systems_of(system, "plain") == {"linux"}
    found = nodes_of(system, "a-windows")
    assert {node["metadata"]["labels"][WINDOWS_BUILD] for node in found} == {"10.0.20348"}
    assert {node["status"]["nodeInfo"]["operatingSystem"] for node in found} == {"windows"}
    assert {node["status"]["capacity"]["pods"] for node in found} == {"110"}
