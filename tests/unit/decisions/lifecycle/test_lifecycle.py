"""The next step of each claim: launched, registered, initialized, or given up; and why it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.lifecycle import (
    initialization_patch,
    next_steps,
    registration_patch,
    to_check,
    to_name,
)
from nodesmith.decisions.lifecycle.steps import REPAIRED_AT_ONCE
from nodesmith.model.apimachinery.labels import UNREGISTERED, Effect, Taint
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.commands import Command, End, Forget, GiveUp, Initialize, Open, Register, Show, Wait
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import BY_HAND, NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Condition, Node
from tests import builders
from tests.builders import NOW

CLAIM = builders.claim("default-x1", instance_id="i-default-x1", launched_at=NOW - timedelta(seconds=30))
REGISTERED = replace(
    CLAIM,
    phase=Phase.REGISTERED,
    phase_since=NOW - timedelta(seconds=5),
    registered_at=NOW - timedelta(seconds=5),
    node_name="node-1",
    requests=parse_resources({"cpu": "2", "memory": "2Gi", "pods": "2"}),
    startup_taints=(Taint("example.com/agent", Effect.NO_EXECUTE),),
)
NEW = builders.node("node-1", provider_id=CLAIM.provider_id)
NODE = builders.node("node-1", provider_id=CLAIM.provider_id, labels=builders.READY)


def instance(state: str = "running", number: int = 1) -> Instance:
    return Instance(
        f"i-{number}", CLAIM.name, "m5.large", builders.ZONES[0], "spot", "ami-1", state, NOW, "subnet-a"
    )


def steps(
    *claims: NodeClaim,
    nodes: Sequence[Node] = (),
    instances: Mapping[str, tuple[Instance, ...]] | None = None,
    checked: Sequence[str] = (),
    shown: bool = True,
    now: Any = NOW,
) -> list[Command]:
    """Return the commands, with every claim's object up to date unless it is not `shown`."""
    objects = tuple(manifest(claim) for claim in claims) if shown else ()
    snapshot = builders.snapshot(nodes=tuple(nodes), nodeclaims=objects)
    return next_steps(claims, snapshot, instances or {}, checked, now)


def reason(commands: list[Command]) -> tuple[str, str]:
    (command,) = commands
    assert isinstance(command, Wait)
    return command.claim.reason, command.claim.message


MADE_BY_HAND = replace(CLAIM, origin=BY_HAND)


@pytest.mark.parametrize(
    ("claim", "taken_at", "ends"),
    [
        (MADE_BY_HAND, NOW, True),
        (MADE_BY_HAND, CLAIM.created_at, False),  # the snapshot may be older than the object
        (CLAIM, NOW, False),  # nodesmith writes its own again
        (replace(MADE_BY_HAND, phase=Phase.GIVEN_UP), NOW, False),
        (MADE_BY_HAND.terminating("Drifted", "", NOW), NOW, False),
    ],
)
def test_a_users_claim_whose_object_is_gone_ends(claim: NodeClaim, taken_at: datetime, ends: bool) -> None:
    seen = replace(builders.snapshot(), taken_at=taken_at)
    found = [command.claim for command in next_steps([claim], seen, {}, (), NOW) if isinstance(command, End)]
    assert [(each.phase, each.cause) for each in found] == ([(Phase.TERMINATING, "Deleted")] if ends else [])
    shown = replace(builders.snapshot(nodeclaims=(manifest(claim),)), taken_at=taken_at)
    assert not any(isinstance(command, End) for command in next_steps([claim], shown, {}, (), NOW))


def test_a_launched_claim_shows_that_it_waits_for_its_node() -> None:
    assert reason(steps(CLAIM)) == ("NodeNotFound", "Node not registered with cluster")


def test_a_reason_that_is_recorded_already_is_not_recorded_again() -> None:
    (wait,) = steps(CLAIM)
    assert steps(wait.claim) == []


def test_a_node_with_the_claims_provider_id_registers_it() -> None:
    opened, command = steps(CLAIM, nodes=[NODE])
    assert opened == Open(CLAIM, "node-1")
    assert isinstance(command, Register)
    after = command.claim
    assert (after.phase, after.node_name, after.registered_at) == (Phase.REGISTERED, "node-1", NOW)
    assert (after.phase_since, after.reason, after.message) == (NOW, "", "")


