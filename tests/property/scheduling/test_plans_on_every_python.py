"""Plans are the same on every version of Python; since 3.12, the built-in sum of floats compensates for rounding."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from tests.benchmarks.packing import markets, workloads
from tests.problems.drawing import LARGE, draw
from tests.problems.planning import planned


def test_floats_are_only_summed_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    builtin, found = sum, set[str]()

    def watched(values: Iterable[Any], /, start: Any = 0) -> Any:
        total = builtin(values, start)
        caller = sys._getframe(1)
        module = str(caller.f_globals["__name__"])
        if isinstance(total, float) and module.startswith("nodesmith."):
            found.add(f"{module}, line {caller.f_lineno}: use math.fsum")
        return total

    monkeypatch.setattr(builtins, "sum", watched)
    for seed in range(8):
        problem = draw(seed, LARGE)
        planned(problem.manifests, problem.catalog)
    planned([markets.everything(), *workloads.distinct(150)], markets.embedded())
    planned([markets.anything_fake(), *workloads.diverse(150)], markets.fake_types())

    assert not found
