"""Asks Prometheus' parser, promtool and Grafana's types about the files in monitoring/."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monitoring.__main__ import HERE as MONITORING
from monitoring.__main__ import RULES, TESTS
from tests.promql import KEPT, cases, digest, queries

HERE, BUILT = Path(__file__).parent, Path("build/promql").absolute()
PROMTOOL = "github.com/prometheus/prometheus/cmd/promtool"


def build() -> None:
    """Build the parser and promtool unless they are current: minutes the first time. Raises RuntimeError without Go."""
    if shutil.which("go") is None:
        raise RuntimeError("the checks of monitoring/ need Go: https://go.dev/dl")
    BUILT.mkdir(parents=True, exist_ok=True)
    for name, package in (("promql", "."), ("promtool", PROMTOOL)):
        command = ["go", "build", "-buildvcs=false", "-o", str(BUILT / name), package]
        subprocess.run(command, cwd=HERE, check=True, env={**os.environ, "GOFLAGS": "-mod=readonly"})


def asked(given: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the answers of `main.go`."""
    lines = "".join(json.dumps(case) + "\n" for case in given)
    done = subprocess.run([str(BUILT / "promql")], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def promtool(*arguments: str) -> str:
    """Return what promtool says about files in monitoring/. Raises RuntimeError with that if it finds a fault."""
    done = subprocess.run(
        [str(BUILT / "promtool"), *arguments], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"promtool {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def document() -> dict[str, Any]:
    """Ask everything, and return the document to keep. Raises RuntimeError for a fault of the rules."""
    build()
    texts, reported = queries(), asked(cases())
    found = re.search(r"(\d+) rules found", promtool("check", "rules", RULES))
    promtool("test", "rules", TESTS)
    return {
        "queries": dict(zip(texts, reported, strict=False)),
        "faults": [each["fault"] for each in reported[len(texts) :] if each["fault"]],
        "promtool": {"rules": int(found[1]) if found else 0, "digest": digest()},
    }


def main() -> int:
    """Compare with what is kept, or keep it; 1 where it differs."""
    options = argparse.ArgumentParser(prog="python -m tests.promql", description=__doc__)
    options.add_argument("--write", action="store_true", help=f"make {KEPT.name} anew")
    wanted = options.parse_args()
    text = json.dumps(document(), indent=1, sort_keys=True) + "\n"
    if wanted.write:
        KEPT.write_text(text)
    is_same = KEPT.exists() and KEPT.read_text() == text
    print("what is kept is what Prometheus and Grafana say" if is_same else f"{KEPT.name} differs")
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