def test_a_node_that_joins_before_it_is_ready_registers_with_its_reason_for_waiting_in_one_step() -> None:
    sick = replace(NODE, conditions={})
    _, registered = steps(CLAIM, nodes=[sick])
    assert isinstance(registered, Register)
    assert (registered.claim.reason, registered.claim.message) == ("NodeNotReady", "Node node-1 is not Ready")
    assert steps(registered.claim, nodes=[sick]) == []


def test_a_node_with_another_provider_id_does_not_register_the_claim() -> None:
    assert reason(steps(CLAIM, nodes=[builders.node("node-2")]))[0] == "NodeNotFound"


def test_a_node_without_a_provider_id_registers_no_claim() -> None:
    nameless = replace(NODE, provider_id="")
    assert reason(steps(CLAIM, nodes=[nameless]))[0] == "NodeNotFound"
    pending = builders.claim("p", phase=Phase.PENDING)
    assert steps(pending, nodes=[nameless]) == []


def test_two_nodes_with_one_provider_id_register_nothing_and_both_are_named() -> None:
    twin = replace(NODE, name="node-0")
    found, message = reason(steps(CLAIM, nodes=[NODE, twin]))
    assert found == "MultipleNodesFound"
    assert "node-0, node-1" in message


def test_a_second_node_that_claims_the_instance_initializes_nothing() -> None:
    impostor = replace(NODE, name="node-0")
    found, message = reason(steps(REGISTERED, nodes=[impostor, NODE]))
    assert found == "MultipleNodesFound"
    assert "node-0, node-1" in message


def test_an_instance_is_checked_once_its_node_is_a_minute_overdue() -> None:
    due = replace(CLAIM, phase_since=NOW - timedelta(minutes=1))
    early = replace(CLAIM, name="early", phase_since=NOW - timedelta(seconds=59))
    assert to_check([due, early], builders.snapshot(), NOW) == ["default-x1"]
    named = replace(due, private_dns_name=NODE.name)
    assert to_check([named], builders.snapshot(nodes=(NODE,)), NOW) == []


def test_the_private_dns_name_is_looked_up_as_soon_as_a_node_shows_the_provider_id() -> None:
    here = builders.snapshot(nodes=(NODE,))
    assert to_name([CLAIM], builders.snapshot()) == []
    assert to_name([CLAIM], here) == ["default-x1"]
    assert to_name([replace(CLAIM, private_dns_name=NODE.name), REGISTERED], here) == []


def test_an_instance_is_checked_when_its_node_has_left_and_never_without_an_instance() -> None:
    hour = NOW - timedelta(hours=1)
    phases = {phase: replace(REGISTERED, name=str(phase), phase=phase, phase_since=hour) for phase in Phase}
    found = to_check(list(phases.values()), builders.snapshot(), NOW)
    with_instances = ["Initialized", "Launched", "Registered", "Starting", "Stopped", "Stopping", "Warming"]
    assert found == with_instances


@pytest.mark.parametrize("phase", [Phase.REGISTERED, Phase.INITIALIZED])
def test_a_claim_whose_instance_and_node_are_gone_ends(phase: Phase) -> None:
    claim = replace(REGISTERED, phase=phase)
    (command,) = steps(claim, checked=[claim.name])
    assert isinstance(command, End)
    assert (command.claim.phase, command.claim.cause) == (Phase.TERMINATING, "InstanceTerminated")
    alive = {claim.name: (instance(),)}
    assert not any(isinstance(c, End) for c in steps(claim, checked=[claim.name], instances=alive))


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_a_claim_whose_instance_died_before_it_joined_is_given_up(state: str) -> None:
    (command,) = steps(CLAIM, instances={CLAIM.name: (instance(state),)}, checked=[CLAIM.name])
    assert isinstance(command, GiveUp)
    assert (command.claim.phase, command.claim.reason) == (Phase.GIVEN_UP, "InstanceTerminated")
    assert CLAIM.instance_id in command.claim.message


def test_a_claim_whose_instance_ec2_no_longer_describes_is_given_up() -> None:
    (command,) = steps(CLAIM, checked=[CLAIM.name])
    assert isinstance(command, GiveUp)


