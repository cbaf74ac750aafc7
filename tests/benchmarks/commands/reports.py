"""How large HTML reports of 500 nodes are, from the commands that write them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.figures import Figure
from tests.objects.savingsclusters import Manifest, nodepool, sparse
from tests.servers.recordingserver import RecordingServer

NODES = 500
_MOST_KILOBYTES = 1_000


def figures(*, nodes: int = NODES) -> list[Figure]:
    """Measure the reports of `plan` and `savings`, written as a user writes them."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        waiting = folder / "waiting.json"
        waiting.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": _waiting(nodes)}))
        with RecordingServer(sparse(nodes)) as server:
            path = str(server.kubeconfig(folder))
            return [
                _figure("plan", nodes, ["plan", "-f", str(waiting)]),
                _figure("savings", nodes, ["savings", "--kubeconfig", path, "--spot-prices", "estimate"]),
            ]


def _waiting(nodes: int) -> list[Manifest]:
    """Return a NodePool of one size, and pods of ten Deployments that fill one node each."""
    pool = nodepool()
    pool["spec"]["template"]["spec"]["requirements"] = [
        {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["4"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
    ]
    return [pool, *(_pod(n) for n in range(nodes))]


def _pod(n: int) -> Manifest:
    requests = {"cpu": "3", "memory": f"{1 + n % 10}Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"app-{n % 10}-5d9c7b6f4-{n:05d}", "labels": {"app": f"app-{n % 10}"}},
        "spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": requests}}]},
    }


def _figure(what: str, nodes: int, arguments: Sequence[str]) -> Figure:
    began = time.monotonic()
    written = subprocess.run(
        [sys.executable, "-m", "nodesmith_cli.main", *arguments, "-o", "html"],
        capture_output=True,
        check=True,
        env=dict(os.environ),
    ).stdout
    note = f"{nodes:,} nodes; the command took {time.monotonic() - began:.0f} s"
    return Figure(f"report-{what}-kilobytes", len(written) / 1000, "kB", _MOST_KILOBYTES, note)
