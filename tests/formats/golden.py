"""The files with the formats of each version, a folder a version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodesmith import __version__
from tests.formats.documents import FORMATS

FOLDER = Path(__file__).parent
TODAY = FOLDER / __version__


def files() -> list[Path]:
    """Return all files, of all versions."""
    return sorted(FOLDER.glob("*/*.json"))


def written() -> Iterator[Path]:
    """Write those of today's version; give each."""
    TODAY.mkdir(exist_ok=True)
    for name, each in FORMATS.items():
        path = TODAY / f"{name}.json"
        path.write_text(text_of(each.write()))
        yield path


def text_of(document: Any) -> str:
    """Return the text of a file."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
