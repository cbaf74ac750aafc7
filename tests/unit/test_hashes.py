"""Hashes that objects state of themselves, and claims that were bought under other rules of hashing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodesmith.controllers.hashes import renew_hashes, state_hashes
from nodesmith.decisions import hashes
from nodesmith.decisions.disruption.drift import Today, drifted
from nodesmith.decisions.hashes import rehashed, unstated
from nodesmith.errors import Failures
from nodesmith.model.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodeclasses import EC2NodeClass
from nodesmith.model.nodepools import NodePool, parse_nodepool
from nodesmith.model.schema.hashing import HASH_VERSION
from tests import builders
from tests.builders import NOW
from tests.fakes.cluster import FakeCluster
from tests.fakes.store import FakeStore

POOL_HASH, CLASS_HASH = "karpenter.sh/nodepool-hash", "karpenter.k8s.aws/ec2nodeclass-hash"
NODECLASS = builders.nodeclass()
OLD = builders.claim(
    phase=Phase.INITIALIZED, hash_version="nodesmith-v0", nodepool_hash="before", nodeclass_hash="before"
)


def pool() -> NodePool:
    parsed = parse_nodepool(builders.nodepool_manifest()).value
    assert parsed is not None
    return parsed


def renewed(*claims: NodeClaim) -> list[NodeClaim]:
    return rehashed(claims, {"default": pool()}, {"default": NODECLASS})


def test_objects_are_told_their_hashes_once() -> None:
    cluster = FakeCluster(
        nodepools={"default": builders.nodepool_manifest()},
        nodeclasses={"default": builders.nodeclass_manifest()},
    )

    def state() -> tuple[str, ...]:
        objects: list[tuple[dict[str, Any], NodePool | EC2NodeClass | None]] = [
            (cluster.nodepools["default"], pool()),
            (cluster.nodeclasses["default"], NODECLASS),
        ]
        return state_hashes(objects, cluster, Failures())

    assert state() == ("NodePool/default", "EC2NodeClass/default")
    assert cluster.nodepools["default"]["metadata"]["annotations"] == {
        POOL_HASH: pool().hash,
        f"{POOL_HASH}-version": HASH_VERSION,
    }
    assert cluster.nodeclasses["default"]["metadata"]["annotations"] == {
        CLASS_HASH: NODECLASS.hash,
        f"{CLASS_HASH}-version": HASH_VERSION,
    }
    assert state() == ()


def test_an_object_that_cannot_be_read_says_nothing() -> None:
    assert unstated(builders.nodepool_manifest(), None) is None


def test_claims_of_another_version_get_the_hashes_of_today_instead_of_drifting() -> None:
    (claim,) = renewed(OLD)
    assert (claim.nodepool_hash, claim.nodeclass_hash) == (pool().hash, NODECLASS.hash)
    assert claim.hash_version == HASH_VERSION
    assert renewed(claim) == []


def test_what_had_drifted_before_stays_drifted() -> None:
    (claim,) = renewed(replace(OLD, drift="NodePoolDrifted", drifted_at=NOW))
    today = Today.of(builders.snapshot(), builders.ledger(), builders.catalog(), NOW)
    assert drifted(claim, today) == "NodePoolDrifted"


def test_claims_that_end_or_whose_objects_cannot_be_read_are_left() -> None:
    assert renewed(OLD.terminating("Deleted", "by hand", NOW), replace(OLD, phase=Phase.PENDING)) == []
    assert rehashed([OLD], {}, {"default": NODECLASS}) == rehashed([OLD], {"default": pool()}, {}) == []


def test_one_run_renews_so_many_and_the_next_ones_the_others() -> None:
    claims = [replace(OLD, name=f"default-{n}") for n in range(hashes.MOST_AT_ONCE + 1)]
    first = renewed(*claims)
    assert len(first) == hashes.MOST_AT_ONCE
    assert [claim.name for claim in renewed(*first, *claims[len(first) :])] == [claims[-1].name]


def test_ledger_and_object_say_the_new_hashes_and_a_claim_that_moved_on_keeps_no_other_from_it() -> None:
    store, cluster = FakeStore(), FakeCluster()
    store.commit(0, [OLD, replace(OLD, name="default-x2")], "d")
    first, second = store.load().claims
    store.save(first)
    pools, nodeclasses = {"default": pool()}, {"default": NODECLASS}
    assert renew_hashes([first, second], pools, nodeclasses, store, cluster, Failures()) == 1
    assert [c.has_comparable_hashes for c in store.load().claims] == [False, True]
    annotations = cluster.nodeclaims[second.name]["metadata"]["annotations"]
    assert annotations[POOL_HASH] == pool().hash
    assert annotations[f"{POOL_HASH}-version"] == HASH_VERSION
