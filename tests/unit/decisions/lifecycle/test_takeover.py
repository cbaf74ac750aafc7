"""The claim that a NodeClaim of Karpenter becomes, what keeps it from becoming one, and when nodesmith stands by."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.budgets import paused
from nodesmith.decisions.readiness.launchconditions import rehashed
from nodesmith.decisions.takeover import (
    KARPENTER,
    QUIET,
    STANDBY,
    ClusterContext,
    claim_of,
    holders_of,
    shown_standby,
    standby,
    standby_conditions,
)
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.hashes import NODECLASS_HASH, NODEPOOL_HASH
from nodesmith.model.karpenter.nodeclaimobjects import annotations_of, conditions_of
from nodesmith.model.karpenter.nodeclaimobjects import manifest as written
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.karpenter.ownership import KarpenterSign, is_karpenters, is_marked
from nodesmith.model.ledger.ledger import Handover, Pause
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import LEASES, NODECLAIMS, NODEPOOLS, Mirror, observed
from tests import builders
from tests.builders import CLUSTER, NOW, ZONES
from tests.contract.worlds import lease
from tests.karpenterhashes import Hashed, kept
from tests.objects import foreign

Manifest = dict[str, Any]
INSTANCE = Instance(
    "i-1",
    "a",
    "m5.large",
    ZONES[0],
    "on-demand",
    "ami-amd64",
    "running",
    NOW,
    "subnet-a",
    security_groups=("sg-1",),
)
TAGS = {
    f"kubernetes.io/cluster/{CLUSTER}": "owned",
    "eks:eks-cluster-name": CLUSTER,
    "karpenter.sh/nodepool": "default",
    "karpenter.sh/nodeclaim": "a",
}
SECOND = timedelta(seconds=1)


def karpenters(name: str = "a") -> Manifest:
    """Return a NodeClaim of Karpenter in service."""
    made = foreign.karpenters_nodeclaim(name, instance="i-1")
    made["metadata"]["annotations"] |= {
        NODEPOOL_HASH: "1234",
        f"{NODEPOOL_HASH}-version": "v3",
        NODECLASS_HASH: "5678",
        f"{NODECLASS_HASH}-version": "v5",
        "karpenter.k8s.aws/tagged": "true",
    }
    made["metadata"]["labels"]["team"] = "blue"
    made["status"]["capacity"] = made["status"]["allocatable"] = {"cpu": "2", "memory": "8Gi"}
    return made


def around(
    tags: Mapping[str, str] = TAGS, instance: Instance | None = INSTANCE, **fields: Any
) -> ClusterContext:
    pool, nodeclass = (
        parse_nodepool(builders.nodepool_manifest()).value,
        parse_nodeclass(builders.nodeclass_manifest()),
    )
    assert pool is not None
    assert nodeclass.value is not None
    known: dict[str, Any] = {
        "pools": {"default": pool},
        "nodeclasses": {"default": nodeclass.value},
        "nodes": {},
        "holders": holders_of([karpenters()]),
        "catalog": builders.catalog(),
    }
    return ClusterContext(
        CLUSTER, **(known | fields), instances={"i-1": instance} if instance else {}, tags={"i-1": tags}
    )


def adopted(change: Callable[[Manifest], object] = lambda _: None, **fields: Any) -> NodeClaim:
    manifest = karpenters()
    change(manifest)
    return claim_of(manifest, around(**fields), NOW)


def test_a_claim_has_what_karpenter_recorded_and_what_ec2_says() -> None:
    claim = adopted()
    assert (claim.name, claim.nodepool, claim.origin, claim.phase) == (
        "a",
        "default",
        KARPENTER,
        Phase.INITIALIZED,
    )
    assert (claim.nodepool_hash, claim.nodepool_hash_version) == ("1234", "v3")
    assert (claim.nodeclass_hash, claim.nodeclass_hash_version) == ("5678", "v5")
    assert (claim.instance_id, claim.subnet_id, claim.security_groups) == ("i-1", "subnet-a", ("sg-1",))
    assert claim.labels["team"] == "blue"
    assert claim.price_hourly_usd > 0
    assert claim.launched_at == claim.initialized_at == NOW
    assert claim.budgets == around().pools["default"].disruption.budgets


def test_its_object_stays_as_it_is_except_for_the_mark() -> None:
    before = karpenters()
    after = written(adopted())
    marked = {**before["metadata"]["annotations"], "nodesmith.dev/origin": "Karpenter"}
    assert annotations_of(adopted()) | {"karpenter.k8s.aws/tagged": "true"} == {
        key: value for key, value in marked.items() if key != "karpenter.sh/nodepool-hash-version"
    } | {f"{NODEPOOL_HASH}-version": "v3", "compatibility.karpenter.k8s.aws/cluster-name-tagged": "true"}
    assert before["metadata"]["labels"].items() <= after["metadata"]["labels"].items()
    assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
    shown = {c["type"]: (c["status"], c["reason"]) for c in before["status"]["conditions"]}
    own = {each.type: (each.status, each.reason) for each in conditions_of(adopted())}
    assert shown.items() <= own.items()
    assert is_karpenters(before)
    assert is_marked({**before, "metadata": {**before["metadata"], "annotations": marked}})


@pytest.mark.parametrize(
    ("stages", "phase"),
    [
        ((), Phase.LAUNCHED),
        (("Launched",), Phase.LAUNCHED),
        (("Launched", "Registered"), Phase.REGISTERED),
        (("Launched", "Registered", "Initialized"), Phase.INITIALIZED),
    ],
)
def test_its_phase_is_the_last_stage_that_it_shows(stages: tuple[str, ...], phase: Phase) -> None:
    def grow(manifest: Manifest) -> None:
        shown = [{"type": each, "status": "True", "lastTransitionTime": format_time(NOW)} for each in stages]
        manifest["status"]["conditions"] = shown

    assert adopted(grow).phase is phase


def test_the_hashes_of_karpenters_own_code_are_those_that_readiness_would_write() -> None:
    """So a NodeClaim whose annotations hold Karpenter's hash does not drift."""
    samples = [each for each in kept() if each.manifest["kind"] == "NodePool"][:50]
    assert len(samples) == 50
    for each in samples:
        pool = parse_nodepool(each.manifest).value
        assert pool is not None
        claim = adopted(lambda made, each=each: _stated(made, each))  # type: ignore[misc]
        assert claim.comparable_nodepool_hash == pool.hash