@pytest.mark.parametrize("state", ["pending", "running", "stopping", "stopped"])
def test_a_claim_whose_instance_lives_continues_to_wait(state: str) -> None:
    commands = steps(CLAIM, instances={CLAIM.name: (instance(state),)}, checked=[CLAIM.name])
    assert reason(commands)[0] == "NodeNotFound"


def test_one_living_instance_among_dead_ones_keeps_the_claim() -> None:
    both = {CLAIM.name: (instance("terminated"), instance("running", 2))}
    assert reason(steps(CLAIM, instances=both, checked=[CLAIM.name]))[0] == "NodeNotFound"


def test_a_claim_whose_instance_was_not_checked_is_not_given_up() -> None:
    assert reason(steps(CLAIM, instances={}, checked=[]))[0] == "NodeNotFound"


def launched(minutes_ago: float) -> NodeClaim:
    """Return a claim of the given age whose launch took four minutes."""
    made = NOW - timedelta(minutes=minutes_ago)
    at = made + timedelta(minutes=4)
    return replace(CLAIM, created_at=made, launched_at=at, phase_since=at)


def test_a_claim_without_a_node_is_given_up_fifteen_minutes_after_it_was_made() -> None:
    (command,) = steps(launched(15))
    assert isinstance(command, GiveUp)
    assert (command.claim.reason, command.claim.phase_since) == ("RegistrationTimeout", NOW)
    assert command.claim.message == "no Node has registered within 15 minutes"
    assert command.claim.instance_id == CLAIM.instance_id
    assert reason(steps(launched(14.9)))[0] == "NodeNotFound"


def test_the_nodepool_determines_how_long_a_node_may_take_to_register() -> None:
    slow = builders.nodepool_manifest()
    slow["metadata"]["annotations"] = {"nodesmith.dev/registration-timeout": "1h30m"}

    def given_up(minutes: float, **fields: Any) -> list[type[Command]]:
        claim = replace(launched(minutes), **fields)
        snapshot = builders.snapshot(nodepools=(slow,), nodeclaims=(manifest(claim),))
        return [type(command) for command in next_steps([claim], snapshot, {}, [], NOW)]

    assert given_up(89) == [Wait]
    assert given_up(90) == [GiveUp]
    assert given_up(15, nodepool="another") == [GiveUp], (
        "the claim of a NodePool that is gone has the default"
    )


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        ("Client.InternalError: Client error on launch", "InstanceTerminated"),
        ("Client.InstanceInitiatedShutdown: Instance initiated shutdown", "InstanceTerminated"),
        ("", "InstanceTerminated"),
        ("Server.SpotInstanceTermination: Spot instance termination", "InstanceInterrupted"),
        ("Client.UserInitiatedShutdown: User initiated shutdown", "InstanceInterrupted"),
    ],
)
def test_an_instance_that_was_terminated_from_outside_is_distinguished_from_one_that_failed(
    reported: str, reason: str
) -> None:
    gone = replace(instance("terminated"), id=CLAIM.instance_id, state_reason=reported)
    (command,) = steps(CLAIM, instances={CLAIM.name: (gone,)}, checked=[CLAIM.name])
    assert isinstance(command, GiveUp)
    assert command.claim.reason == reason
    assert reported in command.claim.message


def test_a_node_that_appears_at_the_last_moment_still_counts() -> None:
    assert [type(step) for step in steps(launched(20), nodes=[NODE])] == [Open, Register]


def test_a_registered_claim_is_initialized_with_what_its_node_really_offers() -> None:
    (command,) = steps(REGISTERED, nodes=[NODE])
    assert isinstance(command, Initialize)
    after = command.claim
    assert (after.phase, after.initialized_at) == (Phase.INITIALIZED, NOW)
    assert (after.capacity, after.allocatable) == (NODE.capacity, NODE.allocatable)


def test_a_node_that_is_not_ready_keeps_its_claim_waiting() -> None:
    for conditions in ({}, {"Ready": Condition("False")}, {"Ready": Condition("Unknown")}):
        sick = replace(NODE, conditions=conditions)
        assert reason(steps(REGISTERED, nodes=[sick])) == ("NodeNotReady", "Node node-1 is not Ready")


