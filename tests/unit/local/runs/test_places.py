from __future__ import annotations

from typing import Any

import pytest

from nodesmith.errors import Rejected
from nodesmith_formats.manifests.places import DEFAULT_CLUSTER, cluster_of, region_of, selected_tags, zones_of
from tests import builders


def pool(*zones: str, key: str = "topology.kubernetes.io/zone") -> dict[str, Any]:
    expression = {"key": key, "operator": "In", "values": list(zones)}
    return {"kind": "NodePool", "spec": {"template": {"spec": {"requirements": [expression]}}}}


def nodeclass(*clusters: str) -> dict[str, Any]:
    terms = [{"tags": {"karpenter.sh/discovery": cluster}} for cluster in clusters]
    return {"kind": "EC2NodeClass", "spec": {"subnetSelectorTerms": terms}}


@pytest.mark.parametrize(
    ("manifest", "region"),
    [
        (pool("eu-central-1a", "eu-central-1b"), "eu-central-1"),
        (pool("us-west-2-lax-1a"), "us-west-2"),
        (pool("us-gov-west-1a", key="failure-domain.beta.kubernetes.io/zone"), "us-gov-west-1"),
        (pool("ap-southeast-4", key="topology.kubernetes.io/region"), "ap-southeast-4"),
        (
            {"kind": "Pod", "spec": {"nodeSelector": {"topology.kubernetes.io/zone": "eu-west-1c"}}},
            "eu-west-1",
        ),
        ({"kind": "Pod", "spec": {"containers": [{"image": "us-west-2a"}]}}, "us-east-1"),
        (pool("test-zone-1"), "us-east-1"),
    ],
)
def test_the_region_is_that_of_the_zones_named(manifest: dict[str, Any], region: str) -> None:
    assert region_of([manifest]) == region


def test_zones_of_two_regions_are_refused_with_what_to_do() -> None:
    with pytest.raises(Rejected, match=r"eu-west-1a, us-east-1b\): choose one with --region"):
        region_of([pool("us-east-1b"), pool("eu-west-1a")])


def test_the_cluster_is_the_one_whose_network_the_nodeclasses_select() -> None:
    assert cluster_of([nodeclass("shop", "shop"), nodeclass("typo")]) == "shop"


@pytest.mark.parametrize("named", [(), ("${CLUSTER_NAME}",), ("other", DEFAULT_CLUSTER, "other")])
def test_the_cluster_is_the_local_default_where_nothing_better_is_named(named: tuple[str, ...]) -> None:
    assert cluster_of([nodeclass(*named)]) == DEFAULT_CLUSTER


@pytest.mark.parametrize(
    ("named", "zones"),
    [
        ((), ["a", "b", "c"]),
        (("us-east-1f",), ["a", "b", "f"]),
        (("us-east-1a", "us-east-1b", "us-east-1d", "us-east-1e"), ["a", "b", "d", "e"]),
        (("us-east-1-atl-2a",), ["-atl-2a", "a", "b"]),
        (("eu-west-1a",), ["a", "b", "c"]),
    ],
)
def test_the_cluster_has_three_zones_and_those_that_are_named(
    named: tuple[str, ...], zones: list[str]
) -> None:
    sold_in = [f"us-east-1{suffix}" for suffix in ("-atl-2a", *"fedcba")]

    assert zones_of([pool(*named)], "us-east-1", sold_in) == tuple(f"us-east-1{suffix}" for suffix in zones)


def selecting(subnets: dict[str, str], groups: dict[str, str] | None = None) -> dict[str, Any]:
    return builders.nodeclass_manifest(
        subnetSelectorTerms=[{"tags": subnets}], securityGroupSelectorTerms=[{"tags": groups or subnets}]
    )


def test_the_network_has_the_first_value_of_each_tag_that_classes_select_by() -> None:
    first = selecting({"team": "blue", "Name": "blue-private-*"}, {"kubernetes.io/cluster/blue": "owned"})
    second = selecting({"team": "red", "tier": "?"})
    assert selected_tags([first, second]) == (
        {"team": "blue", "Name": "blue-private-x", "tier": "x"},
        {"kubernetes.io/cluster/blue": "owned", "team": "red", "tier": "x"},
    )


def test_unfilled_variables_and_the_clusters_name_are_not_among_these_tags() -> None:
    unfilled = selecting({"team": "${TEAM}", "karpenter.sh/discovery": "blue"})
    broken = {**selecting({"tier": "a"}), "spec": "nothing"}
    assert selected_tags([unfilled, broken]) == ({}, {})