def _stated(manifest: Manifest, each: Hashed) -> None:
    manifest["metadata"]["annotations"] |= {
        NODEPOOL_HASH: each.hash,
        f"{NODEPOOL_HASH}-version": each.version,
    }


@pytest.mark.parametrize(("condition", "is_drifted"), [(None, False), ("NodeClassDrift", True)])
def test_an_older_hash_is_renewed_unless_karpenter_has_called_the_node_drifted(
    condition: str | None, is_drifted: bool
) -> None:
    def age(manifest: Manifest) -> None:
        manifest["metadata"]["annotations"][f"{NODECLASS_HASH}-version"] = "v4"
        if condition:
            drifted = {"type": "Drifted", "status": "True", "reason": condition}
            manifest["status"]["conditions"].append({**drifted, "lastTransitionTime": format_time(NOW)})

    claim, there = adopted(age), around()
    (renewed,) = rehashed([claim], there.pools, there.nodeclasses, "Q0E=")
    assert renewed.nodeclass_hash_version == "v5"
    assert (renewed.comparable_nodeclass_hash != there.nodeclasses["default"].hash_in("Q0E=")) is is_drifted


def _annotate(name: str, value: str) -> Callable[[Manifest], object]:
    return lambda manifest: manifest["metadata"]["annotations"].update({name: value})


