"""Services are away, alone and in pairs; nothing may be leaked, duplicated or forgotten, and all must recover soon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.benchmarks.figures import Figure
from tests.scenarios.chaos import Combination, Outcome, oddities, outcome, pairs_of_faults, single_faults

PAIRS = 1250
GOAL_SECONDS = 120


def figures(pairs: int = PAIRS, sample: int = 1) -> list[Figure]:
    """Run so many pairs of faults, each fault alone and each oddity; of the latter two, one of `sample`."""
    alone = [*single_faults(), *oddities()][::sample]
    return report([*alone, *pairs_of_faults(pairs)], at_least=2000 if sample == 1 else 0)


def report(combinations: Sequence[Combination], at_least: int = 0) -> list[Figure]:
    """Run these combinations, and return what broke and how long recovery took."""
    ended = {each: outcome(each) for each in combinations}
    graceless = sum(found.without_grace for found in ended.values())
    lost = f"{graceless} pods lost grace or budget on instances that EC2 took during a fault"
    note = f"{described(ended.values())}; {lost}"
    return [
        Figure("chaos-combinations", len(ended), "combinations", note=note, at_least=at_least),
        *judged("chaos", ended, "during and after"),
    ]


def described(ended: Iterable[Outcome]) -> str:
    """Return how many kinds of faults were met, and how often."""
    met = sum((Counter(found.met) for found in ended), Counter[str]())
    return f"{len(met)} kinds of faults met {met.total():,} times"


def judged(name: str, ended: Mapping[Combination, Outcome], note: str) -> list[Figure]:
    """Return what broke, and how long recovery took. `note` stands beside the former if nothing broke."""
    broken = [f"{each}: {'; '.join(found.broken[:3])}" for each, found in ended.items() if found.broken]
    worst = max(ended, key=lambda each: ended[each].beyond)
    longest = (
        f"longest, beyond the time that the same work takes undisturbed: {worst}; {_spread(ended.values())}"
    )
    return [
        Figure(f"{name}-violations", len(broken), "violations", 0, " | ".join(broken[:5]) or note),
        Figure(f"{name}-recovery", ended[worst].beyond, "s", GOAL_SECONDS, longest),
    ]


def _spread(ended: Iterable[Outcome]) -> str:
    late = sorted(found.beyond for found in ended)
    return f"99 of 100 recover within {late[len(late) * 99 // 100]:.0f} s"
