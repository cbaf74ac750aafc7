"""docs/manifests.md has a row for every spec field of every old kind, and no other."""

import re
from pathlib import Path

import pytest

from tests.unit.conversionfields import TABLES, Row

PAGE = (Path(__file__).parents[2] / "docs/manifests.md").read_text()
_ROW = re.compile(r"^\| `(spec\.[^`]+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)


def written(row: Row) -> str:
    """Give what the table says of where a field is today."""
    return f"{row.to} `{row.target}`" if row.target else "no effect"


@pytest.mark.parametrize("age", TABLES, ids=[kind for _, kind in TABLES])
def test_the_table_of_a_kind_has_all_its_fields_and_where_they_are(age: tuple[str, str]) -> None:
    api_version, kind = age
    heading = f"### {kind}, {api_version}\n"
    assert heading in PAGE
    section = PAGE.partition(heading)[2].partition("\n##")[0]
    found = {field: where for field, where, _ in _ROW.findall(section)}
    assert found == {row.field: written(row) for row in TABLES[age]}
