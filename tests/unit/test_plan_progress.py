"""People hear of what takes long, on the side where no plan is printed."""

from __future__ import annotations

import io
import time

from rich.console import Console

from nodesmith_cli.planning.waiting import told


def heard(patience_seconds: float, takes_seconds: float = 0.0) -> str:
    text = io.StringIO()
    with told(Console(file=text, width=80), "deciding on 5 pods", patience_seconds):
        time.sleep(takes_seconds)
    return text.getvalue()


def test_what_takes_long_is_said_while_it_goes_on_and_how_long_it_took() -> None:
    begun, ended = heard(patience_seconds=0.01, takes_seconds=0.2).splitlines()
    assert begun == "deciding on 5 pods …"
    assert ended.startswith("deciding on 5 pods: ")
    assert ended.endswith(" s")


def test_nothing_is_said_of_what_is_over_at_once() -> None:
    assert heard(patience_seconds=60) == ""
