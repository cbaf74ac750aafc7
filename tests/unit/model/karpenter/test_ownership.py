"""Which NodePools, NodeClaims and Nodes nodesmith serves, whatever the version of their manifests."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import BY_HAND
from nodesmith.model.karpenter.ownership import (
    is_foreign,
    is_foreign_node,
    is_karpenters,
    is_marked,
    server_of,
)
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import NODECLAIMS, NODEPOOLS, Mirror, observed
from tests import builders
from tests.builders import NOW
from tests.objects import foreign

Ref = dict[str, Any]
OURS: list[Ref | None] = [
    {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    {"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "default"},
    {"apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "name": "default"},
    {"kind": "EC2NodeClass", "name": "default"},
    {"name": "default"},
    {"group": "", "name": "default"},
    {"group": 7, "name": "default"},
    None,
]
THEIRS: list[Ref | None] = [
    {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"},
    {"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default"},
    {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "name": "default"},
    {"group": "eks.amazonaws.com", "apiVersion": "karpenter.k8s.aws/v1beta1", "name": "default"},
]


def forms(ref: Ref | None) -> list[dict[str, Any]]:
    """Return a NodePool and a NodeClaim with this reference."""
    spec = {"nodeClassRef": ref} if ref is not None else {}
    return [{"kind": "NodePool", "spec": {"template": {"spec": spec}}}, {"kind": "NodeClaim", "spec": spec}]


@pytest.mark.parametrize("ref", OURS)
def test_a_nodeclass_of_nodesmiths_group_or_of_none_is_served(ref: Ref | None) -> None:
    assert [is_foreign(each) for each in forms(ref)] == [False, False]


@pytest.mark.parametrize("ref", THEIRS)
def test_a_nodeclass_of_another_group_is_foreign(ref: Ref | None) -> None:
    assert [is_foreign(each) for each in forms(ref)] == [True, True]


@pytest.mark.parametrize(
    "spec", [None, [], "x", {"template": []}, {"template": {"spec": 3}}, {"nodeClassRef": []}]
)
def test_an_unreadable_reference_is_not_foreign(spec: object) -> None:
    assert not is_foreign({"spec": spec})


def test_a_provisioner_is_never_foreign() -> None:
    assert not is_foreign({"kind": "Provisioner", "spec": {"providerRef": {"name": "default"}}})


def test_the_snapshot_has_foreign_nodepools_separately_and_no_foreign_nodeclaims() -> None:
    pools, claims = Mirror(NODEPOOLS), Mirror(NODECLAIMS)
    for pool in (builders.nodepool_manifest("ours"), *map(foreign.auto_mode_nodepool, foreign.BUILT_IN)):
        pools.put(pool)
    for claim in (
        foreign.nodeclaim("theirs", "system", instance="i-1"),
        foreign.karpenters_nodeclaim("ours"),
    ):
        claims.put(claim)
    taken = decode(encode("c", NOW, observed([pools, claims])))
    assert [each["metadata"]["name"] for each in taken.nodepools] == ["ours"]
    assert [each["metadata"]["name"] for each in taken.foreign_nodepools] == ["general-purpose", "system"]
    assert [each["metadata"]["name"] for each in taken.nodeclaims] == ["ours"]
    assert taken.problems == ()


def test_a_nodeclaim_that_becomes_foreign_leaves_the_mirror() -> None:
    claims = Mirror(NODECLAIMS)
    assert claims.put(foreign.karpenters_nodeclaim("one")) is not None
    assert claims.put(foreign.nodeclaim("one", "system")) is not None
    assert claims.objects == {}
    assert claims.put(foreign.nodeclaim("one", "system", instance="i-1")) is None


def test_a_node_of_auto_mode_is_foreign_and_a_node_of_a_node_group_is_not() -> None:
    assert is_foreign_node(foreign.node("i-1", "system")["metadata"]["labels"])
    assert not is_foreign_node({"eks.amazonaws.com/nodegroup": "blue"})
    assert not is_foreign_node({"karpenter.sh/nodepool": "a", "karpenter.k8s.aws/ec2nodeclass": "b"})


def test_karpenters_nodeclaims_are_distinguished_from_nodesmiths_and_users() -> None:
    bare = {"metadata": {"name": "mine"}, "spec": {}}
    launched = {**bare, "status": {"providerID": "aws:///us-east-1a/i-1"}}
    ours = manifest(builders.claim("a", decision="d", nodepool_uid="uid-default"))
    by_hand = manifest(builders.claim("b", nodeclass_hash="123", nodeclass_hash_version="v5", origin=BY_HAND))
    of_old = manifest(builders.claim("b", nodeclass_hash="123", nodeclass_hash_version="nodesmith-v1"))
    karpenters = foreign.karpenters_nodeclaim("k")
    assert [is_karpenters(each) for each in (karpenters, launched)] == [True, True]
    assert [is_karpenters(each) for each in (bare, ours, by_hand, of_old)] == [False, False, False, False]
    assert [is_marked(each) for each in (bare, karpenters, ours, by_hand, of_old)] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_the_other_software_is_named() -> None:
    assert server_of("eks.amazonaws.com") == "EKS Auto Mode"
    assert server_of("karpenter.azure.com") == "the controller of karpenter.azure.com"
