"""Local copies of the cluster's objects for the stand-ins: kept current by watches, with indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from queue import Empty
from typing import TypeAlias

from nodesmith_formats.kubernetes.objects import View, controller_of, dig
from nodesmith_local.apiserver.storage.history import Change, Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.podfacts import node_name

Listener: TypeAlias = Callable[
    [View | None, View | None], None
]  # (before, after); None where there is no object

KINDS = (
    "pods",
    "nodes",
    "namespaces",
    "leases.coordination.k8s.io",
    "replicasets.apps",
    "deployments.apps",
    "daemonsets.apps",
    "statefulsets.apps",
    "jobs.batch",
    "poddisruptionbudgets.policy",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "deviceclasses.resource.k8s.io",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourceslices.resource.k8s.io",
)


class Mirror:
    """The objects of one resource. Do not change them."""

    def __init__(self, store: Store, resource: str, wake: Callable[[], None]) -> None:
        self.objects: dict[Key, View] = {}
        self._listeners: list[Listener] = []
        self._history = store.history
        with store.history.lock:
            self._watcher = store.history.watch(resource, wake=wake)
            self._first: Iterable[Change] = [
                Change("ADDED", revision, None) for revision in store.history.scan(resource)
            ]

    def listen(self, listener: Listener) -> None:
        """Call `listener` for every change, during refresh."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Stop following the store."""
        self._history.unwatch(self._watcher)

    def refresh(self) -> None:
        """Apply the changes since the last refresh."""
        for change in self._first:
            self._take(change)
        self._first = ()
        try:
            while (change_or_end := self._watcher.queue.get_nowait()) is not None:
                self._take(change_or_end)
        except Empty:
            return

    def _take(self, change: Change) -> None:
        obj = change.after.object
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        before = self.objects.get(key)
        after = None if change.verb == "DELETED" else obj
        if after is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = after
        for listener in self._listeners:
            listener(before, after)


class Mirrors:
    """The mirrors of all kinds that the stand-ins read, with indexes of pods by owner and by node."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        self._mirrors = {kind: Mirror(store, kind, wake) for kind in KINDS}
        self.owned: dict[str, dict[Key, View]] = {}
        self.on_node: dict[str, dict[Key, View]] = {}
        self["pods"].listen(self._index)

    def __getitem__(self, kind: str) -> Mirror:
        return self._mirrors[kind]

    def close(self) -> None:
        """Stop following the store."""
        for mirror in self._mirrors.values():
            mirror.close()

    def refresh(self) -> None:
        """Bring every mirror up to date."""
        for mirror in self._mirrors.values():
            mirror.refresh()

    @property
    def pods(self) -> Mapping[Key, View]:
        """All pods."""
        return self["pods"].objects

    @property
    def nodes(self) -> Mapping[Key, View]:
        """All nodes."""
        return self["nodes"].objects

    def node(self, name: str) -> View | None:
        """Return a node by name, or None."""
        return self["nodes"].objects.get(("", name))

    def has_kubelet(self, node: str) -> bool:
        """Return whether a node's lease has a holder; a node without a lease counts as having one."""
        lease = self["leases.coordination.k8s.io"].objects.get(("kube-node-lease", node))
        return lease is None or bool(dig(lease, "spec", "holderIdentity"))

    def pods_of(self, owner: View) -> list[View]:
        """Return the pods that `owner` controls, sorted by namespace and name."""
        owned_pods = self.owned.get(owner["metadata"]["uid"], {})
        return [owned_pods[key] for key in sorted(owned_pods)]

    def pods_on(self, node: str) -> list[View]:
        """Return the pods bound to a node, sorted by namespace and name."""
        node_pods = self.on_node.get(node, {})
        return [node_pods[key] for key in sorted(node_pods)]

    def _index(self, before: View | None, after: View | None) -> None:
        for pod, index in ((before, self.owned), (before, self.on_node)):
            if pod is not None:
                place = _owner(pod) if index is self.owned else node_name(pod)
                _remove(index, place, _key(pod))
        if after is not None:
            for index, place in ((self.owned, _owner(after)), (self.on_node, node_name(after))):
                if place:
                    index.setdefault(place, {})[_key(after)] = after


def _remove(index: dict[str, dict[Key, View]], place: str, key: Key) -> None:
    if place in index:
        index[place].pop(key, None)
        if not index[place]:
            del index[place]


def _key(obj: View) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _owner(pod: View) -> str:
    owner = controller_of(pod)
    return str(owner["uid"]) if owner else ""
