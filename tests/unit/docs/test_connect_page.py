"""docs/connect.md lists every check and every option of connect, disconnect and doctor, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import typer

from nodesmith_cli.main import app

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "connect.md").read_text()
CODE = ROOT / "cli" / "nodesmith_cli"
MADE_BY = {"error", "warning", "info", "Finding", "make"}


def checks() -> Iterator[str]:
    for path in (*(CODE / "connecting").rglob("*.py"), CODE / "sharing" / "findings.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            first = node.args[0]
            if node.func.id in MADE_BY and isinstance(first, ast.Constant):
                yield str(first.value)


def documented() -> set[str]:
    table = PAGE[PAGE.index("| check |") :]
    cells = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]
    return {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)}


def test_every_check_is_documented_and_no_other() -> None:
    assert documented() == set(checks())


def test_every_option_is_documented() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name in ("connect", "disconnect", "doctor"):
        options = {
            option
            for parameter in commands[name].params
            for option in (*parameter.opts, *parameter.secondary_opts)
            if option.startswith("--") and option not in ("--help", "--output")
        }
        assert {option for option in options if f"`{option}" not in PAGE} == set()
