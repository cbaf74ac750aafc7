"""What `make test` runs on a sample, `make test-exhaustive` runs on everything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from tests.samples import spread

ROOT = Path(__file__).parents[3]
HELPERS = {"samples.py", "crashes.py", "conftest.py"}
"""Modules that call `sampled` for the tests that use them."""


def run(**environment: str) -> str:
    command = [sys.executable, "-c", "from tests.samples import sampled; print(sampled(1, whole=2))"]
    bare = {name: value for name, value in os.environ.items() if name != "NODESMITH_EXHAUSTIVE"}
    return subprocess.check_output(command, cwd=ROOT, env={**bare, **environment}, text=True).strip()


def test_only_an_exhaustive_run_is_whole() -> None:
    assert [run(), run(NODESMITH_EXHAUSTIVE="1")] == ["1", "2"]


def test_exhaustive_runs_select_every_test_whose_size_is_sampled() -> None:
    """By the marker `exhaustive`, or because hypothesis runs it."""
    unmarked = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        calls = re.sub(r"max_examples=sampled\(", "", text).count("sampled(")
        calls += text.count("crashes.SAMPLE")
        if path.name not in HELPERS and path != Path(__file__) and calls:
            unmarked += [path.name] * ("mark.exhaustive" not in text)
    assert unmarked == []


def test_make_and_ci_run_them() -> None:
    assert 'NODESMITH_EXHAUSTIVE=1 $(BIN)/pytest -n 2 --dist loadgroup -m "exhaustive or hypothesis"' in (
        (ROOT / "Makefile").read_text()
    )
    assert '"make test-exhaustive"' in (ROOT / ".ci" / "nightly").read_text()


def test_samples_of_several_names_are_equally_far_apart_and_begin_elsewhere() -> None:
    items = range(100)
    samples = [spread(items, 4, name) for name in ("a", "b", "c", "d", "e", "f")]
    assert {len(each) for each in samples} == {4}
    assert {after - before for each in samples for before, after in pairwise(each)} == {25}
    assert len({each[0] for each in samples}) > 3
    assert spread(items, 4, "a") == samples[0], "it is always the same"


def test_a_sample_is_never_larger_than_asked_and_zero_means_everything() -> None:
    assert list(spread("abc", 5, "any")) == list("abc")
    assert list(spread(range(7), 0, "any")) == list(range(7))
    assert {len(spread(range(size), 3, str(size))) for size in range(3, 40)} == {3}
