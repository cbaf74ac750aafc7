"""StatefulSets: numbered pods, created in ascending and deleted in descending order."""

from __future__ import annotations

from nodesmith_formats.kubernetes.objects import Object, View, dig, labels_of, name_of
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.cluster.podfacts import is_leaving, is_over, is_ready
from nodesmith_local.cluster.workloads.replicas import (
    PodOwner,
    create_pod,
    delete_pod,
    pod_from,
    set_status,
    template_hash,
)

_KIND = "statefulsets.apps"
_HASH = "controller-revision-hash"


class StatefulSets(PodOwner):
    """Keeps pods 0 … replicas-1, one after the other unless the policy is Parallel."""

    kind, resource = "StatefulSet", _KIND

    def reconcile(self, key: Key) -> bool:
        """Advance one StatefulSet."""
        stateful = self.mirrors[_KIND].objects.get(key)
        if stateful is None or "deletionTimestamp" in stateful["metadata"]:
            return False
        pods = {_ordinal(pod): pod for pod in self.mirrors.pods_of(stateful)}
        mark = template_hash(stateful["spec"]["template"])
        has_changed = self._advance(stateful, pods, mark)
        return set_status(self.store, _KIND, stateful, _counted(stateful, pods, mark)) or has_changed

    def _advance(self, stateful: View, pods: dict[int, View], mark: str) -> bool:
        spec = stateful["spec"]
        start = int(dig(spec, "ordinals", "start") or 0)
        ordinals = range(start, start + int(spec.get("replicas", 1)))
        parallel = spec.get("podManagementPolicy") == "Parallel"
        has_changed = False
        for ordinal in ordinals:
            pod = pods.get(ordinal)
            if pod is None:
                has_changed = self._create(stateful, ordinal, mark) or has_changed
            elif is_over(pod) and not is_leaving(pod):
                delete_pod(self.store, stateful, pod)
                has_changed = True
            if not parallel and (pod is None or is_leaving(pod) or not is_ready(pod)):
                return has_changed
        extra = sorted((ordinal_ for ordinal_ in pods if ordinal_ not in ordinals), reverse=True)
        for ordinal in extra if parallel else extra[:1]:
            if not is_leaving(pods[ordinal]):
                delete_pod(self.store, stateful, pods[ordinal])
                has_changed = True
        return has_changed or (not extra and self._replace_outdated(stateful, pods, mark))

    def _replace_outdated(self, stateful: View, pods: dict[int, View], mark: str) -> bool:
        strategy = stateful["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete" or not all(is_ready(pod) for pod in pods.values()):
            return False
        partition = int(dig(strategy, "rollingUpdate", "partition") or 0)
        for ordinal in sorted(pods, reverse=True):
            if ordinal >= partition and labels_of(pods[ordinal]).get(_HASH) != mark:
                delete_pod(self.store, stateful, pods[ordinal])
                return True
        return False

    def _create(self, stateful: View, ordinal: int, mark: str) -> bool:
        name = f"{name_of(stateful)}-{ordinal}"
        labels = {
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
            _HASH: mark,
        }
        pod = pod_from(stateful, stateful["spec"]["template"], name=name, labels=labels)
        claims = stateful["spec"].get("volumeClaimTemplates") or ()
        volumes = [
            volume
            for volume in pod["spec"].get("volumes") or ()
            if volume["name"] not in map(name_of, claims)
        ]
        for claim in claims:
            self._claim(stateful, claim, f"{name_of(claim)}-{name}")
            source = {"persistentVolumeClaim": {"claimName": f"{name_of(claim)}-{name}"}}
            volumes.append({"name": name_of(claim), **source})
        spec: Object = {**pod["spec"], "hostname": name, "subdomain": stateful["spec"].get("serviceName", "")}
        return create_pod(
            self.store, stateful, {**pod, "spec": {**spec, "volumes": volumes} if volumes else spec}
        )

    def _claim(self, stateful: View, template: View, name: str) -> None:
        namespace = stateful["metadata"]["namespace"]
        if self.store.find("persistentvolumeclaims", name, namespace) is None:
            metadata = {"name": name, "namespace": namespace, "labels": labels_of(template)}
            self.store.create(
                "persistentvolumeclaims", {"metadata": metadata, "spec": template.get("spec") or {}}
            )


def _ordinal(pod: View) -> int:
    return int(name_of(pod).rpartition("-")[2])


def _counted(stateful: View, pods: dict[int, View], mark: str) -> Object:
    active = [pod for pod in pods.values() if not is_over(pod)]
    ready = sum(is_ready(pod) for pod in active)
    updated = sum(labels_of(pod).get(_HASH) == mark for pod in active)
    name = f"{name_of(stateful)}-{mark}"
    counts: Object = {"replicas": len(active), "readyReplicas": ready, "availableReplicas": ready}
    counts |= {"currentReplicas": updated, "updatedReplicas": updated}
    return {**counts, "updateRevision": name, "currentRevision": name}
