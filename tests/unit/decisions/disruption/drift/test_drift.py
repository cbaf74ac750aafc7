"""Drift: nodes that differ from what would be bought in their place now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.controllers.disruption.disruption import note_drift
from nodesmith.decisions.disruption.drift import DesiredState, drifted, drifting, noted
from nodesmith.decisions.launch.fleets import launched_claim
from nodesmith.decisions.provisioning import as_read, decide
from nodesmith.errors import Failures
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts, Offering
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.ledger.items import claim_from_item, claim_to_item
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration, parse_nodeclass
from nodesmith.model.nodeclasses.status import (
    CapacityReservation,
    Image,
    NodeClassStatus,
    SecurityGroup,
    StatusCondition,
    Subnet,
)
from nodesmith.model.snapshot import Snapshot
from tests import builders
from tests.builders import EXPRESS, NOW
from tests.fakes.cluster import FakeCluster
from tests.fakes.store import FakeStore
from tests.objects.launching import instance_of

LATER = NOW + timedelta(minutes=61)


def bought() -> NodeClaim:
    """Return the claim of a node that was launched for one pod."""
    inputs = builders.inputs(pods=builders.pods(builders.shape("1", "2Gi"), 1))
    planned = decide(inputs).nodes[0]
    instance = instance_of(planned, "ami-amd64")
    types = instance_types(inputs.catalog, NodeConfiguration.of(builders.nodeclass()))
    kind = next(each for each in types if each.name == instance.instance_type)
    return launched_claim(planned.claim, instance, kind, NOW)


CLAIM = bought()


def today(
    snapshot: Snapshot | None = None, catalog: Catalog | None = None, status: NodeClassStatus | None = None
) -> DesiredState:
    snapshot = snapshot or builders.snapshot()
    read = as_read(builders.ledger(), snapshot)
    ledger = replace(read, nodeclasses={"default": status} if status else read.nodeclasses)
    return DesiredState.of(snapshot, ledger, catalog or embedded_catalog("us-east-1"), LATER)


def test_a_new_node_has_not_drifted() -> None:
    assert drifted(CLAIM, today()).reason == ""


def test_storing_a_claim_in_the_ledger_causes_no_drift() -> None:
    kept = claim_from_item(claim_to_item(replace(CLAIM, drift="AMIDrift", drifted_at=NOW)))
    assert (kept.subnet_id, kept.security_groups) == (CLAIM.subnet_id, ("sg-1",))
    assert (kept.drift, kept.drifted_at) == ("AMIDrift", NOW)
    assert (kept.comparable_nodepool_hash, kept.comparable_nodeclass_hash) == (
        CLAIM.nodepool_hash,
        CLAIM.nodeclass_hash,
    )
    assert drifted(kept, today()).reason == ""


def test_a_claim_without_stored_subnets_and_security_groups_does_not_drift_because_of_them() -> None:
    old = {key: v for key, v in claim_to_item(CLAIM).items() if key not in {"subnet_id", "security_groups"}}
    gone = builders.nodeclass_status(
        subnets=(Subnet("subnet-new", "us-east-1a"),), security_groups=(SecurityGroup("sg-new"),)
    )
    assert drifted(claim_from_item(old), today(status=gone)).reason == ""
    assert drifted(CLAIM, today(status=gone)).reason == "SecurityGroupDrift"


def changed_pool(**fields: Any) -> Snapshot:
    return builders.snapshot(nodepools=(builders.nodepool_manifest(**fields),))


def test_a_changed_template_causes_drift_and_changed_budgets_do_not() -> None:
    relabelled = changed_pool(labels={"team": "blue"})
    assert drifted(CLAIM, today(relabelled)).reason == "NodePoolDrifted"
    budgets = builders.nodepool_manifest()
    budgets["spec"]["disruption"] = {"consolidateAfter": "5m", "budgets": [{"nodes": "0"}]}
    assert drifted(CLAIM, today(builders.snapshot(nodepools=(budgets,)))).reason == ""


def test_requirements_cause_drift_only_if_the_node_no_longer_meets_them() -> None:
    narrower = [*EXPRESS, {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [CLAIM.zone]}]
    assert drifted(CLAIM, today(changed_pool(requirements=narrower))).reason == ""
    elsewhere = [
        *EXPRESS,
        {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": [CLAIM.zone]},
    ]
    assert drifted(CLAIM, today(changed_pool(requirements=elsewhere))).reason == "RequirementsDrifted"
    labelled = [*EXPRESS, {"key": "example.com/team", "operator": "In", "values": ["blue"]}]
    assert drifted(CLAIM, today(changed_pool(requirements=labelled))).reason == "RequirementsDrifted"


def test_facts_of_an_instance_type_unknown_at_launch_cause_no_drift() -> None:
    of_type = ("karpenter.k8s.aws", "kubernetes.io/arch")
    unknown = replace(CLAIM, labels={k: v for k, v in CLAIM.labels.items() if not k.startswith(of_type)})
    assert drifted(unknown, today()).reason == ""
    gpus = [*EXPRESS, {"key": "karpenter.k8s.aws/instance-gpu-name", "operator": "In", "values": ["t4"]}]
    assert drifted(unknown, today(changed_pool(requirements=gpus))).reason == ""
    assert drifted(CLAIM, today(changed_pool(requirements=gpus))).reason == "RequirementsDrifted"


def without_its_type(known: Catalog, made_at: datetime = LATER) -> Catalog:
    facts = {name: one for name, one in known.facts.items() if name != CLAIM.instance_type}
    offerings = {name: offered for name, offered in known.offerings.items() if name in facts}
    return replace(known, facts=facts, offerings=offerings, made_at=made_at)


def test_a_type_that_is_no_longer_sold_causes_drift_after_an_hour() -> None:
    known = embedded_catalog("us-east-1")
    without = without_its_type(known)
    assert drifted(CLAIM, today(catalog=without)).reason == "InstanceTypeNotFound"
    young = replace(CLAIM, created_at=LATER - timedelta(minutes=59))
    assert drifted(young, today(catalog=without)).reason == ""


def test_what_a_catalogue_older_than_the_node_lacks_causes_no_drift() -> None:
    """Until AWS has been asked, the catalogue that ships with nodesmith applies."""
    shipped = embedded_catalog("us-east-1")
    assert shipped.made_at < CLAIM.created_at
    assert drifted(CLAIM, today(catalog=without_its_type(shipped, shipped.made_at))).reason == ""
    elsewhere = {CLAIM.instance_type: (Offering("us-east-1f", CLAIM.capacity_type, 1.0),)}
    assert drifted(CLAIM, today(catalog=replace(shipped, offerings=elsewhere))).reason == ""
    current = replace(shipped, offerings=elsewhere, made_at=LATER)
    assert drifted(CLAIM, today(catalog=current)).reason == "InstanceTypeNotFound"


def test_of_several_causes_the_first_in_karpenters_order_is_the_reason() -> None:
    """Everything has changed at first, and is put right step by step."""
    elsewhere = [
        *EXPRESS,
        {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": [CLAIM.zone]},
    ]
    known = embedded_catalog("us-east-1")
    without = without_its_type(known)
    changed, its_status = changed_class(userData="#!/bin/sh")
    now: dict[str, Any] = {
        "pool": builders.nodepool_manifest(labels={"team": "blue"}, requirements=elsewhere),
        "catalog": without,
        "nodeclass": changed.nodeclasses,
        "images": (image("ami-new"),),
        "security_groups": (SecurityGroup("sg-new"),),
        "subnets": (Subnet("subnet-new", CLAIM.zone),),
    }
    unchanged = builders.nodeclass_status()
    steps: list[tuple[str, dict[str, Any]]] = [
        ("NodePoolDrifted", {"pool": builders.nodepool_manifest(requirements=elsewhere)}),
        ("RequirementsDrifted", {"pool": builders.nodepool_manifest()}),
        ("InstanceTypeNotFound", {"catalog": known}),
        ("NodeClassDrift", {"nodeclass": builders.snapshot().nodeclasses}),
        ("AMIDrift", {"images": unchanged.images}),
        ("SecurityGroupDrift", {"security_groups": unchanged.security_groups}),
        ("SubnetDrift", {"subnets": unchanged.subnets}),
        ("", {}),
    ]
    for reason, put_right in steps:
        shown = builders.snapshot(nodepools=(now["pool"],), nodeclasses=now["nodeclass"])
        resolved = its_status if now["nodeclass"] == changed.nodeclasses else unchanged
        chosen = {key: now[key] for key in ("images", "security_groups", "subnets")}
        assert drifted(CLAIM, today(shown, now["catalog"], replace(resolved, **chosen))).reason == reason
        now |= put_right


def test_an_unavailable_type_still_counts_as_sold_and_a_reserved_one_need_only_exist() -> None:
    offered = Offering(CLAIM.zone, "on-demand", 1.0, available=False)
    known = replace(embedded_catalog("us-east-1"), made_at=LATER)
    facts = known.facts[CLAIM.instance_type]
    assert isinstance(facts, InstanceFacts)
    facts = replace(facts, capacity_types=("on-demand",))
    catalog = replace(known, facts={CLAIM.instance_type: facts}, offerings={CLAIM.instance_type: (offered,)})
    assert (
        drifted(replace(CLAIM, capacity_type="on-demand"), today(catalog=catalog)).reason
        != "InstanceTypeNotFound"
    )
    assert (
        drifted(replace(CLAIM, capacity_type="spot"), today(catalog=catalog)).reason == "InstanceTypeNotFound"
    )
    nowhere = replace(catalog, offerings={})
    assert (
        drifted(replace(CLAIM, capacity_type="reserved"), today(catalog=nowhere)).reason
        != "InstanceTypeNotFound"
    )
    unknown = replace(CLAIM, capacity_type="reserved", instance_type="m0.large")
    assert drifted(unknown, today(catalog=nowhere)).reason == "InstanceTypeNotFound"


@pytest.mark.parametrize("capacity_type", ["on-demand", "spot"])
def test_a_type_or_an_offering_without_a_known_price_is_sold_all_the_same(capacity_type: str) -> None:
    """New types have no price where the price list cannot be read; EC2 may have no spot price of a zone."""
    known = replace(embedded_catalog("us-east-1"), made_at=LATER)
    claim = replace(CLAIM, capacity_type=capacity_type)
    priced = {name: offers for name, offers in known.offerings.items() if name != CLAIM.instance_type}
    assert drifted(claim, today(catalog=replace(known, offerings=priced))).reason == ""
    other = "spot" if capacity_type == "on-demand" else "on-demand"

    def without_price(zone: str) -> Catalog:
        return replace(known, offerings={**priced, CLAIM.instance_type: (Offering(zone, other, 1.0),)})

    assert drifted(claim, today(catalog=without_price(CLAIM.zone))).reason == ""
    assert drifted(claim, today(catalog=without_price(f"{CLAIM.zone}x"))).reason == "InstanceTypeNotFound"


def changed_class(**spec: Any) -> tuple[Snapshot, NodeClassStatus]:
    made = builders.nodeclass_manifest(**spec)
    parsed = parse_nodeclass(made).value
    assert parsed is not None
    return builders.snapshot(nodeclasses=(made,)), builders.nodeclass_status(
        hash=parsed.hash, content=parsed.content
    )


def test_a_changed_nodeclass_causes_drift_and_changed_selectors_alone_do_not() -> None:
    snapshot, status = changed_class(userData="#!/bin/sh")
    assert drifted(CLAIM, today(snapshot, status=status)).reason == "NodeClassDrift"
    snapshot, status = changed_class(subnetSelectorTerms=[{"id": "subnet-0123"}])
    assert drifted(CLAIM, today(snapshot, status=status)).reason == ""


def image(id_: str, arch: str = "amd64") -> Image:
    return Image(id_, "", Requirements.of(requirement("kubernetes.io/arch", "In", [arch])))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"images": (image("ami-new"), image("ami-amd64"))}, "AMIDrift"),
        ({"images": (image("ami-new", "arm64"), image("ami-amd64"))}, ""),
        ({"images": (image("ami-new", "arm64"),)}, ""),
        ({"images": ()}, ""),
        ({"security_groups": (SecurityGroup("sg-1"), SecurityGroup("sg-2"))}, "SecurityGroupDrift"),
        ({"security_groups": ()}, ""),
        ({"subnets": (Subnet("subnet-other", "us-east-1a"),)}, "SubnetDrift"),
        ({"subnets": ()}, ""),
    ],
)
def test_selected_resources_are_compared_with_those_of_the_node(found: dict[str, Any], reason: str) -> None:
    assert drifted(CLAIM, today(status=builders.nodeclass_status(**found))).reason == reason


def test_changed_selectors_cause_no_drift_until_they_are_resolved() -> None:
    new_image: dict[str, Any] = {"images": (image("ami-new"),)}
    assert drifted(CLAIM, today(status=builders.nodeclass_status(**new_image))).reason == "AMIDrift"
    assert drifted(CLAIM, today(status=builders.nodeclass_status(content="other", **new_image))).reason == ""


def test_a_node_whose_reservation_is_no_longer_selected_drifts() -> None:
    reserved = replace(
        CLAIM,
        capacity_type="reserved",
        labels={
            **CLAIM.labels,
            "karpenter.sh/capacity-type": "reserved",
            "karpenter.k8s.aws/capacity-reservation-id": "cr-1",
        },
    )
    widened = [{**EXPRESS[0], "values": ["reserved", "spot", "on-demand"]}, *EXPRESS[1:]]
    held = CapacityReservation("cr-1", CLAIM.instance_type, CLAIM.zone, 0)
    pools = changed_pool(requirements=widened)
    with_it = builders.nodeclass_status(capacity_reservations=(held,))
    assert drifted(reserved, today(pools, status=with_it)).reason == ""
    assert drifted(reserved, today(pools)).reason == "CapacityReservationDrift"
    unknown = StatusCondition("CapacityReservationsReady", "False", "UnauthorizedOperation")
    assert (
        drifted(reserved, today(pools, status=builders.nodeclass_status(conditions=(unknown,)))).reason == ""
    )


def test_hashes_of_another_version_are_not_compared() -> None:
    older = replace(CLAIM, nodepool_hash_version="nodesmith-v1", nodepool_hash="old")
    assert drifted(older, today()).reason == ""
    assert drifted(replace(older, nodepool_hash_version="v3"), today()).reason == "NodePoolDrifted"
    older = replace(CLAIM, nodeclass_hash_version="v4", nodeclass_hash="old")
    assert drifted(older, today()).reason == ""
    assert drifted(replace(older, nodeclass_hash_version="v5"), today()).reason == "NodeClassDrift"


def test_a_new_certificate_authority_of_the_cluster_causes_drift() -> None:
    ledger = as_read(builders.ledger(), builders.snapshot())
    assert ledger.cluster is not None
    renewed = replace(ledger, cluster=replace(ledger.cluster, ca_bundle="QW5vdGhlcg=="))
    look = DesiredState.of(builders.snapshot(), renewed, embedded_catalog("us-east-1"), LATER)
    assert drifted(CLAIM, look).reason == "NodeClassDrift"


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ({}, ""),
        ({"": "1", "-version": "v4"}, ""),
        ({"": CLAIM.nodeclass_hash, "-version": "v5"}, ""),
        ({"": "1", "-version": "v5"}, "NodeClassDrift"),
    ],
)
def test_without_the_certificate_authority_the_nodeclasss_own_hash_is_compared(
    stated: dict[str, str], reason: str
) -> None:
    made = builders.nodeclass_manifest()
    key = "karpenter.k8s.aws/ec2nodeclass-hash"
    made["metadata"]["annotations"] = {f"{key}{end}": value for end, value in stated.items()}
    desired = replace(today(builders.snapshot(nodeclasses=(made,))), ca_bundle="")
    assert drifted(CLAIM, desired).reason == reason


def test_a_terminating_claim_or_one_without_its_nodepool_does_not_drift() -> None:
    relabelled = changed_pool(labels={"team": "blue"})
    ending = CLAIM.terminating("Deleted", "by hand", NOW)
    assert drifted(ending, today(relabelled)).reason == ""
    pending = replace(CLAIM, phase=Phase.PENDING)
    assert drifted(pending, today(relabelled)).reason == ""
    assert drifted(CLAIM, today(builders.snapshot(nodepools=()))).reason == ""
    deleted = builders.nodepool_manifest(labels={"team": "blue"})
    deleted["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    assert parse_nodepool(deleted).value is not None
    assert drifted(CLAIM, today(builders.snapshot(nodepools=(deleted,)))).reason == ""


def changed_template(**fields: Any) -> DesiredState:
    """Return what is desired once the NodePool's template has these fields of its spec, or labels."""
    made = builders.nodepool_manifest(labels=fields.pop("labels", None))
    made["spec"]["template"]["spec"] |= fields
    return today(builders.snapshot(nodepools=(made,)))


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"labels": {"team": "blue"}}, "label team is blue, was not set"),
        ({"expireAfter": "48h"}, "expireAfter is 48h, was 720h"),
        ({"terminationGracePeriod": "1h"}, "terminationGracePeriod is 1h, was not set"),
        (
            {"taints": [{"key": "team", "value": "blue", "effect": "NoSchedule"}]},
            "taints is team=blue:NoSchedule, was not set",
        ),
        (
            {"startupTaints": [{"key": "cni", "effect": "NoExecute"}]},
            "startupTaints is cni:NoExecute, was not set",
        ),
        (
            {"labels": {"a": "1", "b": "2"}, "expireAfter": "Never", "terminationGracePeriod": "1m"},
            "label a is 1, was not set; label b is 2, was not set; expireAfter is Never, was 720h; and 1 more",
        ),
    ],
)
def test_drift_from_the_template_names_its_fields(fields: dict[str, Any], detail: str) -> None:
    assert drifted(CLAIM, changed_template(**fields)) == ("NodePoolDrifted", detail)


