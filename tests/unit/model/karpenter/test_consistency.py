"""Nodes with fewer resources than what was bought, and problems that are published as Events."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from nodesmith.decisions.lifecycle import event_of, next_steps
from nodesmith.model.apimachinery.labels import UNREGISTERED
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.commands import Command, Forget, GiveUp, Initialize, Register, Show, Wait
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from tests import builders
from tests.builders import NOW

REGISTERED = replace(
    builders.claim(phase=Phase.REGISTERED),
    node_name="node-1",
    launched_at=NOW - timedelta(minutes=2),
    registered_at=NOW - timedelta(minutes=1),
    requests=parse_resources({"cpu": "3", "pods": "2"}),
)
NODE = builders.node("node-1", provider_id=REGISTERED.provider_id, labels=builders.READY)
SMALLER = replace(NODE, capacity=parse_resources({"cpu": "3500m", "memory": "16Gi", "pods": "58"}))
DONE = replace(REGISTERED, phase=Phase.INITIALIZED, initialized_at=NOW, phase_since=NOW)
LACKS = "the Node shows 3500m cpu of 4 that were expected"


def step(claim: NodeClaim, node: Node) -> Command | None:
    seen = builders.snapshot(nodes=(node,), nodeclaims=(manifest(claim),))
    commands = next_steps([claim], seen, {}, [], NOW)
    return commands[0] if commands else None


def condition(claim: NodeClaim) -> tuple[str, str] | None:
    found = {c["type"]: (c["status"], c["reason"]) for c in manifest(claim)["status"]["conditions"]}
    return found.get("ConsistentStateFound")


def test_a_node_that_shows_nine_tenths_of_what_was_requested_is_consistent() -> None:
    enough = replace(NODE, capacity=parse_resources({"cpu": "3600m", "memory": "15Gi", "pods": "58"}))
    initialized = step(REGISTERED, enough)
    assert isinstance(initialized, Initialize)
    assert initialized.claim.inconsistency == ""
    assert initialized.claim.capacity == enough.capacity
    assert condition(initialized.claim) == ("True", "ConsistentStateFound")


def test_memory_that_a_node_lacks_counts_for_the_limits_even_if_none_was_requested() -> None:
    small = replace(NODE, capacity=parse_resources({"cpu": "4", "memory": "1Gi", "pods": "58"}))
    initialized = step(REGISTERED, small)
    assert isinstance(initialized, Initialize)
    assert initialized.claim.capacity.memory_bytes == REGISTERED.capacity.memory_bytes


def test_a_node_that_shows_less_is_initialized_and_marked_inconsistent() -> None:
    initialized = step(REGISTERED, SMALLER)
    assert isinstance(initialized, Initialize)
    assert initialized.claim.inconsistency == LACKS
    assert condition(initialized.claim) == ("False", "ConsistencyCheckFailed")
    assert step(initialized.claim, SMALLER) is None, "once is enough"
    assert initialized.claim.capacity.cpu_milli == 4000, "the expected amount is kept"


def test_a_node_that_lacks_something_later_is_marked_inconsistent_then() -> None:
    lacking = step(DONE, SMALLER)
    assert isinstance(lacking, Wait)
    assert lacking.claim.inconsistency == LACKS
    assert event_of(DONE, lacking, SMALLER) == ("FailedConsistencyCheck", LACKS)


def test_a_node_that_has_everything_again_is_consistent_again() -> None:
    again = step(replace(DONE, inconsistency=LACKS), NODE)
    assert isinstance(again, Wait)
    assert again.claim.inconsistency == ""
    assert condition(again.claim) == ("True", "ConsistentStateFound")
    assert event_of(DONE, again, NODE) is None
    assert step(again.claim, NODE) is None


def test_resources_that_were_not_requested_may_be_missing() -> None:
    assert step(replace(DONE, requests=parse_resources({"memory": "1Gi"})), SMALLER) is None


def test_a_claim_without_the_label_of_its_nodeclass_gets_it() -> None:
    old = manifest(DONE)
    del old["metadata"]["labels"]["karpenter.k8s.aws/ec2nodeclass"]
    seen = builders.snapshot(nodes=(NODE,), nodeclaims=(old,))
    assert next_steps([DONE], seen, {}, [], NOW) == [Show(DONE)]


def test_a_node_that_joined_without_the_taint_causes_a_warning() -> None:
    launched = replace(REGISTERED, phase=Phase.LAUNCHED, node_name="")
    register = Register(REGISTERED)
    new = replace(NODE, labels={})
    assert event_of(launched, register, new) == (
        "UnregisteredTaintMissing",
        "Node node-1 joined without the taint karpenter.sh/unregistered:NoExecute",
    )
    assert event_of(launched, register, replace(new, taints=(UNREGISTERED,))) is None
    opened = replace(NODE, labels={"karpenter.sh/registered": "true"})
    assert event_of(launched, register, opened) is None, "nodesmith removed it a moment ago"


def test_the_end_of_a_claim_is_published_once_with_karpenters_reason() -> None:
    late = replace(REGISTERED, phase=Phase.LAUNCHED).given_up("RegistrationTimeout", "too late", NOW)
    assert event_of(REGISTERED, GiveUp(late), None) == ("RegistrationTimeout", "too late")
    assert event_of(late, Forget(late), None) is None
    empty = builders.claim(phase=Phase.PENDING).given_up("InsufficientCapacity", "none", NOW)
    assert event_of(empty, Forget(empty), None) == ("InsufficientCapacityError", "none")


def test_two_nodes_of_one_instance_cause_a_warning_and_a_normal_start_does_not() -> None:
    two = replace(REGISTERED, reason="MultipleNodesFound", message="Nodes a, b")
    assert event_of(REGISTERED, Wait(two), None) == ("MultipleNodesFound", "Nodes a, b")
    assert event_of(two, Wait(replace(two, message="Nodes a, c")), None) is None
    starting = replace(REGISTERED, reason="NodeNotReady", message="Node node-1 is not Ready")
    assert event_of(REGISTERED, Wait(starting), None) is None
