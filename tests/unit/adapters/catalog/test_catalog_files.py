from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog, encode
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import Problem
from nodesmith.model.ec2.catalog import Catalog, Offering
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith_formats.catalogfiles import list_types, read_catalog_file

NOW = datetime(2026, 8, 1, tzinfo=UTC)
ZONE, CAPACITY_TYPE = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"


def kwok_offering(zone: str, capacity_type: str, price: object = 0.1) -> dict[str, Any]:
    return {
        "Price": price,
        "Available": True,
        "Requirements": [
            {"key": CAPACITY_TYPE, "operator": "In", "values": [capacity_type]},
            {"key": ZONE, "operator": "In", "values": [zone]},
        ],
    }


KWOK = {
    "name": "c-4x-amd64-linux",
    "architecture": "amd64",
    "operatingSystems": ["linux"],
    "resources": {"cpu": "4", "memory": "8Gi", "pods": "50", "ephemeral-storage": "20Gi"},
    "offerings": [kwok_offering("zone-a", "spot", 0.07), kwok_offering("zone-b", "on-demand", 0.1)],
}


def read(*entries: object) -> tuple[Catalog, tuple[Problem, ...]]:
    return read_catalog_file(json.dumps(entries).encode(), NOW)


def kwok(**changes: object) -> dict[str, Any]:
    return {**deepcopy(KWOK), **changes}


def resolved(catalog: Catalog) -> InstanceType:
    return instance_types(catalog, NodeConfiguration())[0]


def test_a_kwok_type_has_an_overhead_of_100m_cpu_and_10_mi_memory() -> None:
    catalog, problems = read(KWOK)
    one = resolved(catalog)
    assert problems == ()
    assert (one.capacity.cpu_milli, one.allocatable.cpu_milli) == (4000, 3900)
    assert one.capacity.memory_bytes - one.allocatable.memory_bytes == 10 * 2**20
    assert (one.allocatable.pods, one.allocatable.of("ephemeral-storage")) == (50, 20 * 2**30)
    assert one.offerings == (Offering("zone-a", "spot", 0.07), Offering("zone-b", "on-demand", 0.1))


def test_a_kwok_type_has_110_pods_by_default() -> None:
    assert resolved(read(kwok(resources={"cpu": "1", "memory": "1Gi"}))[0]).capacity.pods == 110


@pytest.mark.parametrize(
    ("name", "memory", "labels"),
    [
        ("c-4x-amd64-linux", "8Gi", {"size": "4", "family": "c", "cpu": "4", "memory": "8Gi"}),
        ("m5.2xlarge", "8192Mi", {"size": "2xlarge", "family": "m5", "cpu": "4", "memory": "8Gi"}),
        ("n1-standard-4", "4000M", {"size": "4", "family": "n1", "cpu": "4", "memory": "4G"}),
        ("Standard_D4", "1000", {"size": "4", "family": "S", "cpu": "4", "memory": "1k"}),
    ],
)
def test_kwok_labels_are_derived_from_name_and_resources(
    name: str, memory: str, labels: dict[str, str]
) -> None:
    one = resolved(read(kwok(name=name, resources={"cpu": "4000m", "memory": memory}))[0])
    assert {f"karpenter.kwok.sh/instance-{part}": value for part, value in labels.items()} == {
        key: value for key, value in one.labels.items() if key.startswith("karpenter.kwok.sh/")
    }


def test_a_kwok_type_for_two_operating_systems_labels_its_nodes_with_neither() -> None:
    one = resolved(read(kwok(operatingSystems=["linux", "windows"]))[0])
    assert "kubernetes.io/os" not in one.labels
    assert one.requirements["kubernetes.io/os"].values == {"linux", "windows"}


def test_an_unavailable_kwok_offering_is_listed_but_cannot_be_bought() -> None:
    sold_out = {**kwok_offering("zone-c", "spot"), "Available": False}
    catalog, _ = read(kwok(offerings=[*KWOK["offerings"], sold_out]))
    assert len(catalog.offerings["c-4x-amd64-linux"]) == 3
    assert len(resolved(catalog).offerings) == 2


