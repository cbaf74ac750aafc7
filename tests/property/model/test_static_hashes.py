"""What changes Karpenter's hash of a NodePool or EC2NodeClass, and what does not."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from tests.karpenterhashes.drawing import Manifest, nodeclass, nodepool

RANDOMS = st.integers(0, 2**32).map(Random)
POOLS = RANDOMS.map(lambda random: nodepool(random, "drawn"))
CLASSES = RANDOMS.map(lambda random: nodeclass(random, "drawn"))
DURATIONS = st.sampled_from(["0s", "5m", "Never"])
REQUIREMENTS = st.sampled_from([[], [{"key": "tier", "operator": "Exists"}]])
CA_BUNDLES = st.text("abcABC0+/", max_size=20)


def hash_of(manifest: Manifest, ca_bundle: str = "") -> str:
    if manifest["kind"] == "NodePool":
        pool = parse_nodepool(manifest)
        assert pool.value is not None, pool.problems
        return pool.value.hash
    read = parse_nodeclass(manifest)
    assert read.value is not None, read.problems
    return read.value.hash_in(ca_bundle)


def shuffled(value: Any, random: Random) -> Any:
    """Return a value whose lists and maps are in another order."""
    match value:
        case dict():
            items = [(key, shuffled(inner, random)) for key, inner in value.items()]
            return dict(random.sample(items, len(items)))
        case list():
            return random.sample([shuffled(inner, random) for inner in value], len(value))
        case _:
            return value


def with_spec(manifest: Manifest, **fields: Any) -> Manifest:
    return {**manifest, "spec": {**manifest["spec"], **fields}}


@given(manifest=POOLS | CLASSES, random=RANDOMS)
def test_order_does_not_matter(manifest: Manifest, random: Random) -> None:
    assert hash_of(shuffled(manifest, random)) == hash_of(manifest)


@given(manifest=POOLS, requirements=REQUIREMENTS, after=DURATIONS, weight=st.integers(1, 100))
def test_requirements_limits_weight_and_disruption_of_a_nodepool_do_not_matter(
    manifest: Manifest, requirements: list[Manifest], after: str, weight: int
) -> None:
    changed = copy.deepcopy(manifest)
    changed["spec"]["template"]["spec"]["requirements"] = requirements
    disruption = {"consolidateAfter": after, "budgets": [{"nodes": str(weight)}]}
    changed = with_spec(changed, weight=weight, limits={"cpu": weight}, disruption=disruption)
    changed["spec"].pop("replicas", None)
    changed["metadata"] |= {"name": "other", "labels": {"a": "b"}, "annotations": {"a": "b"}}
    assert hash_of(changed) == hash_of(manifest)


@given(manifest=CLASSES, terms=st.sampled_from([[{"tags": {"a": "b"}}], [{"id": "sg-1"}]]))
def test_selectors_of_a_nodeclass_do_not_matter(manifest: Manifest, terms: list[Manifest]) -> None:
    changed = with_spec(
        manifest,
        securityGroupSelectorTerms=terms,
        subnetSelectorTerms=[{"id": "subnet-1"}],
        capacityReservationSelectorTerms=[{"id": "cr-1"}],
        ipPrefixCount=1,
    )
    assert hash_of(changed) == hash_of(manifest)


@given(manifest=CLASSES)
def test_the_image_family_matters_but_not_whether_an_alias_sets_it(manifest: Manifest) -> None:
    said, alias = (
        with_spec(manifest, amiSelectorTerms=[{"id": "ami-1"}], amiFamily="AL2023"),
        with_spec(manifest, amiSelectorTerms=[{"alias": "al2023@v20260101"}]),
    )
    alias["spec"].pop("amiFamily", None)
    assert hash_of(said) == hash_of(alias) != hash_of(with_spec(said, amiFamily="Bottlerocket"))


@given(manifest=POOLS, key=st.sampled_from(["labels", "annotations"]))
def test_labels_and_annotations_of_nodes_matter(manifest: Manifest, key: str) -> None:
    changed = copy.deepcopy(manifest)
    changed["spec"]["template"].setdefault("metadata", {}).setdefault(key, {})["example.com/new"] = "x"
    assert hash_of(changed) != hash_of(manifest)


@given(manifest=CLASSES)
def test_an_empty_list_differs_from_an_absent_one_and_equals_one_with_two_equal_items(
    manifest: Manifest,
) -> None:
    device = {"deviceName": "/dev/xvdz", "ebs": {"volumeSize": "1Gi"}}
    absent = with_spec(manifest)
    absent["spec"].pop("blockDeviceMappings", None)
    empty, twice = (with_spec(manifest, blockDeviceMappings=items) for items in ([], [device, device]))
    assert hash_of(empty) == hash_of(twice) != hash_of(absent)


@given(manifest=CLASSES, first=CA_BUNDLES, second=CA_BUNDLES)
def test_the_cluster_matters_for_a_nodeclass(manifest: Manifest, first: str, second: str) -> None:
    assert (hash_of(manifest, first) == hash_of(manifest, second)) is (first == second)
