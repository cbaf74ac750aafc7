"""The objects of a live cluster, read through a kubeconfig. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_kube_config

from nodesmith.adapters.kubernetes.apiserver import ApiServer, NotServed
from nodesmith.adapters.kubernetes.connection import Connection
from nodesmith.errors import Rejected
from nodesmith.observation.mirror import WATCHED
from nodesmith_cli.kubeconfigconnection import connection
from nodesmith_cli.preconditions import require_kubeconfig
from nodesmith_formats.manifests.manifests import Document

_PRIORITIES = ("/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass")
_PATIENCE_SECONDS = 30.0
"""How long a command retries transient errors of the API server."""


def cluster_documents(context: str) -> Iterator[Document]:
    """Yield every object that a decision reads from the API server. Raises Rejected or Transient.

    `context` is a context of the default kubeconfig, the path of a kubeconfig, or empty for the current context.
    """
    server = server_of(context)
    kinds = [*((kind.path, kind.kind) for kind in WATCHED), _PRIORITIES]
    where = f"cluster {context}" if context else "cluster"
    for path, kind in kinds:
        group_version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
        for number, item in enumerate(_items(server, path), start=1):
            yield Document({"apiVersion": group_version, "kind": kind, **item}, where, number)


def server_of(
    context: str, kubeconfig: str = "", *, patience_seconds: float = _PATIENCE_SECONDS
) -> ApiServer:
    """Return the API server of a context, as in `cluster_documents` or in the file `kubeconfig`. Raises Rejected.

    Transient errors are retried for `patience_seconds`.
    """
    return ApiServer(_connection(context, kubeconfig), patience_seconds)


def _items(server: ApiServer, path: str) -> Iterator[dict[str, object]]:
    """Yield all objects of one kind, or none if its CRD is not installed."""
    try:
        for page in server.pages(path):
            yield from page.get("items") or ()
    except NotServed:
        return


def _connection(context: str, kubeconfig: str) -> Connection:
    if not kubeconfig:
        require_kubeconfig(context)
        if context and Path(context).is_file():
            context, kubeconfig = "", context
    configuration = Configuration()
    try:
        load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig or None, context=context or None, client_configuration=configuration
        )
    except ConfigException as error:
        raise Rejected(f"{f'--kubeconfig {context}'.rstrip()}: {error}") from None
    return connection(configuration)