def test_a_startup_taint_that_is_still_there_keeps_the_claim_waiting_whatever_its_value() -> None:
    tainted = replace(NODE, taints=(Taint("example.com/agent", Effect.NO_EXECUTE, "busy"),))
    found, message = reason(steps(REGISTERED, nodes=[tainted]))
    assert found == "StartupTaintsExist"
    assert "example.com/agent" in message


@pytest.mark.parametrize(
    "taint",
    [
        Taint("node.kubernetes.io/not-ready", Effect.NO_SCHEDULE),
        Taint("node.kubernetes.io/not-ready", Effect.NO_EXECUTE),
        Taint("node.kubernetes.io/unreachable", Effect.NO_SCHEDULE),
        Taint("node.cloudprovider.kubernetes.io/uninitialized", Effect.NO_SCHEDULE, "true"),
        Taint("karpenter.sh/unregistered", Effect.NO_EXECUTE),
        Taint("readiness.k8s.io/network", Effect.NO_SCHEDULE),
    ],
    ids=lambda taint: f"{taint.key} {taint.effect}",
)
def test_a_taint_that_comes_and_goes_while_nodes_start_keeps_the_claim_waiting(taint: Taint) -> None:
    found, message = reason(steps(REGISTERED, nodes=[replace(NODE, taints=(taint,))]))
    assert found == "KnownEphemeralTaintsExist"
    assert taint.key in message


def test_a_taint_of_the_users_own_does_not_keep_the_claim_waiting() -> None:
    dedicated = replace(NODE, taints=(Taint("dedicated", Effect.NO_SCHEDULE, "web"),))
    assert isinstance(steps(REGISTERED, nodes=[dedicated])[0], Initialize)


def test_a_requested_resource_that_is_not_shown_yet_keeps_the_claim_waiting() -> None:
    wants_gpu = replace(REGISTERED, requests=parse_resources({"cpu": "1", "nvidia.com/gpu": "1"}))
    found, message = reason(steps(wants_gpu, nodes=[NODE]))
    assert found == "ResourceNotRegistered"
    assert "nvidia.com/gpu" in message


def test_a_resource_with_a_request_of_zero_is_not_waited_for() -> None:
    wants_none = replace(REGISTERED, requests=parse_resources({"cpu": "1", "nvidia.com/gpu": "0"}))
    assert isinstance(steps(wants_none, nodes=[NODE])[0], Initialize)


def test_a_registered_claim_has_no_time_limit() -> None:
    old = replace(REGISTERED, created_at=NOW - timedelta(days=3), phase_since=NOW - timedelta(days=3))
    assert reason(steps(old, nodes=[replace(NODE, conditions={})]))[0] == "NodeNotReady"


def test_a_registered_claim_shows_that_its_node_is_gone() -> None:
    assert reason(steps(REGISTERED)) == ("NodeNotFound", "Node node-1 is gone from the cluster")


def test_a_registered_claim_whose_kubelet_came_back_under_another_name_continues_with_that_node() -> None:
    renamed = replace(NODE, name="node-2")
    (initialize,) = steps(REGISTERED, nodes=[renamed])
    assert isinstance(initialize, Initialize)
    assert initialize.claim.node_name == "node-2"
    assert reason(steps(REGISTERED, nodes=[replace(renamed, conditions={})]))[0] == "NodeNotReady"


def test_a_registered_claim_ignores_two_nodes_that_came_back_under_other_names() -> None:
    others = [replace(NODE, name=name) for name in ("node-2", "node-3")]
    assert reason(steps(REGISTERED, nodes=others))[0] == "MultipleNodesFound"


def test_a_claim_that_was_given_up_is_forgotten() -> None:
    ended = replace(CLAIM, phase=Phase.GIVEN_UP)
    assert steps(ended) == [Forget(ended)]
    assert steps(ended, shown=False) == [Forget(ended)]


def test_pending_and_initialized_claims_need_nothing_once_they_are_shown() -> None:
    done = replace(REGISTERED, phase=Phase.INITIALIZED, initialized_at=NOW)
    assert steps(builders.claim("p", phase=Phase.PENDING), done, nodes=[NODE]) == []


def test_a_claim_that_the_cluster_does_not_show_is_shown() -> None:
    pending = builders.claim("p", phase=Phase.PENDING)
    assert steps(pending, shown=False) == [Show(pending)]


