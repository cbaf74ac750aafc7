"""All reduced objects of a cluster, and constants that writing and reading a snapshot share."""

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
"""Bits of a pod's `flags`."""
UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, RecursionError)
"""Errors that reading an object may raise if its content is such that no API server accepts it."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The reduced objects of a cluster, in any order. `problems` describe objects that could not be reduced.

    `departures` is node → when the last pod left it, in seconds since 1970, as far as that was observed.
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
