"""Which fields of EC2NodeClass v1 replace nodes when they change: by Karpenter's rules, walked from the CRD.

Every field of what nodes are launched from does, except the number of IP prefixes. What selectors match is compared
instead of the selectors themselves (`test_drift`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.disruption.drift import DesiredState, Drift, drifted
from nodesmith.decisions.launch.fleets import launched_claim
from nodesmith.decisions.provisioning import as_read, decide
from nodesmith.decisions.readiness.launchconditions import with_past
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration, parse_nodeclass
from tests import builders
from tests.builders import NOW
from tests.objects.launching import instance_of
from tests.objects.nodeclassfields import SPEC, schemas

OTHER: Mapping[str, Any] = {
    "capacityReservationSelectorTerms[].ownerID": "123456789013",
    "kubelet.clusterDNS[]": "10.100.0.11",
    "blockDeviceMappings[].ebs.volumeSize": "101Gi",
    "kubelet.evictionSoftGracePeriod": {"nodefs.available": "3m"},
    "connectionTracking.udpTimeout": 46,
}
"""Values for fields whose pattern a changed text would not match, or whose maximum is near."""
ABSENT_FROM_SPEC: Mapping[str, Any] = {
    "amiSelectorTerms[].alias": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "amiFamily": None,
    },
    "placementGroupSelector.id": {"placementGroupSelector": {"id": "pg-1"}},
    "instanceStorePolicy": {"instanceStorePolicy": None},
    "instanceProfile": {"role": None, "instanceProfile": "profile"},
}
"""Fields that have one value only or exclude another field, with the change to test; None removes a field."""
UNHASHED = {
    "ipPrefixCount",
    *(f"subnetSelectorTerms[].{name}" for name in ("tags", "id")),
    *(f"securityGroupSelectorTerms[].{name}" for name in ("tags", "id", "name")),
    *(
        f"capacityReservationSelectorTerms[].{name}"
        for name in ("tags", "id", "ownerID", "instanceMatchCriteria")
    ),
    *(f"amiSelectorTerms[].{name}" for name in ("alias", "tags", "id", "name", "owner", "ssmParameter")),
}


def claim_of(spec: Mapping[str, Any]) -> NodeClaim:
    """Return the claim of a node that was launched with an EC2NodeClass of this spec."""
    snapshot = snapshot_with(spec, pods=builders.pods(builders.shape("1", "2Gi"), 1))
    planned = decide(builders.inputs(snapshot=snapshot)).nodes[0]
    instance = instance_of(planned, "ami-amd64")
    types = instance_types(embedded_catalog(), NodeConfiguration())
    kind = next(each for each in types if each.name == instance.instance_type)
    return launched_claim(planned.claim, instance, kind, NOW)


def snapshot_with(spec: Mapping[str, Any], **fields: Any) -> Any:
    """Return a snapshot with the EC2NodeClass `default` of this spec, which must be valid."""
    manifest = {**builders.nodeclass_manifest(), "spec": dict(spec)}
    found = parse_nodeclass(manifest)
    assert [problem for problem in found.problems if problem.fatal] == []
    return builders.snapshot(nodeclasses=(manifest,), **fields)


def drift(claim: NodeClaim, spec: Mapping[str, Any]) -> str:
    """Return the drift of a claim once its EC2NodeClass has this spec."""
    return drift_of(claim, spec).reason


def drift_of(claim: NodeClaim, spec: Mapping[str, Any], ledger: Ledger | None = None) -> Drift:
    snapshot = snapshot_with(spec)
    today = DesiredState.of(
        snapshot,
        as_read(ledger or builders.ledger(), snapshot),
        embedded_catalog("us-east-1"),
        NOW + timedelta(minutes=5),
    )
    return drifted(claim, today)


def resolved(ledger: Ledger, *specs: Mapping[str, Any]) -> Ledger:
    """Return the ledger after readiness has resolved the EC2NodeClass with each of these specs in turn."""
    for spec in specs:
        nodeclass = parse_nodeclass({**builders.nodeclass_manifest(), "spec": dict(spec)}).value
        assert nodeclass is not None
        assert ledger.cluster is not None
        status = replace(builders.nodeclass_status(), hash=nodeclass.hash)
        ledger = replace(
            ledger, nodeclasses={"default": with_past(status, nodeclass, ledger.cluster, ledger)}
        )
    return ledger


def changed(path: str) -> dict[str, Any]:
    """Return `SPEC` with another value of one field."""
    spec = copy.deepcopy(SPEC)
    if path in ABSENT_FROM_SPEC:
        given = {**spec, **ABSENT_FROM_SPEC[path]}
        return {name: value for name, value in given.items() if value is not None}
    parents, name = containers(spec, path)
    parent = next(each for each in reversed(parents) if name in each)
    parent[name] = OTHER[path] if path in OTHER else another(parent[name], schemas()[path])
    if path in OTHER and path.endswith("[]"):
        parent[name] = [OTHER[path]]
    return spec


def containers(spec: dict[str, Any], path: str) -> tuple[list[dict[str, Any]], str]:
    """Return the objects that may hold the field at a path, and its name."""
    *steps, name = path.removesuffix("[]").split(".")
    found = [spec]
    for step in steps:
        if step.endswith("[]"):
            found = [item for each in found for item in each[step.removesuffix("[]")]]
        else:
            found = [each[step] for each in found]
    return found, name


def another(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return another valid value of a field."""
    if "enum" in schema:
        return next(each for each in schema["enum"] if each != value)
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case dict():
            return dict.fromkeys(value, "3")
        case _:
            return f"{value}1"


