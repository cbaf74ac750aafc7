"""Check the random clusters with seeds FROM to TO, and print the result after each hundred."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tests.benchmarks.disruption.rules import Checked


def _tell(seeds: Iterable[int]) -> None:
    checked = Checked()
    for seed in seeds:
        checked.look_at(seed)
        if not checked.clusters % 100:
            print(checked, flush=True)
    print("done:", checked, flush=True)


if __name__ == "__main__":
    _tell(range(*map(int, sys.argv[1:3])))