@pytest.mark.parametrize(
    "key", ["team", "node.kubernetes.io/team", "app.k8s.io/team", "eks.amazonaws.com/team"]
)
def test_a_label_that_the_template_had_is_named_and_those_of_the_instance_are_not(key: str) -> None:
    labelled = replace(CLAIM, labels={**CLAIM.labels, key: "blue"}, nodepool_hash="other")
    assert drifted(labelled, today()).detail == f"label {key} is not set, was blue"


def test_an_annotation_that_the_template_had_is_named_also_in_a_domain_of_kubernetes() -> None:
    key = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
    annotated = replace(CLAIM, annotations={**CLAIM.annotations, key: "true"}, nodepool_hash="other")
    assert drifted(annotated, today()).detail == f"annotation {key} is not set, was true"


def test_drift_of_the_template_that_cannot_be_named_names_the_nodepool() -> None:
    unnamed = "a field of the template of NodePool default has changed"
    assert drifted(replace(CLAIM, nodepool_hash="other"), today()) == ("NodePoolDrifted", unnamed)


def test_drift_names_the_requirement_that_the_node_does_not_meet() -> None:
    elsewhere = [*EXPRESS, builders.expression("topology.kubernetes.io/zone", "In", "us-east-1f")]
    found = drifted(CLAIM, today(changed_pool(requirements=elsewhere)))
    assert (
        found.detail == f"topology.kubernetes.io/zone In [us-east-1f] is required, the node has {CLAIM.zone}"
    )


