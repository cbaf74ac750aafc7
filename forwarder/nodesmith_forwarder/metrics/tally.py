"""Counts of what has happened since the forwarder started, in Karpenter's way.

Objects older than the process do not count as created; Prometheus expects a new process's counters to start at 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, MIN_VALUES_RELAXED, NODEPOOL, REGISTERED, ZONE
from nodesmith.model.karpenter.nodeclaimobjects import CREATED_FOR, DECISION, PROVISIONED
from nodesmith.model.metrics.metrics import Histogram, Labels, labelled, snake_case
from nodesmith.observation.mirror import NODECLAIMS, NODES, PODS, Change
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith_forwarder.metrics.conditions import KINDS, Transitions
from nodesmith_forwarder.metrics.exposition import Family, Summary
from nodesmith_forwarder.metrics.objects import conditions_of, is_true, moment, says_true, time_of
from nodesmith_forwarder.metrics.placedpods import PlacedPods

_NOT_DISRUPTIONS = frozenset({"Deleted", "Unclaimed"})
"""Reasons for ends that are not disruptions by nodesmith."""
_GIVEN_UP = frozenset({"InsufficientCapacity", "LaunchTimeout", "RegistrationTimeout"})
_CAUSES = {
    "InstanceTerminated": "garbage_collected",
    "ReservationInterrupted": "capacity_reservation_interrupted",
    "ReservationExpires": "capacity_reservation_interrupted",
    "RebalanceRecommended": "rebalance_recommendation",
}
"""Karpenter's reasons where they are not the cause in snake case"""
_HELP = {
    "nodeclaims_created_total": "NodeClaims that nodesmith created, by reason and NodePool.",
    "nodeclaims_terminated_total": "NodeClaims terminated, by NodePool, capacity type and zone.",
    "nodeclaims_disrupted_total": "NodeClaims that nodesmith ended, by reason, NodePool and capacity type.",
    "pods_disruption_initiated_total": "Pods on nodes that nodesmith ended, by reason, NodePool and capacity type.",
    "nodes_created_total": "Nodes registered, by NodePool and zone.",
    "nodes_terminated_total": "Nodes terminated, by NodePool and zone.",
    "nodes_drained_total": "Nodes that were drained, by NodePool.",
    "nodeclaims_termination_duration_seconds": "Time from the deletion of a NodeClaim until it is gone.",
    "nodeclaims_instance_termination_duration_seconds": "Time that the termination of a NodeClaim's instance takes.",
    "nodes_termination_duration_seconds": "Time from the deletion of a Node until it is gone.",
    "nodes_lifetime_duration_seconds": "Time from the creation of a Node until it is gone.",
    "pods_bound_duration_seconds": "Time from the creation of a pod until it is bound to a node.",
    "pods_startup_duration_seconds": "Time from the creation of a pod until it is ready for the first time.",
}
_SUMMARIES = frozenset({"nodes_termination_duration_seconds", "pods_startup_duration_seconds"})


