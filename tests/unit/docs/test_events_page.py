"""The page on Events lists the reasons in the code, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
CORE = ROOT / "layers/core/python/nodesmith"
KARPENTERS = {
    "AwaitingVolumeDetachment",
    "CapacityReservationInstanceInterrupted",
    "ConsolidationApproved",
    "ConsolidationCandidate",
    "ConsolidationRejected",
    "DisruptionBlocked",
    "DisruptionLaunching",
    "DisruptionTerminating",
    "DisruptionWaitingReadiness",
    "Disrupted",
    "DoNotDisruptGracePeriodElapsed",
    "DoNotDisruptUntil",
    "Evicted",
    "FailedConsistencyCheck",
    "FailedDraining",
    "FailedScheduling",
    "InstanceStopping",
    "InstanceTerminating",
    "InstanceUnhealthy",
    "InsufficientCapacityError",
    "InvalidDoNotDisruptAnnotation",
    "NoCompatibleInstanceTypes",
    "NodeRepairBlocked",
    "Nominated",
    "SpotInterrupted",
    "SpotRebalanceRecommendation",
    "TerminationGracePeriodExpiring",
    "Unconsolidatable",
    "UnregisteredTaintMissing",
    "ZonalShiftActive",
    "ZonalShiftCleared",
}
"""Karpenter v1's reasons, except those of features that nodesmith does not have."""


def on_the_page() -> set[str]:
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/events.md").read_text(), re.MULTILINE)
    return {reason for row in rows for reason in re.findall(r"`([A-Z]\w+)`", row)}


@cache
def texts() -> tuple[str, ...]:
    return tuple(path.read_text() for path in CORE.rglob("*.py"))


def literals() -> Iterator[str]:
    """Yield the literals of modules that may name a reason."""
    reason = re.compile("|".join(f'"{each}"' for each in on_the_page()))
    for text in filter(reason.search, texts()):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def said() -> Iterator[str]:
    """Yield the literal reasons in calls that create an Event."""
    for text in texts():
        for node in ast.walk(ast.parse(text)) if "ObjectEvent" in text or ".event(" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("ObjectEvent", ".event")):
                for value in node.args[2:3]:
                    if isinstance(value, ast.Constant):
                        yield str(value.value)


def test_every_reason_on_the_page_is_in_the_code() -> None:
    assert on_the_page() - set(literals()) == set()


def test_every_reason_of_an_event_in_the_code_is_on_the_page() -> None:
    reasons = set(said())
    assert len(reasons) > 10
    assert reasons - on_the_page() == set()


def test_the_page_has_all_of_karpenters_reasons() -> None:
    assert KARPENTERS - on_the_page() == set()