@pytest.mark.parametrize(
    ("found", "detail"),
    [
        (
            {"images": (replace(image("ami-new"), name="al2023-v2"),)},
            "its image is ami-amd64, a new node's ami-new (al2023-v2)",
        ),
        (
            {"security_groups": (SecurityGroup("sg-2"), SecurityGroup("sg-1"))},
            f"its security groups: {', '.join(CLAIM.security_groups)}; its EC2NodeClass selects sg-1, sg-2",
        ),
        (
            {"subnets": (Subnet("subnet-other", "us-east-1a"),)},
            f"its subnet: {CLAIM.subnet_id}; its EC2NodeClass selects subnet-other",
        ),
    ],
)
def test_drift_names_what_the_node_has_and_what_is_selected(found: dict[str, Any], detail: str) -> None:
    assert drifted(CLAIM, today(status=builders.nodeclass_status(**found))).detail == detail


def test_what_has_drifted_is_shown_on_the_object_and_a_further_change_keeps_the_time() -> None:
    first, second = changed_template(expireAfter="48h"), changed_template(expireAfter="24h")
    (late,) = written([CLAIM], first)
    (later,) = written([late], replace(second, now=LATER + timedelta(hours=1)))
    assert later.drifted_at == late.drifted_at == LATER
    messages = [
        condition["message"]
        for each in (late, later)
        for condition in manifest(each)["status"]["conditions"]
        if condition["type"] == "Drifted"
    ]
    assert messages == ["expireAfter is 48h, was 720h", "expireAfter is 24h, was 720h"]


