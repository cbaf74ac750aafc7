"""Karpenter's hashes of random NodePools and EC2NodeClasses, by Karpenter's own Go code; ours are held against them.

`main.go` needs Go and, the first time, minutes to build. The unit tests need neither: they read `KEPT`, which
`python -m tests.karpenterhashes --write` makes. `python -m tests.karpenterhashes` compares objects that are drawn anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

KEPT = Path(__file__).parent / "kept.jsonl"


class Hashed(NamedTuple):
    """A manifest, the CA bundle of its cluster (empty for none), and Karpenter's hash of it with its version."""

    manifest: dict[str, Any]
    ca_bundle: str
    hash: str
    version: str


def kept() -> Iterator[Hashed]:
    """Read the objects whose hashes Karpenter's code has taken."""
    for line in KEPT.read_text().splitlines():
        item = json.loads(line)
        yield Hashed(item["manifest"], item["caBundle"], item["hash"], item["version"])
