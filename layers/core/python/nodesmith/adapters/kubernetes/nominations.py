"""Nominating pods for a node and clearing nominations, with one conditional write per pod.

kube-scheduler tries the node in `status.nominatedNodeName` first, and reserves the pod's resources there against pods
of equal or lower priority (KEP-5278). The write needs no prior read: it applies only to a pod without a node and
without a nomination. So a nomination that kube-scheduler makes by preemption always stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Manifest, Unfit
from nodesmith.adapters.kubernetes.paths import pod_path
from nodesmith.adapters.kubernetes.podwrites import READ_SECONDS, for_each
from nodesmith.errors import Conflict

_PATH = "/status/nominatedNodeName"
_NOT_BOUND: Manifest = {"op": "test", "path": "/spec/nodeName", "value": None}


def nominate(server: ApiServer, node: str, pods: Sequence[str]) -> None:
    """Nominate pods (namespace/name) for a node. Raises Transient if pods remain after two rounds."""
    add = {"op": "add", "path": _PATH, "value": node}
    _write(server, (_NOT_BOUND, _stands(None), add), pods, f"pods not nominated for Node {node}")


def clear_nominations(server: ApiServer, node: str, pods: Sequence[str]) -> None:
    """Clear nominations of pods (namespace/name) for a node. Raises Transient if pods remain after two rounds."""
    remove = {"op": "remove", "path": _PATH}
    _write(server, (_NOT_BOUND, _stands(node), remove), pods, f"nominations for Node {node} not cleared")


def _stands(node: str | None) -> Manifest:
    return {"op": "test", "path": _PATH, "value": node}


def _write(server: ApiServer, operations: Sequence[Manifest], pods: Sequence[str], failed: str) -> None:
    def write(pod: str) -> None:
        try:
            server.patch_if(pod_path(pod, "status"), operations, read_seconds=READ_SECONDS)
        except (Unfit, Conflict):
            return  # bound or nominated for another node meanwhile

    for_each(pods, write, failed)
