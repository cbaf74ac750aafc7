"""Deployments: a ReplicaSet for each template, and roll-outs from old ones to the new."""

from __future__ import annotations

from nodesmith_formats.kubernetes.objects import Object, View, controller_of, dig, name_of, timestamp
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.controller import Controller
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.records import record, with_condition
from nodesmith_local.cluster.workloads.replicas import owner_reference, set_status, share, template_hash

_KIND = "deployments.apps"
_SETS = "replicasets.apps"
_REVISION = "deployment.kubernetes.io/revision"


class Deployments(Controller):
    """Creates ReplicaSets and shifts replicas between them, within maxSurge and maxUnavailable."""

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        super().__init__(store, mirrors)
        self._sets: dict[str, dict[Key, View]] = {}
        mirrors[_KIND].listen(self.touch_object)
        mirrors[_SETS].listen(self._index_set)

    def reconcile(self, key: Key) -> bool:
        """Advance the roll-out as far as its limits allow now."""
        deployment = self.mirrors[_KIND].objects.get(key)
        if deployment is None or "deletionTimestamp" in deployment["metadata"]:
            return False
        sets = list(self._sets.get(deployment["metadata"]["uid"], {}).values())
        name = f"{name_of(deployment)}-{template_hash(deployment['spec']['template'])}"
        new = next((replicaset for replicaset in sets if name_of(replicaset) == name), None)
        old = [replicaset for replicaset in sets if replicaset is not new]
        if new is None:
            self._create_set(deployment, name, old)
            return True
        has_scaled = self._roll_out(deployment, new, old)
        has_forgotten = self._delete_old_sets(deployment, old)
        return self._write_status(deployment, new, sets) or has_scaled or has_forgotten

    def _create_set(self, deployment: View, name: str, old: list[View]) -> None:
        hash_value = name.rpartition("-")[2]
        template, spec = deployment["spec"]["template"], deployment["spec"]
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), "pod-template-hash": hash_value}
        selector = spec["selector"]
        revision = 1 + max((_revision(replicaset) for replicaset in old), default=0)
        replica_set: Object = {
            "metadata": {
                "name": name,
                "namespace": deployment["metadata"]["namespace"],
                "labels": labels,
                "annotations": {_REVISION: str(revision)},
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": {
                "replicas": 0,
                "selector": {
                    **selector,
                    "matchLabels": {
                        **(selector.get("matchLabels") or {}),
                        "pod-template-hash": hash_value,
                    },
                },
                "template": {**template, "metadata": {**metadata, "labels": labels}},
            },
        }
        self.store.create(_SETS, replica_set)
        annotations = {"metadata": {"annotations": {_REVISION: str(revision)}}}
        self.store.patch(_KIND, name_of(deployment), annotations, deployment["metadata"]["namespace"])

    def _roll_out(self, deployment: View, new: View, old: list[View]) -> bool:
        desired = int(deployment["spec"].get("replicas", 1))
        if deployment["spec"].get("paused") and old:
            return False
        if dig(deployment, "spec", "strategy", "type") == "Recreate":
            is_old_gone = all(_desired(replicaset) == 0 and _total(replicaset) == 0 for replicaset in old)
            downs = [self._scale(deployment, replicaset, 0) for replicaset in old]
            return self._scale(deployment, new, desired if is_old_gone else _desired(new)) or any(downs)
        rolling = dig(deployment, "spec", "strategy", "rollingUpdate") or {}
        surge = share(rolling.get("maxSurge", "25%"), desired, up=True)
        unavailable = share(rolling.get("maxUnavailable", "25%"), desired, up=False)
        if surge == unavailable == 0:
            unavailable = 1
        old_replicas = sum(_desired(replicaset) for replicaset in old)
        room = max(0, desired + surge - _desired(new) - old_replicas)
        up = self._scale(
            deployment, new, min(desired, _desired(new) + room) if _desired(new) < desired else desired
        )
        return self._scale_down(deployment, new, old, desired - unavailable) or up

    def _scale_down(self, deployment: View, new: View, old: list[View], least: int) -> bool:
        """Scale the old sets down as far as ready replicas allow, starting with replicas that are not ready."""
        spare = sum(_ready(replicaset) for replicaset in (new, *old)) - least
        has_scaled = False
        for replicaset in sorted(old, key=_revision):
            unready = _desired(replicaset) - min(_desired(replicaset), _ready(replicaset))
            take = min(_desired(replicaset), unready + max(0, spare))
            spare -= max(0, take - unready)
            has_scaled = self._scale(deployment, replicaset, _desired(replicaset) - take) or has_scaled
        return has_scaled

    def _scale(self, deployment: View, replica_set: View, replicas: int) -> bool:
        before = _desired(replica_set)
        if before == replicas:
            return False
        namespace = replica_set["metadata"]["namespace"]
        self.store.patch(_SETS, name_of(replica_set), {"spec": {"replicas": replicas}}, namespace)
        direction = "up" if replicas > before else "down"
        message = f"Scaled {direction} replica set {name_of(replica_set)} from {before} to {replicas}"
        record(self.store, deployment, "deployment-controller", "ScalingReplicaSet", message)
        return True

    def _delete_old_sets(self, deployment: View, old: list[View]) -> bool:
        empty = [
            replicaset
            for replicaset in sorted(old, key=_revision)
            if _desired(replicaset) == _total(replicaset) == 0
        ]
        extra = empty[: max(0, len(empty) - int(deployment["spec"].get("revisionHistoryLimit", 10)))]
        for replicaset in extra:
            self.store.delete(_SETS, name_of(replicaset), replicaset["metadata"]["namespace"])
        return bool(extra)

    def _write_status(self, deployment: View, new: View, sets: list[View]) -> bool:
        desired, now = int(deployment["spec"].get("replicas", 1)), timestamp(self.store.now())
        ready, total = (
            sum(_ready(replicaset) for replicaset in sets),
            sum(_total(replicaset) for replicaset in sets),
        )
        rolling = dig(deployment, "spec", "strategy", "rollingUpdate") or {}
        enough = ready >= desired - share(rolling.get("maxUnavailable", "25%"), desired, up=False)
        available: Object = {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        }
        is_complete = _ready(new) >= desired and total == _total(new) == desired
        progress = "has successfully progressed" if is_complete else "is progressing"
        progressing: Object = {
            "type": "Progressing",
            "status": "True",
            "reason": "NewReplicaSetAvailable" if is_complete else "ReplicaSetUpdated",
            "message": f'ReplicaSet "{name_of(new)}" {progress}.',
        }
        conditions = with_condition(deployment, available, now)
        conditions = with_condition({"status": {"conditions": conditions}}, progressing, now)
        counts = {"replicas": total, "updatedReplicas": _total(new), "readyReplicas": ready}
        counts |= {"availableReplicas": ready, "unavailableReplicas": max(0, max(desired, total) - ready)}
        return set_status(self.store, _KIND, deployment, {**counts, "conditions": conditions})

    def _index_set(self, before: View | None, after: View | None) -> None:
        changed = after or before
        owner = controller_of(changed) if changed is not None else None
        if changed is None or owner is None or owner.get("kind") != "Deployment":
            return
        key = (changed["metadata"]["namespace"], name_of(changed))
        sets = self._sets.setdefault(owner["uid"], {})
        if after is None:
            sets.pop(key, None)
        else:
            sets[key] = after
        self.touch((key[0], owner["name"]))


def _desired(replica_set: View) -> int:
    return int(dig(replica_set, "spec", "replicas") or 0)


def _total(replica_set: View) -> int:
    return int(dig(replica_set, "status", "replicas") or 0)


def _ready(replica_set: View) -> int:
    return int(dig(replica_set, "status", "readyReplicas") or 0)


def _revision(replica_set: View) -> int:
    return int(dig(replica_set, "metadata", "annotations", _REVISION) or 0)
