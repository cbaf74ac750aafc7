"""Who manages a node, what it costs, and what is assumed where labels are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from nodesmith.model.kubernetes.nodes import parse_node
from nodesmith_cli.costs.savings.assumptions import assumed_nodepools, selected_labels
from nodesmith_cli.costs.savings.nodeprices import (
    PricedNode,
    priced_nodes,
    region_of_nodes,
    total_hourly_usd,
    with_spot_prices,
)
from nodesmith_cli.costs.savings.owners import Owner, owner_of
from tests.builders import catalog
from tests.objects.savingsclusters import karpenter, node, pod


def priced(*manifests: Mapping[str, Any], **also: Any) -> list[PricedNode]:
    return priced_nodes(map(parse_node, manifests), catalog(), **also)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (
            {"karpenter.sh/nodepool": "a", "karpenter.k8s.aws/ec2nodeclass": "x"},
            Owner("Karpenter", "a", is_ours=True),
        ),
        ({"karpenter.sh/provisioner-name": "old"}, Owner("Karpenter", "old")),
        (
            {"eks.amazonaws.com/compute-type": "auto", "karpenter.sh/nodepool": "b"},
            Owner("EKS Auto Mode", "b"),
        ),
        ({"eks.amazonaws.com/nodegroup": "g"}, Owner("EKS managed node group (Cluster Autoscaler)", "g")),
        ({"alpha.eksctl.io/nodegroup-name": "s"}, Owner("self-managed node group (Cluster Autoscaler)", "s")),
        ({"spotinst.io/node-lifecycle": "od"}, Owner("Spot Ocean")),
        ({"provisioner.cast.ai/managed-by": "cast.ai"}, Owner("CAST AI")),
        ({"eks.amazonaws.com/compute-type": "fargate"}, Owner("AWS Fargate", is_ec2=False)),
        ({"eks.amazonaws.com/compute-type": "hybrid"}, Owner("EKS Hybrid Nodes", is_ec2=False)),
        ({}, Owner("no known autoscaler")),
    ],
)
def test_labels_say_who_manages_a_node(labels: dict[str, str], expected: Owner) -> None:
    assert owner_of(labels, marked=False, has_cluster_autoscaler=True) == expected


def test_a_node_whose_claim_nodesmith_has_marked_is_nodesmiths() -> None:
    manifest = node("n", labels=karpenter())
    (found,) = priced(manifest, marked=[manifest["spec"]["providerID"]])
    assert (found.owner.software, found.owner.is_ours) == ("nodesmith", True)


def test_spot_and_on_demand_are_reported_apart_whatever_software_names_them() -> None:
    none = {"eks.amazonaws.com/capacityType": ""}
    found = priced(
        node("a", labels={"eks.amazonaws.com/capacityType": "SPOT"}),
        node("b", labels={**none, "spotinst.io/node-lifecycle": "spot"}),
        node("c", labels={**none, "karpenter.sh/capacity-type": "spot"}),
        node("d", labels=none),
    )
    assert [each.capacity_type for each in found] == ["spot", "spot", "spot", "on-demand"]
    assert [each.is_assumed for each in found] == [False, False, False, True]
    assert [each.price.estimated for each in found if each.price] == [True, True, True, False]


def test_a_node_of_unknown_price_says_why_and_costs_nothing() -> None:
    found = priced(
        node("fine"),
        node("huge", "x99.huge"),
        node("mars", zone="us-east-1z"),
        node("none", labels={INSTANCE_TYPE: ""}),
        node("home", spec={"providerID": "eks-hybrid:///region/cluster/mi-1"}),
    )
    said = {each.name: each.unknown for each in found}
    assert said["fine"] == ""
    assert said["huge"] == "its instance type 'x99.huge' is not in the catalogue of us-east-1"
    assert (
        said["mars"] == "the catalogue of us-east-1 has no on-demand price for m5.xlarge in zone us-east-1z"
    )
    assert said["none"] == "it has no label node.kubernetes.io/instance-type"
    assert said["home"] == "its provider is eks-hybrid, not AWS"
    assert total_hourly_usd(found) == pytest.approx(0.192)


def test_zone_and_region_come_from_the_provider_id_where_labels_are_missing() -> None:
    bare = node("n", zone="eu-west-1b", labels={ZONE: "", "topology.kubernetes.io/region": ""})
    (found,) = priced(bare)
    assert found.zone == "eu-west-1b"
    assert region_of_nodes([parse_node(bare)]) == "eu-west-1"
    assert region_of_nodes([parse_node({**bare, "spec": {"providerID": "kind://x"}})]) == ""


def test_current_spot_prices_replace_estimates() -> None:
    current = with_spot_prices(catalog(), {("m5.xlarge", "us-east-1a"): 0.071})
    spot = {"eks.amazonaws.com/capacityType": "SPOT"}
    found = priced_nodes(
        map(parse_node, [node("a", labels=spot), node("b", zone="us-east-1b", labels=spot)]), current
    )
    assert [(each.hourly_usd, each.price.estimated) for each in found if each.price] == [
        (0.071, False),
        (pytest.approx(0.0672), True),
    ]


def test_assumed_nodepools_differ_by_what_pods_can_tell_apart() -> None:
    team = {"example.com/team": "blue", "example.com/unused": "1"}
    taint = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}
    state = {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}
    nodes = priced(
        node("a"),
        node("b", spec=state),
        node("c", labels=team),
        node("d", spec=taint),
        node("e", labels={"eks.amazonaws.com/capacityType": "SPOT"}),
        node("f", "t3.large"),
    )
    chosen = [pod("p", "a", nodeSelector={"example.com/team": "blue", "kubernetes.io/arch": "amd64"})]

    nodeclass, *pools = assumed_nodepools(nodes, chosen)

    assert nodeclass["kind"] == "EC2NodeClass"
    assert selected_labels(chosen) == {"example.com/team"}
    assert len(pools) == 4
    specs = [pool["spec"]["template"] for pool in pools]
    assert [each["metadata"]["labels"] for each in specs if "metadata" in each] == [
        {"example.com/team": "blue"}
    ]
    assert [each["spec"]["taints"] for each in specs if "taints" in each["spec"]] == [
        [{"key": "gpu", "effect": "NoSchedule", "value": "yes"}]
    ]
    sold = [r["values"] for each in specs for r in each["spec"]["requirements"] if r["key"] == CAPACITY_TYPE]
    assert sorted(sold) == [["on-demand"]] * 3 + [["spot"]]


def test_a_cluster_without_priced_nodes_has_no_assumed_nodepools() -> None:
    assert assumed_nodepools(priced(node("huge", "x99.huge")), []) == []
