"""`nodesmith savings` on a real API server with 500 nodes of several owners and 5,000 pods: seconds, and no write."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import urllib3

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith_formats.localsystem.contexts import kubeconfig_of
from nodesmith_local.controlplane import ControlPlane, find_binaries
from tests.e2e.conftest import BUILD, Alone, Figures
from tests.e2e.incluster.largecluster import kept_large_cluster
from tests.servers.recordingserver import METHODS

pytestmark = pytest.mark.slow
NODES, PODS, KINDS = 500, 5_000, 60
LONGEST_SECONDS = 20.0
"""of CPU, so that the test does not depend on what else the machine does; the figure is that of the clock"""
_OWNERS: tuple[dict[str, str], ...] = (
    {"eks.amazonaws.com/nodegroup": "general"},
    {"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default"},
    {"eks.amazonaws.com/compute-type": "auto", "karpenter.sh/nodepool": "system"},
    {"spotinst.io/node-lifecycle": "od"},
)
"""Labels that the first nodes of the cluster get in turn; the others are plain nodes."""
_RELABELLED = 40
_ASKED = ("savings", "-o", "json", "--spot-prices", "estimate")


def test_a_cluster_of_500_nodes_is_compared_within_20_seconds_and_without_a_write(
    folder: Path, figures: Figures, alone: Alone
) -> None:
    data = shutil.copytree(kept_large_cluster(NODES, PODS, KINDS, BUILD / "largecluster"), folder / "data")
    with alone(), ControlPlane(find_binaries(), folder / "plane", data=data) as plane:
        _relabel(ApiServer(connect(plane.url, plane.ca_bundle, lambda: plane.admin_token)))
        with recorded(plane, folder) as (kubeconfig, methods):
            began, cpu_began = time.monotonic(), os.times().children_user
            ran = subprocess.run(
                [sys.executable, "-m", "nodesmith_cli.main", *_ASKED, "--kubeconfig", kubeconfig],
                capture_output=True,
                text=True,
                check=False,
            )
            took, cpu = time.monotonic() - began, os.times().children_user - cpu_began
    shutil.rmtree(data)

    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    writes = [method for method in methods if method != "GET"]
    figures("savings-500-s", round(took, 1))
    figures("savings-500-cpu-s", round(cpu, 1))
    figures("savings-write-calls", len(writes))
    assert writes == []
    assert len(methods) > PODS / 100
    assert report["cluster"]["nodes"] >= NODES
    assert report["cluster"]["pods"] == PODS
    assert {"EKS managed node group", "EKS Auto Mode", "Spot Ocean", "Karpenter"} <= {
        each["software"] for each in report["owners"]
    }
    assert report["repacked"]["hourly"] < report["now"]["hourly"]
    assert cpu <= LONGEST_SECONDS, f"{took:.1f} s of the clock"


def _relabel(server: ApiServer) -> None:
    """Make the first nodes those of several owners."""
    names = [item["metadata"]["name"] for page in server.pages("/api/v1/nodes") for item in page["items"]]
    for number, name in enumerate(names[:_RELABELLED]):
        labels = _OWNERS[number % len(_OWNERS)]
        server.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})


@contextmanager
def recorded(plane: ControlPlane, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield a kubeconfig of a proxy before the API server, and the list of methods that the proxy has seen."""
    methods: list[str] = []
    ca = base64.b64decode(plane.ca_bundle).decode()
    pool = urllib3.PoolManager(ca_cert_data=ca, headers={"Authorization": f"Bearer {plane.admin_token}"})

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def passed_on(self) -> None:
            methods.append(self.command)
            answer = pool.request(self.command, plane.url + self.path)
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.data)))
            self.end_headers()
            self.wfile.write(answer.data)

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    for method in METHODS:
        setattr(Proxy, f"do_{method}", Proxy.passed_on)
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield _kubeconfig(proxy.server_address[1], folder), methods
    finally:
        proxy.shutdown()
        proxy.server_close()


def _kubeconfig(port: int, folder: Path) -> str:
    path = folder / "kubeconfig"
    path.write_text(json.dumps(kubeconfig_of("large", f"http://127.0.0.1:{port}")))
    return str(path)
