"""Other releases beside this checkout's, with bugs where a scenario needs them; and a log of which release did what."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.e2e.deployed.assembly import FUNCTIONS

DOES_NOT_START = "raise ImportError('built for another platform')"
DIES_ONCE_EC2_HAS_LAUNCHED = """
import os
from nodesmith.adapters.dynamodb.ledger import DynamoStore


def save(*_):
    os._exit(1)


DynamoStore.save = save
"""
"""Commits an intent and has EC2 launch, then exits before it records EC2's answer."""


def functions_of(folder: Path, name: str, bugs: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Return a folder with another release's functions; `bugs` is the code to append per concern."""
    made = folder / name
    for handler in FUNCTIONS.glob("*/handler.py"):
        concern = handler.parent.name
        (made / concern).mkdir(parents=True)
        (made / concern / handler.name).write_text(
            f"{handler.read_text()}\n# release {name}\n{bugs.get(concern, '')}\n"
        )
    return made


@dataclass(frozen=True, slots=True)
class Done:
    """A completed run for a cluster, as the function's log records it."""

    concern: str
    cluster: str
    release: str
    decisions: tuple[str, ...]


class Log:
    """The logs of a deployment's functions in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: Counter[Path] = Counter()

    def news(self) -> list[Done]:
        """Return the runs for clusters that were logged since the last call."""
        return [
            _done(line) for line in self._new_lines() if line.get("message") == "done" and "cluster" in line
        ]

    def _new_lines(self) -> Iterator[Mapping[str, Any]]:
        for path in sorted(self._folder.rglob("*.log")):
            whole, _, _ = path.read_text().rpartition("\n")  # the rest is still being written
            lines = whole.splitlines()
            yield from (json.loads(line) for line in lines[self._read[path] :] if line.startswith("{"))
            self._read[path] = len(lines)


def _done(line: Mapping[str, Any]) -> Done:
    return Done(line["service"], line["cluster"], line["release"], tuple(line.get("decisions", ())))
