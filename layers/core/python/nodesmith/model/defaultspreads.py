"""Topology spread constraints that kube-scheduler applies to pods without any of their own (PodTopologySpreadArgs).

kube-scheduler counts the pods that a pod's Services and its ReplicaSet, StatefulSet or ReplicationController select
together. This module counts the pods of the same controller. The result is the same unless Services select only some of
them. A pod that only Services select gets no default constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodesmith.model.apimachinery.labelselectors import parse_selector
from nodesmith.model.kubernetes.shapes import Shape, Spread
from nodesmith.model.policies import DefaultSpread
from nodesmith.model.snapshot import Snapshot

_SPREAD_OWNERS = ("ReplicaSet/", "StatefulSet/", "ReplicationController/")
_OWNER_LABEL = "nodesmith.dev/controller"
"""Stands for the controller's selector. No pod in the cluster has this label, and no other selector uses it."""


def with_default_spreads(snapshot: Snapshot, defaults: Sequence[DefaultSpread]) -> Snapshot:
    """Return the snapshot with these default constraints applied, as kube-scheduler sees it."""
    if not defaults:
        return snapshot
    changed: dict[Shape, Shape] = {}
    for pod in snapshot.pods:
        if pod.shape not in changed:
            changed[pod.shape] = _spread(pod.shape, defaults)
    return replace(snapshot, pods=tuple(replace(pod, shape=changed[pod.shape]) for pod in snapshot.pods))


def _spread(shape: Shape, defaults: Sequence[DefaultSpread]) -> Shape:
    """Return the shape with the label that counts pods of its controller, and with the defaults if they apply."""
    if not shape.owner.startswith(_SPREAD_OWNERS):
        return shape
    own = {_OWNER_LABEL: shape.owner}
    labels = {**shape.labels, **own}
    if shape.spreads:
        return replace(shape, labels=labels)
    selector = parse_selector({"matchLabels": own})
    spreads = (Spread(each.topology_key, each.max_skew, each.hard, selector) for each in defaults)
    return replace(shape, labels=labels, spreads=tuple(spreads))
