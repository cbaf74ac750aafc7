"""A cluster's reduced objects, gathered; and what the snapshot's writer and reader have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.endingnodes import ReducedAttachment
from nodesmith.observation.reduction.csinodes import ReducedCsiNode
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith.observation.reduction.volumes import ReducedClaim, ReducedClass, ReducedVolume

FORMAT = "nodesmith-snapshot"
VERSION = 4
UNSCHEDULABLE, NOMINATED, DELETING, NOT_READY = 1, 2, 4, 8
"""The bits of a pod's `flags`."""
UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, RecursionError)
"""What reading an object may raise that no API server would hold."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A cluster's reduced objects, in any order. `problems` are objects that could not even be reduced.

    `departures` are when the last pod has gone from each node, in seconds since 1970, as far as anybody watched.
    """

    pods: Sequence[ReducedPod] = ()
    nodes: Sequence[Manifest] = ()
    daemonsets: Sequence[Manifest] = ()
    nodepools: Sequence[Manifest] = ()
    nodeclasses: Sequence[Manifest] = ()
    nodeclaims: Sequence[Manifest] = ()
    provisioners: Sequence[Manifest] = ()
    awsnodetemplates: Sequence[Manifest] = ()
    persistentvolumeclaims: Sequence[ReducedClaim] = ()
    persistentvolumes: Sequence[ReducedVolume] = ()
    storageclasses: Sequence[ReducedClass] = ()
    csinodes: Sequence[ReducedCsiNode] = ()
    namespaces: Sequence[Manifest] = ()
    poddisruptionbudgets: Sequence[Manifest] = ()
    volumeattachments: Sequence[ReducedAttachment] = ()
    limitranges: Sequence[Manifest] = ()
    runtimeclasses: Sequence[Manifest] = ()
    problems: Sequence[str] = ()
    departures: Mapping[str, int] = field(default_factory=dict)
