"""Text from manifests and clusters controls no terminal, wherever a command shows it."""

from __future__ import annotations

import pytest
from rich.table import Table
from rich.text import Text

from nodesmith_cli.output.terminal import Messages, console

HOSTILE = "Pod/a\x1b[31m\x1b]0;title\x07b"


def test_lines_and_cells_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(box=None)
    table.add_column("why")
    table.add_row(Text(HOSTILE))
    to = console()
    to.print(HOSTILE, style="red")
    to.print(table)
    Messages().print(HOSTILE)
    reported = capsys.readouterr()
    assert "\x1b" not in reported.out + reported.err
    assert "\x1b" in HOSTILE
    assert r"Pod/a\x1b[31m" in reported.out
    assert r"Pod/a\x1b[31m" in reported.err


def test_lines_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("one\ntwo – drei")
    assert capsys.readouterr().out == "one\ntwo – drei\n"
