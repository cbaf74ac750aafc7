"""The objects of a live cluster, read through a kubeconfig. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer, NotServed
from nodesmith.adapters.kubernetes.cluster import is_ungranted
from nodesmith.adapters.kubernetes.connection import Connection
from nodesmith.errors import Transient
from nodesmith.observation.mirror import CAPACITY_BUFFERS, LEASES, PODS, WATCHED, WatchedKind
from nodesmith.observation.reduction.objects import reduce_buffer
from nodesmith.observation.workloads import watched_kinds
from nodesmith_cli.access.kubeconfigs import connection, load_configuration
from nodesmith_cli.access.preconditions import require_kubeconfig, usual_kubeconfig
from nodesmith_formats.localsystem.contexts import kubeconfig_file
from nodesmith_formats.manifests.manifests import Document

_PRIORITIES = WatchedKind(
    "priorityclasses", "PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses", dict
)
_PATIENCE_SECONDS = 30.0
"""How long a command retries transient errors of the API server."""


def cluster_documents(context: str) -> Iterator[Document]:
    """Yield every object that a decision reads from the API server. Raises Rejected or Transient.

    `context` is a context of the default kubeconfig, the path of a kubeconfig, or empty for the current context.
    """
    yield from documents_of(server_of(context), f"cluster {context}" if context else "cluster")


def documents_of(server: ApiServer, where: str) -> Iterator[Document]:
    """Yield every object that a decision reads from an API server. `where` names it. Raises Rejected or Transient."""
    priorities = (_PRIORITIES, list(served(server, _PRIORITIES)))
    for kind, items in chain(kinds_with(lambda kind: served(server, kind)), [priorities]):
        for number, item in enumerate(items, start=1):
            yield Document({"kind": kind.kind, **item}, where, number)


def kinds_with(
    items_of: Callable[[WatchedKind], Iterable[dict[str, Any]]],
) -> Iterator[tuple[WatchedKind, list[dict[str, Any]]]]:
    """Yield every watched kind with its objects, except those of kinds that nothing refers to or claims.

    Karpenter's lease is left out: it affects no plan.
    """
    referred, claiming = frozenset[str](), False
    for kind in WATCHED:
        left_out = kind is LEASES or (kind.referred and kind.kind not in referred)
        if left_out or (kind.claimed and not claiming):
            continue
        items = list(items_of(kind))
        if kind is CAPACITY_BUFFERS:
            referred = watched_kinds(map(reduce_buffer, items), ())
        if kind is PODS:
            claiming = any((item.get("spec") or {}).get("resourceClaims") for item in items)
        yield kind, items


def server_of(
    context: str, kubeconfig: str = "", *, patience_seconds: float = _PATIENCE_SECONDS
) -> ApiServer:
    """Return the API server of a context, as in `cluster_documents` or in the file `kubeconfig`. Raises Rejected.

    Transient errors are retried for `patience_seconds`.
    """
    return ApiServer(_connection(context, kubeconfig), patience_seconds)


def served(server: ApiServer, kind: WatchedKind) -> Iterator[dict[str, Any]]:
    """Yield all objects of one kind with their apiVersion, page by page; none if its CRD is not installed.

    Devices that the user may not read count as unknown.
    """
    for path in kind.paths:
        group_version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
        try:
            for page in server.pages(path):
                yield from ({"apiVersion": group_version, **item} for item in page.get("items") or ())
        except NotServed:
            continue
        except Transient as error:
            if not (kind.claimed and is_ungranted(kind, error)):
                raise
        return


def _connection(context: str, kubeconfig: str) -> Connection:
    if kubeconfig:
        return connection(load_configuration(kubeconfig, context, f"--kubeconfig {kubeconfig}"))
    require_kubeconfig(context)
    file = kubeconfig_file(context)
    if file:
        return connection(load_configuration(file, "", f"--kubeconfig {file}"))
    return connection(load_configuration("", context, f"kubeconfig {usual_kubeconfig()}"))
