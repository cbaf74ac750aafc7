"""Draw mutants, run for each the tests that reach it, and print which part is killed, and the survivors as diffs.

`python -m tests.mutation --seed 2` draws others. `--survivors` tries only those again that survived the last run with
the same seed, after tests were added, and `--resume` goes on with a run that was stopped. Which tests reach which code
is found once and kept in build/mutation.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, mutants
from tests.mutation.reach import CORE, KEPT, mutated, reached
from tests.mutation.trials import Outcome, Trials

SUITES = ("tests/unit", "tests/property", "tests/integration")
_KILLED = ("killed", "timeout")
_OTHERS = 0.3
"""The share of mutants outside of decisions, which are few and buy, evict and terminate."""


def drawn(seed: int, number: int) -> list[Mutant]:
    """Return a random sample of mutants. A change of one function does not change which of others are drawn."""
    order = sorted(
        (mutant for path in mutated() for mutant in mutants(path)),
        key=lambda mutant: sha256(f"{seed}:{mutant.name}".encode()).digest(),
    )
    decisions = [mutant for mutant in order if "decisions" in mutant.path.relative_to(CORE).parts]
    others = [mutant for mutant in order if "decisions" not in mutant.path.relative_to(CORE).parts]
    few = round(number * _OTHERS)
    return [*others[:few], *decisions[: number - few]]


def package(mutant: Mutant) -> str:
    """Return the part of the core by which results are summed up."""
    parts = mutant.path.relative_to(CORE).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0].removesuffix(".py")


def scores(sample: Iterable[Mutant], outcomes: Mapping[str, Outcome]) -> dict[str, dict[str, int]]:
    """Return by package how many mutants were killed, survived, or were reached by no test."""
    found: dict[str, Counter[str]] = {}
    for mutant in sample:
        if outcomes[mutant.name].result != "invalid":
            found.setdefault(package(mutant), Counter())[outcomes[mutant.name].result] += 1
    return {name: {**found[name]} for name in sorted(found)}


def tried(sample: Sequence[Mutant], options: argparse.Namespace) -> dict[str, Outcome]:
    """Try mutants and return the outcomes by name; with `--survivors` or `--resume`, those of earlier runs stay."""
    tests = reached(options.tests, options.processes)
    kept = KEPT / f"outcomes-{options.seed}.jsonl"
    before = _read(kept) if options.survivors or options.resume else {}
    over = {name for name, each in before.items() if options.resume or each.result in _KILLED}
    left = [each for each in sample if each.name not in over]
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text("".join(json.dumps(asdict(each)) + "\n" for each in before.values()))
    files = sorted({name.partition("::")[0] for name in tests})
    trials = Trials(left, tests, options.seconds, options.processes, kept)
    silent = ["-o", "addopts=--import-mode=importlib", "-p", "no:terminal", "-p", "no:cacheprovider", "-s"]
    if pytest.main([*silent, "-p", "no:xdist", *files], plugins=[trials]):
        sys.exit("the trials were not completed; --resume goes on with them")
    return _read(kept)


def _read(kept: Path) -> dict[str, Outcome]:
    lines = kept.read_text().splitlines() if kept.is_file() else []
    return {each["name"]: Outcome(**each) for each in map(json.loads, lines)}


def main() -> int:
    """Try mutants and print the result; 1 if fewer than the goal are killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("tests", nargs="*", default=SUITES, help="files and folders of tests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=600)
    parser.add_argument("--goal", type=float, default=0.85, help="the least share of mutants that tests kill")
    parser.add_argument("--seconds", type=float, default=6, help="processor time of tests for one mutant")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--survivors", action="store_true", help="try only the survivors of the last run")
    parser.add_argument("-o", dest="output", choices=("text", "json"), default="text")
    parser.add_argument("--resume", action="store_true", help="try only what the last run has not tried")
    options = parser.parse_args()
    sample = drawn(options.seed, options.mutants)
    outcomes = tried(sample, options)
    by_package = scores(sample, outcomes)
    total = sum((Counter(each) for each in by_package.values()), Counter[str]())
    score = sum(total[each] for each in _KILLED) / total.total()
    survivors = [
        {**asdict(outcomes[m.name]), "at": f"{m.path.relative_to(CORE)}:{m.line}", "diff": m.difference()}
        for m in sample
        if outcomes[m.name].result in ("survived", "unreached")
    ]
    if options.output == "json":
        print(json.dumps({"score": score, "packages": by_package, "survivors": survivors}, indent=2))
    else:
        for each in survivors:
            print(f"{each['at']} {each['name']}: {each['tried']} of {each['tests']} tests\n{each['diff']}\n")
        for name, counts in by_package.items():
            killed = sum(counts.get(each, 0) for each in _KILLED)
            print(f"{name:32}{killed:5} of {sum(counts.values()):4} killed")
        print(f"{score:.1%} of {total.total()} mutants are killed: {dict(total)}")
    return int(score < options.goal)


if __name__ == "__main__":
    sys.exit(main())