def _status(**fields: Any) -> Callable[[Manifest], object]:
    return lambda manifest: manifest["status"].update(fields)


@pytest.mark.parametrize(
    ("change", "fields", "said"),
    [
        (_status(providerID=""), {}, "status.providerID is missing"),
        (_status(providerID="gce://x/y"), {}, "'gce://x/y'; expected aws:///ZONE/i-ID"),
        (_status(providerID="aws:///us-east-1b/i-1"), {}, "but EC2 says aws:///us-east-1a/i-1"),
        (_status(capacity={"cpu": "many"}), {}, "status.capacity or status.allocatable"),
        (None, {"instance": None}, "instance i-1 does not exist any more"),
        (None, {"instance": replace(INSTANCE, state="terminated")}, "instance i-1 does not exist any more"),
        (None, {"tags": {}}, "tag kubernetes.io/cluster/test must be 'owned', found no such tag"),
        (None, {"tags": {**TAGS, "karpenter.sh/nodepool": "x"}}, "must be 'default', found 'x'"),
        (None, {"tags": {**TAGS, "karpenter.sh/nodeclaim": "b"}}, "must be 'a', found 'b'"),
        (None, {"nodeclasses": {}}, "names EC2NodeClass 'default', which is not found or invalid"),
        (None, {"pools": {}}, "NodePool 'default' is not found or invalid"),
        (_annotate(f"{NODECLASS_HASH}-version", "v6"), {}, "is 'v6': this Karpenter is newer"),
        (_annotate(f"{NODEPOOL_HASH}-version", "latest"), {}, "is 'latest'"),
        (
            None,
            {"holders": holders_of([karpenters(), karpenters("b")])},
            "is also that of NodeClaim b",
        ),
        (lambda manifest: manifest.update(spec={"requirements": 7}), {}, "spec"),
    ],
)
def test_a_nodeclaim_that_cannot_be_adopted_is_refused_with_field_value_and_reason(
    change: Callable[[Manifest], object] | None, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(Rejected) as refusal:
        adopted(change or (lambda _: None), **fields)
    assert said in str(refusal.value)


def test_an_instance_of_a_type_without_a_price_or_unknown_to_the_catalogue_is_adopted() -> None:
    unknown = replace(INSTANCE, instance_type="x99.huge")
    for expected, fields in (
        (unknown, {"instance": unknown}),
        (INSTANCE, {"catalog": None}),
        (INSTANCE, {"catalog": replace(builders.catalog(), offerings={})}),
    ):
        claim = adopted(**fields)
        assert claim.instance_type == expected.instance_type
        assert claim.allocatable


def test_a_nodeclaim_without_a_nodepool_was_created_by_a_user() -> None:
    def alone(manifest: Manifest) -> None:
        del manifest["metadata"]["labels"]["karpenter.sh/nodepool"], manifest["metadata"]["ownerReferences"]

    tags = {key: value for key, value in TAGS.items() if key != "karpenter.sh/nodepool"}
    assert adopted(alone, tags=tags).is_by_hand


def test_an_adopted_claim_is_read_back_from_the_ledger_as_it_was_written() -> None:
    from nodesmith.model.ledger.items import claim_from_item, claim_to_item

    assert claim_from_item(claim_to_item(adopted())) == adopted()


SEEN = KarpenterSign(NOW - SECOND, "held the lease kube-system/karpenter-leader-election")


@pytest.mark.parametrize(
    ("sign", "word", "reason"),
    [
        (None, None, ""),
        (SEEN, None, "KarpenterRuns"),
        (KarpenterSign(NOW - QUIET, "wrote"), None, ""),
        (KarpenterSign(NOW - QUIET + SECOND, "wrote"), None, "KarpenterRuns"),
        (SEEN, Handover(NOW), ""),
        (SEEN, Handover(NOW - timedelta(minutes=1)), "KarpenterRuns"),
        (None, Handover(NOW, to_karpenter=True), ""),
        (None, Handover(NOW, to_karpenter=True, is_settled=True), "ReleasedToKarpenter"),
    ],
)
def test_nodesmith_stands_by_for_a_karpenter_that_runs_or_that_was_given_the_cluster(
    sign: KarpenterSign | None, word: Handover | None, reason: str
) -> None:
    found = standby(builders.ledger(handover=word), builders.snapshot(karpenter=sign), NOW)
    assert (found.reason if found else "") == reason


def test_a_cluster_that_is_being_released_begins_no_disruption() -> None:
    ledger = builders.ledger(handover=Handover(NOW, to_karpenter=True))
    assert "handed over to Karpenter" in str(paused(ledger, builders.snapshot(), NOW))


def test_a_pause_ends_by_itself() -> None:
    ledger = builders.ledger(paused=Pause(NOW, "adopted", NOW + SECOND))
    assert paused(ledger, builders.snapshot(), NOW) == ledger.paused
    assert paused(ledger, builders.snapshot(), NOW + SECOND) is None


def test_each_nodepool_says_once_that_nodesmith_stands_by() -> None:
    pool = builders.nodepool_manifest()
    held = standby(builders.ledger(), builders.snapshot(karpenter=SEEN), NOW)
    assert held is not None
    ((name, condition),) = standby_conditions([pool], held)
    assert (name, condition["type"], condition["reason"]) == ("default", STANDBY, "KarpenterRuns")
    shown = {**pool, "status": {"conditions": [condition]}}
    assert list(standby_conditions([shown], held)) == []
    assert shown_standby([shown]) == held.message
    assert shown_standby([pool]) == ""


def snapshot_of(*mirrors: Mirror) -> Any:
    return decode(encode(CLUSTER, NOW, observed(mirrors)))


def test_the_snapshot_shows_the_last_sign_of_karpenter() -> None:
    leases, claims = Mirror(LEASES), Mirror(NODECLAIMS)
    assert snapshot_of(leases, claims).karpenter is None
    leases.put(lease(NOW + timedelta(seconds=29)))
    sign = snapshot_of(leases, claims).karpenter
    assert (sign.at, sign.what) == (
        NOW + timedelta(seconds=15),
        "held the lease default/karpenter-leader-election",
    )
    claims.put(_written_by("karpenter", NOW + timedelta(seconds=50)))
    sign = snapshot_of(leases, claims).karpenter
    assert (sign.at, sign.what) == (NOW + timedelta(seconds=45), "wrote objects of kind NodeClaim")


def test_a_renewed_lease_changes_the_snapshot_four_times_a_minute_at_most() -> None:
    leases, changes = Mirror(LEASES), 0
    for second in range(0, 60, 2):
        changes += leases.put(lease(NOW + timedelta(seconds=second))) is not None
    assert changes == 4


def test_a_released_lease_dates_from_its_release() -> None:
    leases, given_up = Mirror(LEASES), lease(NOW + timedelta(seconds=29))
    given_up["spec"]["holderIdentity"] = ""
    leases.put(given_up)
    assert snapshot_of(leases).karpenter.at == NOW + timedelta(seconds=29)


@pytest.mark.parametrize(
    "fields", [[], None, [None, "x", {"manager": "karpenter", "time": 7}], [{"manager": "kubectl"}]]
)
def test_managed_fields_of_others_or_without_sense_are_no_sign(fields: Any) -> None:
    pools = Mirror(NODEPOOLS)
    pool = copy.deepcopy(builders.nodepool_manifest())
    pool["metadata"]["managedFields"] = fields
    pools.put(pool)
    assert snapshot_of(pools).karpenter is None


def _written_by(manager: str, at: datetime) -> Manifest:
    made = karpenters()
    made["metadata"]["managedFields"] = [{"manager": manager, "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"}]
    return made
