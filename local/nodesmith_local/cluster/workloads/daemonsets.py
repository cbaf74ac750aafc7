"""DaemonSets: one pod on every eligible node, pinned by the node's name."""

from __future__ import annotations

from nodesmith_formats.kubernetes.objects import Object, View, dig, labels_of
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import is_active, is_over, is_ready, node_matches, node_name, tolerates
from nodesmith_local.cluster.workloads.replicas import (
    PodOwner,
    create_pod,
    delete_pod,
    pod_from,
    set_status,
    share,
    template_hash,
)

_KIND = "daemonsets.apps"
_HASH = "controller-revision-hash"
_PREFIX = "node.kubernetes.io/"
_TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)


class DaemonSets(PodOwner):
    """Creates a pod for each node that lacks one, and deletes pods that no longer belong on their nodes."""

    kind, resource = "DaemonSet", _KIND

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        super().__init__(store, mirrors)
        mirrors["nodes"].listen(self._touch_all)

    def reconcile(self, key: Key) -> bool:
        """Bring one DaemonSet's pods in line with the nodes and with its template."""
        daemon_set = self.mirrors[_KIND].objects.get(key)
        if daemon_set is None or "deletionTimestamp" in daemon_set["metadata"]:
            return False
        by_node: dict[str, list[View]] = {}
        for pod in self.mirrors.pods_of(daemon_set):
            by_node.setdefault(_target(pod), []).append(pod)
        nodes = sorted(name for (_, name), node in self.mirrors.nodes.items() if _belongs(daemon_set, node))
        mark = template_hash(daemon_set["spec"]["template"])
        created = [self._create(daemon_set, name, mark) for name in nodes if name not in by_node]
        doomed = [
            pod for name, pods in by_node.items() for position, pod in enumerate(pods)
            if is_active(pod) and (position > 0 or name not in nodes)
        ]  # fmt: skip
        doomed += [pod for pods in by_node.values() for pod in pods if is_over(pod)]
        doomed += self._outdated(daemon_set, mark, nodes, by_node)
        for pod in doomed:
            delete_pod(self.store, daemon_set, pod)
        status = _counted(nodes, by_node, mark)
        return set_status(self.store, _KIND, daemon_set, status) or any(created) or bool(doomed)

    def _create(self, daemon_set: View, node: str, mark: str) -> bool:
        pod = pod_from(daemon_set, daemon_set["spec"]["template"], labels={_HASH: mark})
        pod["spec"] = _pinned(pod["spec"], node)
        return create_pod(self.store, daemon_set, pod)

    def _outdated(
        self, daemon_set: View, mark: str, nodes: list[str], by_node: dict[str, list[View]]
    ) -> list[View]:
        """Return the pods of an older template that may be replaced now, within maxUnavailable."""
        if dig(daemon_set, "spec", "updateStrategy", "type") == "OnDelete":
            return []
        limit = dig(daemon_set, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
        room = max(1, share(1 if limit is None else limit, len(nodes), up=True))
        room -= sum(not any(is_ready(pod) for pod in by_node.get(name, ())) for name in nodes)
        old = [
            pod for name in nodes for pod in by_node.get(name, ())
            if is_active(pod) and labels_of(pod).get(_HASH) != mark
        ]  # fmt: skip
        unready = [pod for pod in old if not is_ready(pod)]
        return unready + [pod for pod in old if is_ready(pod)][: max(0, room)]

    def _touch_all(self, before: View | None, after: View | None) -> None:
        if before is None or after is None or _placing(before) != _placing(after):
            for key in self.mirrors[_KIND].objects:
                self.touch(key)


def _placing(node: View) -> tuple[object, ...]:
    """Return the properties of a node that decide which daemon pods belong on it."""
    return node["metadata"].get("labels"), dig(node, "spec", "taints")


def _belongs(daemon_set: View, node: View) -> bool:
    spec = daemon_set["spec"]["template"]["spec"]
    if not node_matches(spec, node):
        return False
    tolerations = _tolerations(spec)
    taints = dig(node, "spec", "taints") or ()
    hard = [taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return all(tolerates(tolerations, taint) for taint in hard)


def _tolerations(spec: View) -> list[Object]:
    added = [{"key": _PREFIX + key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    if spec.get("hostNetwork"):
        added.append({"key": f"{_PREFIX}network-unavailable", "operator": "Exists", "effect": "NoSchedule"})
    own_tolerations = list(spec.get("tolerations") or ())
    return own_tolerations + [toleration for toleration in added if toleration not in own_tolerations]


def _pinned(spec: View, node: str) -> Object:
    """Return the pod spec with an affinity to one node, the form that the scheduler expects of daemon pods."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = dict(spec.get("affinity") or {})
    required = dig(affinity, "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = (required or {}).get("nodeSelectorTerms") or [{}]
    pinned = {"nodeSelectorTerms": [{**term, "matchFields": [field]} for term in terms]}
    node_affinity = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": pinned,
    }
    return {
        **spec,
        "affinity": {**affinity, "nodeAffinity": node_affinity},
        "tolerations": _tolerations(spec),
    }


def _target(pod: View) -> str:
    """Return the node that the pod is on, or is meant for."""
    if node_name(pod):
        return node_name(pod)
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    return str(dig(pod, "spec", *path, 0, "matchFields", 0, "values", 0) or "")


def _counted(nodes: list[str], by_node: dict[str, list[View]], mark: str) -> Object:
    active = {name: [pod for pod in by_node.get(name, ()) if is_active(pod)] for name in nodes}
    ready = sum(any(is_ready(pod) for pod in pods) for pods in active.values())
    updated = sum(any(labels_of(pod).get(_HASH) == mark for pod in pods) for pods in active.values())
    astray = sum(any(map(is_active, pods)) for name, pods in by_node.items() if name not in active)
    return {
        "desiredNumberScheduled": len(nodes),
        "currentNumberScheduled": sum(bool(pods) for pods in active.values()),
        "numberMisscheduled": astray,
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": len(nodes) - ready,
        "updatedNumberScheduled": updated,
    }
