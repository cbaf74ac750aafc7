"""docs/manifests.md has a row for exactly the spec fields of every old kind, and every field has a test."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodesmith.model.schema.fields import Array, Field, Object
from nodesmith.model.schema.statuses import DEFINITIONS
from nodesmith_formats.crds import served_beside
from tests.unit.model.karpenter.conversionfields import TABLES, Row

PAGE = (Path(__file__).parents[4] / "docs/manifests.md").read_text()
_ROW = re.compile(r"^\| `(spec\.[^`]+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)
EVERY_AGE = pytest.mark.parametrize("age", TABLES, ids=[kind for _, kind in TABLES])
CAME_WITH_V1 = {
    "NodePool": (
        "spec.replicas",
        "spec.template.spec.expireAfter",
        "spec.template.spec.terminationGracePeriod",
        "spec.template.spec.nodeClassRef.group",
        "spec.disruption.budgets[].reasons",
    ),
    "NodeClaim": ("spec.expireAfter", "spec.terminationGracePeriod", "spec.nodeClassRef.group"),
    "EC2NodeClass": (
        "spec.kubelet",
        "spec.amiSelectorTerms[].alias",
        "spec.amiSelectorTerms[].ssmParameter",
        "spec.capacityReservationSelectorTerms",
        "spec.placementGroupSelector",
        "spec.ipPrefixCount",
        "spec.blockDeviceMappings[].ebs.volumeInitializationRate",
        "spec.networkInterfaces",
        "spec.connectionTracking",
        "spec.cpuOptions",
    ),
}
"""v1 fields that the CRD also accepts in v1beta1, since a cluster stores both versions as one object. They need no
conversion."""


def written(row: Row) -> str:
    """Return the table's entry for where a field is in v1."""
    return f"{row.to} `{row.target}`" if row.target else "no effect"


@EVERY_AGE
def test_the_table_of_a_kind_has_all_its_fields_and_where_they_are(age: tuple[str, str]) -> None:
    api_version, kind = age
    heading = f"### {kind}, {api_version}\n"
    assert heading in PAGE
    section = PAGE.partition(heading)[2].partition("\n##")[0]
    found = {field: where for field, where, _ in _ROW.findall(section)}
    assert found == {row.field: written(row) for row in TABLES[age]}


@EVERY_AGE
def test_each_field_of_the_crd_is_in_a_row_with_a_test_value(age: tuple[str, str]) -> None:
    fields = [
        field for field in leaves(specs()[age], "spec") if not is_inside(field, CAME_WITH_V1.get(age[1], ()))
    ]
    assert fields
    assert [field for field in fields if not any(holds(row, field) for row in TABLES[age])] == []


def test_fields_that_are_new_in_v1_are_in_v1() -> None:
    today = {each.kind.name: each.kind.spec for each in DEFINITIONS}
    for kind, fields in CAME_WITH_V1.items():
        there = list(leaves(today[kind], "spec"))
        assert [field for field in fields if not any(is_inside(leaf, (field,)) for leaf in there)] == []


def specs() -> dict[tuple[str, str], Object]:
    """Return the spec that the CRDs accept, by old version and kind."""
    found: dict[tuple[str, str], Object] = {}
    for kind in (each.kind for each in DEFINITIONS):
        olds = served_beside(kind) or {kind.version: kind.spec}
        found |= {(f"{kind.group}/{version}", kind.name): spec for version, spec in olds.items()}
    return found


def leaves(field: Field, path: str) -> Iterator[str]:
    """Yield the fields that contain no further fields. `[]` stands for every item of a list."""
    if isinstance(field, Object) and field.fields:
        for name, inner in field.fields.items():
            yield from leaves(inner, f"{path}.{name}")
    elif isinstance(field, Array):
        yield from leaves(field.of, f"{path}[]")
    else:
        yield path


def is_inside(field: str, others: tuple[str, ...]) -> bool:
    return any(field == other or field.startswith((f"{other}.", f"{other}[")) for other in others)


def holds(row: Row, field: str) -> bool:
    """Return whether a row is about a field and its value contains it."""
    return is_inside(field, (row.field,)) and has(row.value, field.removeprefix(row.field))


def has(value: Any, path: str) -> bool:
    if not path:
        return True
    if path.startswith("[]"):
        return isinstance(value, list) and any(has(item, path.removeprefix("[]")) for item in value)
    name = re.split(r"[.[]", path[1:], maxsplit=1)[0]
    return isinstance(value, dict) and name in value and has(value[name], path[1 + len(name) :])