def shown(claim: NodeClaim) -> tuple[str, str] | None:
    found = {c["type"]: (c["status"], c["reason"]) for c in manifest(claim)["status"]["conditions"]}
    return found.get("Drifted")


def written(claims: Sequence[NodeClaim], now: DesiredState) -> list[NodeClaim]:
    return noted(claims, {claim.name: drifted(claim, now) for claim in claims}, now.now)


def test_drift_is_recorded_once_and_shown_on_the_object_while_it_lasts() -> None:
    renewed = today(status=builders.nodeclass_status(images=(image("ami-new"),)))
    (late,) = written([CLAIM], renewed)
    assert (late.drift, late.drifted_at) == ("AMIDrift", LATER)
    assert written([late], renewed) == []
    assert written([CLAIM], today()) == []
    (as_new,) = written([late], today())
    assert as_new.drift == ""
    assert [shown(each) for each in (CLAIM, late, as_new)] == [
        None,
        ("True", "AMIDrift"),
        ("False", ""),
    ]


def test_drift_that_has_ended_is_removed_from_the_object() -> None:
    cluster, since = FakeCluster(), NOW - timedelta(hours=1)
    late = replace(CLAIM, drift="AMIDrift", drifted_at=since)
    for each in (late, replace(late, drift="", drifted_at=NOW)):
        cluster.apply_nodeclaim(manifest(each))
    types = {c["type"] for c in cluster.nodeclaims[CLAIM.name]["status"]["conditions"]}
    assert "Launched" in types
    assert "Drifted" not in types


def test_the_drift_reason_of_a_terminating_claim_is_kept() -> None:
    ending = replace(CLAIM.terminating("Drifted", "", NOW), drift="AMIDrift", drifted_at=NOW)
    assert written([ending], today()) == []


def test_drift_is_written_to_ledger_and_object_and_a_conflict_does_not_affect_other_claims() -> None:
    store, cluster = FakeStore(), FakeCluster()
    store.commit(0, [CLAIM, replace(CLAIM, name="default-x2")], "d")
    snapshot = changed_pool(labels={"team": "blue"})
    inputs = builders.inputs(snapshot=snapshot, ledger=builders.ledger(claims=store.load().claims))
    first, second = inputs.ledger.claims
    store.save(first)
    drift = drifting(inputs.snapshot, inputs.ledger, inputs.catalog, inputs.now)
    assert note_drift(drift, inputs, store, cluster, Failures()) == (1, 2)
    assert [claim.drift for claim in store.load().claims] == ["", "NodePoolDrifted"]
    (drifted_one,) = [
        c for c in cluster.nodeclaims[second.name]["status"]["conditions"] if c["type"] == "Drifted"
    ]
    assert (drifted_one["status"], drifted_one["reason"]) == ("True", "NodePoolDrifted")
