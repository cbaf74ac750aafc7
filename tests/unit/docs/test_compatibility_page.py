"""The pages of what is compatible name existing tests for each row, and rows of the page of differences that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
TOLD, LACKING = (DOCS / "compatibility.md").read_text().split("## Without a test here")
TEST = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+/test_\w+\.py)\)")
DIFFERENCE = re.compile(r"\[([^\]]+)\]\(differences\.md#([\w-]+)\)")


def rows(text: str) -> dict[str, tuple[str, ...]]:
    """Return the cells of all tables in a text, without headers, by the first cell of each row."""
    lines = [
        line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| Karpenter")
    ]
    return {cells[0]: tuple(cells) for cells in (line[2:-2].split(" | ") for line in lines)}


ROWS = rows(TOLD)


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((DOCS.parent / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def differences() -> dict[str, str]:
    """Return the first cells of each section of the page of differences as plain text, by the section's anchor."""
    sections = re.split(r"^## ", (DOCS / "differences.md").read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for title, _, text in (section.partition("\n") for section in sections):
        cells = "\n".join(line.split(" | ")[0] for line in text.splitlines() if line.startswith("| "))
        found[title.strip().lower().replace(" ", "-")] = re.sub(r"\]\([^)]*\)|[`\[]", "", cells)
    return found


def test_every_row_has_a_feature_its_tests_and_what_differs() -> None:
    assert len(ROWS) > 65
    assert [row for row in ROWS.values() if len(row) != 3] == []
    assert len(ROWS) == sum(line.startswith("| ") for line in TOLD.splitlines()) - TOLD.count("| Karpenter |")


def test_every_row_names_a_test_and_none_twice() -> None:
    named = {feature: TEST.findall(tests) for feature, tests, _ in ROWS.values()}
    assert [feature for feature, found in named.items() if not found or len(set(found)) < len(found)] == []


def test_every_named_test_is_in_the_file_that_its_link_leads_to() -> None:
    links = {link for _, tests, _ in ROWS.values() for link in TEST.findall(tests)}
    assert sorted(f"{path}::{name}" for name, path in links if name not in names_in(path)) == []
    assert len(re.findall(r"\btest_\w+`", TOLD)) == len(TEST.findall(TOLD)), "each name is such a link"


def test_every_difference_that_a_row_links_to_is_on_the_page_of_differences() -> None:
    known = differences()
    named = {each for _, _, differs in ROWS.values() for each in DIFFERENCE.findall(differs)}
    assert len(named) > 20
    lacking = [each for each in sorted(named) if each[0].replace("`", "") not in known.get(each[1], "")]
    assert lacking == []


def test_features_without_a_test_are_listed_with_the_reason() -> None:
    assert all(len(row) == 2 and all(row) for row in rows(LACKING).values())
    assert len(rows(LACKING)) > 3


def test_every_row_of_cluster_autoscalers_page_has_a_test_that_exists() -> None:
    reported = (DOCS / "cluster-autoscaler.md").read_text().split("## Tests")[1]
    table = [line for line in reported.splitlines() if line.startswith("| ") and line != "| what | test |"]
    named = [TEST.findall(line) for line in table]
    assert len(table) > 12
    assert all(named)
    assert [name for found in named for name, path in found if name not in names_in(path)] == []
