"""CSINodes reduced: which drivers a node has, and how many volumes each of them attaches there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodesmith.model.kubernetes.pods import Manifest


@dataclass(frozen=True, slots=True)
class ReducedCsiNode:
    """The CSI drivers on a node, each with the most volumes it attaches; None where it states no limit."""

    name: str
    limits: Mapping[str, int | None]


def reduce_csi_node(manifest: Manifest) -> ReducedCsiNode:
    """Reduce a CSINode. Raises as `nodesmith.observation.observed.UNREADABLE` lists."""
    counts = {
        str(driver["name"]): (driver.get("allocatable") or {}).get("count")
        for driver in (manifest.get("spec") or {}).get("drivers") or ()
    }
    limits = {name: None if count is None else int(count) for name, count in counts.items()}
    return ReducedCsiNode(str(manifest["metadata"]["name"]), limits)
