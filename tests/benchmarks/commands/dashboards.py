"""Queries of dashboards and alerts that name a series or label that nobody exports, and alerts without a test.

The parser and promtool are asked anew where Go is installed; otherwise what they said about these very files counts.
"""

from __future__ import annotations

import shutil

from monitoring.alerts import ALERTS
from tests.benchmarks.figures import Figure
from tests.promql import answer_of, digest, kept
from tests.promql.__main__ import document
from tests.promql.dangling import dangling
from tests.promql.exported import exported


def figures() -> list[Figure]:
    """Compare all queries with what a forwarder serves over HTTP."""
    has_go = shutil.which("go") is not None
    reported = document() if has_go else kept()
    answers = {text: answer_of(each) for text, each in reported["queries"].items()}
    faults = [*dangling(answers, exported()), *reported["faults"]]
    by = "asked now" if has_go else "no Go: as kept"
    tested = len(ALERTS) if reported["promtool"] == {"rules": len(ALERTS), "digest": digest()} else 0
    return [
        Figure("dangling-queries", len(faults), "queries", 0, f"of {len(answers)}; {by}"),
        Figure("untested-alerts", len(ALERTS) - tested, "alerts", 0, f"of {len(ALERTS)}; {by}"),
    ]
