"""Readiness of NodePools and EC2NodeClasses, and their status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.writes import merged_status
from nodesmith.decisions.readiness.launchconditions import to_resolve
from nodesmith.decisions.readiness.readiness import (
    StatusUpdate,
    nodeclass_update,
    nodepool_update,
    ready_condition,
    usage,
)
from nodesmith.model.apimachinery.problems import AWAITING, Parsed
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.ledger.learned import Ending, RegistrationHealth
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.model.nodeclasses.status import CapacityReservation, Image, NodeClassStatus, StatusCondition
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.reduction.objects import reduce_custom
from tests import builders
from tests.builders import NOW

KINDS = ("SubnetsReady", "SecurityGroupsReady", "AMIsReady", "InstanceProfileReady", "ValidationSucceeded")
GOOD = tuple(StatusCondition(kind, "True", kind, since=NOW) for kind in KINDS)
RESOLVED = builders.nodeclass_status(conditions=GOOD)
READY = {"default": StatusCondition("Ready", "True", "Ready")}

Manifest = dict[str, Any]


def resolved_but(kind: str, status: str, reason: str, message: str = "") -> NodeClassStatus:
    """Return the resolution with one false condition."""
    wrong = StatusCondition(kind, status, reason, message, NOW)
    return replace(RESOLVED, conditions=tuple(wrong if c.type == kind else c for c in GOOD))


def classed(manifest: Manifest, status: NodeClassStatus | None = RESOLVED) -> StatusUpdate | None:
    return nodeclass_update(manifest, parse_nodeclass(manifest), status, NOW)


def pooled(
    manifest: Manifest,
    states: Mapping[str, StatusCondition] = READY,
    snapshot: Snapshot | None = None,
    health: RegistrationHealth | None = None,
) -> StatusUpdate | None:
    parsed = parse_nodepool(manifest)
    return nodepool_update(manifest, parsed, states, health, snapshot or builders.snapshot(), NOW)


def conditions(update: StatusUpdate | None) -> dict[str, tuple[str, str, str]]:
    """Return status, reason and message of the conditions by type."""
    assert update is not None
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in update.status["conditions"]}


def seen(manifest: Manifest, update: StatusUpdate | None) -> Manifest:
    """Return the object as the next snapshot shows it after the update."""
    assert update is not None
    status = merged_status(manifest.get("status") or {}, update.status, NOW)
    return reduce_custom({**manifest, "status": status})


def bad_nodepool() -> Manifest:
    return builders.nodepool_manifest(requirements=[builders.expression("kubernetes.io/arch", "Is", "amd64")])


def bad_nodeclass() -> Manifest:
    manifest = builders.nodeclass_manifest()
    manifest["spec"]["amiSelectorTerms"] = []
    return manifest


def test_a_new_nodeclass_must_be_resolved() -> None:
    unknown = builders.ledger(nodeclasses={})
    assert [n.name for n in to_resolve([builders.nodeclass()], unknown, NOW)] == ["default"]


def test_a_changed_nodeclass_must_be_resolved() -> None:
    ledger = builders.ledger(nodeclasses={"default": replace(RESOLVED, content="other")})
    assert len(to_resolve([builders.nodeclass()], ledger, NOW)) == 1


@pytest.mark.parametrize(("status", "minutes"), [(RESOLVED, 5), (resolved_but("AMIsReady", "False", "x"), 1)])
def test_a_resolution_is_valid_for_five_minutes_and_an_unready_one_for_one(
    status: NodeClassStatus, minutes: int
) -> None:
    ledger, nodeclass = builders.ledger(nodeclasses={"default": status}), builders.nodeclass()
    old = NOW + timedelta(minutes=minutes)
    assert to_resolve([nodeclass], ledger, old - timedelta(seconds=1)) == []
    assert to_resolve([nodeclass], ledger, old) == [nodeclass]


def test_nodeclasses_are_resolved_in_the_order_of_their_names() -> None:
    nodeclasses = [builders.nodeclass(name) for name in ("c", "a", "b")]
    assert [n.name for n in to_resolve(nodeclasses, builders.ledger(), NOW)] == ["a", "b", "c"]


def test_a_resolved_nodeclass_is_ready_and_shows_the_selected_resources() -> None:
    update = classed(builders.nodeclass_manifest())
    assert {kind: c[0] for kind, c in conditions(update).items()} == dict.fromkeys((*KINDS, "Ready"), "True")
    assert update is not None
    assert [s["id"] for s in update.status["subnets"]] == ["subnet-a", "subnet-b", "subnet-c"]
    assert update.status["securityGroups"] == [{"id": "sg-1", "name": "nodes"}]
    assert [i["id"] for i in update.status["amis"]] == ["ami-amd64", "ami-arm64"]
    assert update.status["instanceProfile"] == "profile"
    assert {c["observedGeneration"] for c in update.status["conditions"]} == {1}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("SubnetsReady", "SubnetsNotFound"),
        ("SecurityGroupsReady", "SecurityGroupsNotFound"),
        ("AMIsReady", "AMINotFound"),
        ("InstanceProfileReady", "RoleNotFound"),
        ("ValidationSucceeded", "TagValidationFailed"),
    ],
)
def test_a_missing_resource_makes_the_nodeclass_unready_and_is_named(kind: str, reason: str) -> None:
    found = conditions(classed(builders.nodeclass_manifest(), resolved_but(kind, "False", reason, "none")))
    assert found[kind] == ("False", reason, "none")
    assert found["Ready"] == ("False", "UnhealthyDependents", f"{kind}=False: none")
    assert [k for k, c in found.items() if c[0] == "True"] == [k for k in KINDS if k != kind]


def test_an_unknown_condition_makes_ready_unknown_unless_another_is_false() -> None:
    unknown = resolved_but("AMIsReady", "Unknown", "Throttled")
    assert conditions(classed(builders.nodeclass_manifest(), unknown))["Ready"][0] == "Unknown"
    no_role = StatusCondition("InstanceProfileReady", "False", "RoleNotFound")
    both = replace(unknown, conditions=(*unknown.conditions, no_role))
    ready = conditions(classed(builders.nodeclass_manifest(), both))["Ready"]
    assert ready == ("False", "UnhealthyDependents", "InstanceProfileReady=False: RoleNotFound")


def test_ready_names_everything_that_is_missing_but_not_what_only_waits_for_it() -> None:
    missing = resolved_but("SubnetsReady", "False", "SubnetsNotFound", "no subnet matches")
    more = {
        "AMIsReady": ("AMINotFound", "no image matches"),
        "ValidationSucceeded": ("DependenciesNotReady", "waiting for SubnetsReady, AMIsReady"),
    }
    failing = tuple(StatusCondition(kind, "False", *why) for kind, why in more.items())
    kept = tuple(c for c in missing.conditions if c.type not in more)
    ready = conditions(
        classed(builders.nodeclass_manifest(), replace(missing, conditions=(*kept, *failing)))
    )["Ready"]
    message = "SubnetsReady=False: no subnet matches; AMIsReady=False: no image matches"
    assert ready == ("False", "UnhealthyDependents", message)


def test_a_nodeclass_that_is_not_resolved_yet_is_unknown() -> None:
    found = conditions(classed(builders.nodeclass_manifest(), None))
    assert found["ValidationSucceeded"][:2] == ("Unknown", "AwaitingReconciliation")
    assert found["Ready"][0] == "Unknown"


def test_a_nodeclass_with_an_invalid_manifest_names_the_field_and_has_a_warning_event() -> None:
    update = classed(bad_nodeclass(), None)
    found = conditions(update)
    assert found["ValidationSucceeded"][:2] == ("False", "NodeClassValidationFailed")
    assert "EC2NodeClass/default: spec.amiSelectorTerms" in found["ValidationSucceeded"][2]
    assert found["Ready"][:2] == ("False", "UnhealthyDependents")
    assert update is not None
    assert any("spec.amiSelectorTerms" in warning for warning in update.warnings)


def test_an_unchanged_status_is_not_written_again() -> None:
    manifest = builders.nodeclass_manifest()
    assert classed(seen(manifest, classed(manifest))) is None


def test_unchanged_capacity_reservations_are_not_written_again_until_one_is_gone() -> None:
    manifest = builders.nodeclass_manifest()
    held = CapacityReservation("cr-1", "m5.xlarge", "us-east-1a", 2)
    block = replace(
        held, id="cr-2", kind="capacity-block", expiring=True, ends_at=NOW + timedelta(minutes=30)
    )
    both = replace(RESOLVED, capacity_reservations=(held, block))
    shown = seen(manifest, classed(manifest, both))

    used = replace(both, capacity_reservations=(replace(held, available=0), block))
    assert classed(shown, used) is None, "the number of free instances is not shown"
    left = classed(shown, replace(both, capacity_reservations=(held,)))
    assert left is not None
    assert [each["id"] for each in left.status["capacityReservations"]] == ["cr-1"]


def test_a_nodeclass_shows_no_empty_list_even_if_all_reservations_have_ended() -> None:
    manifest = builders.nodeclass_manifest()
    without = merged_status({}, (classed(manifest) or pytest.fail("it is unchanged")).status, NOW)
    assert without["subnets"]
    assert "capacityReservations" not in without

    held = CapacityReservation("cr-1", "m5.xlarge", "us-east-1a", 2)
    shown = seen(manifest, classed(manifest, replace(RESOLVED, capacity_reservations=(held,))))
    ended = seen(shown, classed(shown))
    assert "capacityReservations" not in ended["status"]
    assert classed(ended) is None


def test_a_new_image_is_shown_even_if_no_condition_changes() -> None:
    manifest = builders.nodeclass_manifest()
    newer = replace(RESOLVED, images=(Image("ami-new", "al2023-new"),))
    update = classed(seen(manifest, classed(manifest)), newer)
    assert update is not None
    assert [i["id"] for i in update.status["amis"]] == ["ami-new"]


def test_a_ready_nodeclass_that_becomes_invalid_is_reported_once() -> None:
    was_good = seen(builders.nodeclass_manifest(), classed(builders.nodeclass_manifest()))
    turned = {**bad_nodeclass(), "status": was_good["status"]}
    update = classed(turned, None)
    assert conditions(update)["Ready"][0] == "False"
    assert classed(seen(turned, update), None) is None


def test_a_fixed_nodeclass_becomes_ready_without_an_event() -> None:
    was_bad = seen(bad_nodeclass(), classed(bad_nodeclass(), None))
    mended = {**builders.nodeclass_manifest(), "status": was_bad["status"]}
    mended["metadata"] = {**mended["metadata"], "generation": 2}
    update = classed(mended)
    assert conditions(update)["Ready"] == ("True", "Ready", "")
    assert conditions(update)["ValidationSucceeded"][0] == "True"
    assert update is not None
    assert update.warnings == ()
    assert classed(seen(mended, update)) is None


def test_a_nodepool_is_ready_when_it_is_valid_and_its_nodeclass_is_ready() -> None:
    assert conditions(pooled(builders.nodepool_manifest())) == {
        "ValidationSucceeded": ("True", "ValidationSucceeded", ""),
        "NodeClassReady": ("True", "NodeClassReady", ""),
        "Ready": ("True", "Ready", ""),
        "NodeRegistrationHealthy": ("Unknown", *AWAITING),
    }


@pytest.mark.parametrize(
    ("endings", "reason", "says"),
    [
        ("f", "RegistrationTimeout", ("Unknown", "AwaitingReconciliation")),
        ("t", "", ("True", "NodeRegistrationHealthy")),
        ("tftt", "RegistrationTimeout", ("True", "NodeRegistrationHealthy")),
        ("ff", "RegistrationTimeout", ("False", "RegistrationFailed")),
        ("tffttf"[:4], "InstanceTerminated", ("False", "RegistrationFailed")),
        ("ff", "LaunchTimeout", ("False", "LaunchFailed")),
        ("ff", "Unauthorized", ("False", "Unauthorized")),
    ],
)
def test_a_nodepool_shows_its_registration_health_and_is_ready_regardless(
    endings: str, reason: str, says: tuple[str, str]
) -> None:
    known = tuple(Ending(str(number), letter == "t") for number, letter in enumerate(endings))
    health = RegistrationHealth("basis", endings=known, reason=reason, message="none came")
    found = conditions(pooled(builders.nodepool_manifest(), health=health))
    assert found["NodeRegistrationHealthy"][:2] == says
    assert found["Ready"][0] == "True"
    if says[0] == "False":
        assert (
            f"nodes did not join the cluster; the last: {reason}: none came"
            in found["NodeRegistrationHealthy"][2]
        )


def test_an_invalid_annotation_is_named_in_the_status_of_a_valid_nodepool() -> None:
    manifest = builders.nodepool_manifest()
    manifest["metadata"]["annotations"] = {"nodesmith.dev/registration-timeout": "soon"}
    update = pooled(manifest)
    status, _, message = conditions(update)["ValidationSucceeded"]
    assert status == "True"
    assert "metadata.annotations[nodesmith.dev/registration-timeout] is 'soon': must be a duration" in message
    assert pooled(seen(manifest, update)) is None
    mended = {**seen(manifest, update), "metadata": builders.nodepool_manifest()["metadata"]}
    assert conditions(pooled(mended))["ValidationSucceeded"][2] == ""


def test_a_nodepool_without_its_nodeclass_names_it_and_the_existing_ones() -> None:
    states = {"gpu": READY["default"], "arm": READY["default"]}
    kind, reason, message = conditions(pooled(builders.nodepool_manifest(), states))["NodeClassReady"]
    assert (kind, reason) == ("False", "NodeClassNotFound")
    assert message == "EC2NodeClass 'default' is not found (existing: arm, gpu)"
    assert "(existing: none)" in conditions(pooled(builders.nodepool_manifest(), {}))["NodeClassReady"][2]


def test_a_nodepool_whose_nodeclass_is_not_ready_shows_its_reason() -> None:
    states = {"default": StatusCondition("Ready", "False", "UnhealthyDependents", "AMIsReady=False: none")}
    found = conditions(pooled(builders.nodepool_manifest(), states))
    assert found["NodeClassReady"] == ("False", "UnhealthyDependents", "AMIsReady=False: none")
    assert found["Ready"][:2] == ("False", "UnhealthyDependents")


def test_a_nodepool_whose_nodeclass_is_being_deleted_is_not_ready() -> None:
    going = builders.nodeclass_manifest()
    going["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    states = {"default": ready_condition(classed(going), going)}
    found = conditions(pooled(builders.nodepool_manifest(), states))
    message = "EC2NodeClass 'default' is being deleted"
    assert found["NodeClassReady"] == ("False", "NodeClassTerminating", message)
    assert found["Ready"][0] == "False"


def test_a_nodepool_whose_nodeclass_may_yet_become_ready_is_not_ready() -> None:
    states = {"default": StatusCondition("Ready", "Unknown", "UnhealthyDependents", "waits")}
    found = conditions(pooled(builders.nodepool_manifest(), states))
    assert found["NodeClassReady"] == ("False", "NodeClassReadinessUnknown", "waits")
    assert found["Ready"][:2] == ("False", "UnhealthyDependents")


def test_a_nodepool_with_an_invalid_manifest_names_the_field_and_the_remedy() -> None:
    update = pooled(bad_nodepool())
    found = conditions(update)
    assert found["ValidationSucceeded"][:2] == ("False", "NodePoolValidationFailed")
    assert "spec.template.spec.requirements[0].operator" in found["ValidationSucceeded"][2]
    assert "NodeClassReady" not in found
    assert update is not None
    assert update.warnings


def test_a_ready_nodepool_that_becomes_invalid_is_reported_once() -> None:
    was_good = seen(builders.nodepool_manifest(), pooled(builders.nodepool_manifest()))
    turned = {**bad_nodepool(), "status": was_good["status"]}
    update = pooled(turned)
    assert conditions(update)["Ready"][0] == "False"
    assert pooled(seen(turned, update)) is None


def test_a_fixed_nodepool_becomes_ready() -> None:
    was_bad = seen(bad_nodepool(), pooled(bad_nodepool()))
    mended = {**builders.nodepool_manifest(), "status": was_bad["status"]}
    update = pooled(mended)
    assert conditions(update)["Ready"][0] == "True"
    assert pooled(seen(mended, update)) is None


def test_a_nodepool_counts_its_own_nodes_and_their_resources() -> None:
    ours = {"karpenter.sh/nodepool": "default"}
    nodes = (
        builders.node("a", labels=ours),
        builders.node("b", labels=ours),
        builders.node("c", labels={"karpenter.sh/nodepool": "other"}),
        builders.node("d"),
    )
    update = pooled(builders.nodepool_manifest(), snapshot=builders.snapshot(nodes=nodes))
    assert update is not None
    assert update.status["nodes"] == 2
    assert update.status["resources"]["cpu"] == "8"
    assert update.status["resources"]["nodes"] == "2"


def test_a_node_counts_from_its_launch_until_its_termination() -> None:
    phases = (Phase.LAUNCHED, Phase.INITIALIZED, Phase.TERMINATING, Phase.PENDING)
    claims = [builders.claim(phase.value, phase=phase) for phase in phases]
    going = builders.node("Terminating", labels={"karpenter.sh/nodepool": "default"})
    found = usage("default", claims, builders.snapshot(nodes=(going,)))
    assert (found["nodes"], found["resources"]["cpu"]) == (2, "8")


def test_a_nodepools_resources_have_no_volume_limit_as_nodes_have_none() -> None:
    offered = Resources({"cpu": 4000, "attachable-volumes-csi-ebs.csi.aws.com": 25})
    found = usage("default", [builders.claim(capacity=offered)], builders.snapshot())
    assert found["resources"].keys() == {"cpu", "ephemeral-storage", "memory", "nodes", "pods"}


def test_a_nodepool_without_nodes_shows_zero_resources() -> None:
    nothing = {"cpu": "0", "ephemeral-storage": "0", "memory": "0", "nodes": "0", "pods": "0"}
    assert usage("default", [], builders.snapshot()) == {"nodes": 0, "resources": nothing}


def test_an_additional_node_is_shown_even_if_no_condition_changes() -> None:
    manifest = builders.nodepool_manifest()
    shown = seen(manifest, pooled(manifest))
    assert pooled(shown) is None
    one = builders.snapshot(nodes=(builders.node("a", labels={"karpenter.sh/nodepool": "default"}),))
    update = pooled(shown, snapshot=one)
    assert update is not None
    assert update.status["nodes"] == 1
    gone = pooled(seen(shown, update))
    assert gone is not None
    assert gone.status["nodes"] == 0


def test_a_new_generation_is_shown_as_observed() -> None:
    manifest = builders.nodepool_manifest()
    edited = seen(manifest, pooled(manifest))
    edited["metadata"] = {**edited["metadata"], "generation": 2}
    update = pooled(edited)
    assert update is not None
    assert {c["observedGeneration"] for c in update.status["conditions"]} == {2}


def test_a_condition_of_another_writer_causes_no_write() -> None:
    manifest = builders.nodepool_manifest()
    shown = seen(manifest, pooled(manifest))
    other = {"type": "AuditedBySomebody", "status": "True", "reason": "x", "observedGeneration": 1}
    shown["status"] = {**shown["status"], "conditions": [*shown["status"]["conditions"], other]}
    assert pooled(shown) is None


def test_the_message_about_many_errors_fits_into_a_condition() -> None:
    wrong = [builders.expression(f"example.com/{n}", "Is", "x" * 50) for n in range(60)]
    message = conditions(pooled(builders.nodepool_manifest(requirements=wrong)))["ValidationSucceeded"][2]
    assert 100 < len(message) <= 1024


def test_ready_is_read_from_the_pending_update_or_else_from_the_current_status() -> None:
    manifest = builders.nodeclass_manifest()
    update = classed(manifest)
    assert ready_condition(update, manifest).status == "True"
    assert ready_condition(None, seen(manifest, update)).status == "True"
    assert ready_condition(None, manifest).status == "Unknown"


def test_a_nodepool_shows_the_observed_generation_of_its_nodeclass() -> None:
    second = builders.nodeclass_manifest()
    second["metadata"]["generation"] = 2
    update = pooled(builders.nodepool_manifest(), snapshot=builders.snapshot(nodeclasses=(second,)))
    assert update is not None
    assert update.status["nodeClassObservedGeneration"] == 2
    missing = pooled(builders.nodepool_manifest(), snapshot=builders.snapshot(nodeclasses=()))
    assert missing is not None
    assert "nodeClassObservedGeneration" not in missing.status


def test_a_foreign_ready_condition_is_kept_if_false_and_overwritten_if_true() -> None:
    manifest = builders.nodeclass_manifest()
    parsed = Parsed(builders.nodeclass())
    good = builders.nodeclass_status(conditions=(StatusCondition("SubnetsReady", "True", "SubnetsReady"),))
    bad = builders.nodeclass_status(conditions=(StatusCondition("SubnetsReady", "False", "SubnetsNotFound"),))
    for status, claimed, stands in ((good, "False", True), (bad, "True", False)):
        reported = nodeclass_update(manifest, parsed, status, NOW)
        assert reported is not None
        shown = {**reported.status, "conditions": [dict(c) for c in reported.status["conditions"]]}
        shown["conditions"][-1] |= {"status": claimed, "reason": "Audit"}
        again = nodeclass_update({**manifest, "status": shown}, parsed, status, NOW)
        assert (again is None) is stands
        assert ready_condition(again, {**manifest, "status": shown}).status == "False"
