"""The forwarder in its cluster, from `kubectl apply -k` to SIGTERM."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.errors import NodesmithError
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.controlplane import ControlPlane
from tests.e2e.incluster.container import ROOT, Container, Host
from tests.e2e.incluster.image import Image, build_image
from tests.e2e.incluster.volumes import Manifest, Mounts

FORWARDER = ROOT / "forwarder"
NAMESPACE = "nodesmith"
_LABEL = ("app.kubernetes.io/component", "forwarder")
_GLANCE_SECONDS = 0.5
_PATIENCE_SECONDS = 15.0
_SETTING = re.compile(r"^(\w+)=.*$", re.MULTILINE)


@cache
def _image() -> Image:
    """Build the image once for all clusters of this process; their pods read it and write elsewhere."""
    folder = Path(tempfile.mkdtemp(prefix="nodesmith-image-"))
    atexit.register(shutil.rmtree, folder)
    return build_image(FORWARDER / "Dockerfile", ROOT, folder / "image")


class InCluster:
    """The shipped manifests with `forwarder.env` filled in from `values`, and a kubelet for the pod they create.

    A context manager that stops what `start` began. The pod belongs to the control plane: its process runs from the
    moment that the pod is bound to a node and Running there, until the pod or its node is deleted. Back-off and `kill`
    count on `clock`. `manifests` and `image` replace the shipped ones.
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        *,
        environment: Mapping[str, str],
        values: Mapping[str, str],
        clock: LocalClock,
        manifests: Path = FORWARDER,
        image: Image | None = None,
    ) -> None:
        self.log = folder / "forwarder.log"
        """What every process so far has printed."""
        folder.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self.faults: list[str] = []
        """What kept the pod's container from starting, as the kubelet's events would say."""
        self._plane, self._folder, self._values, self._manifests = plane, folder, values, manifests
        self._environment, self._clock, self._image = environment, clock, image
        self._server = ApiServer(connect(plane.url, plane.ca_bundle, lambda: plane.admin_token))
        self._containers: dict[str, Container] = {}
        self._restarts = 0
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._kubelet = threading.Thread(target=self._run, name="forwarder's kubelet", daemon=True)

    def __enter__(self) -> InCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Apply the manifests and start to follow the pod. Raises RuntimeError with kubectl's error."""
        self._host = Host(self._plane.url, self._image or _image(), self._environment, self._clock, self.log)
        self._apply()
        self._kubelet.start()

    def stop(self) -> None:
        """End the process as when its node shuts down, and stop following."""
        self._stopping.set()
        if self._kubelet.is_alive():
            self._kubelet.join()
        for container in self._containers.values():
            container.stop()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.running:
            if time.monotonic() > deadline:
                self.kill(for_seconds=0)
            time.sleep(_GLANCE_SECONDS / 10)
        for container in self._containers.values():
            container.forget()

    def kill(self, for_seconds: float) -> None:
        """Kill the process; it restarts after this many clock seconds, as in a crash loop."""
        with self._turn:
            for container in self._containers.values():
                container.kill(for_seconds)

    @property
    def running(self) -> bool:
        """Return whether there is a process."""
        return self.process_id is not None

    @property
    def ready(self) -> bool:
        """Return whether the readiness probe succeeds now."""
        return any(container.is_ready() for container in list(self._containers.values()))

    @property
    def restarts(self) -> int:
        """Return how often a container was restarted."""
        return self._restarts + sum(max(0, c.restarts) for c in list(self._containers.values()))

    @property
    def process_id(self) -> int | None:
        """Return the process ID, or None while there is no process."""
        ids = (container.process_id for container in list(self._containers.values()))
        return next((id_ for id_ in ids if id_ is not None), None)

    def metrics(self) -> list[str]:
        """Return the lines that Prometheus scrapes."""
        (container,) = [each for each in list(self._containers.values()) if each.process_id]
        return container.answer("/metrics").splitlines()

    def messages(self) -> list[str]:
        """Return the messages of its log."""
        lines = self.log.read_text().splitlines()
        return [str(json.loads(line)["message"]) for line in lines if line.startswith("{")]

    def _apply(self) -> None:
        """Do what docs/operations.md says: fill in the settings, apply the folder."""
        filled = self._folder / "manifests"
        shutil.copytree(
            self._manifests, filled, ignore=shutil.ignore_patterns("nodesmith_forwarder", "Dockerfile*")
        )
        settings = filled / "forwarder.env"
        settings.write_text(_filled(settings.read_text(), self._values))
        done = self._plane.kubectl("apply", "-k", str(filled))
        if done.returncode != 0:
            raise RuntimeError(f"kubectl apply -k: {done.stderr}")

    def _run(self) -> None:
        while not self._stopping.wait(_GLANCE_SECONDS):
            with self._turn:
                try:
                    self._follow(self._bound_pods())
                except NodesmithError as error:  # a kubelet continues with what it knows
                    self._note(error)
                for container in self._containers.values():
                    try:
                        container.turn()
                    except NodesmithError as error:
                        self._note(error)

    def _follow(self, pods: Mapping[str, Manifest]) -> None:
        for uid in pods.keys() - self._containers.keys():
            mounts = Mounts(self._server, pods[uid], self._folder / "mounts" / uid)
            self._containers[uid] = Container(pods[uid], mounts, self._host)
        for uid in self._containers.keys() - pods.keys():
            self._containers[uid].stop()
            if self._containers[uid].has_ended:
                ended = self._containers.pop(uid)
                ended.forget()
                self._restarts += max(0, ended.restarts)

    def _bound_pods(self) -> Mapping[str, Manifest]:
        """Return the pods that a kubelet would run now, by UID."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        pods = [pod for page in self._server.pages(path) for pod in page["items"]]
        return {pod["metadata"]["uid"]: pod for pod in pods if self._is_to_run(pod)}

    def _is_to_run(self, pod: Manifest) -> bool:
        if _LABEL not in pod["metadata"].get("labels", {}).items() or "deletionTimestamp" in pod["metadata"]:
            return False
        is_running = pod["status"].get("phase") == "Running"
        return is_running and self._server.get(f"/api/v1/nodes/{pod['spec']['nodeName']}") is not None

    def _note(self, error: NodesmithError) -> None:
        if str(error) not in self.faults:
            self.faults.append(str(error))


def _filled(text: str, values: Mapping[str, str]) -> str:
    if unknown := values.keys() - set(_SETTING.findall(text)):
        raise ValueError(f"forwarder.env has no setting {', '.join(sorted(unknown))}")
    return _SETTING.sub(lambda line: f"{line[1]}={values[line[1]]}" if line[1] in values else line[0], text)
