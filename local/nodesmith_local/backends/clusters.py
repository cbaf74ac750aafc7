"""A cluster without AWS and nodesmith: its API server and what Kubernetes itself provides."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from nodesmith_formats.kubernetes.objects import Object
from nodesmith_local.backends.objects import Objects


class RunningCluster(Protocol):
    """A running cluster with nodesmith's CRDs installed: `EmbeddedCluster` or `RealCluster`."""

    @property
    def kwok(self) -> bool:
        """Whether kwok runs the kubelets of ready nodes."""

    @property
    def url(self) -> str:
        """The API server's base URL."""

    @property
    def ca_bundle(self) -> str:
        """The CA's certificate, PEM in base64."""

    @property
    def token(self) -> str:
        """A bearer token with all rights."""

    @property
    def objects(self) -> Objects:
        """The cluster's objects, accessed with that token's rights."""

    def kubeconfig(self) -> Object:
        """Return a kubeconfig for kubectl, with a user that has all rights."""


LocalCluster = AbstractContextManager[RunningCluster]
