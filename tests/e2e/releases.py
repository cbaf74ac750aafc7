"""Releases beside that of this checkout, with bugs where a scenario wants some; and which release did what."""

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
"""It commits an intent and has EC2 launch, and is gone before it has noted what EC2 answered."""


def functions_of(folder: Path, name: str, bugs: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Return a folder with the functions of another release; `bugs` is what the code of concerns ends with."""
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
    """A run for a cluster that came to its end, as the function's log has it."""

    concern: str
    cluster: str
    release: str
    decisions: tuple[str, ...]


class Log:
    """What the functions of a deployment log in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: Counter[Path] = Counter()

    def news(self) -> list[Done]:
        """Give the runs for clusters that nobody has been given yet."""
        return [
            _done(line) for line in self._new_lines() if line.get("message") == "done" and "cluster" in line
        ]

    def _new_lines(self) -> Iterator[Mapping[str, Any]]:
        for path in sorted(self._folder.rglob("*.log")):
            whole, _, _ = path.read_text().rpartition("\n")  # what comes after is still being written
            lines = whole.splitlines()
            yield from (json.loads(line) for line in lines[self._read[path] :] if line.startswith("{"))
            self._read[path] = len(lines)


def _done(line: Mapping[str, Any]) -> Done:
    return Done(line["service"], line["cluster"], line["release"], tuple(line.get("decisions", ())))
