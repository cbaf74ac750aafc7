"""What has happened since the forwarder began, counted as Karpenter counts it.

An object that was there before counts as made by nobody; Prometheus expects counters to begin anew with a process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from nodesmith.model.labels import CAPACITY_TYPE, NODEPOOL, REGISTERED, ZONE
from nodesmith.model.times import parse_time
from nodesmith.observation.mirror import NODECLAIMS, NODES, PODS, Change
from nodesmith.observation.observed import UNREADABLE
from nodesmith.observation.podreduction import ReducedPod
from nodesmith_forwarder.metrics.exposition import Family, Histogram, Labels, labelled

_BY_HAND = frozenset({"Deleted", "Unclaimed"})
"""Causes of ends that are no disruption of ours."""
_GIVEN_UP = frozenset({"InsufficientCapacity", "LaunchTimeout", "RegistrationTimeout"})
_CAUSES = {"InstanceTerminated": "garbage_collected", "SpotInterrupted": "spot_interrupted"}
_HELP = {
    "nodeclaims_created_total": "NodeClaims made, by NodePool.",
    "nodeclaims_terminated_total": "NodeClaims gone, by NodePool, capacity type and zone.",
    "nodeclaims_disrupted_total": "NodeClaims that nodesmith ended, by reason, NodePool and capacity type.",
    "nodes_created_total": "Nodes registered, by NodePool and zone.",
    "nodes_terminated_total": "Nodes gone, by NodePool and zone.",
    "nodes_drained_total": "Nodes of which all pods have left, by NodePool.",
    "nodeclaims_termination_duration_seconds": "From the deletion of a NodeClaim until it is gone.",
    "nodeclaims_instance_termination_duration_seconds": "From the end of a NodeClaim's instance until that is gone.",
    "nodes_termination_duration_seconds": "From the deletion of a Node until it is gone.",
    "nodes_lifetime_duration_seconds": "From the creation of a Node until it is gone.",
    "pods_bound_duration_seconds": "From the creation of a pod until it is bound to a node.",
}
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class Tally:
    """Counts changes of what is watched. Not safe for several threads at once."""

    def __init__(self, began: datetime) -> None:
        self._began = began
        self._counts: dict[str, Counter[Labels]] = {n: Counter() for n in _HELP if n.endswith("_total")}
        self._spans: dict[str, dict[Labels, Histogram]] = {n: {} for n in _HELP if n.endswith("_seconds")}

    def note(self, change: Change, now: datetime) -> None:
        """Count a change that was seen at this moment."""
        if change.kind == NODECLAIMS:
            self._nodeclaim(change.before, change.after, now)
        elif change.kind == NODES:
            self._node(change.before, change.after, now)
        elif change.kind == PODS and change.before is not None and change.after is not None:
            self._pod(change.before, change.after, now)

    def families(self) -> list[Family]:
        """Give what was counted, copied."""
        counters = [Family(name, "counter", _HELP[name], dict(at)) for name, at in self._counts.items()]
        spans = {name: {key: span.copy() for key, span in at.items()} for name, at in self._spans.items()}
        return counters + [Family(name, "histogram", _HELP[name], at) for name, at in spans.items()]

    def _nodeclaim(self, before: Any, after: Any, now: datetime) -> None:
        claim = after or before
        pool = _labels(claim, nodepool=NODEPOOL)
        if before is None and self._is_new(claim):
            self._counts["nodeclaims_created_total"][pool] += 1
        for reason in set(_disruptions(after)) - set(_disruptions(before)):
            where = _labels(claim, nodepool=NODEPOOL, capacity_type=CAPACITY_TYPE)
            self._counts["nodeclaims_disrupted_total"][(*where, ("reason", reason))] += 1
        if _is_true(after, "Drained") and not _is_true(before, "Drained"):
            self._counts["nodes_drained_total"][pool] += 1
        if after is None:
            self._gone("nodeclaims", claim, now, capacity_type=CAPACITY_TYPE)
            name = "nodeclaims_instance_termination_duration_seconds"
            self._observe_since(name, claim, _true_since(claim, "InstanceTerminating"), now)

    def _node(self, before: Any, after: Any, now: datetime) -> None:
        node = after or before
        if not _is_registered(node):
            return
        if not _is_registered(before) and (before is not None or self._is_new(node)):
            where = _labels(node, nodepool=NODEPOOL, zone=ZONE)
            self._counts["nodes_created_total"][where] += 1
        if after is None:
            self._gone("nodes", node, now)
            self._since("nodes_lifetime_duration_seconds", node, "creationTimestamp", now)

    def _pod(self, before: ReducedPod, after: ReducedPod, now: datetime) -> None:
        if after.node and not before.node:
            self._observe("pods_bound_duration_seconds", (), now.timestamp() - after.created)

    def _gone(self, what: str, obj: Mapping[str, Any], now: datetime, **more: str) -> None:
        self._counts[f"{what}_terminated_total"][_labels(obj, nodepool=NODEPOOL, zone=ZONE, **more)] += 1
        self._since(f"{what}_termination_duration_seconds", obj, "deletionTimestamp", now)

    def _since(self, name: str, obj: Mapping[str, Any], field: str, now: datetime) -> None:
        self._observe_since(name, obj, moment(obj, field), now)

    def _observe_since(
        self, name: str, obj: Mapping[str, Any], began: datetime | None, now: datetime
    ) -> None:
        if began is not None:
            self._observe(name, _labels(obj, nodepool=NODEPOOL), (now - began).total_seconds())

    def _observe(self, name: str, labels: Labels, seconds: float) -> None:
        self._spans[name].setdefault(labels, Histogram()).observe(max(0.0, seconds))

    def _is_new(self, obj: Mapping[str, Any]) -> bool:
        """Tell whether an object was made since we began; times of objects are whole seconds."""
        made = moment(obj, "creationTimestamp")
        return made is not None and made >= self._began.replace(microsecond=0)


def moment(obj: Mapping[str, Any], field: str) -> datetime | None:
    """Read a time of an object's metadata; None where there is none."""
    return _time(obj.get("metadata") or {}, field)