def test_a_claim_that_the_cluster_shows_in_an_older_state_is_shown_again() -> None:
    done = replace(REGISTERED, phase=Phase.INITIALIZED, initialized_at=NOW)
    snapshot = builders.snapshot(nodes=(NODE,), nodeclaims=(manifest(REGISTERED),))
    assert next_steps([done], snapshot, {}, [], NOW) == [Show(done)]


def test_a_condition_that_is_over_is_removed_once() -> None:
    done = replace(REGISTERED, phase=Phase.INITIALIZED, initialized_at=NOW)
    late = replace(done, drift="AMIDrift", drifted_at=NOW)
    as_new = replace(late, drift="")
    for shown, commands in ((late, [Show(as_new)]), (done, [])):
        seen = builders.snapshot(nodes=(NODE,), nodeclaims=(manifest(shown),))
        assert next_steps([as_new], seen, {}, [], NOW) == commands


def test_commands_are_ordered_by_claim_name_with_one_for_each() -> None:
    claims = [replace(CLAIM, name=name, provider_id=f"aws:///a/{name}") for name in ("c", "a", "b")]
    assert [command.claim.name for command in steps(*claims)] == ["a", "b", "c"]


def test_registration_writes_the_claims_labels_annotations_and_taints_and_removes_unregistered() -> None:
    claim = replace(
        REGISTERED,
        nodepool_hash="123",
        annotations={"note": "x"},
        taints=(Taint("dedicated", Effect.NO_SCHEDULE, "web"),),
    )
    patch = registration_patch(claim, NEW)
    assert patch.labels["karpenter.sh/registered"] == "true"
    assert patch.labels["karpenter.sh/nodepool"] == "default"
    assert patch.annotations["note"] == "x"
    assert patch.annotations["karpenter.sh/nodepool-hash"] == "123"
    assert patch.add_taints == (*claim.taints, *claim.startup_taints)
    assert [taint.key for taint in patch.remove_taints] == ["karpenter.sh/unregistered"]


def test_a_node_whose_kubelet_sets_its_taints_gets_none() -> None:
    node = replace(NODE, labels={"karpenter.sh/do-not-sync-taints": "true"})
    patch = registration_patch(replace(REGISTERED, taints=(Taint("a", Effect.NO_SCHEDULE),)), node)
    assert patch.add_taints == ()
    assert [taint.key for taint in patch.remove_taints] == ["karpenter.sh/unregistered"]


def test_initialization_labels_the_node() -> None:
    patch = initialization_patch(REGISTERED)
    assert patch.labels == {"karpenter.sh/initialized": "true"}
    assert patch.remove_taints == ()


def test_patches_are_for_the_node_of_the_claims_instance_only() -> None:
    assert registration_patch(REGISTERED, NODE).provider_id == CLAIM.provider_id
    assert initialization_patch(REGISTERED).provider_id == CLAIM.provider_id


SHOWN = {"metadata": {"name": CLAIM.name}}


def test_a_claim_of_a_nodepool_that_is_gone_is_shown_without_it_as_owner() -> None:
    """With an owner that is gone, Kubernetes would delete the object, it would be created again, and so on forever."""
    owned = replace(CLAIM, phase=Phase.INITIALIZED, nodepool_uid="uid-default")
    there = next_steps([owned], builders.snapshot(nodes=(NODE,), nodeclaims=(SHOWN,)), {}, (), NOW)
    gone = next_steps(
        [owned], builders.snapshot(nodes=(NODE,), nodeclaims=(SHOWN,), nodepools=()), {}, (), NOW
    )

    assert [manifest(c.claim)["metadata"].get("ownerReferences", [{}])[0].get("uid") for c in there] == [
        "uid-default"
    ]
    assert ["ownerReferences" in manifest(c.claim)["metadata"] for c in gone] == [False]


def test_a_claim_that_was_never_shown_keeps_its_deleted_nodepool_as_owner() -> None:
    """Kubernetes deletes objects whose owner is gone: this one would have been deleted with the others."""
    owned = replace(CLAIM, phase=Phase.INITIALIZED, nodepool_uid="uid-default")
    (show,) = next_steps([owned], builders.snapshot(nodes=(NODE,), nodepools=()), {}, (), NOW)
    assert manifest(show.claim)["metadata"]["ownerReferences"][0]["uid"] == "uid-default"


