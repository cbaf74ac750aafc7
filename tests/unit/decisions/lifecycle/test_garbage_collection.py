"""What garbage collection removes, and what it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.garbagecollection import MOST, Inventory, garbage, still_detached, suspects
from nodesmith.model.commands import (
    Correct,
    EndClaim,
    Garbage,
    Lift,
    Owned,
    OwnedKind,
    ReleaseNode,
    Remove,
    TakeBack,
    Terminate,
)
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.kubernetes.nodes import Condition, Node
from tests import builders
from tests.builders import NOW, ZONES

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
OLD = NOW - 3 * HOUR


def instance(id_: str = "i-1", claim: str = "default-1", age: timedelta = HOUR, **fields: Any) -> Instance:
    return Instance(
        id_, claim, "m5.large", ZONES[0], "spot", "ami-amd64", "running", NOW - age, "subnet-a", **fields
    )


def claim(
    name: str = "default-1",
    instance_id: str = "i-1",
    phase: Phase = Phase.INITIALIZED,
    since: timedelta = HOUR,
    **fields: Any,
) -> NodeClaim:
    made = NodeClaim(name, "default", NodeClassRef("default"), OLD, phase, NOW - since, **fields)
    if not instance_id:
        return made
    return replace(made, instance_id=instance_id, provider_id=f"aws:///{ZONES[0]}/{instance_id}")


def pending(**launch: Any) -> NodeClaim:
    return claim(instance_id="", phase=Phase.PENDING, launch=launch)


def node(instance_id: str = "i-1", *, ready: bool = False, registered: bool = True, **fields: Any) -> Node:
    labels = {"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default"}
    known = {**labels, **({"karpenter.sh/registered": "true"} if registered else {})}
    made = builders.node(
        f"node-{instance_id}", provider_id=f"aws:///{ZONES[0]}/{instance_id}", labels=known, **fields
    )
    return made if ready else replace(made, conditions={"Ready": Condition("Unknown")})


def nodeclaim(name: str = "default-1", instance_id: str = "i-1", *, launched: str = "True") -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": [{"type": "Launched", "status": launched}]}
    if instance_id:
        status["providerID"] = f"aws:///{ZONES[0]}/{instance_id}"
    return {"metadata": {"name": name, "annotations": {"nodesmith.dev/decision": "d"}}, "status": status}


def inventory(
    *,
    instances: Sequence[Instance] = (),
    claims: Sequence[NodeClaim] = (),
    owned: Sequence[Owned] = (),
    nodes: Sequence[Node] = (),
    nodeclaims: Sequence[Mapping[str, Any]] = (),
    **others: Any,
) -> Inventory:
    kinds: dict[OwnedKind, list[Owned]] = {}
    for each in owned:
        kinds.setdefault(each.kind, []).append(each)
    objects = {"nodes": tuple(nodes), "nodeclaims": tuple(nodeclaims), **others.pop("objects", {})}
    known: dict[str, Any] = {
        "snapshot": builders.snapshot(**objects),
        "instances": instances,
        "owned": kinds,
        "ledger": builders.ledger(claims=tuple(claims), version=7, **others.pop("ledger", {})),
        "living": (),
        "detached_since": {},
        "now": NOW,
    }
    return Inventory(**(known | others))


def found(of: Inventory) -> list[Garbage]:
    return garbage(of)[0]


def test_an_instance_without_a_claim_is_terminated_once_it_is_a_minute_old() -> None:
    assert found(inventory(instances=[instance(age=MINUTE)])) == [Terminate(("i-1",), "Unclaimed")]
    assert found(inventory(instances=[instance(age=MINUTE - timedelta(seconds=1))])) == []


@pytest.mark.parametrize("phase", Phase)
def test_an_instance_that_a_claim_names_stays_whatever_the_claims_phase(phase: Phase) -> None:
    assert found(inventory(instances=[instance()], claims=[claim(phase=phase)])) == []


def test_an_instance_that_has_lost_its_claims_tag_is_recognized_by_its_id() -> None:
    assert found(inventory(instances=[instance(claim="")], claims=[claim()])) == []


def test_an_instance_of_a_claim_that_does_not_name_it_yet_is_left_to_be_adopted() -> None:
    assert found(inventory(instances=[instance()], claims=[pending()])) == []


def test_the_second_instance_of_a_claim_goes() -> None:
    two = [instance("i-1"), instance("i-2")]
    assert found(inventory(instances=two, claims=[claim(instance_id="i-2")])) == [
        Terminate(("i-1",), "Doubled")
    ]
    assert found(inventory(instances=two, claims=[pending()])) == []


def test_an_instance_with_pods_but_without_a_claim_is_taken_back_and_drained() -> None:
    (taken,) = found(inventory(instances=[instance()], nodes=[node(ready=True)]))
    assert isinstance(taken, TakeBack)
    assert taken.version == 7
    (back,) = taken.claims
    assert (back.name, back.phase, back.cause) == ("default-1", Phase.TERMINATING, "Unclaimed")
    assert (back.instance_id, back.provider_id) == ("i-1", f"aws:///{ZONES[0]}/i-1")
    assert (back.nodepool, back.nodeclass.name, back.node_name) == ("default", "default", "node-i-1")


def test_a_node_that_may_belong_to_the_instance_is_drained_even_without_a_provider_id() -> None:
    kind = {"node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/zone": ZONES[0]}
    lost = replace(node(ready=True), provider_id="")
    alike = replace(lost, labels={**lost.labels, **kind})
    (taken,) = found(inventory(instances=[instance()], nodes=[alike]))
    assert isinstance(taken, TakeBack)
    assert [back.node_name for back in taken.claims] == ["node-i-1"]
    other = replace(alike, labels={**alike.labels, "node.kubernetes.io/instance-type": "m5.xlarge"})
    known = claim("default-2", "i-2", node_name="node-i-1")
    assert Terminate(("i-1",), "Unclaimed") in found(inventory(instances=[instance()], nodes=[other]))
    both = inventory(instances=[instance(), instance("i-2", "default-2")], nodes=[alike], claims=[known])
    assert found(both) == [Terminate(("i-1",), "Unclaimed")]


def test_a_node_that_was_never_registered_has_no_pods_and_goes_with_its_instance() -> None:
    alone = inventory(instances=[instance()], nodes=[node(ready=True, registered=False)])
    assert found(alone) == [Terminate(("i-1",), "Unclaimed")]


def test_a_claim_whose_instance_is_gone_ends_even_if_its_node_is_shown() -> None:
    (end,) = found(inventory(claims=[claim()], nodes=[node()]))
    assert isinstance(end, EndClaim)
    assert (end.claim.phase, end.claim.cause) == (Phase.TERMINATING, "InstanceTerminated")
    assert end.claim.message == "instance i-1 is gone"


def test_a_claim_does_not_end_while_its_node_is_ready_its_instance_lives_or_it_is_young() -> None:
    assert found(inventory(claims=[claim()], nodes=[node(ready=True)])) == []
    assert found(inventory(claims=[claim()], nodes=[node()], living=["i-1"])) == []
    assert found(inventory(claims=[claim(since=timedelta(seconds=59))], nodes=[node()])) == []


def test_claims_without_a_node_and_ending_claims_are_left_to_other_concerns() -> None:
    assert found(inventory(claims=[claim()])) == []
    for phase in (Phase.PENDING, Phase.GIVEN_UP, Phase.TERMINATING, Phase.DRAINED, Phase.TERMINATED):
        assert found(inventory(claims=[claim(phase=phase)], nodes=[node()])) == []


def test_changed_security_groups_of_an_instance_are_recorded_on_its_claim() -> None:
    ours, changed = claim(security_groups=("sg-1", "sg-2")), instance(security_groups=("sg-1", "sg-3"))
    assert found(inventory(instances=[changed], claims=[ours])) == [
        Correct(replace(ours, security_groups=("sg-1", "sg-3")))
    ]
    same = instance(security_groups=("sg-2", "sg-1"))
    untold = instance(security_groups=())
    for unchanged in (same, untold):
        assert found(inventory(instances=[unchanged], claims=[ours])) == []


def test_security_groups_are_not_recorded_on_ending_claims_and_on_those_from_older_versions() -> None:
    changed = instance(security_groups=("sg-3",))
    ending = claim(phase=Phase.TERMINATING, security_groups=("sg-1",))
    for ours in (ending, claim()):
        assert found(inventory(instances=[changed], claims=[ours])) == []


def test_a_node_without_claim_and_instance_is_released() -> None:
    assert found(inventory(nodes=[node()])) == [ReleaseNode("node-i-1", f"aws:///{ZONES[0]}/i-1")]


@pytest.mark.parametrize(
    "kept",
    [
        node(ready=True),
        replace(node(), labels={}),
        replace(node(registered=False), provider_id=""),
        replace(node(), provider_id="kwok://node-i-1"),
        replace(node(), created_at=NOW - timedelta(seconds=59)),
    ],
    ids=["ready", "not ours", "its provider id may still come", "no instance of EC2's", "young"],
)
def test_a_node_is_not_released_that(kept: Node) -> None:
    assert found(inventory(nodes=[kept])) == []


def test_a_node_that_was_restored_without_its_provider_id_goes_once_no_claim_has_its_name() -> None:
    restored = replace(node(), provider_id="")
    assert found(inventory(nodes=[restored])) == [ReleaseNode("node-i-1", "")]
    assert found(inventory(nodes=[replace(restored, conditions=node(ready=True).conditions)])) == []
    known = claim(node_name="node-i-1")
    assert found(inventory(nodes=[restored], claims=[known], instances=[instance()])) == []


def test_a_node_whose_instance_lives_is_not_released_whoever_launched_the_instance() -> None:
    assert found(inventory(nodes=[node()], living=["i-1"])) == []


def test_an_object_whose_claim_and_instance_are_gone_is_released() -> None:
    assert found(inventory(nodeclaims=[nodeclaim()])) == [Lift("default-1")]
    assert found(inventory(nodeclaims=[nodeclaim(instance_id="", launched="False")])) == [Lift("default-1")]


def test_an_object_is_kept_while_its_claim_or_its_instance_is_there() -> None:
    assert found(inventory(nodeclaims=[nodeclaim()], claims=[claim()])) == []
    assert found(inventory(nodeclaims=[nodeclaim()], living=["i-1"])) == []
    young = instance(age=timedelta(0))
    assert found(inventory(nodeclaims=[nodeclaim()], instances=[young])) == []


def test_an_object_whose_node_is_still_shown_is_kept_until_that_is_gone() -> None:
    held = node(deleting=True, finalizers=("example.com/backup",))
    assert found(inventory(nodes=(held,), nodeclaims=(nodeclaim(),))) == []
    assert found(inventory(nodeclaims=(nodeclaim(),))) == [Lift("default-1")]


def test_a_foreign_node_keeps_no_object_whatever_provider_id_it_shows() -> None:
    strangers = replace(node(), labels={})
    assert found(inventory(nodes=(strangers,), nodeclaims=(nodeclaim(),))) == [Lift("default-1")]


def test_a_claim_that_waits_for_its_node_is_not_garbage_and_its_instance_is_not_checked() -> None:
    ended = claim(phase=Phase.TERMINATED, instance_gone_at=NOW - MINUTE)
    held = node(deleting=True, finalizers=("example.com/backup",))
    of = inventory(claims=(ended,), nodes=(held,), nodeclaims=(nodeclaim(),))
    assert found(of) == []
    assert suspects(of.snapshot, (), of.ledger) == []


def test_an_instance_that_lives_although_ec2_reported_it_gone_is_terminated() -> None:
    ended = claim(phase=Phase.TERMINATED, instance_gone_at=NOW - MINUTE)
    assert found(inventory(instances=[instance()], claims=(ended,))) == [Terminate(("i-1",), "Doubled")]


def test_a_nodeclaim_that_a_user_created_is_not_garbage() -> None:
    bare = {"metadata": {"name": "mine"}, "spec": {}}
    refused = {**bare, "status": {"conditions": [{"type": "ValidationSucceeded", "status": "False"}]}}
    assert found(inventory(nodeclaims=[bare, refused])) == []


def test_instances_that_are_referred_to_but_not_listed_are_checked_by_id() -> None:
    claims = [
        claim("default-1", "i-1"),
        claim("default-2", "i-2"),
        claim("default-3", "i-3", Phase.TERMINATED),
    ]
    strangers = [replace(node("i-9"), labels={}), replace(node("i-8"), provider_id="kwok://i-8")]
    asked = inventory(
        instances=[instance("i-1")],
        claims=claims,
        nodes=[node("i-4"), *strangers],
        nodeclaims=[nodeclaim("default-5", "i-5"), nodeclaim("default-6", "")],
    )
    assert suspects(asked.snapshot, asked.instances, asked.ledger) == ["i-2", "i-4", "i-5"]


def template(age: timedelta = 2 * HOUR) -> Owned:
    return Owned(OwnedKind.LAUNCH_TEMPLATE, "lt-1", "nodesmith/test/abc", NOW - age)


def test_a_launch_template_that_nothing_used_for_an_hour_is_deleted() -> None:
    assert found(inventory(owned=[template(HOUR)])) == [Remove(template(HOUR))]
    assert found(inventory(owned=[template(HOUR - MINUTE)])) == []


def test_a_launch_template_is_kept_for_a_claim_that_asks_for_it_and_for_an_hour_after_its_last_launch() -> (
    None
):
    asking = pending(overrides=[["nodesmith/test/abc", "m5.large", ZONES[0], "subnet-a", 0.1]], tags={})
    assert found(inventory(owned=[template()], claims=[asking])) == []
    for age, kept in ((HOUR - MINUTE, True), (HOUR, False)):
        launched = [instance(age=age, template_id="lt-1"), instance("i-2", age=2 * HOUR, template_id="lt-1")]
        known = [claim(), claim("default-2", "i-2")]
        assert found(inventory(owned=[template()], claims=known, instances=launched)) == (
            [] if kept else [Remove(template())]
        )


def profile(owner_uid: str = "uid-nodeclass-default", age: timedelta = 2 * HOUR) -> Owned:
    return Owned(OwnedKind.INSTANCE_PROFILE, "test_1", "test_1", NOW - age, owner_uid=owner_uid)


def resolved(instance_profile: str) -> dict[str, Any]:
    status = builders.nodeclass_status(instance_profile=instance_profile)
    return {"nodeclasses": {"default": status}}


def test_the_profile_of_an_ec2nodeclass_that_is_gone_is_deleted() -> None:
    gone = profile("uid-gone")
    assert found(inventory(owned=[gone])) == [Remove(gone)]
    assert found(inventory(owned=[profile("uid-gone", HOUR - MINUTE)])) == []


def test_the_profile_of_a_former_role_is_deleted_and_the_present_one_kept() -> None:
    assert found(inventory(owned=[profile()], ledger=resolved("test_2"))) == [Remove(profile())]
    assert found(inventory(owned=[profile()], ledger=resolved("test_1"))) == []
    assert found(inventory(owned=[profile("uid-gone")], ledger=resolved("test_1"))) == []


def test_while_the_current_profile_of_an_ec2nodeclass_is_unknown_all_its_profiles_are_kept() -> None:
    assert found(inventory(owned=[profile()], ledger=resolved(""))) == []
    assert found(inventory(owned=[profile()], ledger={"nodeclasses": {}})) == []


def test_a_profile_that_a_living_or_future_instance_may_have_is_kept() -> None:
    gone = profile("uid-gone")
    running = instance(instance_profile="test_1")
    assert found(inventory(owned=[gone], claims=[claim()], instances=[running])) == []
    coming = replace(pending(), nodeclass=NodeClassRef("gone"))
    assert found(inventory(owned=[gone], claims=[coming])) == []
    assert found(inventory(owned=[profile()], claims=[pending()], ledger=resolved("test_2"))) == []


def test_a_profile_that_a_claim_or_another_ec2nodeclass_names_is_kept() -> None:
    gone = profile("uid-gone")
    named = {"karpenter.k8s.aws/instance-profile-name": "test_1"}
    assert (
        found(inventory(owned=[gone], claims=[replace(claim(), annotations=named)], instances=[instance()]))
        == []
    )
    other = builders.nodeclass_manifest("other", role=None, instanceProfile="test_1")
    assert found(inventory(owned=[gone], snapshot=builders.snapshot(nodeclasses=(other,)))) == []


VOLUME = Owned(OwnedKind.VOLUME, "vol-1", created_at=OLD, claim="default-1")
INTERFACE = Owned(OwnedKind.NETWORK_INTERFACE, "eni-1")


@pytest.mark.parametrize("loose", [VOLUME, INTERFACE], ids=["volume", "interface"])
def test_resources_that_are_detached_for_ten_minutes_are_deleted(loose: Owned) -> None:
    for age, gone in ((timedelta(minutes=10), [Remove(loose)]), (timedelta(minutes=9, seconds=59), [])):
        assert found(inventory(owned=[loose], detached_since={loose.id: NOW - age})) == gone
    assert found(inventory(owned=[loose])) == []


def test_a_volume_is_kept_while_its_claim_or_an_instance_of_it_exists() -> None:
    since = {"vol-1": OLD}
    assert (
        found(inventory(owned=[VOLUME], detached_since=since, claims=[claim()], instances=[instance()])) == []
    )
    assert Remove(VOLUME) not in found(
        inventory(owned=[VOLUME], detached_since=since, instances=[instance()])
    )


def test_detached_resources_are_remembered_until_they_are_attached_or_gone() -> None:
    first = still_detached({}, {OwnedKind.VOLUME: [VOLUME], OwnedKind.NETWORK_INTERFACE: [INTERFACE]}, OLD)
    assert first == {"vol-1": OLD, "eni-1": OLD}
    assert still_detached(first, {OwnedKind.VOLUME: [VOLUME]}, NOW) == {"vol-1": OLD}
    assert still_detached({}, {OwnedKind.VOLUME: [VOLUME]}, NOW) == {"vol-1": NOW}


def test_one_run_removes_a_limited_number_and_reports_how_many_are_left() -> None:
    many = [instance(f"i-{n:03}", f"gone-{n:03}") for n in range(MOST + 5)]
    (ended,), left = garbage(inventory(instances=many, owned=[template(), profile("uid-gone")]))
    assert isinstance(ended, Terminate)
    assert ended.instances == tuple(f"i-{n:03}" for n in range(MOST))
    assert left == 7
    some, left = garbage(inventory(instances=many[: MOST - 1], owned=[template(), profile("uid-gone")]))
    assert [type(each) for each in some] == [Terminate, Remove]
    assert left == 1


def test_instances_go_first_because_they_cost_most() -> None:
    everything = inventory(
        instances=[instance("i-7", "gone")],
        claims=[claim()],
        nodes=[node(), node("i-4")],
        nodeclaims=[nodeclaim("default-5", "i-5")],
        owned=[template()],
    )
    assert [type(each) for each in found(everything)] == [Terminate, EndClaim, ReleaseNode, Lift, Remove]
