"""`nodesmith local up --control-plane real` as a user runs it: one command, kubectl, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_formats.manifests.manifests import load_manifests
from nodesmith_local.backends.embedded import EmbeddedCluster
from nodesmith_local.backends.real import RealCluster
from nodesmith_local.controlplane import find_binaries
from nodesmith_local.runs.applying import apply_documents
from tests.e2e.conftest import Figures
from tests.patience import eventually, patient

ROOT = Path(__file__).resolve().parents[3]
DUBIOUS = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  sepc: 1
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: kubernetes.io/arch, operator: Inn, values: [amd64]}]
---
apiVersion: karpenter.sh/v1
kind: NodePol
metadata: {name: misspelt}
---
apiVersion: v1
kind: Pod
metadata: {name: misspelt}
spec: {contaners: [], containers: [{name: main, image: busybox, resorces: {}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: homeless, namespace: nowhere}
spec: {containers: [{name: main, image: busybox}]}
---
apiVersion: v1
kind: Pod
metadata: {name: contradictory}
spec: {containers: [{name: main, image: busybox, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}
"""
PROGRAMS = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}
STARTED_WITHIN_SECONDS, RUNNING_WITHIN_SECONDS, ENDED_WITHIN_SECONDS = 90.0, 150.0, 30.0


@dataclass(frozen=True, slots=True)
class Up:
    """The running command: what it has printed, and kubectl with the kubeconfig that it has written."""

    process: subprocess.Popen[bytes]
    folder: Path
    binaries: Path

    def printed(self) -> str:
        return (self.folder / "printed").read_text()

    def kubectl(self, *arguments: str) -> str:
        environment = {**os.environ, "KUBECONFIG": str(self.folder / "kubeconfig")}
        done = subprocess.run(
            [self.binaries / "kubectl", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}\n{self.printed()}"
        return done.stdout

    def get(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", *arguments, "-o", "json"))["items"]
        return found

    def until(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        def holds_while_it_runs() -> bool:
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.printed()}"
            return holds()

        eventually(holds_while_it_runs, what, seconds, self.printed)

    def programs(self) -> set[str]:
        """Return the names of the programs that run in this folder, whatever their parent processes are."""
        found = set()
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = each.read_bytes().split(b"\0")
            except OSError:  # it has ended in the meantime
                continue
            if any(str(self.folder).encode() in word for word in command[1:]):
                found.add(Path(command[0].decode()).name)
        return found - {Path(sys.executable).name}


@contextmanager
def local_up(folder: Path) -> Iterator[Up]:
    """Start the command and wait until it prints how to stop it."""
    options = ("--kubeconfig", str(folder / "kubeconfig"), "--keep", str(folder / "state"))
    command = [sys.executable, "-m", "nodesmith_cli.main", "local", "up", "--control-plane", "real", *options]
    paths = os.pathsep.join(
        str(ROOT / path) for path in ("layers/core/python", "cli", "formats", "forwarder", "local")
    )
    binaries = find_binaries()
    with (folder / "printed").open("wb") as printed:
        process = subprocess.Popen(
            command, stdout=printed, stderr=printed, env={**os.environ, "PYTHONPATH": paths}
        )
    try:
        up = Up(process, folder, binaries)
        up.until("it is up", lambda: "Ctrl-C ends it" in up.printed(), STARTED_WITHIN_SECONDS)
        yield up
    finally:
        process.kill()
        process.wait()


def test_twenty_pods_run_on_the_real_control_plane_and_ctrl_c_cleans_up(
    folder: Path, figures: Figures
) -> None:
    with local_up(folder) as up:
        assert up.programs() >= PROGRAMS
        up.kubectl(
            "create", "deployment", "web", "--image=busybox", "--replicas=0", "--", "sleep", "infinity"
        )
        up.kubectl("set", "resources", "deployment", "web", "--requests=cpu=1")
        up.kubectl("scale", "deployment", "web", "--replicas=20")
        began = time.monotonic()
        up.until("there are 20 pods", lambda: len(up.get("pods")) == 20, RUNNING_WITHIN_SECONDS)
        # `rollout status` is unreliable: very rarely, the ReplicaSet's controller does not count the last pod.
        within = f"--timeout={patient(RUNNING_WITHIN_SECONDS):.0f}s"
        up.kubectl("wait", "pods", "--all", "--for=jsonpath={.status.phase}=Running", within)
        figures("pending-to-running-s", round(time.monotonic() - began, 1))
        up.until("they run, and no node is empty", lambda: all_run(up), RUNNING_WITHIN_SECONDS)
        pools = {node["metadata"]["labels"]["karpenter.sh/nodepool"] for node in up.get("nodes")}
        assert pools == {"default"}
        up.until(
            "kube-scheduler says that it has bound each",
            lambda: len(bound_by(up)) >= 20,
            RUNNING_WITHIN_SECONDS,
        )
        assert set(bound_by(up)) == {"default-scheduler"}

        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(patient(ENDED_WITHIN_SECONDS)) == 0, up.printed()
        assert up.programs() == set()
        assert not (folder / "kubeconfig").exists()


def all_run(up: Up) -> bool:
    """Return whether 20 pods run and every node has one. Consolidation may move pods meanwhile."""
    pods, nodes = up.get("pods"), {node["metadata"]["name"] for node in up.get("nodes")}
    running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    return len(running) == len(pods) == 20 and {pod["spec"]["nodeName"] for pod in pods} == nodes


def bound_by(up: Up) -> list[str]:
    """Return which program has bound a pod, from each Event that says so."""
    events = up.get("events", "--field-selector", "reason=Scheduled")
    return [str(event["reportingComponent"]) for event in events]


def test_both_api_servers_report_the_same_faults_in_manifests(folder: Path) -> None:
    (folder / "dubious.yaml").write_text(DUBIOUS)
    documents = load_manifests([str(folder / "dubious.yaml")]).documents
    with RealCluster(folder / "controlplane") as real, EmbeddedCluster(LocalClock()) as embedded:
        faults = [apply_documents(each.objects, documents) for each in (real, embedded)]
        for each in (real, embedded):
            assert each.objects.find("nodepools", "general") is None
            assert each.objects.get("pods", "misspelt", "default")["spec"]["containers"][0]["name"] == "main"
    assert faults[0] == faults[1]
    assert {fault.object for fault in faults[0]} == {
        "NodePool/general",
        "NodePol/misspelt",
        "Pod/misspelt",
        "Pod/homeless",
        "Pod/contradictory",
    }
