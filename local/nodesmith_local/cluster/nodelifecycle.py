"""Node lifecycle: Ready conditions of silent nodes, taints, and eviction of pods that do not tolerate them."""

from __future__ import annotations

from datetime import datetime, timedelta

from nodesmith_formats.kubernetes.objects import (
    Object,
    View,
    condition_of,
    dig,
    is_true,
    name_of,
    parse_timestamp,
    timestamp,
)
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.controller import Controller
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import covers, is_leaving, is_over, is_ready, node_name
from nodesmith_local.cluster.records import record, with_condition

GRACE_SECONDS = 50.0  # node-monitor-grace-period's default

_PREFIX = "node.kubernetes.io/"
_PRESSURES = {
    "MemoryPressure": "memory-pressure",
    "DiskPressure": "disk-pressure",
    "PIDPressure": "pid-pressure",
    "NetworkUnavailable": "network-unavailable",
}
_OURS = frozenset(
    {f"{_PREFIX}{word}" for word in ("not-ready", "unreachable", "unschedulable", *_PRESSURES.values())}
)
LEASES = "leases.coordination.k8s.io"
LEASE_NAMESPACE = "kube-node-lease"


class NodeLifecycle(Controller):
    """Keeps the taints that follow from a node's conditions, and marks nodes that stop renewing their lease Unknown.

    A node without a lease is never marked, since nothing shows whether its kubelet lives.
    """

    def __init__(self, store: Store, mirrors: Mirrors, grace_seconds: float = GRACE_SECONDS) -> None:
        super().__init__(store, mirrors)
        self.grace = timedelta(seconds=grace_seconds)
        mirrors["nodes"].listen(self.touch_object)
        mirrors["nodes"].listen(self._forget)
        mirrors[LEASES].listen(self._touch_leaseholder)

    def reconcile(self, key: Key) -> bool:
        """Update one node by its lease and its conditions."""
        node = self.mirrors["nodes"].objects.get(key)
        if node is None:
            return False
        if self._is_silent(key, node) and not _is_unknown(node):
            self._mark_unknown(node)
            return True
        expected = self._expected_taints(node)
        taints = dig(node, "spec", "taints") or []
        retained = [
            taint for taint in taints if taint["key"] not in _OURS or _mark(taint) in map(_mark, expected)
        ]
        new = retained + [taint for taint in expected if _mark(taint) not in map(_mark, retained)]
        is_changed = new != taints
        if is_changed:
            self._patch(node, {"spec": {"taints": new or None}})
        return self._mark_pods(node) or is_changed

    def _is_silent(self, key: Key, node: View) -> bool:
        lease = self.mirrors[LEASES].objects.get((LEASE_NAMESPACE, name_of(node)))
        renewed = parse_timestamp(dig(lease, "spec", "renewTime"))
        if renewed is None:
            return False
        end = renewed + self.grace
        if self.store.now() < end:
            self.look_again(key, end)
            return False
        return True

    def _mark_unknown(self, node: View) -> None:
        now = timestamp(self.store.now())
        conditions: list[Object] = list(dig(node, "status", "conditions") or ())
        for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
            existing = condition_of(node, kind)
            if existing is not None or kind == "Ready":
                unknown = {"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown"}
                unknown["message"] = "Kubelet stopped posting node status."
                conditions = with_condition({"status": {"conditions": conditions}}, unknown, now)
        self._patch(node, {"status": {"conditions": conditions}}, "status")
        message = f"Node {name_of(node)} status is now: NodeNotReady"
        record(self.store, node, "node-controller", "NodeNotReady", message)

    def _patch(self, node: View, patch: Object, subresource: str = "") -> None:
        """Patch a node unless it has changed since `node` was read, because a patch replaces lists whole."""
        unchanged = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}}
        self.store.patch("nodes", name_of(node), {**patch, **unchanged}, subresource=subresource)

    def _expected_taints(self, node: View) -> list[Object]:
        now = self.store.now()
        effects: list[tuple[str, str]] = []
        ready = (condition_of(node, "Ready") or {}).get("status", "False")
        if ready != "True":
            key = "unreachable" if ready == "Unknown" else "not-ready"
            effects += [(key, "NoSchedule"), (key, "NoExecute")]
        effects += [(key, "NoSchedule") for kind, key in _PRESSURES.items() if is_true(node, kind)]
        if dig(node, "spec", "unschedulable"):
            effects.append(("unschedulable", "NoSchedule"))
        return [
            {"key": _PREFIX + key, "effect": effect, "timeAdded": timestamp(now)} for key, effect in effects
        ]

    def _mark_pods(self, node: View) -> bool:
        """Set the pods on a node that is not ready to not ready."""
        if is_true(node, "Ready") or condition_of(node, "Ready") is None:
            return False
        now, is_changed = timestamp(self.store.now()), False
        for pod in self.mirrors.pods_on(name_of(node)):
            if is_ready(pod) and not is_over(pod):
                condition = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
                status = {"conditions": with_condition(pod, condition, now)}
                namespace = pod["metadata"]["namespace"]
                self.store.patch("pods", name_of(pod), {"status": status}, namespace, subresource="status")
                is_changed = True
        return is_changed

    def _touch_leaseholder(self, _before: View | None, after: View | None) -> None:
        if after is not None and after["metadata"]["namespace"] == LEASE_NAMESPACE:
            # A renewal only moves the next check; a node marked Unknown is checked now.
            node = self.mirrors.node(name_of(after))
            if node is not None and (_is_unknown(node) or ("", name_of(after)) not in self._later):
                self.touch(("", name_of(after)))

    def _forget(self, _before: View | None, after: View | None) -> None:
        if after is None and _before is not None:
            self._later.pop(("", name_of(_before)), None)


