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
        new = next((each for each in sets if name_of(each) == name), None)
        old = [each for each in sets if each is not new]
        if new is None:
            self._create_set(deployment, name, old)
            return True
        moved = self._moved(deployment, new, old)
        forgot = self._forget(deployment, old)
        return self._write_status(deployment, new, sets) or moved or forgot

    def _create_set(self, deployment: View, name: str, old: list[View]) -> None:
        mark = name.rpartition("-")[2]
        template, spec = deployment["spec"]["template"], deployment["spec"]
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), "pod-template-hash": mark}
        selector = spec["selector"]
        revision = 1 + max((_revision(each) for each in old), default=0)
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
                    "matchLabels": {**(selector.get("matchLabels") or {}), "pod-template-hash": mark},
                },
                "template": {**template, "metadata": {**metadata, "labels": labels}},
            },
        }
        self.store.create(_SETS, replica_set)
        annotations = {"metadata": {"annotations": {_REVISION: str(revision)}}}
        self.store.patch(_KIND, name_of(deployment), annotations, deployment["metadata"]["namespace"])

    def _moved(self, deployment: View, new: View, old: list[View]) -> bool:
        wanted = int(deployment["spec"].get("replicas", 1))
        if deployment["spec"].get("paused") and old:
            return False
        if dig(deployment, "spec", "strategy", "type") == "Recreate":
            gone = all(_asked(each) == 0 and _have(each) == 0 for each in old)
            downs = [self._scale(deployment, each, 0) for each in old]
            return self._scale(deployment, new, wanted if gone else _asked(new)) or any(downs)
        rolling = dig(deployment, "spec", "strategy", "rollingUpdate") or {}
        surge = share(rolling.get("maxSurge", "25%"), wanted, up=True)
        unavailable = share(rolling.get("maxUnavailable", "25%"), wanted, up=False)
        if surge == unavailable == 0:
            unavailable = 1
        others = sum(_asked(each) for each in old)
        room = max(0, wanted + surge - _asked(new) - others)
        up = self._scale(deployment, new, min(wanted, _asked(new) + room) if _asked(new) < wanted else wanted)
        return self._scale_down(deployment, new, old, wanted - unavailable) or up

    def _scale_down(self, deployment: View, new: View, old: list[View], least: int) -> bool:
        """Scale the old sets down as far as ready replicas allow, starting with replicas that are not ready."""
        spare = sum(_ready(each) for each in (new, *old)) - least
        wrote = False
        for each in sorted(old, key=_revision):
            unready = _asked(each) - min(_asked(each), _ready(each))
            take = min(_asked(each), unready + max(0, spare))
            spare -= max(0, take - unready)
            wrote = self._scale(deployment, each, _asked(each) - take) or wrote
        return wrote

    def _scale(self, deployment: View, replica_set: View, replicas: int) -> bool:
        before = _asked(replica_set)
        if before == replicas:
            return False
        namespace = replica_set["metadata"]["namespace"]
        self.store.patch(_SETS, name_of(replica_set), {"spec": {"replicas": replicas}}, namespace)
        way = "up" if replicas > before else "down"
        message = f"Scaled {way} replica set {name_of(replica_set)} from {before} to {replicas}"
        record(self.store, deployment, "deployment-controller", "ScalingReplicaSet", message)
        return True

    def _forget(self, deployment: View, old: list[View]) -> bool:
        empty = [each for each in sorted(old, key=_revision) if _asked(each) == _have(each) == 0]
        extra = empty[: max(0, len(empty) - int(deployment["spec"].get("revisionHistoryLimit", 10)))]
        for each in extra:
            self.store.delete(_SETS, name_of(each), each["metadata"]["namespace"])
        return bool(extra)

    def _write_status(self, deployment: View, new: View, sets: list[View]) -> bool:
        wanted, now = int(deployment["spec"].get("replicas", 1)), timestamp(self.store.now())
        ready, total = sum(_ready(each) for each in sets), sum(_have(each) for each in sets)
        rolling = dig(deployment, "spec", "strategy", "rollingUpdate") or {}
        enough = ready >= wanted - share(rolling.get("maxUnavailable", "25%"), wanted, up=False)
        available: Object = {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        }
        done = _ready(new) >= wanted and total == _have(new) == wanted
        progressing: Object = {
            "type": "Progressing",
            "status": "True",
            "reason": "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
            "message": f'ReplicaSet "{name_of(new)}" {"has successfully progressed" if done else "is progressing"}.',
        }
        conditions = with_condition(deployment, available, now)
        conditions = with_condition({"status": {"conditions": conditions}}, progressing, now)
        counts = {"replicas": total, "updatedReplicas": _have(new), "readyReplicas": ready}
        counts |= {"availableReplicas": ready, "unavailableReplicas": max(0, max(wanted, total) - ready)}
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


def _asked(replica_set: View) -> int:
    return int(dig(replica_set, "spec", "replicas") or 0)


def _have(replica_set: View) -> int:
    return int(dig(replica_set, "status", "replicas") or 0)


def _ready(replica_set: View) -> int:
    return int(dig(replica_set, "status", "readyReplicas") or 0)


def _revision(replica_set: View) -> int:
    return int(dig(replica_set, "metadata", "annotations", _REVISION) or 0)
