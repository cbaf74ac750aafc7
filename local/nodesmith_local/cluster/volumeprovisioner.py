"""Volumes for claims that wait for their first consumer, in the zone of that pod's node.

Imitates the volume binder and the CSI driver's provisioner: a volume is created after a pod that mounts the claim has
been bound, and is deleted with its claim.
"""

from __future__ import annotations

from nodesmith.model.apimachinery.labels import ZONE
from nodesmith_formats.kubernetes.objects import Object, View, dig, labels_of, name_of
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.controller import Controller
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import node_name
from nodesmith_local.cluster.scheduler.needs import claims_of
from nodesmith_local.cluster.scheduler.volumes import CLAIMS, VOLUMES, class_of

_MAKES_NONE = "kubernetes.io/no-provisioner"
_MADE = {"pv.kubernetes.io/provisioned-by": "local.nodesmith"}


class VolumeMaker(Controller):
    """Creates and deletes PersistentVolumes; keys are those of claims."""

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        super().__init__(store, mirrors)
        self._chosen: dict[Key, str] = {}  # the node of a claim's first consumer
        mirrors["pods"].listen(self._touch_claims)
        mirrors[CLAIMS].listen(self._claim_changed)

    def reconcile(self, key: Key) -> bool:
        """Create the volume of one claim if its node is known."""
        claim, node = self.mirrors[CLAIMS].objects.get(key), self.mirrors.node(self._chosen.get(key, ""))
        if claim is None or node is None or dig(claim, "spec", "volumeName"):
            return False
        storage_class = class_of(claim, self.mirrors)
        if storage_class is None or storage_class.get("provisioner") in (None, "", _MAKES_NONE):
            return False
        volume = f"pvc-{claim['metadata']['uid']}"
        self.store.create(VOLUMES, _manifest(volume, claim, storage_class, node))
        self.store.patch(VOLUMES, volume, {"status": {"phase": "Bound"}}, subresource="status")
        bound_patch = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
        self.store.patch(CLAIMS, key[1], {**bound_patch, "spec": {"volumeName": volume}}, key[0])
        bound = {"phase": "Bound", "capacity": dig(claim, "spec", "resources", "requests")}
        self.store.patch(CLAIMS, key[1], {"status": bound}, key[0], subresource="status")
        return True

    def _touch_claims(self, before: View | None, after: View | None) -> None:
        if after is None or not node_name(after) or (before is not None and node_name(before)):
            return
        for name in claims_of(after["spec"]):
            key = (after["metadata"]["namespace"], name)
            self._chosen.setdefault(key, node_name(after))
            self.touch(key)

    def _claim_changed(self, before: View | None, after: View | None) -> None:
        self.touch_object(before, after)
        if after is None and before is not None:
            self._chosen.pop((before["metadata"]["namespace"], name_of(before)), None)
            volume = self.store.find(VOLUMES, f"pvc-{before['metadata']['uid']}")
            if volume is not None and dig(volume, "spec", "persistentVolumeReclaimPolicy") == "Delete":
                self.store.delete(VOLUMES, name_of(volume))


def _manifest(name: str, claim: View, storage_class: View, node: View) -> Object:
    zone = {"key": ZONE, "operator": "In", "values": [labels_of(node).get(ZONE, "")]}
    metadata = claim["metadata"]
    return {
        "metadata": {"name": name, "annotations": _MADE},
        "spec": {
            "capacity": dig(claim, "spec", "resources", "requests"),
            "accessModes": dig(claim, "spec", "accessModes"),
            "storageClassName": name_of(storage_class),
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "csi": {"driver": storage_class["provisioner"], "volumeHandle": f"vol-{metadata['uid'][-12:]}"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": name_of(claim),
                "uid": metadata["uid"],
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
        },
    }
