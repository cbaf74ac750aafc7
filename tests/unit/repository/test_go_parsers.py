"""Schedules, durations, quantities, label selectors and YAML are read as Go reads them (tests/goparsers)."""

from __future__ import annotations

import pytest

from tests.goparsers import kept
from tests.goparsers.reading import read_by_nodesmith

ANSWERS = tuple(kept())


@pytest.mark.parametrize("kind", ["schedule", "duration", "quantity", "selector", "yaml"])
def test_nodesmith_reads_what_go_reads(kind: str) -> None:
    answers = [answer for answer in ANSWERS if answer.case.kind == kind]
    assert len(answers) >= 200
    assert [each for each in answers if read_by_nodesmith(each.case) != each.found] == []


def test_the_kept_cases_have_refused_ones_and_schedules_without_a_moment() -> None:
    assert {each.case.kind for each in ANSWERS if each.found is None} == {"schedule", "quantity", "yaml"}
    assert any(each.case.kind == "schedule" and each.found == 0 for each in ANSWERS)
