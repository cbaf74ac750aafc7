"""Nodes as a kubelet creates them: registered once, then kept alive by a lease."""

from __future__ import annotations

from collections.abc import Iterable

from nodesmith_formats.kubernetes.objects import Object, View, micro_timestamp, name_of
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.nodelifecycle import LEASE_NAMESPACE, LEASES

LEASE_SECONDS = 40


def register_node(store: Store, node: Object) -> View:
    """Create a Node as a kubelet does, with spec, labels and status at once, then its lease.

    An existing node gets the status and the labels; its spec stays. Raises ApiError 400 or 422.
    """
    name = name_of(node)
    if store.find("nodes", name) is None:
        store.create("nodes", node)
    else:
        labels = (node.get("metadata") or {}).get("labels") or {}
        store.patch("nodes", name, {"metadata": {"labels": labels}})
        store.patch("nodes", name, {"status": node.get("status") or {}}, subresource="status")
    heartbeat(store, (name,))
    return store.get("nodes", name)


def heartbeat(store: Store, names: Iterable[str]) -> None:
    """Renew the leases of nodes; names of nodes that do not exist are ignored."""
    renewed = micro_timestamp(store.now())
    for name in names:
        node = store.find("nodes", name)
        if node is None:
            continue
        if store.find(LEASES, name, LEASE_NAMESPACE) is not None:
            store.patch(LEASES, name, {"spec": {"renewTime": renewed}}, LEASE_NAMESPACE)
            continue
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed}
        metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        store.create(LEASES, {"metadata": metadata, "spec": spec})
