"""A simulated EBS CSI driver: a volume for each claim in the zone of its node, attached and detached with delay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from nodesmith.model.apimachinery.labels import ZONE
from nodesmith_local.backends.objects import Objects
from tests.e2e.systems.system import Manifest
from tests.objects.storage import volume

_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_LOOKS_EVERY_SECONDS = 0.2
_ATTACHER = "external-attacher/ebs-csi-aws-com"


@contextmanager
def made_volumes(objects: Objects) -> Iterator[list[str]]:
    """Create volumes for the duration of the block, and yield the names of those created."""
    made: list[str] = []

    def look() -> None:
        for claim in objects.list("persistentvolumeclaims"):
            name = f"pvc-{claim['metadata']['uid']}"
            if name not in made and _is_wanted(claim):
                objects.create("persistentvolumes", _volume(objects, claim, name))
                made.append(name)

    with _again_and_again(look):
        yield made


@contextmanager
def attached_volumes(objects: Objects, may_detach: Event) -> Iterator[list[str]]:
    """Attach the volumes that Kubernetes' own controller requests, and detach them once `may_detach` is set.

    Yields the names of the attachments that were released.
    """
    detached: list[str] = []

    def look() -> None:
        for each in objects.list("volumeattachments"):
            metadata, name = each["metadata"], each["metadata"]["name"]
            if "deletionTimestamp" in metadata:
                if may_detach.is_set() and name not in detached:
                    detached.append(name)
                    objects.patch("volumeattachments", name, {"metadata": {"finalizers": None}})
            elif not each.get("status", {}).get("attached"):
                objects.patch("volumeattachments", name, {"metadata": {"finalizers": [_ATTACHER]}})
                objects.patch("volumeattachments", name, {"status": {"attached": True}}, subresource="status")

    with _again_and_again(look):
        yield detached


@contextmanager
def _again_and_again(look: Callable[[], None]) -> Iterator[None]:
    stop = Event()

    def run() -> None:
        while not stop.wait(_LOOKS_EVERY_SECONDS):
            look()

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _is_wanted(claim: Manifest) -> bool:
    return not claim["spec"].get("volumeName") and _SELECTED_NODE in claim["metadata"].get("annotations", {})


def _volume(objects: Objects, claim: Manifest, name: str) -> Manifest:
    """Return the volume as the external provisioner writes it: bound to this claim from the start."""
    node = objects.get("nodes", claim["metadata"]["annotations"][_SELECTED_NODE])
    metadata, spec = claim["metadata"], claim["spec"]
    manifest = volume(
        name,
        node["metadata"]["labels"][ZONE],
        storage=spec["resources"]["requests"]["storage"],
        storageClassName=spec["storageClassName"],
        persistentVolumeReclaimPolicy="Delete",
        claimRef={
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    )
    del manifest["status"]  # written by the volume controller
    return {**manifest, "apiVersion": "v1", "kind": "PersistentVolume"}
