"""Compares nodesmith's parsers with Go's, over random cases."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.goparsers import KEPT, Answer, Case
from tests.goparsers.drawing import drawn
from tests.goparsers.reading import read_by_nodesmith

HERE, BUILT = Path(__file__).parent, Path("build/goparsers/goparsers").absolute()
KEPT_OF_A_KIND = 200


def read_by_go(cases: Sequence[Case]) -> list[Answer]:
    """Read with Go's parsers, which are built before."""
    subprocess.run(["go", "build", "-o", str(BUILT), "."], cwd=HERE, check=True)  # noqa: S607 from the PATH
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([str(BUILT)], input=lines, capture_output=True, text=True, check=True)
    return [Answer(*each) for each in zip(cases, map(json.loads, done.stdout.splitlines()), strict=True)]


def main() -> int:
    """Compare fresh cases, or draw those anew that the unit tests read; 1 where any answer differs."""
    options = argparse.ArgumentParser(prog="python -m tests.goparsers", description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--cases", type=int, default=5000, help="of each kind")
    options.add_argument(
        "--write", action="store_true", help=f"make {KEPT.name} anew: {KEPT_OF_A_KIND} of each kind"
    )
    wanted = options.parse_args()
    random = Random(wanted.seed)  # noqa: S311 the same cases for the same seed
    found = read_by_go(drawn(random, KEPT_OF_A_KIND if wanted.write else wanted.cases))
    if wanted.write:
        lines = (json.dumps([*each.case, each.found], separators=(",", ":")) for each in found)
        KEPT.write_text("\n".join(lines) + "\n")
    wrong = [each for each in found if read_by_nodesmith(each.case) != each.found]
    for each in wrong:
        print(f"{read_by_nodesmith(each.case)} is not {each.found}: {json.dumps(each.case)}")
    print(f"{len(found) - len(wrong):,} of {len(found):,} answers are Go's")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
