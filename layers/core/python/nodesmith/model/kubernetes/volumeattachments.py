"""VolumeAttachments (storage.k8s.io/v1): volumes that a node still holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A volume that is attached to a node, or not yet detached from it.

    `volume` names the PersistentVolume. `pods` (namespace/name) are those bound to that node that use it through a
    claim; none are left once they have gone.
    """

    node: str
    volume: str
    pods: tuple[str, ...] = ()
