"""The style of the house's prose, as far as a pattern can tell: see "Prose" in docs/architecture.md."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.unit.repository.test_house_rules import PRODUCT, ROOT, TESTS, files

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


pytestmark = pytest.mark.xdist_group(
    "prose"
)  # its tests share what they have read, which takes three seconds

Text = tuple[str, int, str]
"""Path, line and text."""


_ANY_STYLE = re.compile(rf"\b({'|'.join(STYLE)})\b", re.IGNORECASE)
_ANY_OPENING = re.compile(rf"[\"'](?:\\\n)?({'|'.join(OPENINGS)})\b")


@cache
def texts() -> dict[Path, str]:
    return {path: path.read_text() for path in SOURCES + PAGES}


@cache
def docstrings() -> tuple[Text, ...]:
    """Return the docstrings, including those of attributes, of the files in which any pattern occurs."""
    return tuple(
        (str(path.relative_to(ROOT)), node.lineno, node.value.value)
        for path in SOURCES
        if _ANY_STYLE.search(texts()[path]) or _ANY_OPENING.search(texts()[path])
        for node in ast.walk(ast.parse(texts()[path]))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@cache
def comments_and_pages() -> tuple[Text, ...]:
    """Return the lines of all comments and pages."""
    return tuple(
        (str(path.relative_to(ROOT)), number, line)
        for path in SOURCES + PAGES
        for number, line in enumerate(texts()[path].splitlines(), start=1)
        if path.suffix == ".md" or line.lstrip().startswith("#")
    )


def test_docstrings_begin_as_python_readers_expect() -> None:
    found = [
        f"{name}:{line}: {text[:40]!r}: write {instead}"
        for name, line, text in docstrings()
        for opening, instead in OPENINGS.items()
        if re.match(rf"{opening}\b", text)
    ]
    assert found == []


@pytest.mark.parametrize("pattern", STYLE)
def test_prose_avoids_what_readers_stumble_on(pattern: str) -> None:
    search = re.compile(rf"\b({pattern})\b", re.IGNORECASE).search
    found = [
        f"{name}:{line}: {match[0]!r}: write {STYLE[pattern]}"
        for name, line, text in docstrings() + comments_and_pages()
        if (match := search(text))
    ]
    assert found == []
