"""The style of the house's prose, as far as a pattern can tell: see "Prose" in docs/architecture.md."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unit.test_house_rules import PRODUCT, ROOT, TESTS, files

SOURCES = [path for path in PRODUCT + TESTS if path != Path(__file__)]
PAGES = [path for path in files("*.md") if path.name != "CHANGELOG.md"]
OPENINGS = {
    r"Give (the|a|an|all|every|what|which|how)": "Return",
    r"Gives": "Returns",
    r"Tell": "Return or Report",
    r"Say": "Return or Explain",
}
"""How docstrings must not begin, and what Python's readers expect instead."""
STYLE = {
    r"whoever|whosoever": "name the function, user or component",
    r"heed(s|ed|ing)?": "follow, handle",
    r"(is|are|was|were|be) told of": "is reported",
    r"flock|vacancies|purses?|reckoning": "affinity group, available capacity, limit, metrics",
    r"is to be (seen|told|made|had|found|done)": "must be, will be",
}
"""Patterns in prose, and what to write instead."""


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring and attribute docstring of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(value := node.value, ast.Constant):
            yield from [(node.lineno, value.value)] if isinstance(value.value, str) else []


@cache
def prose() -> tuple[tuple[str, int, str], ...]:
    """Return everything that is written for readers, see `_prose`."""
    return tuple(_prose())


def _prose() -> Iterator[tuple[str, int, str]]:
    """Yield path, line and text of everything that is written for readers: docstrings, comments, pages."""
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        yield from ((name, line, text) for line, text in docstrings(path))
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if line.lstrip().startswith("#"):
                yield name, number, line
    for path in PAGES:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            yield str(path.relative_to(ROOT)), number, line


def test_docstrings_begin_as_python_readers_expect() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:40]!r}: write {instead}"
        for path in SOURCES
        for line, text in docstrings(path)
        for opening, instead in OPENINGS.items()
        if re.match(rf"{opening}\b", text)
    ]
    assert found == []


@pytest.mark.parametrize("pattern", STYLE)
def test_prose_avoids_what_readers_stumble_on(pattern: str) -> None:
    search = re.compile(rf"\b({pattern})\b", re.IGNORECASE).search
    found = [
        f"{name}:{line}: {match[0]!r}: write {STYLE[pattern]}"
        for name, line, text in prose()
        if (match := search(text))
    ]
    assert found == []
