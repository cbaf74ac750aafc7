"""A container as the kubelet runs it: started, probed, restarted with exponential back-off, and stopped gracefully."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.controlplane.process import on_a_lifeline
from tests.e2e.incluster.image import Image
from tests.e2e.incluster.volumes import Manifest, Mounts
from tests.e2e.systems import hurry

ROOT = Path(__file__).resolve().parents[3]
_MOVING_MOUNTS = Path(__file__).with_name("mounts")
_FIRST_BACKOFF, _LONGEST_BACKOFF = timedelta(seconds=10), timedelta(minutes=5)
_FORGIVEN_AFTER = timedelta(minutes=10)  # a container that has run this long starts with a fresh back-off


@dataclass(frozen=True, slots=True)
class Host:
    """What a node provides to containers. EKS Pod Identity adds `environment`; all containers write to `log`."""

    api_server_url: str
    image: Image
    environment: Mapping[str, str]
    clock: LocalClock
    log: Path


@dataclass(slots=True)
class Container:
    """The only container of a pod. Call `turn` regularly; nothing happens in between."""

    pod: Manifest
    mounts: Mounts
    host: Host
    restarts: int = -1  # the first start does not count
    _process: subprocess.Popen[bytes] | None = None
    _port: int = field(default_factory=lambda: _free_port())
    _started_at: datetime | None = None
    _start_at: datetime | None = None
    _kill_at: datetime | None = None
    _probe_at: datetime | None = None
    _backoff: timedelta = timedelta(0)
    _misses: int = 0

    @property
    def process_id(self) -> int | None:
        """Return the process ID, or None while there is no process."""
        process = self._process  # may be changed by another thread
        return process.pid if process is not None and process.poll() is None else None

    @property
    def has_ended(self) -> bool:
        """Return whether it was stopped and its process has ended."""
        return self._kill_at is not None and self.process_id is None

    def turn(self) -> None:
        """Do what is due. Raises Transient if something that the pod names does not exist (yet)."""
        now = self.host.clock.now()
        if self._process is None:
            if self._kill_at is None and (self._start_at is None or self._start_at <= now):
                self._start(now)
        elif self._process.poll() is not None:
            self._ended(now)
        elif self._kill_at is not None:
            if self._kill_at <= now:
                self._process.kill()
        else:
            self.mounts.renew()
            self._probe_liveness(now)

    def stop(self) -> None:
        """Ask it to end; it is killed after the pod's grace period, in real seconds as for probes."""
        if self._kill_at is None:
            grace = timedelta(seconds=self.pod["spec"]["terminationGracePeriodSeconds"])
            self._kill_at = self.host.clock.now() + grace * self.host.clock.speed
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)

    def kill(self, for_seconds: float) -> None:
        """Kill it at once, and do not restart it before this many clock seconds have passed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.forget()
        self._start_at = self.host.clock.now() + timedelta(seconds=for_seconds)

    def forget(self) -> None:
        """Forget a process that has ended, and close the pipe that ties it to this process."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def is_ready(self) -> bool:
        """Run the readiness probe now."""
        return self.process_id is not None and self._answers(self._spec["readinessProbe"])

    def answer(self, path: str) -> str:
        """Return the answer to an HTTP request, such as Prometheus's. Raises OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    @property
    def _spec(self) -> Manifest:
        spec: Manifest = self.pod["spec"]["containers"][0]
        return spec

    def _start(self, now: datetime) -> None:
        self.mounts.write()
        environment = self._environment()
        with self.host.log.open("ab") as output:
            self._process = subprocess.Popen(
                on_a_lifeline(self._command()),
                env=environment,
                cwd=self.host.image.root,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.restarts += 1
        self._started_at, self._misses = now, 0
        self._probe_at = self._next_probe(now)

    def _command(self) -> list[str]:
        interpreter, dash_m, module, *arguments = self.host.image.command
        assert dash_m == "-m", "the image must start a module"
        return [interpreter, *hurry.command(self.host.clock, module), *arguments]

    def _environment(self) -> Mapping[str, str]:
        given = dict(self.host.image.environment)
        for source in self._spec.get("envFrom", ()):
            given |= self.mounts.config_map(source["configMapRef"]["name"])
        given |= {variable["name"]: variable["value"] for variable in self._spec.get("env", ())}
        server = urlsplit(self.host.api_server_url)
        return {
            "PATH": os.environ["PATH"],
            **self.host.environment,
            **given,
            "HOSTNAME": self.pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "PYTHONPATH": os.pathsep.join([str(_MOVING_MOUNTS), given["PYTHONPATH"]]),
            "MOUNTS": str(self.mounts.root),
            **hurry.environment(self.host.clock),
            "HEALTH_PROBE_PORT": str(self._port),  # pods have their own addresses, but here all share one
        }

    def _ended(self, now: datetime) -> None:
        assert self._started_at is not None
        if now - self._started_at > _FORGIVEN_AFTER:
            self._backoff = timedelta(0)
        self.forget()
        self._start_at = now + self._backoff
        self._backoff = min(max(2 * self._backoff, _FIRST_BACKOFF), _LONGEST_BACKOFF)

    def _probe_liveness(self, now: datetime) -> None:
        probe = self._spec["livenessProbe"]
        if self._process is None or self._probe_at is None or now < self._probe_at:
            return
        self._probe_at = self._next_probe(now)
        self._misses = 0 if self._answers(probe) else self._misses + 1
        if self._misses >= probe["failureThreshold"]:
            self._process.kill()

    def _next_probe(self, now: datetime) -> datetime:
        """Return when the probe's period ends, in real seconds, because no clock makes a program answer faster."""
        life = timedelta(seconds=self._spec["livenessProbe"]["periodSeconds"])
        return now + life * self.host.clock.speed

    def _answers(self, probe: Manifest) -> bool:
        ports = {port["name"]: port["containerPort"] for port in self._spec["ports"]}
        asked = probe["httpGet"]
        if ports.get(asked["port"], asked["port"]) != self.host.image.port:
            return False  # nothing listens there
        url = f"http://127.0.0.1:{self._port}{asked['path']}"
        try:
            with urllib.request.urlopen(url, timeout=probe["timeoutSeconds"]) as answer:
                return bool(answer.status < 400)
        except OSError:
            return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