@pytest.mark.parametrize("price", [None, -0.5, 0, "0.1", True, float("inf")])
def test_an_offering_without_a_valid_price_is_reported_and_the_others_are_kept(price: object) -> None:
    catalog, problems = read(kwok(offerings=[kwok_offering("zone-a", "spot", price), KWOK["offerings"][1]]))  # type: ignore[index]
    assert [offering.zone for offering in catalog.offerings["c-4x-amd64-linux"]] == ["zone-b"]
    (problem,) = problems
    assert (problem.object, problem.field) == ("InstanceType/c-4x-amd64-linux", "offerings[0].Price")
    assert problem.found == ("missing" if price is None else repr(price))
    assert "positive number" in problem.remedy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architecture": "x86_64"}, "architecture is 'x86_64': did you mean 'amd64'?"),
        ({"architecture": None}, "architecture is missing: write one of amd64, arm64"),
        ({"operatingSystems": []}, "operatingSystems is []"),
        ({"resources": {"cpu": "4"}}, "resources.memory is missing"),
        ({"resources": {"cpu": "4", "memory": "8gb"}}, "did you mean '8G'?"),
        ({"resources": {"cpu": "-4", "memory": "8Gi"}}, "resources.cpu is '-4'"),
        ({"name": ""}, "instance type 1: name is ''"),
    ],
)
def test_an_invalid_type_is_omitted_with_the_reason(change: dict[str, object], said: str) -> None:
    catalog, problems = read(kwok(**change), kwok(name="good"))
    assert list(catalog.facts) == ["good"]
    assert any(said in str(problem) for problem in problems)


def test_the_closest_capacity_type_is_suggested_for_an_unknown_one() -> None:
    _, problems = read(kwok(offerings=[kwok_offering("zone-a", "on-demnd")]))
    (problem,) = problems
    assert problem.field == "offerings[0].Requirements[karpenter.sh/capacity-type]"
    assert (problem.found, problem.remedy) == ("'on-demnd'", "did you mean 'on-demand'?")


def test_an_offering_without_a_zone_or_with_another_operator_is_reported() -> None:
    offering = kwok_offering("zone-a", "spot")
    offering["Requirements"][1]["operator"] = "NotIn"
    catalog, problems = read(kwok(offerings=[offering, "free"]))
    assert catalog.offerings["c-4x-amd64-linux"] == ()
    assert [problem.field for problem in problems] == [
        "offerings[0].Requirements[1]",
        f"offerings[0].Requirements[{ZONE}]",
        "offerings[1]",
    ]


def test_an_unsupported_requirement_is_reported_and_its_offering_is_kept() -> None:
    offering = kwok_offering("zone-a", "spot")
    offering["Requirements"].append({"key": "example.com/rack", "operator": "In", "values": ["r1"]})
    catalog, (problem,) = read(kwok(offerings=[offering]))
    assert [o.zone for o in catalog.offerings["c-4x-amd64-linux"]] == ["zone-a"]
    assert (problem.field, problem.found) == ("offerings[0].Requirements[example.com/rack]", "['r1']")
    assert "ignored" in problem.remedy


def test_duplicate_types_and_offerings_are_omitted() -> None:
    twice = kwok(offerings=[kwok_offering("zone-a", "spot", 0.1), kwok_offering("zone-a", "spot", 0.2)])
    catalog, problems = read(twice, KWOK)
    assert [o.price_hourly_usd for o in catalog.offerings["c-4x-amd64-linux"]] == [0.1]
    assert [problem.field for problem in problems] == ["offerings[1]", "name"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"{}",
        b"[1]",
        b"[]",
        b"\x1f\x8b damaged",
        gzip.compress(b"not json"),
        gzip.compress(b"{}"),
    ],
)
def test_a_file_that_is_not_a_catalogue_is_rejected(data: bytes) -> None:
    with pytest.raises(Rejected, match="catalogue"):
        read_catalog_file(data, NOW)


