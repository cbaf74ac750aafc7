"""Schedules, durations, quantities, label selectors and YAML as read by the Go parsers of Kubernetes and Karpenter.

`main.go` needs Go. The unit tests do not: they read `KEPT`, which `python -m tests.goparsers --write` makes.
`python -m tests.goparsers` compares cases that are drawn anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

KEPT = Path(__file__).parent / "kept.jsonl"


class Case(NamedTuple):
    """A text or an object to read. `kind` is schedule, duration, quantity, selector or yaml."""

    kind: str
    given: Any


class Answer(NamedTuple):
    """What Go reads: None for a refused case.

    - schedule: its newest moment until a time, in seconds since 1970, or 0 if there is none within eight years
    - duration: nanoseconds
    - quantity: whole units and thousandths, both rounded up
    - selector: whether it matches the labels
    - yaml: a scalar that is not quoted, and a mapping with it as the key if it is short, without point and exponent
    """

    case: Case
    found: Any


def kept() -> Iterator[Answer]:
    """Read the cases that Go has answered."""
    for line in KEPT.read_text().splitlines():
        kind, given, found = json.loads(line)
        yield Answer(Case(kind, given), found)
