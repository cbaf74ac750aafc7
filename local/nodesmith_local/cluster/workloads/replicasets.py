"""ReplicaSets: keep the desired number of pods."""

from __future__ import annotations

from nodesmith_formats.kubernetes.objects import Object, View, dig, labels_of
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.cluster.podfacts import is_active, is_ready
from nodesmith_local.cluster.workloads.replicas import (
    PodOwner,
    create_pod,
    delete_pod,
    pod_from,
    set_status,
    surplus,
)

_KIND = "replicasets.apps"


class ReplicaSets(PodOwner):
    """Creates and deletes pods to reach the desired number, and counts them."""

    kind, resource = "ReplicaSet", _KIND

    def reconcile(self, key: Key) -> bool:
        """Bring the number of pods closer to the desired one."""
        replica_set = self.mirrors[_KIND].objects.get(key)
        if replica_set is None:
            return False
        pods = [pod for pod in self.mirrors.pods_of(replica_set) if is_active(pod)]
        desired = int(dig(replica_set, "spec", "replicas") or 0)
        if "deletionTimestamp" in replica_set["metadata"]:
            desired = len(pods)
        template = replica_set["spec"]["template"]
        created = [
            create_pod(self.store, replica_set, pod_from(replica_set, template))
            for _ in range(desired - len(pods))
        ]
        doomed = surplus(pods, len(pods) - desired) if len(pods) > desired else []
        for pod in doomed:
            delete_pod(self.store, replica_set, pod)
        has_written = set_status(self.store, _KIND, replica_set, _counted(pods, template))
        return has_written or any(created) or bool(doomed)


def _counted(pods: list[View], template: View) -> Object:
    ready = sum(is_ready(pod) for pod in pods)
    labels = labels_of(template).items()
    full = sum(labels <= labels_of(pod).items() for pod in pods)
    counts = {"readyReplicas": ready, "availableReplicas": ready, "fullyLabeledReplicas": full}
    return {"replicas": len(pods), **counts}
