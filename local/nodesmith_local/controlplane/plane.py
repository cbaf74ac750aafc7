"""The control plane: order of start, readiness, and access."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

from nodesmith_local.controlplane import commands
from nodesmith_local.controlplane.access import ca_bundle, kubeconfig, write_access
from nodesmith_local.controlplane.authenticator import Authenticate, Authenticator, no_user
from nodesmith_local.controlplane.certificates import write_certificates
from nodesmith_local.controlplane.folders import claimed
from nodesmith_local.controlplane.ports import Ports, free_ports
from nodesmith_local.controlplane.process import Died, Process
from nodesmith_local.controlplane.readiness import Probe, wait_until_ready

Stage = Callable[[str], AbstractContextManager[None]]
_PORT_TAKEN = "address already in use"


class ControlPlane:
    """A running control plane. Inside the context, the API server answers at `url` and all other programs run.

    `binaries` holds the programs. `folder` (new, empty, or an earlier control plane's) receives logs, certificates and
    kubeconfigs. `port` is the API server's, 0 for any. `authenticate` decides on bearer tokens that Kubernetes does not
    know. `data` is etcd's folder; etcd uses an earlier control plane's data there, or creates it, and leaves it behind.
    Without `data`, etcd's data is deleted at the end. `ip_family` is that of Services and pods. With `pod_groups`,
    PodGroups are served and bound by. `stage` wraps each part of the start. Raises Rejected for a folder or port that
    is not available, and when a program ends unexpectedly.
    """

    def __init__(
        self,
        binaries: Path,
        folder: Path,
        *,
        port: int = 0,
        authenticate: Authenticate = no_user,
        data: Path | None = None,
        ip_family: str = "ipv4",
        pod_groups: bool = False,
        stage: Stage = lambda what: nullcontext(),  # noqa: ARG005
    ) -> None:
        self.folder = folder.absolute()
        self.admin_token = secrets.token_urlsafe(24)
        self.started_in_seconds = 0.0
        self._binaries = binaries.absolute()
        self._port = port
        self._authenticate = authenticate
        self._data = data
        self._ip_family, self._pod_groups = ip_family, pod_groups
        self._stage = stage
        self._ports: Ports
        self._processes: dict[str, Process] = {}
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        return f"https://127.0.0.1:{self._ports.apiserver}"

    @property
    def ca_bundle(self) -> str:
        """The certificate authority's certificate, PEM in base64, as EKS returns it."""
        return ca_bundle(self.folder)

    def kubeconfig(self) -> dict[str, Any]:
        """Return the administrator's kubeconfig, to be written as JSON or YAML."""
        return kubeconfig(self.url, self.ca_bundle, self.admin_token)

    def kubectl(
        self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl, by default as the administrator; the result tells whether it succeeded."""
        return subprocess.run(  # noqa: S603 the program is kubectl, the arguments the caller's
            [self._binaries / "kubectl", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "KUBECONFIG": str(kubeconfig or self.folder / "admin.kubeconfig"),
                "KUBECACHEDIR": str(self.folder / "kubectl"),
                "KUBERC": "off",
            },
        )

    def restart_api_server(self, away_seconds: float = 0.0) -> None:
        """Kill the API server, wait, start it again at the same port, and wait until it is ready."""
        self.kill_api_server()
        time.sleep(away_seconds)
        self.start_api_server()

    def kill_api_server(self) -> None:
        """Kill the API server only."""
        self._processes["kube-apiserver"].kill()

    def start_api_server(self) -> None:
        """Start a killed API server again at the same port, and wait until it is ready."""
        self._run_api_server(self._ports)
        self._wait(self._apiserver_probes())

    def __enter__(self) -> ControlPlane:
        started_at = time.monotonic()
        with ExitStack() as stack:
            stack.enter_context(claimed(self.folder))
            authenticator = stack.enter_context(Authenticator(self._authenticate))
            stack.callback(self._stop)
            try:
                self._start(authenticator)
            except Died as error:
                if _PORT_TAKEN not in error.log:
                    raise
                self._stop()  # another process took a port that had been free; try once more with other ports
                self._start(authenticator)
            self._stack = stack.pop_all()
        self.started_in_seconds = time.monotonic() - started_at
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self, authenticator: Authenticator) -> None:
        ports = self._ports = free_ports(self._port)
        with self._stage("starting etcd and kube-apiserver"):
            self._run("etcd", commands.etcd(self._data or self.folder / "etcd", ports))
            write_certificates(self.folder)
            write_access(self.folder, self.url, self.admin_token, authenticator.kubeconfig())
            self._wait([Probe(f"http://127.0.0.1:{ports.etcd}/health")])
            self._run_api_server(ports)
            self._wait(self._apiserver_probes())
        with self._stage("starting controllers, scheduler and kubelets"):
            self._run("kube-controller-manager", commands.controllers(self.folder, ports))
            groups = commands.with_groups_of_pods() if self._pod_groups else []
            self._run("kube-scheduler", [*commands.scheduler(self.folder, ports), *groups])
            self._run("kwok", commands.kwok(self.folder, ports, self._ip_family))
            self._wait(
                [
                    Probe(f"https://127.0.0.1:{ports.controllers}/healthz"),
                    Probe(f"https://127.0.0.1:{ports.scheduler}/readyz"),
                    Probe(f"http://127.0.0.1:{ports.kwok}/healthz"),
                    Probe(f"{self.url}/api/v1/namespaces/default/serviceaccounts/default", self.admin_token),
                ]
            )

    def _apiserver_probes(self) -> list[Probe]:
        return [Probe(f"{self.url}/readyz", self.admin_token)]

    def _run_api_server(self, ports: Ports) -> None:
        groups = commands.serving_groups_of_pods() if self._pod_groups else []
        self._run("kube-apiserver", [*commands.apiserver(self.folder, ports, self._ip_family), *groups])

    def _run(self, name: str, arguments: Sequence[str]) -> None:
        self._processes[name] = Process([self._binaries / name, *arguments], self.folder / f"{name}.log")

    def _wait(self, probes: Sequence[Probe]) -> None:
        wait_until_ready(probes, self._processes.values(), self.folder / "ca.crt")

    def _stop(self) -> None:
        """End the programs in reverse order of their start; keep logs, and data only in a folder of its own."""
        while self._processes:
            self._processes.popitem()[1].stop()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)
