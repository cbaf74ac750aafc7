"""Garbage collection of pods whose node is gone."""

from __future__ import annotations

from datetime import timedelta

from nodesmith_formats.kubernetes.objects import View, name_of
from nodesmith_local.apiserver.storage.deletion import DeleteOptions
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.controller import Controller
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import is_over, node_name

QUARANTINE_SECONDS = 40.0  # how long a node must be gone before its pods are removed


class PodGarbageCollection(Controller):
    """Fails and removes pods bound to nodes that do not exist."""

    def __init__(
        self, store: Store, mirrors: Mirrors, quarantine_seconds: float = QUARANTINE_SECONDS
    ) -> None:
        super().__init__(store, mirrors)
        self._quarantine = timedelta(seconds=quarantine_seconds)
        mirrors["nodes"].listen(self._await_pods)
        mirrors["pods"].listen(self._await_pod)

    def reconcile(self, key: Key) -> bool:
        """Remove one pod if its node is still gone."""
        pod = self.mirrors.pods.get(key)
        if pod is None or not node_name(pod) or self.mirrors.node(node_name(pod)) is not None:
            return False
        if not is_over(pod):
            failed = {"phase": "Failed", "reason": "NodeLost", "message": "PodGC: node no longer exists"}
            self.store.patch("pods", key[1], {"status": failed}, key[0], subresource="status")
        self.store.delete("pods", key[1], key[0], DeleteOptions(grace_seconds=0))
        return True

    def _await_pods(self, _before: View | None, after: View | None) -> None:
        if after is None and _before is not None:
            for pod in self.mirrors.pods_on(name_of(_before)):
                self._await_pod(None, pod)

    def _await_pod(self, _before: View | None, after: View | None) -> None:
        if after is not None and node_name(after) and self.mirrors.node(node_name(after)) is None:
            key = (after["metadata"]["namespace"], name_of(after))
            self.look_again(key, self.store.now() + self._quarantine)
