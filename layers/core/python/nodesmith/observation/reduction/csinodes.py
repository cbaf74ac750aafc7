"""Reduce CSINodes to the drivers of a node and the number of volumes that each can attach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodesmith.model.kubernetes.pods import Manifest


@dataclass(frozen=True, slots=True)
class ReducedCsiNode:
    """The CSI drivers on a node. `limits` is driver → maximum number of volumes, None if the driver states no limit."""

    name: str
    limits: Mapping[str, int | None]


def reduce_csi_node(manifest: Manifest) -> ReducedCsiNode:
    """Reduce a CSINode. Raises the errors in `nodesmith.observation.observed.UNREADABLE`."""
    counts = {
        str(driver["name"]): (driver.get("allocatable") or {}).get("count")
        for driver in (manifest.get("spec") or {}).get("drivers") or ()
    }
    limits = {name: None if count is None else int(count) for name, count in counts.items()}
    return ReducedCsiNode(str(manifest["metadata"]["name"]), limits)