class TaintEviction(Controller):
    """Deletes pods from nodes with NoExecute taints when their toleration ends."""

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        super().__init__(store, mirrors)
        self._driven_since: dict[Key, datetime] = {}  # since when a taint evicts the pod
        mirrors["pods"].listen(self._touch_bound)
        mirrors["nodes"].listen(self._touch_pods)

    def reconcile(self, key: Key) -> bool:
        """Delete one pod if it may no longer stay on its node."""
        pod = self.mirrors.pods.get(key)
        node = self.mirrors.node(node_name(pod)) if pod is not None else None
        if pod is None or node is None or is_leaving(pod) or is_over(pod):
            return False
        stay = _stay_seconds(pod, node)
        if stay is None:
            self._driven_since.pop(key, None)
            return False
        end = self._driven_since.setdefault(key, self.store.now()) + timedelta(seconds=stay)
        if self.store.now() < end:
            self.look_again(key, end)
            return False
        message = f"Marking for deletion Pod {key[0]}/{key[1]}"
        record(self.store, pod, "taint-eviction-controller", "TaintManagerEviction", message)
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        condition["message"] = "Taint manager: deleting due to NoExecute taint"
        status = {"conditions": with_condition(pod, condition, timestamp(self.store.now()))}
        self.store.patch("pods", key[1], {"status": status}, key[0], subresource="status")
        self.store.delete("pods", key[1], key[0])
        return True

    def _touch_bound(self, before: View | None, after: View | None) -> None:
        if after is None and before is not None:
            self._driven_since.pop((before["metadata"]["namespace"], name_of(before)), None)
        if after is not None and node_name(after) and (before is None or not node_name(before)):
            self.touch_object(before, after)

    def _touch_pods(self, before: View | None, after: View | None) -> None:
        if after is None or dig(before, "spec", "taints") == dig(after, "spec", "taints"):
            return
        for pod in self.mirrors.pods_on(name_of(after)):
            self.touch_object(None, pod)


def _stay_seconds(pod: View, node: View) -> float | None:
    """Return how many seconds the node's NoExecute taints let the pod stay; None means forever."""
    stays: list[float] = []
    for taint in dig(node, "spec", "taints") or ():
        if taint.get("effect") != "NoExecute":
            continue
        matching = [
            toleration for toleration in dig(pod, "spec", "tolerations") or () if covers(toleration, taint)
        ]
        if not matching:
            return 0.0
        limits = [
            toleration["tolerationSeconds"]
            for toleration in matching
            if toleration.get("tolerationSeconds") is not None
        ]
        stays += [max(0.0, float(limit)) for limit in limits]
    return min(stays, default=None)


def _is_unknown(node: View) -> bool:
    return (condition_of(node, "Ready") or {}).get("status") == "Unknown"


def _mark(taint: View) -> tuple[object, object]:
    return taint.get("key"), taint.get("effect")
