"""Cold start: a fresh process imports the provisioning handler, laid out as on Lambda, and builds its clients."""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

from layers.vendor.build import build
from tests.benchmarks.figures import Figure, reference_ms

ROOT = Path(__file__).parents[3]
LAID_OUT = ROOT / "build" / "coldstart"
RUNS = 15
_PROGRAM = """
import json, time
started = time.perf_counter()
import handler
ms = (time.perf_counter() - started) * 1000
with open("/proc/self/status") as status:  # ru_maxrss would include the parent process
    mib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
print(json.dumps({"ms": ms, "mib": mib}))
"""
_ENVIRONMENT = {
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "TABLE_NAME": "nodesmith",
    "BUCKET_NAME": "bench",
    "QUEUE_URL": "https://sqs.test/1/nodesmith-waiting",
    "SESSION_ROLE_ARN": "arn:aws:iam::111122223333:role/bench",
}


def figures() -> list[Figure]:
    """Measure time and memory of one import."""
    paths = laid_out("provisioning")
    runs = [_import(paths) for _ in range(RUNS)]
    times, mib = [run["ms"] for run in runs], median(run["mib"] for run in runs)
    # The fastest, because other processes only add time that says nothing about the code.
    fastest, reference = min(times), min(reference_ms() for _ in range(RUNS))
    note = (
        f"fastest of {RUNS} processes, median {median(times):.0f} ms; {fastest / reference:.1f} × the reference loop;"
        f" Python {sys.version_info.major}.{sys.version_info.minor}, compiled"
    )
    return [
        Figure("cold-import-ms", fastest, "ms", 350, note),
        Figure("cold-import-mib", mib, "MiB", 90, "peak resident memory of the process"),
    ]


def laid_out(concern: str) -> str:
    """Lay out a function and its layers as on Lambda, compiled for this Python, and return the module path.

    On Lambda the folders are /var/task and /opt/python.
    """
    layers = build()
    shutil.rmtree(LAID_OUT, ignore_errors=True)
    shutil.copytree(ROOT / "functions" / concern, LAID_OUT / "task")
    for name in ("core", "vendor"):
        shutil.copytree(layers[name] / "python", LAID_OUT / "python", dirs_exist_ok=True)
    compileall.compile_dir(LAID_OUT, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    return os.pathsep.join(str(LAID_OUT / name) for name in ("task", "python"))


def _import(paths: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-S", "-c", _PROGRAM],
        env={**_ENVIRONMENT, "PYTHONPATH": paths, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured
