"""Nominating pods for a node: one conditional write a pod, several at once.

kube-scheduler tries the node in `status.nominatedNodeName` first, and holds its room there against pods of equal or
lower priority (KEP-5278). The write needs no reading before: it says itself that it is only for a pod without a node
and without a nomination, so kube-scheduler's own, made by preemption, stays whenever it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

from nodesmith.adapters.apiserver import ApiServer, Manifest, Unfit
from nodesmith.errors import Conflict, Transient

_AT_ONCE = 8
_ROUNDS = 2  # in the first a frozen function may find that its connections have died
_READ_SECONDS = 5.0  # a node is waiting, and pods that are not nominated are scheduled all the same


def nominate(server: ApiServer, node: str, pods: Sequence[str]) -> None:
    """Nominate pods (namespace/name) for a node. Raises Transient for those that two rounds have left."""
    left = list(pods)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in range(_ROUNDS):
            left, error = _round(server, node, left, threads)
            if error is None:
                return
            told = f"{len(left)} pods not nominated for Node {node}, {left[0]} first: {error}"
            failure = Transient(told, error.code)
    raise failure


def _round(
    server: ApiServer, node: str, pods: Sequence[str], threads: ThreadPoolExecutor
) -> tuple[list[str], Transient | None]:
    """Try each pod once, but no more after as many failures as calls at once; give those left, and the first error."""
    errors: list[Transient] = []

    def is_left(pod: str) -> bool:
        if len(errors) >= _AT_ONCE:
            return True
        try:
            server.patch_if(_path(pod), _operations(node), read_seconds=_READ_SECONDS)
        except (Unfit, Conflict):
            return False  # bound, or nominated, meanwhile
        except Transient as error:
            errors.append(error)
            return True
        return False

    left = [pod for pod, stays in zip(pods, threads.map(is_left, pods), strict=True) if stays]
    return left, next(iter(errors), None)


def _operations(node: str) -> Sequence[Manifest]:
    return (
        {"op": "test", "path": "/spec/nodeName", "value": None},
        {"op": "test", "path": "/status/nominatedNodeName", "value": None},
        {"op": "add", "path": "/status/nominatedNodeName", "value": node},
    )


def _path(pod: str) -> str:
    namespace, name = (quote(part, safe="") for part in pod.split("/"))
    return f"/api/v1/namespaces/{namespace}/pods/{name}/status"
