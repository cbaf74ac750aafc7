"""The progress of long steps is shown on standard error."""

from __future__ import annotations

import io

from rich.console import Console

from nodesmith_cli.planning.waiting import told
from tests.patience import eventually


def heard(patience_seconds: float, until: str = "") -> str:
    text = io.StringIO()
    with told(Console(file=text, width=80), "deciding on 5 pods", patience_seconds):
        eventually(lambda: text.getvalue().endswith(until))
    return text.getvalue()


def test_a_long_step_is_shown_with_its_duration() -> None:
    begun, ended = heard(patience_seconds=0.01, until="…\n").splitlines()
    assert begun == "deciding on 5 pods …"
    assert ended.startswith("deciding on 5 pods: ")
    assert ended.endswith(" s")


def test_a_short_step_is_not_shown() -> None:
    assert heard(patience_seconds=60) == ""
