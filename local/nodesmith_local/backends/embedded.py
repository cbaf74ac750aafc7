"""A cluster in memory: its API server, and stand-ins for controllers, scheduler and container runtimes."""

from __future__ import annotations

import base64
from contextlib import ExitStack

from nodesmith.errors import Rejected
from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_formats.kubernetes.objects import Object
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.apiserver import ApiServer, Store
from nodesmith_local.backends.othercrds import other_definitions
from nodesmith_local.cluster import Cluster, Pace
from nodesmith_local.composite import Started


class EmbeddedCluster(Started):
    """A context manager; inside it the cluster runs at `clock`'s speed. Port 0 takes a free one."""

    kwok = False
    """The kubelet simulation renews the leases; the stand-ins run the pods."""
    ca_bundle = base64.b64encode(b"the local API server speaks plain HTTP").decode()
    token = "local"  # noqa: S105 the server does not check it

    def __init__(self, clock: LocalClock, port: int = 0, pace: Pace = Pace()) -> None:  # noqa: B008 frozen
        self._clock = clock
        self._port = port
        self._pace = pace
        self.server: ApiServer

    @property
    def url(self) -> str:
        """The API server's base URL, without a trailing slash."""
        return self.server.url

    @property
    def objects(self) -> Store:
        """The cluster's objects."""
        return self.server.store

    def kubeconfig(self) -> Object:
        """Return a kubeconfig, to be written as JSON or YAML."""
        return self.server.kubeconfig()

    def _start(self, stack: ExitStack) -> None:
        """Start the server and the stand-ins. Raises Rejected for a port that is not available."""
        self.server = stack.enter_context(self._api_server())
        cluster = Cluster(self.objects, pace=self._pace).start(self._clock.speed)
        stack.callback(cluster.stop)

    def _api_server(self) -> ApiServer:
        try:
            crds = [*custom_resource_definitions(), *other_definitions()]
            return ApiServer(self._port, crds, now=self._clock.now)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Rejected(f"--port {self._port}: {reason}: choose a free one, or 0 for any") from None
