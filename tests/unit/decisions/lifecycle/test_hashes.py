"""Hashes in the annotations of objects, and claims with hashes of another version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodesmith.controllers.nodeclaims.objects import renew_hashes, state_hashes
from nodesmith.decisions.disruption.drift import DesiredState, drifted
from nodesmith.decisions.readiness import launchconditions
from nodesmith.decisions.readiness.launchconditions import rehashed, unstated
from nodesmith.errors import Failures
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from tests import builders
from tests.builders import NOW
from tests.fakes.cluster import FakeCluster
from tests.fakes.store import FakeStore

POOL_HASH, CLASS_HASH = "karpenter.sh/nodepool-hash", "karpenter.k8s.aws/ec2nodeclass-hash"
CA_BUNDLE = builders.cluster_info().ca_bundle
NODECLASS = builders.nodeclass()
OLD = builders.claim(
    phase=Phase.INITIALIZED,
    nodepool_hash="0123456789abcdef",
    nodeclass_hash="fedcba9876543210",
    nodepool_hash_version="nodesmith-v1",
    nodeclass_hash_version="nodesmith-v1",
)


def pool() -> NodePool:
    parsed = parse_nodepool(builders.nodepool_manifest()).value
    assert parsed is not None
    return parsed


def today() -> DesiredState:
    return DesiredState.of(builders.snapshot(), builders.ledger(), builders.catalog(), NOW)


def renewed(*claims: NodeClaim) -> list[NodeClaim]:
    return rehashed(claims, {"default": pool()}, {"default": NODECLASS}, CA_BUNDLE)


def versions(claim: NodeClaim) -> tuple[str, str]:
    return claim.nodepool_hash_version, claim.nodeclass_hash_version


def test_hashes_are_written_to_objects_once() -> None:
    cluster = FakeCluster(
        nodepools={"default": builders.nodepool_manifest()},
        nodeclasses={"default": builders.nodeclass_manifest()},
    )

    def state() -> tuple[str, ...]:
        objects: list[tuple[dict[str, Any], NodePool | EC2NodeClass | None]] = [
            (cluster.nodepools["default"], pool()),
            (cluster.nodeclasses["default"], NODECLASS),
        ]
        return state_hashes(objects, CA_BUNDLE, cluster, Failures())

    assert state() == ("NodePool/default", "EC2NodeClass/default")
    assert cluster.nodepools["default"]["metadata"]["annotations"] == {
        POOL_HASH: pool().hash,
        f"{POOL_HASH}-version": "v3",
    }
    assert cluster.nodeclasses["default"]["metadata"]["annotations"] == {
        CLASS_HASH: NODECLASS.hash_in(CA_BUNDLE),
        f"{CLASS_HASH}-version": "v5",
    }
    assert state() == ()


def test_hashes_that_karpenter_wrote_are_left_unchanged() -> None:
    stated = builders.nodeclass_manifest()
    stated["metadata"]["annotations"] = {
        CLASS_HASH: NODECLASS.hash_in(CA_BUNDLE),
        f"{CLASS_HASH}-version": "v5",
    }
    assert unstated(stated, NODECLASS, CA_BUNDLE) is None
    stated["metadata"]["annotations"][f"{CLASS_HASH}-version"] = "v6"
    assert unstated(stated, NODECLASS, CA_BUNDLE) is not None


def test_an_object_that_cannot_be_read_gets_no_hash() -> None:
    assert unstated(builders.nodepool_manifest(), None, CA_BUNDLE) is None


def test_claims_with_hashes_of_another_version_get_current_ones_instead_of_drifting() -> None:
    (claim,) = renewed(OLD)
    assert (claim.nodepool_hash, claim.nodeclass_hash) == (pool().hash, NODECLASS.hash_in(CA_BUNDLE))
    assert versions(claim) == ("v3", "v5")
    assert renewed(claim) == []
    assert drifted(OLD, today()).reason == drifted(claim, today()).reason == ""


def test_only_the_hash_of_another_version_is_renewed() -> None:
    (current,) = renewed(OLD)
    (claim,) = renewed(replace(current, nodepool_hash="1", nodeclass_hash="1", nodeclass_hash_version="v4"))
    assert (claim.nodepool_hash, claim.nodeclass_hash) == ("1", NODECLASS.hash_in(CA_BUNDLE))
    assert drifted(claim, today()).reason == "NodePoolDrifted", "the change of its NodePool is not forgotten"


def test_a_claim_that_had_already_drifted_stays_drifted() -> None:
    (claim,) = renewed(replace(OLD, drift="NodePoolDrifted", drifted_at=NOW))
    assert versions(claim) == ("v3", "v5")
    assert drifted(claim, today()).reason == "NodePoolDrifted"


def test_hashes_of_ending_claims_are_left_unchanged() -> None:
    assert renewed(OLD.terminating("Deleted", "by hand", NOW), replace(OLD, phase=Phase.PENDING)) == []


@pytest.mark.parametrize(
    ("pools", "nodeclasses", "found"),
    [
        ({}, {}, []),
        ({}, {"default": NODECLASS}, [("nodesmith-v1", "v5")]),
        ({"default": pool()}, {}, [("v3", "nodesmith-v1")]),
    ],
)
def test_a_hash_whose_object_cannot_be_read_is_left_unchanged(
    pools: dict[str, NodePool], nodeclasses: dict[str, EC2NodeClass], found: list[tuple[str, str]]
) -> None:
    claims = rehashed([OLD], pools, nodeclasses, CA_BUNDLE)
    assert [versions(claim) for claim in claims] == found
    assert rehashed(claims, pools, nodeclasses, CA_BUNDLE) == []


def test_one_run_renews_a_limited_number_and_later_runs_renew_the_others() -> None:
    claims = [replace(OLD, name=f"default-{n}") for n in range(launchconditions.MOST_AT_ONCE + 1)]
    first = renewed(*claims)
    assert len(first) == launchconditions.MOST_AT_ONCE
    assert [claim.name for claim in renewed(*first, *claims[len(first) :])] == [claims[-1].name]


def test_ledger_and_object_get_the_new_hashes_and_a_changed_claim_does_not_block_others() -> None:
    store, cluster = FakeStore(), FakeCluster()
    store.commit(0, [OLD, replace(OLD, name="default-x2")], "d")
    first, second = store.load().claims
    store.save(first)
    pools, nodeclasses = {"default": pool()}, {"default": NODECLASS}
    assert renew_hashes([first, second], pools, nodeclasses, CA_BUNDLE, store, cluster, Failures()) == 1
    assert [versions(c) for c in store.load().claims] == [("nodesmith-v1", "nodesmith-v1"), ("v3", "v5")]
    annotations = cluster.nodeclaims[second.name]["metadata"]["annotations"]
    assert annotations[POOL_HASH] == pool().hash
    assert annotations[f"{POOL_HASH}-version"] == "v3"
    assert annotations[CLASS_HASH] == NODECLASS.hash_in(CA_BUNDLE)
    assert annotations[f"{CLASS_HASH}-version"] == "v5"
