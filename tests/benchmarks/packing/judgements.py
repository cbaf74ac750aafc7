"""Thousands of random problems: violations that the audit finds, and prices compared with the optimum."""

from __future__ import annotations

from collections import Counter

from tests.benchmarks.figures import Figure
from tests.problems.drawing import LARGE, RARE, SMALL
from tests.problems.judging import Judged, found, judged

_AUDITED, _JUDGED = 5000, 2000
_QUICK = 100
_MOST_SKIPPED = 0.1
_DEAREST = 1.1


def figures(*, quick: bool = False) -> list[Figure]:
    """Audit problems of three kinds, a third each, and compare small ones with brute force."""
    return [_audit(_QUICK if quick else _AUDITED), *_beside_best(_QUICK if quick else _JUDGED)]


def _audit(count: int) -> Figure:
    kinds: Counter[str] = Counter()
    bad: list[str] = []
    for seed in range(-(-count // 3)):
        for name, mix in (("small", SMALL), ("large", LARGE), ("rare", RARE)):
            violations = found(seed, mix)
            kinds.update(str(v.kind) for v in violations)
            bad += [f"{name} {seed}"] * bool(violations)
    about = (
        f"{count} random problems; in {', '.join(bad[:5])}: {dict(kinds)}"
        if bad
        else f"{count} random problems"
    )
    return Figure("audit-violations", kinds.total(), "violations", 0, about)


def _beside_best(count: int) -> list[Figure]:
    tried = [judged(seed) for seed in range(count)]
    known = [one for one in tried if one is not None]
    full = [one for one in known if one.best is not None]
    priced = [one for one in full if one.is_comparable]
    missed = [one for one in full if one.is_missed]
    dearer = sorted((one for one in priced if one.ratio > 1), key=lambda one: -one.ratio)
    overbound = [one for one in priced if one.is_overbound]
    skipped = 1 - len(known) / count
    optimal = 1 - len(dearer) / len(priced)
    return [
        Figure(
            "bruteforce-skipped-share",
            skipped,
            "of problems",
            _MOST_SKIPPED,
            f"too many plans to try, of {count}",
        ),
        Figure("bruteforce-missed-share", len(missed) / len(full), "of problems", 0.001, _seeds(missed)),
        Figure("bruteforce-optimal-share", optimal, "of plans", at_least=0.95, note=_seeds(dearer)),
        Figure(
            "bruteforce-worst",
            max(one.ratio for one in priced),
            "× the best price",
            _DEAREST,
            _seeds(dearer[:1]),
        ),
        Figure("bruteforce-overbound", len(overbound), "bounds above the best price", 0, _seeds(overbound)),
    ]


def _seeds(problems: list[Judged]) -> str:
    shown = ", ".join(str(one.seed) for one in problems[:8])
    return f"{len(problems)} problems: {shown}" if problems else ""
