"""Which small changes `python -m tests.mutation` makes to a function."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from tests.mutation.mutants import mutants
from tests.mutation.reach import blocks


def changed(folder: Path, body: str, signature: str = "f(a, b)") -> list[str]:
    """Return the last statement of a function in all mutants."""
    path = folder / "module.py"
    path.write_text(f"def {signature}:\n    {body}\n")
    return [ast.unparse(list(ast.walk(each.tree()))[1].body[-1]) for each in mutants(path)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = a < b", ["x = a <= b", "x = a >= b"]),
        ("x = a is None", ["x = a is not None"]),
        ("x = a and b", ["x = a or b"]),
        ("x = not a", ["x = a"]),
        ("x = a + 1", ["x = a - 1", "x = a + 2"]),
        ("x = True", ["x = False"]),
        ("x = 'Ready'", ["x = 'Readyx'"]),
        ("x = min(a, b)", ["x = max(a, b)"]),
        ("x = a(b, key=b)", ["x = a(b)"]),
        ("x = b if a else 0", ["x = b if not a else 0", "x = b if a else 1"]),
        ("return a", ["return None"]),
        ("a.terminate(b)", ["pass"]),
    ],
)
def test_an_operator_makes_one_change_at_a_time(tmp_path: Path, body: str, expected: list[str]) -> None:
    assert changed(tmp_path, body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "'''What it does.'''",
        "x = 'two words'",
        "x = f'{a + 1} nodes'",
        "raise ValueError(a + 1)",
        "assert a < b",
        "metrics.count('launches', reason=a)",
        "x: int | None = a",
        "return []",
        "x = zip(a, b, strict=True)",
    ],
)
def test_what_no_test_should_assert_stays_as_it_is(tmp_path: Path, body: str) -> None:
    assert changed(tmp_path, body) == []


def test_texts_for_people_and_defaults_stay_as_they_are(tmp_path: Path) -> None:
    assert changed(tmp_path, "return a", "__repr__(a)") == []
    assert changed(tmp_path, "x = a", "f(a=1)") == []


def test_a_mutant_belongs_to_the_innermost_block_that_contains_it(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        dedent("""
            def f(a):
                if a == 1:
                    return a + 2
                return a + 3
        """)
    )
    bodies = blocks(ast.parse(path.read_text()))
    inside = next(number for number, body in enumerate(bodies) if ast.unparse(body[-1]) == "return a + 2")
    assert {each.block for each in mutants(path) if each.line == 4} == {inside}
    assert inside not in {each.block for each in mutants(path) if each.line != 4}