def test_a_nodepool_that_was_created_again_owns_none_of_the_old_claims() -> None:
    owned = replace(CLAIM, phase=Phase.INITIALIZED, nodepool_uid="uid-of-before")

    (shown,) = next_steps([owned], builders.snapshot(nodes=(NODE,), nodeclaims=(SHOWN,)), {}, (), NOW)

    assert "ownerReferences" not in manifest(shown.claim)["metadata"]


INITIALIZED = REGISTERED.advanced(Phase.INITIALIZED, NOW)
TORN = replace(NEW, taints=(UNREGISTERED,))
"""The Node as its kubelet creates it again after a user has removed the old one."""


@pytest.mark.parametrize("claim", [REGISTERED, INITIALIZED], ids=["registered", "initialized"])
def test_a_node_that_comes_back_without_labels_is_opened_again(claim: NodeClaim) -> None:
    opened, *_ = steps(claim, nodes=[TORN])
    assert opened == Open(claim, "node-1")
    patch = registration_patch(claim, TORN)
    assert patch.labels["karpenter.sh/registered"] == "true"
    assert patch.add_taints == claim.startup_taints
    assert patch.add_finalizers == ("karpenter.sh/termination",)


def test_a_node_that_is_opened_again_is_initialized_again_and_its_claim_stays_as_it_is() -> None:
    closed = replace(NODE, labels=builders.JOINED, taints=INITIALIZED.startup_taints)
    (wait,) = steps(INITIALIZED, nodes=[closed])
    assert isinstance(wait, Wait)
    assert (wait.claim.phase, wait.claim.reason) == (Phase.INITIALIZED, "StartupTaintsExist")
    (again,) = steps(wait.claim, nodes=[replace(closed, taints=())])
    assert again == Initialize(INITIALIZED)
    assert steps(INITIALIZED, nodes=[NODE]) == []


def test_a_registered_node_that_comes_back_is_not_initialized_before_it_is_open() -> None:
    opened, wait = steps(REGISTERED, nodes=[TORN])
    assert isinstance(opened, Open)
    assert isinstance(wait, Wait)
    assert wait.claim.reason == "KnownEphemeralTaintsExist"


def test_a_node_that_comes_back_while_it_is_deleted_or_ending_is_left_to_termination() -> None:
    deleted = replace(TORN, deleting=True)
    assert not [c for c in steps(INITIALIZED, nodes=[deleted]) if isinstance(c, Open | Initialize)]
    ending = INITIALIZED.terminating("Deleted", "by hand", NOW)
    assert steps(ending, nodes=[TORN]) == []


@pytest.mark.parametrize(
    "lacking",
    [
        {"labels": {k: v for k, v in NODE.labels.items() if "ec2nodeclass" not in k}},
        {"labels": {k: v for k, v in NODE.labels.items() if "nodepool" not in k}},
        {"labels": {**NODE.labels, "karpenter.sh/nodepool": "another"}},
        {"finalizers": ("example.com/backup",)},
    ],
    ids=["no label of its NodeClass", "none of its NodePool", "another NodePool", "not held"],
)
def test_a_node_in_service_that_lacks_labels_or_finalizer_gets_them_but_no_startup_taints(
    lacking: dict[str, Any],
) -> None:
    unmarked = replace(NODE, **lacking)
    assert steps(INITIALIZED, nodes=[unmarked]) == [Open(INITIALIZED, "node-1")]
    patch = registration_patch(INITIALIZED, unmarked)
    assert (
        patch.labels["karpenter.k8s.aws/ec2nodeclass"] == patch.labels["karpenter.sh/nodepool"] == "default"
    )
    assert patch.add_finalizers == ("karpenter.sh/termination",)
    assert (patch.add_taints, patch.unschedulable) == ((), None)


def owned_by(uid: str = "", *, shown: str = "uid-1", **metadata: str) -> list[Command]:
    """Return the commands for a Node in service with the given owner, whose NodeClaim is shown with the given uid."""
    node = replace(NODE, owners={"theirs": "uid-theirs"} | ({INITIALIZED.name: uid} if uid else {}))
    claim = manifest(INITIALIZED)
    claim["metadata"] |= metadata | ({"uid": shown} if shown else {})
    snapshot = builders.snapshot(nodes=(node,), nodeclaims=(claim,))
    return next_steps([INITIALIZED], snapshot, {}, (), NOW)