@cache
def launched() -> NodeClaim:
    return claim_of(SPEC)


def test_an_unchanged_nodeclass_causes_no_drift() -> None:
    assert drift(launched(), copy.deepcopy(SPEC)) == ""


@pytest.mark.parametrize("path", sorted(schemas()))
def test_a_changed_field_replaces_nodes_if_it_is_hashed(path: str) -> None:
    spec = changed(path)
    assert spec != SPEC
    assert drift(launched(), spec) == ("" if path in UNHASHED else "NodeClassDrift")


@pytest.mark.parametrize("path", sorted(schemas().keys() - UNHASHED))
def test_drift_names_the_changed_fields_of_the_nodeclass(path: str) -> None:
    ledger = resolved(builders.ledger(claims=(launched(),)), SPEC, changed(path))
    names = path.replace("[]", "").partition(".")[0]
    expected = {
        "amiFamily": "the image family of EC2NodeClass default has changed",
        "instanceProfile": "spec.instanceProfile, spec.role of EC2NodeClass default have changed",
    }
    detail = drift_of(launched(), changed(path), ledger).detail
    assert detail == expected.get(names, f"spec.{names} of EC2NodeClass default has changed")


def test_fields_are_named_also_after_several_changes_and_only_while_nodes_differ() -> None:
    noted = {**SPEC, "context": "a-context", "userData": "#!/bin/sh"}
    later = {**noted, "tags": {"team": "red"}}
    ledger = resolved(builders.ledger(claims=(launched(),)), SPEC, noted, later)

    detail = drift_of(launched(), later, ledger).detail

    assert detail == "spec.context, spec.tags, spec.userData of EC2NodeClass default have changed"
    assert len(ledger.nodeclasses["default"].past) == 3, "that of the node, the last and the current one"
    again = resolved(replace(ledger, claims=()), later)
    assert len(again.nodeclasses["default"].past) == 1


def test_a_new_certificate_authority_is_named() -> None:
    ledger = resolved(builders.ledger(claims=(launched(),)), SPEC)
    assert ledger.cluster is not None
    renewed = replace(ledger, cluster=replace(ledger.cluster, ca_bundle="QW5vdGhlcg=="))
    detail = drift_of(launched(), SPEC, resolved(renewed, SPEC)).detail
    assert detail == "the cluster's certificate authority has changed"


def test_a_spec_that_readiness_has_never_seen_is_not_named() -> None:
    ledger = resolved(builders.ledger(claims=(launched(),)), changed("userData"))
    detail = drift_of(launched(), changed("userData"), ledger).detail
    assert detail == "a field of EC2NodeClass default, or the cluster's certificate authority, has changed"


def test_the_rules_name_existing_fields_only() -> None:
    assert {*UNHASHED, *OTHER, *ABSENT_FROM_SPEC} <= schemas().keys()


def test_an_alias_of_another_family_replaces_nodes_and_one_of_the_same_family_does_not() -> None:
    def of(alias: str) -> dict[str, Any]:
        spec = {**SPEC, "amiSelectorTerms": [{"alias": alias}]}
        return {name: value for name, value in spec.items() if name != "amiFamily"}

    claim = claim_of(of("al2023@latest"))
    assert drift(claim, of("al2023@v20261015")) == ""
    assert drift(claim, of("bottlerocket@latest")) == "NodeClassDrift"


def test_a_kubelet_field_beyond_the_schemas_replaces_nodes() -> None:
    spec = copy.deepcopy(SPEC)
    spec["kubelet"]["containerLogMaxSize"] = "50Mi"
    assert drift(launched(), spec) == "NodeClassDrift"


def test_an_edited_annotation_replaces_no_node() -> None:
    snapshot = snapshot_with(SPEC)
    (manifest,) = snapshot.nodeclasses
    noted = {**manifest, "metadata": {**manifest["metadata"], "annotations": {"note": "x"}}}
    edited = replace(snapshot, nodeclasses=(noted,))
    today = DesiredState.of(edited, as_read(builders.ledger(), edited), embedded_catalog("us-east-1"), NOW)
    assert drifted(launched(), today).reason == ""
