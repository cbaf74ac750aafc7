"""A spread placement group over three zones: ten nodes, seven at most in a zone, and what no longer fits stays told."""

from __future__ import annotations

from collections import Counter

from nodesmith.model.apimachinery.labels import PLACEMENT_GROUP, ZONE
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import deployment, nodeclass, nodepool, zone_spread

TYPE = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}


def zones(system: System) -> Counter[str]:
    return Counter(instance["Placement"]["AvailabilityZone"] for instance in system.instances())


def test_ten_nodes_of_a_spread_group_over_three_zones_and_no_more_than_it_takes(start: Start) -> None:
    system = start()
    ec2 = system.aws.client("ec2")
    group = ec2.create_placement_group(GroupName="quorum", Strategy="spread")["PlacementGroup"]["GroupId"]
    chosen = nodeclass(CLUSTER, placementGroupSelector={"name": "quorum"})
    spread = zone_spread("quorum")
    system.apply(
        chosen,
        nodepool(requirements=[TYPE, ON_DEMAND]),
        deployment("quorum", 10, cpu="1500m", topologySpreadConstraints=spread),
    )
    system.until_running(10)
    system.until_settled()
    assert sorted(zones(system).values()) == [3, 3, 4]
    assert {node["metadata"]["labels"][PLACEMENT_GROUP] for node in system.nodes()} == {group}
    assert all(instance["Placement"]["GroupName"] == "quorum" for instance in system.instances())

    system.apply(deployment("quorum", 24, cpu="1500m", topologySpreadConstraints=spread))
    running = '{.items[?(@.status.phase=="Running")].metadata.name}'
    system.until(
        "21 pods run", lambda: len(system.kubectl("get", "pods", "-o", f"jsonpath={running}").split()) == 21
    )
    system.until_settled()
    assert zones(system) == Counter({f"{system.aws.region}{letter}": 7 for letter in "abc"})
    system.until("the pods that are left are told why", lambda: _is_reported(system))
    placed = Counter(
        system.node_of(p)["metadata"]["labels"][ZONE] for p in system.pods() if p["spec"].get("nodeName")
    )
    assert set(placed.values()) == {7}


def _is_reported(system: System) -> bool:
    records = system.records()
    plan = records.read(records.ids()[-1])["plan"]
    return "placement group quorum" in str(plan.get("unplaced")) + str(plan.get("obstacles"))
