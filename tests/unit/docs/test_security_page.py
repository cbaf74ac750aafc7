"""The security page names every kind that the forwarder may read."""

from __future__ import annotations

import re
from pathlib import Path

from nodesmith.observation.mirror import WATCHED

PAGE = Path(__file__).parents[3] / "docs/security.md"


def test_the_row_of_the_forwarder_names_every_kind_that_it_may_read() -> None:
    (row,) = re.findall(r"^\| forwarder \(.*$", PAGE.read_text(), re.MULTILINE)
    words = set(re.findall(r"[a-z0-9]+", row.lower()))
    missing = {
        each.kind
        for each in WATCHED
        if words.isdisjoint({each.kind.lower() + end for end in ("", "s", "es")})
    }
    assert missing == set()
