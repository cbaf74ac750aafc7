"""Plans for problems that mix every kind of constraint: audited, compared with brute force, and reproduced.

The goals themselves, on thousands of problems, are benchmarks (`python -m tests.benchmarks packing`). These tests
protect what has been reached.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.problems.drawing import LARGE, RARE, SMALL, Mix, draw
from tests.problems.judging import Judged, digests, found, judged, rejudged, with_risks
from tests.problems.planning import planned
from tests.processes.interpreters import NONE_FOUND, environment, other_python
from tests.samples import sampled

ROOT = Path(__file__).parents[3]
_AUDITED, _JUDGED = sampled((12, 4), whole=(100, 80))
_ONCE_WRONG = (
    63, 79, 280, 343, 684, 697, 710, 842, 900, 933, 944, 1000, 1078, 1236, 1284, 1297, 1398, 1481, 1565, 1590,
    1622, 1723, 1795, 1825, 1876, 1926, 1979, 2076, 2120, 2141, 2146, 2182, 2284, 2386, 2451, 2602, 2612,
    2800, 2824, 2829,
)  # fmt: skip
"""Problems whose plans once left pods, cost too much, or claimed too high a bound, each for another reason."""
_RISKY = sampled(12, whole=30)
_REPEATED = sampled(4, whole=25)
_MANY_TIMES = (0, 7, 14, 18, 19, 24, 40)
"""Problems of some tens of pods that need many purchases: minValues, limits, pods that find no place."""
_TRIED_ONCE = ((14, 1.82), (18, 3.39), (30, 1.40))
"""Problems that once ran out of tries by repeating them, and what their plans have cost since."""
_MOST_STEPS = 2_000_000
"""Steps of packing in one decision, which does more than a million a second."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("mix", "count"),
    [(SMALL, _AUDITED), (LARGE, _AUDITED), (RARE, _AUDITED // 4)],
    ids=["small", "large", "rare"],
)
def test_the_audit_finds_no_violations_in_plans(mix: Mix, count: int) -> None:
    violations = {seed: [str(v) for v in found(seed, mix)] for seed in range(count)}

    assert {seed: said for seed, said in violations.items() if said} == {}


@pytest.fixture(scope="module")
def small() -> list[Judged]:
    """Return small problems that brute force can solve, that is, whose every pod can be placed."""
    tried = [judged(seed) for seed in (*range(_JUDGED), *_ONCE_WRONG)]
    known = [one for one in tried if one is not None and one.best is not None]
    assert len(known) >= _JUDGED // 2 + len(_ONCE_WRONG) // 2
    return known


@pytest.mark.exhaustive
def test_all_pods_are_placed_if_possible(small: list[Judged]) -> None:
    assert {one.seed: one.unplaced for one in small if one.is_missed} == {}


@pytest.mark.exhaustive
def test_small_plans_are_optimal(small: list[Judged]) -> None:
    dearer = {one.seed: one.ratio for one in small if one.is_comparable and one.ratio > 1}

    assert dearer == {}


@pytest.mark.exhaustive
def test_no_plan_is_cheaper_than_the_optimum(small: list[Judged]) -> None:
    """A cheaper plan breaks a rule, or brute force applies one too many."""
    assert [one.seed for one in small if one.is_comparable and one.is_impossible] == []


@pytest.mark.exhaustive
def test_no_bound_is_above_the_optimum(small: list[Judged]) -> None:
    assert [one.seed for one in small if one.is_overbound] == []


@pytest.mark.exhaustive
def test_no_bound_is_above_the_optimum_when_interruption_risks_change_the_choice(small: list[Judged]) -> None:
    """Nodes are chosen by price and risk, but the bound is on the price."""
    risky = [rejudged(one, with_risks) for one in small[:_RISKY]]

    assert [one.seed for one in risky if one.is_overbound] == []
    assert any(one.price_hourly_usd != two.price_hourly_usd for one, two in zip(risky, small, strict=False))


@pytest.mark.parametrize("seed", _MANY_TIMES)
def test_problems_with_many_purchases_take_few_steps(seed: int) -> None:
    problem = draw(seed, LARGE)

    assert planned(problem.manifests, problem.catalog).plan["steps"] <= _MOST_STEPS


@pytest.mark.parametrize(("seed", "price"), _TRIED_ONCE)
def test_no_try_is_spent_on_a_repeated_placement(seed: int, price: float) -> None:
    """Preferences that were read again for each attempt made equal placements look different."""
    problem = draw(seed, Mix(most_pods=30, most_shapes=6))

    assert planned(problem.manifests, problem.catalog).price_hourly_usd <= price


@pytest.mark.exhaustive
def test_plans_are_byte_identical_for_every_hash_seed_and_python() -> None:
    """In this process, whose hash seed is any, in another one like it, and on another Python."""

    def made(python: Path, seed: str) -> str:
        run = subprocess.run(
            [python, "-m", "tests.problems.judging", str(_REPEATED)],
            cwd=ROOT,
            env=environment(python, seed),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return run.stdout.rstrip()

    this, other = Path(sys.executable), other_python()
    if other is None:
        warnings.warn(NONE_FOUND, stacklevel=1)

    assert digests(_REPEATED) == made(this, "1") == made(other or this, "4242")
