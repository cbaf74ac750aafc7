"""What the cluster looked like at one moment: the first half of what a decision is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodesmith.model.nodes import Node
from nodesmith.model.poddisruptionbudgets import PodDisruptionBudget
from nodesmith.model.pods import Pod
from nodesmith.model.shapes import Shape
from nodesmith.model.volumeattachments import VolumeAttachment


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading of a cluster.

    `daemonsets` are the pod templates of its DaemonSets. NodePools, EC2NodeClasses and NodeClaims stay manifests, so
    that whoever reads them decides what a bad one means. `attachments` are those of nodes that end, by what the
    snapshot itself shows: tainted `karpenter.sh/disrupted`, or they or their NodeClaim being deleted. `problems` are
    objects that could not be read at all.
    """

    cluster: str
    taken_at: datetime
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    daemonsets: tuple[Shape, ...] = ()
    nodepools: tuple[Mapping[str, Any], ...] = ()
    nodeclasses: tuple[Mapping[str, Any], ...] = ()
    nodeclaims: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    attachments: tuple[VolumeAttachment, ...] = ()
