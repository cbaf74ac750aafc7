"""Every spec field of every old kind is converted, or reported to have no effect with the reason."""

from typing import Any

import pytest

from nodesmith.model.karpenter.conversion.converting import convert
from nodesmith.model.karpenter.conversion.drafts import FieldOutcome
from tests.unit.model.karpenter.conversionfields import IDS, ROWS, Row


def is_inline(row: Row) -> bool:
    """Return whether a field is in the `provider` of a Provisioner."""
    return row.field.split(".")[:2] == ["spec", "provider"]


def given(api_version: str, kind: str, row: Row) -> dict[str, Any]:
    """Return an object with this field and the fields that it requires."""
    manifest: dict[str, Any] = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "default"},
        "spec": {},
    }
    if kind == "Provisioner" and not is_inline(row):
        manifest["spec"]["providerRef"] = {"name": "default"}
    if kind == "NodePool":
        manifest["spec"]["template"] = {"spec": {"nodeClassRef": {"name": "default"}}}
    *path, last = row.field.split(".")
    place = manifest
    for step in path:
        place = place.setdefault(step, {})
    place[last] = row.value
    return manifest


NODE_CLASS: dict[str, Any] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {"role": "nodes"},
}


def at(manifest: Any, field: str) -> Any:
    for step in field.split("."):
        manifest = manifest[step]
    return manifest


@pytest.mark.parametrize(("api_version", "kind", "row"), ROWS, ids=IDS)
def test_a_field_is_converted_or_reported_to_have_no_effect(api_version: str, kind: str, row: Row) -> None:
    lacks_class = kind not in {"AWSNodeTemplate", "EC2NodeClass"} and not is_inline(row)
    found = convert([given(api_version, kind, row), *[NODE_CLASS] * lacks_class])
    said = [change for change in found.changes if change.field.startswith(row.field.partition("[")[0])]

    if row.target:
        made = next(each.manifest for each in found.objects if each.manifest["kind"] == row.to)
        assert at(made, row.target) == (row.value if row.becomes is None else row.becomes)
        assert not [
            change for change in said if change.outcome in {FieldOutcome.DROPPED, FieldOutcome.REFUSED}
        ]
    else:
        assert {change.outcome for change in said} <= {FieldOutcome.DROPPED, FieldOutcome.REFUSED}
        assert said
    if row.says:
        assert row.says in " ".join(map(str, found.changes))


@pytest.mark.parametrize(("api_version", "kind", "row"), ROWS, ids=IDS)
def test_a_converted_field_has_the_origin_of_the_old_field(api_version: str, kind: str, row: Row) -> None:
    if not row.target:
        return
    lacks_class = kind not in {"AWSNodeTemplate", "EC2NodeClass"} and not is_inline(row)
    found = convert([given(api_version, kind, row), *[NODE_CLASS] * lacks_class])
    made = next(each for each in found.objects if each.manifest["kind"] == row.to)
    deepest = row.target if row.target != "spec.disruption" else f"{row.target}.consolidationPolicy"
    origin = made.origin(deepest)

    assert origin is not None
    assert origin.number == 0
    assert row.field.startswith(origin.field.removesuffix(".subnetSelector")) or origin.field.startswith(
        row.field
    )