def _time(part: Mapping[str, Any], field: str) -> datetime | None:
    """Read a time; None where there is none. What counts must not break what watches."""
    try:
        return parse_time(part[field])
    except UNREADABLE:
        return None


def _labels(obj: Mapping[str, Any], **keys: str) -> Labels:
    known = obj["metadata"].get("labels") or {}
    return labelled(**{name: str(known.get(key, "")) for name, key in keys.items()})


def _disruptions(claim: Mapping[str, Any] | None) -> Iterator[str]:
    """Give why a NodeClaim is disrupted, or was given up, in Karpenter's words."""
    for condition in conditions_of(claim):
        kind, status, reason = (str(condition.get(part, "")) for part in ("type", "status", "reason"))
        ends = kind == "DisruptionReason" and status == "True" and reason not in _BY_HAND
        if ends or (status == "False" and reason in _GIVEN_UP):
            yield _CAUSES.get(reason, _WORD.sub("_", reason).lower())


def _is_true(claim: Mapping[str, Any] | None, kind: str) -> bool:
    return any(_says_true(condition, kind) for condition in conditions_of(claim))


def _true_since(claim: Mapping[str, Any], kind: str) -> datetime | None:
    found = (condition for condition in conditions_of(claim) if _says_true(condition, kind))
    return _time(next(found, {}), "lastTransitionTime")


def _says_true(condition: Mapping[str, Any], kind: str) -> bool:
    return condition.get("type") == kind and condition.get("status") == "True"


def conditions_of(obj: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Give an object's conditions; none where there is no object."""
    return list(((obj or {}).get("status") or {}).get("conditions") or ())


def _is_registered(node: Mapping[str, Any] | None) -> bool:
    return REGISTERED in ((node or {}).get("metadata", {}).get("labels") or {})
