"""Nominating pods for a node: one conditional write a pod.

kube-scheduler tries the node in `status.nominatedNodeName` first, and holds its room there against pods of equal or
lower priority (KEP-5278). The write needs no reading before: it says itself that it is only for a pod without a node
and without a nomination, so kube-scheduler's own, made by preemption, stays whenever it comes.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodesmith.adapters.apiserver import ApiServer, Manifest, Unfit
from nodesmith.adapters.objectpaths import pod_path
from nodesmith.adapters.podwrites import READ_SECONDS, for_each
from nodesmith.errors import Conflict


def nominate(server: ApiServer, node: str, pods: Sequence[str]) -> None:
    """Nominate pods (namespace/name) for a node. Raises Transient for those that two rounds have left."""

    def write(pod: str) -> None:
        try:
            server.patch_if(pod_path(pod, "status"), _operations(node), read_seconds=READ_SECONDS)
        except (Unfit, Conflict):
            return  # bound, or nominated, meanwhile

    for_each(pods, write, f"pods not nominated for Node {node}")


def _operations(node: str) -> Sequence[Manifest]:
    return (
        {"op": "test", "path": "/spec/nodeName", "value": None},
        {"op": "test", "path": "/status/nominatedNodeName", "value": None},
        {"op": "add", "path": "/status/nominatedNodeName", "value": node},
    )