def test_a_node_in_service_gets_its_nodeclaim_as_owner_if_it_has_none_or_an_earlier_one() -> None:
    assert owned_by("uid-1") == []
    assert owned_by() == owned_by("uid-0") == [Open(INITIALIZED, "node-1")]
    assert registration_patch(INITIALIZED, NODE).owner == INITIALIZED.name
    assert owned_by(shown="") == [], "the uid is unknown"
    assert owned_by(deletionTimestamp="2026-11-21T12:00:00Z") == [], "the NodeClaim is being deleted"


def test_one_look_repairs_a_limited_number_of_nodes() -> None:
    claims = [
        replace(
            INITIALIZED, name=f"default-{n}", provider_id=f"aws:///us-east-1a/i-{n}", node_name=f"node-{n}"
        )
        for n in range(REPAIRED_AT_ONCE + 1)
    ]
    nodes = [replace(NODE, name=c.node_name, provider_id=c.provider_id, finalizers=()) for c in claims]
    assert len(steps(*claims, nodes=nodes)) == REPAIRED_AT_ONCE


RESTORED = replace(NODE, provider_id="")
"""The Node as it was restored from a backup: its provider id is missing, and no kubelet sets it again."""


@pytest.mark.parametrize("claim", [REGISTERED, INITIALIZED], ids=["registered", "initialized"])
def test_a_node_that_was_restored_without_its_provider_id_is_recognized_by_name_and_gets_it_back(
    claim: NodeClaim,
) -> None:
    restored = replace(RESTORED, labels=builders.JOINED) if claim is REGISTERED else RESTORED
    opened, *_ = steps(claim, nodes=[restored])
    assert opened == Open(claim, "node-1")
    assert registration_patch(claim, restored).provider_id == claim.provider_id
    assert registration_patch(claim, restored).add_taints == ()


@pytest.mark.parametrize(
    "other",
    [
        replace(RESTORED, name="node-2"),
        replace(RESTORED, labels={}),
        replace(RESTORED, provider_id="aws:///us-east-1a/i-another"),
    ],
    ids=["another name", "it is joining", "another instance's by now"],
)
def test_no_other_node_is_mistaken_for_the_restored_one(other: Node) -> None:
    assert steps(INITIALIZED, nodes=[other]) == []
    assert to_check([INITIALIZED], builders.snapshot(nodes=(other,)), NOW + timedelta(minutes=2))


@pytest.mark.parametrize(
    ("part", "edited"),
    [
        ("metadata", {"finalizers": []}),
        ("metadata", {"labels": {}}),
        ("metadata", {"labels": {"karpenter.sh/nodepool": "another"}}),
        ("status", {"providerID": "aws:///us-east-1a/i-another"}),
        ("status", {"conditions": []}),
    ],
)
def test_an_edited_nodeclaim_is_restored(part: str, edited: dict[str, Any]) -> None:
    there = manifest(INITIALIZED)
    for shown, commands in ((there, []), ({**there, part: {**there[part], **edited}}, [Show(INITIALIZED)])):
        seen = builders.snapshot(nodes=(NODE,), nodeclaims=(shown,))
        assert next_steps([INITIALIZED], seen, {}, (), NOW) == commands


def test_a_condition_of_another_controller_causes_no_write() -> None:
    there = manifest(INITIALIZED)
    theirs = {"type": "example.com/Scanned", "status": "True", "reason": "Scanned"}
    status = {**there["status"], "conditions": [*there["status"]["conditions"], theirs]}
    seen = builders.snapshot(nodes=(NODE,), nodeclaims=({**there, "status": status},))
    assert next_steps([INITIALIZED], seen, {}, (), NOW) == []


def test_a_nodeclaim_that_is_being_deleted_gets_no_finalizer() -> None:
    there = manifest(INITIALIZED)
    going = {
        **there["metadata"],
        "finalizers": ["example.com/backup"],
        "deletionTimestamp": "2026-11-21T11:59:00Z",
    }
    seen = builders.snapshot(nodes=(NODE,), nodeclaims=({**there, "metadata": going},))
    assert next_steps([INITIALIZED], seen, {}, (), NOW) == []
