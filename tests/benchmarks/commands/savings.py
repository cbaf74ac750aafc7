"""`nodesmith savings`: seconds and write calls for a large cluster, and how well it predicts what fleets cost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from tests.benchmarks.figures import Figure
from tests.experiments.savingsaccuracy import outcome
from tests.objects.savingsclusters import karpenter, nodepool, pod, sparse
from tests.servers.recordingserver import RecordingServer

NODES, CLUSTERS, _TINY = 500, 20, 1000
_FIRST_SEED = 101
"""Smaller seeds were used to measure the allowance for scheduling."""


def figures(*, clusters: int = CLUSTERS) -> list[Figure]:
    """Measure the command as a process, and predictions for random clusters."""
    return [*_large(), *_accuracy(clusters)]


def _large() -> list[Figure]:
    half = NODES // 2
    manifests = [
        *sparse(half, 1, use=0.9),
        *sparse(NODES - half, 2, use=0.9, labels=karpenter(), prefix="k"),
        *(pod(f"tiny-{n:04d}", f"n-{n % half:03d}", "tiny", "10m", "16Mi") for n in range(_TINY)),
        nodepool(),
    ]
    pods = sum(each["kind"] == "Pod" for each in manifests)
    with TemporaryDirectory() as folder, RecordingServer(manifests, usage=[]) as server:
        asked = (sys.executable, "-m", "nodesmith_cli.main", "savings", "-o", "json")
        options = ("--spot-prices", "estimate", "--kubeconfig", server.kubeconfig(Path(folder)))
        began, cpu_began = time.monotonic(), os.times().children_user
        subprocess.run([*asked, *options], check=True, capture_output=True)
        took, cpu = time.monotonic() - began, os.times().children_user - cpu_began
    note = f"{NODES} nodes of two owners, {pods:,} pods, {len(server.asked)} requests, {cpu:.1f} s of CPU"
    return [
        Figure("savings-500-s", took, "s", 20, note),
        Figure("savings-write-calls", len(server.writes), "calls", 0),
    ]


def _accuracy(clusters: int) -> list[Figure]:
    """Compare predictions with what fleets cost after nodesmith has managed them for an hour."""
    errors = [100 * outcome(seed).error for seed in range(_FIRST_SEED, _FIRST_SEED + clusters)]
    worst = max(errors, key=abs)
    return [
        Figure(
            "savings-error-percent",
            mean(map(abs, errors)),
            "%",
            3,
            f"{clusters} clusters, worst {worst:+.1f} %",
        ),
        Figure("savings-bias-percent", mean(errors), "%", 3, at_least=-3),
    ]
