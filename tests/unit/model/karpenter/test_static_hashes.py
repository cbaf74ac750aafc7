"""Hashes of NodePools and EC2NodeClasses equal those of Karpenter's own code for the same manifests."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from nodesmith.model.apimachinery.times import nanoseconds
from nodesmith.model.hashes import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION, hash_in_cluster
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from tests import builders
from tests.karpenterhashes import Hashed, kept

KEPT = list(kept())
POOLS = [each for each in KEPT if each.manifest["kind"] == "NodePool"]
CLASSES = [each for each in KEPT if each.manifest["kind"] == "EC2NodeClass"]


def nodepool_hash(manifest: dict[str, Any]) -> str:
    read = parse_nodepool(manifest)
    assert read.value is not None, read.problems
    return read.value.hash


def nodeclass_hash(manifest: dict[str, Any], ca_bundle: str = "") -> str:
    read = parse_nodeclass(manifest)
    assert read.value is not None, read.problems
    return read.value.hash_in(ca_bundle)


def test_the_sample_has_many_different_objects() -> None:
    assert len(POOLS) == len(CLASSES) == 200
    assert len({each.hash for each in POOLS}) > 150
    assert len({each.hash for each in CLASSES}) > 190
    assert {each.version for each in POOLS} == {NODEPOOL_HASH_VERSION}
    assert {each.version for each in CLASSES} == {NODECLASS_HASH_VERSION}


def test_hashes_of_nodepools_equal_karpenters() -> None:
    assert [each for each in POOLS if nodepool_hash(each.manifest) != each.hash] == []


def test_hashes_of_nodeclasses_equal_karpenters() -> None:
    wrong = [each for each in CLASSES if nodeclass_hash(each.manifest, each.ca_bundle) != each.hash]
    assert wrong == []


def test_a_hash_without_the_ca_bundle_is_derived_from_the_one_with_it() -> None:
    for each in CLASSES:
        assert hash_in_cluster(each.hash, each.ca_bundle) == nodeclass_hash(each.manifest)
    assert hash_in_cluster("", "Q0E=") == hash_in_cluster("0123456789abcdef", "Q0E=") == ""


@pytest.mark.parametrize("each", [*POOLS[:20], *CLASSES[:20]])
def test_null_hashes_like_an_absent_field(each: Hashed) -> None:
    manifest = copy.deepcopy(each.manifest)
    template = manifest["spec"].get("template", {"spec": {}})
    for fields in (manifest["spec"], template["spec"], manifest["spec"].get("kubelet") or {}):
        fields |= dict.fromkeys({"taints", "maxPods", "userData", "expireAfter"} - fields.keys())
    read = nodepool_hash if each.manifest["kind"] == "NodePool" else nodeclass_hash
    assert read(manifest) == read(each.manifest)


def test_kubelet_fields_that_karpenter_does_not_have_change_the_hash_of_a_nodeclass() -> None:
    def of(**kubelet: Any) -> str:
        return nodeclass_hash(builders.nodeclass_manifest(kubelet=kubelet))

    known, gates = of(maxPods=10), {"featureGates": {"A": True, "B": False}}
    assert len({known, of(maxPods=10, **gates), of(maxPods=10, featureGates={"A": False, "B": False})}) == 3
    assert of(featureGates={"B": False, "A": True}) == of(**gates)


def test_half_of_a_surrogate_pair_hashes_as_the_replacement_character() -> None:
    broken, read = (builders.nodeclass_manifest(userData=text) for text in ("a\ud800b", "a\ufffdb"))
    assert nodeclass_hash(broken) == nodeclass_hash(read)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0s", 0),
        ("Never", 0),
        ("1h30m", 5_400 * 10**9),
        ("1.5s", 1_500_000_000),
        ("1.s", 10**9),
        ("0.1ms3us2ns", 103_002),
        ("0.3333333333333333333h", 1_200_000_000_000),
        ("0.0000000000000000000000009h", 0),
        ("0.100000000000000000000000000000009s", 100_000_000),
        ("9223372036s", 9_223_372_036 * 10**9),
        ("99999999999999999999h", 2**63 - 1),
        (f"{'9' * 10_000}s", 2**63 - 1),
        (f"{'0' * 10_000}7s", 7 * 10**9),
    ],
)
def test_durations_are_calculated_as_in_go(text: str, found: int) -> None:
    assert nanoseconds(text) == found