@pytest.mark.parametrize("content", [KWOK, {"name": "c", "arch": "amd64"}])
def test_a_compressed_list_is_read_like_a_plain_one(content: dict[str, Any]) -> None:
    good = json.dumps([content, kwok(name="good")]).encode()
    assert read_catalog_file(gzip.compress(good), NOW)[0].facts == read_catalog_file(good, NOW)[0].facts
    assert read_catalog_file(gzip.compress(good), NOW)[1] == read_catalog_file(good, NOW)[1]


def test_a_file_without_usable_types_is_rejected_with_the_reasons() -> None:
    with pytest.raises(
        Rejected, match=r"no usable instance type; InstanceType/c-4x.*architecture is 'sparc'"
    ):
        read(kwok(architecture="sparc"))


def test_a_stored_catalogue_is_a_catalogue_file() -> None:
    catalog, problems = read_catalog_file(encode(embedded_catalog("eu-west-1")), NOW)
    assert (catalog, problems) == (embedded_catalog("eu-west-1"), ())


@pytest.fixture(scope="module")
def listing() -> list[dict[str, Any]]:
    catalog = embedded_catalog()
    return list_types(catalog, instance_types(catalog, NodeConfiguration()))


def test_the_listing_has_the_documented_fields(listing: list[dict[str, Any]]) -> None:
    (m5,) = (dict(one) for one in listing if one["name"] == "m5.large")
    labels, offerings = m5.pop("labels"), m5.pop("offerings")
    assert m5 == {
        "name": "m5.large",
        "arch": "amd64",
        "vcpus": 2,
        "memoryMiB": 8192,
        "maxPods": 29,
        "capacity": {
            "cpuMilli": 2000,
            "memoryBytes": 7577 * 2**20,
            "pods": 29,
            "ephemeralStorageBytes": 20 * 2**30,
            "vpc.amazonaws.com/pod-eni": 9,
            "attachable-volumes-csi-ebs.csi.aws.com": 25,
        },
        "allocatable": {"cpuMilli": 1930, "memoryBytes": 6903 * 2**20, "pods": 29},
    }
    assert labels["karpenter.k8s.aws/instance-family"] == "m5"
    assert offerings[0] == {
        "zone": "us-east-1a",
        "capacityType": "on-demand",
        "priceHourly": 0.096,
        "estimated": False,
        "available": True,
    }


def test_types_that_cannot_run_al2023_are_listed_as_unavailable(listing: list[dict[str, Any]]) -> None:
    (a1,) = (one for one in listing if one["name"] == "a1.large")
    assert {offering["available"] for offering in a1["offerings"]} == {False}


def test_the_listing_can_be_read_back(listing: list[dict[str, Any]]) -> None:
    catalog, problems = read(*listing)
    assert problems == ()
    assert catalog.region == "us-east-1"
    assert list_types(catalog, instance_types(catalog, NodeConfiguration())) == listing


def test_a_missing_price_in_a_listing_is_reported_with_its_offering(listing: list[dict[str, Any]]) -> None:
    broken = deepcopy(listing[:2])
    del broken[0]["offerings"][1]["priceHourly"]
    broken[1]["allocatable"]["cpuMilli"] = 10**9
    catalog, problems = read(*broken)
    assert list(catalog.facts) == [broken[0]["name"]]
    assert [problem.field for problem in problems] == ["offerings[1].priceHourly", "allocatable"]
    assert len(catalog.offerings[broken[0]["name"]]) == len(broken[0]["offerings"]) - 1


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
def test_a_too_deeply_nested_file_is_rejected(pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(Rejected, match="catalogue"):
        read_catalog_file(pack(b"[" * 100_000 + b"]" * 100_000), NOW)
