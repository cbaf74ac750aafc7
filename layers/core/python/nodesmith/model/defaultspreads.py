"""Topology spread that kube-scheduler gives to pods without any of their own (PodTopologySpreadArgs).

kube-scheduler counts the pods that a pod's Services and its ReplicaSet, StatefulSet or ReplicationController select
together. Here it is the pods of the same controller, which is the same but where Services select only some of them; a
pod that only Services select gets none.
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
"""Stands for the controller's own selector. It is on no pod in the cluster, and no one else asks for it."""


def with_default_spreads(snapshot: Snapshot, defaults: Sequence[DefaultSpread]) -> Snapshot:
    """Return the snapshot as kube-scheduler sees it under these defaults."""
    if not defaults:
        return snapshot
    changed: dict[Shape, Shape] = {}
    for pod in snapshot.pods:
        if pod.shape not in changed:
            changed[pod.shape] = _spread(pod.shape, defaults)
    return replace(snapshot, pods=tuple(replace(pod, shape=changed[pod.shape]) for pod in snapshot.pods))


def _spread(shape: Shape, defaults: Sequence[DefaultSpread]) -> Shape:
    """Add the defaults where they hold; in any case the mark by which others of its controller count the pod."""
    if not shape.owner.startswith(_SPREAD_OWNERS):
        return shape
    own = {_OWNER_LABEL: shape.owner}
    labels = {**shape.labels, **own}
    if shape.spreads:
        return replace(shape, labels=labels)
    selector = parse_selector({"matchLabels": own})
    spreads = (Spread(each.topology_key, each.max_skew, each.hard, selector) for each in defaults)
    return replace(shape, labels=labels, spreads=tuple(spreads))
