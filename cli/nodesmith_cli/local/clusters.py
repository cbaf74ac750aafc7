"""What there is of a cluster before AWS and nodesmith: its API server and all that Kubernetes itself brings."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from nodesmith_cli.local.apiserver.objects import Object
from nodesmith_cli.local.objects import Objects


class RunningCluster(Protocol):
    """A cluster that runs, nodesmith's CRDs installed: `EmbeddedCluster` or `RealCluster`."""

    @property
    def kwok(self) -> bool:
        """Return whether kwok plays the kubelets of ready nodes."""

    @property
    def url(self) -> str:
        """The API server's base URL."""

    @property
    def ca_bundle(self) -> str:
        """The base64 of the PEM of its CA."""

    @property
    def token(self) -> str:
        """A bearer token that may do everything."""

    @property
    def objects(self) -> Objects:
        """The cluster's objects, with that token's rights."""

    def kubeconfig(self) -> Object:
        """Return a kubeconfig for kubectl, with a user who may do everything."""


LocalCluster = AbstractContextManager[RunningCluster]