class Tally:
    """Counts changes of watched objects. Not thread-safe."""

    def __init__(self, started_at: datetime) -> None:
        self._started_at = started_at
        self._counts: dict[str, Counter[Labels]] = {n: Counter() for n in _HELP if n.endswith("_total")}
        spans = [name for name in _HELP if name.endswith("_seconds")]
        self._spans: dict[str, dict[Labels, Histogram]] = {n: {} for n in spans if n not in _SUMMARIES}
        self._summaries: dict[str, dict[Labels, Summary]] = {name: {} for name in _SUMMARIES}
        self._transitions = Transitions()
        self._placed = PlacedPods()
        self._starting: dict[str, int] = {}
        """Creation times, in seconds since 1970, of pods that were seen Pending and have not been ready since."""

    def note(self, change: Change, now: datetime) -> None:
        """Count a change seen at `now`."""
        self._placed.note(change)
        if change.kind == NODECLAIMS:
            self._note_nodeclaim(change.before, change.after, now)
        elif change.kind == NODES:
            self._note_node(change.before, change.after, now)
        elif change.kind == PODS:
            self._note_pod(change.key, change.before, change.after, now)
        if change.kind.name in KINDS:
            self._transitions.note(change, now, is_new=self._is_new(change.after or change.before))

    def families(self, now: datetime) -> list[Family]:
        """Return a copy of what was counted, and how long pods have been starting."""
        counters = [
            Family(name, "counter", _HELP[name], dict(series)) for name, series in self._counts.items()
        ]
        spans = {
            name: {key: span.copy() for key, span in series.items()} for name, series in self._spans.items()
        }
        counters += [Family(name, "histogram", _HELP[name], series) for name, series in spans.items()]
        for name in sorted(_SUMMARIES):
            summaries = {key: summary.copy(now) for key, summary in self._summaries[name].items()}
            counters.append(Family(name, "summary", _HELP[name], summaries))
        return [*counters, self._unstarted(now), *self._transitions.families()]

    def _unstarted(self, now: datetime) -> Family:
        series: dict[Labels, float] = {}
        for key, created_at in self._starting.items():
            namespace, _, name = key.partition("/")
            series[labelled(name=name, namespace=namespace)] = now.timestamp() - created_at
        text = "The age of pods that have not been ready yet."
        return Family("pods_unstarted_time_seconds", "gauge", text, series)

    def _note_nodeclaim(self, before: Any, after: Any, now: datetime) -> None:
        claim = after or before
        nodepool_labels = _labels(claim, nodepool=NODEPOOL)
        annotations = claim["metadata"].get("annotations") or {}
        if before is None and self._is_new(claim) and DECISION in annotations:
            relaxed = str(annotations.get(MIN_VALUES_RELAXED, "false"))
            created_labels = labelled(
                **dict(nodepool_labels),
                reason=str(annotations.get(CREATED_FOR, PROVISIONED)),
                min_values_relaxed=relaxed,
            )
            self._counts["nodeclaims_created_total"][created_labels] += 1
        for reason in set(_disruptions(after)) - set(_disruptions(before)):
            disrupted_labels = _labels(claim, nodepool=NODEPOOL, capacity_type=CAPACITY_TYPE)
            self._counts["nodeclaims_disrupted_total"][(*disrupted_labels, ("reason", reason))] += 1
            pods = self._placed.on_node_of(claim)
            self._counts["pods_disruption_initiated_total"][(*disrupted_labels, ("reason", reason))] += pods
        if is_true(after, "Drained") and not is_true(before, "Drained") and not _never_joined(after):
            self._counts["nodes_drained_total"][nodepool_labels] += 1
        if after is None:
            self._note_end("nodeclaims", claim, now, capacity_type=CAPACITY_TYPE)
            name = "nodeclaims_instance_termination_duration_seconds"
            self._observe_since(name, claim, _true_since(claim, "InstanceTerminating"), now)

    def _note_node(self, before: Any, after: Any, now: datetime) -> None:
        node = after or before
        if not _is_registered(node):
            return
        if not _is_registered(before) and (before is not None or self._is_new(node)):
            labels = _labels(node, nodepool=NODEPOOL, zone=ZONE)
            self._counts["nodes_created_total"][labels] += 1
        if after is None:
            self._note_end("nodes", node, now)
            self._observe_since_field("nodes_lifetime_duration_seconds", node, "creationTimestamp", now)

    def _note_pod(self, key: str, before: ReducedPod | None, after: ReducedPod | None, now: datetime) -> None:
        if after is None:
            self._starting.pop(key, None)
            return
        age = now.timestamp() - after.created
        if before is not None and after.node and not before.node:
            self._observe("pods_bound_duration_seconds", (), age, now)
        if after.phase == "Pending":
            self._starting[key] = after.created
        elif after.ready and self._starting.pop(key, None) is not None:
            self._observe("pods_startup_duration_seconds", (), age, now)

    def _note_end(self, kind: str, obj: Mapping[str, Any], now: datetime, **labels: str) -> None:
        self._counts[f"{kind}_terminated_total"][_labels(obj, nodepool=NODEPOOL, zone=ZONE, **labels)] += 1
        self._observe_since_field(f"{kind}_termination_duration_seconds", obj, "deletionTimestamp", now)

    def _observe_since_field(self, name: str, obj: Mapping[str, Any], field: str, now: datetime) -> None:
        self._observe_since(name, obj, moment(obj, field), now)

    def _observe_since(
        self, name: str, obj: Mapping[str, Any], started_at: datetime | None, now: datetime
    ) -> None:
        if started_at is not None:
            self._observe(name, _labels(obj, nodepool=NODEPOOL), (now - started_at).total_seconds(), now)

    def _observe(self, name: str, labels: Labels, seconds: float, now: datetime) -> None:
        if name in _SUMMARIES:
            self._summaries[name].setdefault(labels, Summary()).observe(max(0.0, seconds), now)
        else:
            self._spans[name].setdefault(labels, Histogram()).observe(max(0.0, seconds))

    def _is_new(self, obj: Mapping[str, Any]) -> bool:
        """Return whether an object was created since the process began; creation times are whole seconds."""
        created_at = moment(obj, "creationTimestamp")
        return created_at is not None and created_at >= self._started_at.replace(microsecond=0)


def _labels(obj: Mapping[str, Any], **keys: str) -> Labels:
    object_labels = obj["metadata"].get("labels") or {}
    return labelled(**{name: str(object_labels.get(key, "")) for name, key in keys.items()})


def _disruptions(claim: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield Karpenter's reasons why a NodeClaim ends or was given up. A planned disruption counts once it has begun."""
    conditions = conditions_of(claim)
    is_ending = any(condition.get("type") == "Drained" for condition in conditions)
    for condition in conditions:
        kind, status, reason = (str(condition.get(part, "")) for part in ("type", "status", "reason"))
        ends = (
            is_ending and kind == "DisruptionReason" and status == "True" and reason not in _NOT_DISRUPTIONS
        )
        if ends or (status == "False" and reason in _GIVEN_UP):
            yield _CAUSES.get(reason, snake_case(reason))


def _never_joined(claim: Mapping[str, Any]) -> bool:
    """Return whether a NodeClaim had no Node: the steps of its end are done, but nothing was drained."""
    registrations = [condition for condition in conditions_of(claim) if condition.get("type") == "Registered"]
    return any(condition.get("status") != "True" for condition in registrations)


def _true_since(claim: Mapping[str, Any], kind: str) -> datetime | None:
    matching = (condition for condition in conditions_of(claim) if says_true(condition, kind))
    return time_of(next(matching, {}), "lastTransitionTime")


def _is_registered(node: Mapping[str, Any] | None) -> bool:
    return REGISTERED in ((node or {}).get("metadata", {}).get("labels") or {})
