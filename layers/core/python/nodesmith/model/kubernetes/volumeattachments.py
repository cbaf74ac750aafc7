"""VolumeAttachments (storage.k8s.io/v1): volumes that are attached to a node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A volume that is attached to a node, or not yet detached from it.

    `volume` is the name of the PersistentVolume. `pods` (namespace/name) are the pods on that node that use it through
    a PersistentVolumeClaim, empty once they have left.
    """

    node: str
    volume: str
    pods: tuple[str, ...] = ()
