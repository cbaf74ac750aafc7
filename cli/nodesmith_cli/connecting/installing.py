"""Installing objects in the cluster, and replacing the forwarder's pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nodesmith.errors import Transient
from nodesmith_cli.connecting.applying import Applier, path_of
from nodesmith_cli.connecting.clusterreading import PODS, forwarders_pods
from nodesmith_cli.connecting.manifests import CRD

_CRD_SECONDS = 60.0


def apply_all(
    server: Applier, manifests: Sequence[Mapping[str, Any]], sleep: Callable[[float], None]
) -> None:
    """Apply objects in order, and wait until their CRDs are served. Raises Transient, Rejected, Conflict."""
    for manifest in manifests:
        server.apply(manifest)
    for manifest in manifests:
        if manifest["kind"] == CRD:
            _wait_until_served(server, manifest, sleep)


def replace_pods(server: Applier) -> None:
    """Delete the forwarder's pods, so that its Deployment creates new ones without a change to its template."""
    for pod in forwarders_pods(server):
        metadata = pod["metadata"]
        server.delete(f"{PODS}/{quote(metadata['name'], safe='')}", metadata.get("uid") or "")


def _wait_until_served(server: Applier, crd: Mapping[str, Any], sleep: Callable[[float], None]) -> None:
    waited = 0.0
    while not _is_established(server.get(path_of(crd))):
        if waited >= _CRD_SECONDS:
            name = crd["metadata"]["name"]
            raise Transient(f"{CRD}/{name}: the API server does not serve it yet: run the command again")
        sleep(1.0)
        waited += 1.0


def _is_established(crd: Mapping[str, Any] | None) -> bool:
    conditions = ((crd or {}).get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions)
