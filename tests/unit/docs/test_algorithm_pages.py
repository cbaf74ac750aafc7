"""The pages of docs/algorithms/ name functions, classes and files that exist in the decisions."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DECISIONS = ROOT / "layers" / "core" / "python" / "nodesmith" / "decisions"
PAGES = sorted((ROOT / "docs" / "algorithms").glob("*.md"))
_MEMBER = re.compile(r"`(\w+)\.(\w+)`")
_FILE_SUFFIXES = frozenset({"py", "md", "go"})


@cache
def sources() -> dict[str, str]:
    """Return the text of each module of the decisions by its name, and those of a package under the package's."""
    found: dict[str, str] = {}
    for path in sorted(DECISIONS.rglob("*.py")):
        for name in (path.stem, path.parent.name):
            found[name] = found.get(name, "") + path.read_text()
    return found


def exists(owner: str, name: str) -> bool:
    """Return whether a module, or a class in any module, defines a name."""
    defined = re.compile(rf"^\s*(?:(?:def|class) )?{name}\b", re.MULTILINE)
    if owner in sources():
        return bool(defined.search(sources()[owner]))
    return any(
        re.search(rf"^class {owner}\b", text, re.MULTILINE) and defined.search(text)
        for text in sources().values()
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_function_that_a_page_names_is_in_the_code(page: Path) -> None:
    named = {each for each in _MEMBER.findall(page.read_text()) if each[1] not in _FILE_SUFFIXES}

    assert {f"{owner}.{name}" for owner, name in named if not exists(owner, name)} == set()
