"""Topology spread that kube-scheduler gives to pods without any of their own (PodTopologySpreadArgs).

kube-scheduler counts the pods that a pod's Services and its ReplicaSet, StatefulSet or ReplicationController select
together. Here it is the pods of the same controller, which is the same but where Services select only some of them; a
pod that only Services select gets none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodesmith.model.labels import HOSTNAME, ZONE, did_you_mean, normalised
from nodesmith.model.selectors import parse_selector
from nodesmith.model.shapes import Shape, Spread
from nodesmith.model.snapshot import Snapshot

_SPREAD_OWNERS = ("ReplicaSet/", "StatefulSet/", "ReplicationController/")
_OWNER_LABEL = "nodesmith.dev/controller"
"""Stands for the controller's own selector. It is on no pod in the cluster, and no one else asks for it."""
_FIELDS = ("maxSkew", "topologyKey", "whenUnsatisfiable")
_WHEN = ("DoNotSchedule", "ScheduleAnyway")


@dataclass(frozen=True, slots=True)
class DefaultSpread:
    """One default constraint; `hard` is DoNotSchedule."""

    topology_key: str
    max_skew: int
    hard: bool


SYSTEM_SPREADS = (DefaultSpread(HOSTNAME, 3, hard=False), DefaultSpread(ZONE, 5, hard=False))
"""What kube-scheduler does unless it is configured: defaultingType System."""


def parse_default_spreads(text: str) -> tuple[DefaultSpread, ...]:
    """Read `List` (none), `System` (kube-scheduler's own), or JSON: a list of constraints or who holds one.

    The list may stand alone, as `defaultConstraints`, or as Karpenter's `podTopologySpread.defaultConstraints`. Raises
    ValueError, saying what was found and what would be right.
    """
    if text in ("List", "System"):
        return SYSTEM_SPREADS if text == "System" else ()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be List, System or JSON with defaultConstraints ({error})") from None
    for name in ("podTopologySpread", "defaultConstraints"):
        if isinstance(given, Mapping):
            given = _only(given, name)
    if not isinstance(given, list):
        raise ValueError("defaultConstraints must be a list")
    read = tuple(_constraint(item) for item in given)
    if len({(spread.topology_key, spread.hard) for spread in read}) < len(read):
        raise ValueError("defaultConstraints must not name a topologyKey twice with one whenUnsatisfiable")
    return read


def _only(given: Mapping[str, Any], name: str) -> object:
    """Give the one field that a map may have; a map of the level below is let through."""
    if name == "podTopologySpread" and name not in given:
        return given
    unknown = sorted(map(str, given.keys() - {name}))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}{did_you_mean(unknown[0], (name,))}")
    return given.get(name)


def _constraint(item: object) -> DefaultSpread:
    if not isinstance(item, Mapping):
        raise ValueError(f"a constraint must be a map of {', '.join(_FIELDS)}, found {item!r}")
    unknown = sorted(map(str, item.keys() - set(_FIELDS)))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}: a default constraint has only {', '.join(_FIELDS)}")
    skew, key, when = (item.get(name) for name in _FIELDS)
    if type(skew) is not int or skew < 1:
        raise ValueError(f"maxSkew is {skew!r}: must be a whole number, 1 or more")
    if not isinstance(key, str) or not key:
        raise ValueError(f"topologyKey is {key!r}: must be a label of nodes, such as {ZONE}")
    if when not in _WHEN:
        raise ValueError(f"whenUnsatisfiable is {when!r}: must be {' or '.join(_WHEN)}")
    return DefaultSpread(normalised(key), skew, when == "DoNotSchedule")


def with_default_spreads(snapshot: Snapshot, defaults: Sequence[DefaultSpread]) -> Snapshot:
    """Give the snapshot as kube-scheduler sees it under these defaults."""
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
