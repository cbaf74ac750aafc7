"""Objects' conditions, and how long deletions take, under the names that Karpenter has from operatorpkg."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.labels import INITIALIZED, NODECLASS, NODEPOOL
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.model.metrics.metrics import Histogram, Labels, labelled
from nodesmith.observation.mirror import NODECLAIMS, NODECLASSES, NODEPOOLS, NODES, Change
from nodesmith.observation.observed import Observed
from nodesmith_forwarder.metrics.exposition import Family
from nodesmith_forwarder.metrics.objects import conditions_of, moment, time_of

KINDS = {
    NODECLAIMS.name: "nodeclaim",
    NODEPOOLS.name: "nodepool",
    NODECLASSES.name: "ec2nodeclass",
    NODES.name: "node",
}
"""The kinds that Karpenter measures, by their place in `Observed`, each with its word in the metrics' names."""
BUCKETS = (*(0.5 * 2**step for step in range(15)), math.inf)
"""Upper bounds in seconds: half a second, doubled up to 2.3 hours."""
_ADDED_LABEL_KEYS = {
    NODECLAIMS.name: (NODECLASS, NODEPOOL),
    NODES.name: (NODECLASS, NODEPOOL, INITIALIZED),
}
"""Labels of objects that also appear in their series."""
_PER_LABEL = str.maketrans("/.-", "___")


def condition_gauges(observed: Observed, now: datetime) -> Iterator[Family]:
    """Yield, for each kind, the objects' conditions, the age of each condition, and the age of each deletion."""
    for place, kind in KINDS.items():
        counts: dict[Labels, float] = {}
        ages: dict[Labels, float] = {}
        ending: dict[Labels, float] = {}
        for obj in getattr(observed, place):
            if _is_foreign(place, obj):
                continue
            identity = {"name": obj["metadata"]["name"], "namespace": "", **_added_labels(place, obj)}
            for condition in conditions_of(obj):
                labels = labelled(**identity, **_condition_labels(condition, "type", "status", "reason"))
                counts[labels] = 1
                changed_at = time_of(condition, "lastTransitionTime")
                if changed_at is not None:
                    ages[labels] = (now - changed_at).total_seconds()
            deleted = moment(obj, "deletionTimestamp")
            if deleted is not None:
                ending[labelled(**identity)] = (now - deleted).total_seconds()
        name = f"operator_{kind}"
        text = f"The conditions of {kind} objects; always 1."
        yield Family(f"{name}_status_condition_count", "gauge", text, counts)
        text = "How long each condition has had its current status."
        yield Family(f"{name}_status_condition_current_status_seconds", "gauge", text, ages)
        text = "How long ago the deletion of each object was requested."
        yield Family(f"{name}_termination_current_time_seconds", "gauge", text, ending)


class Transitions:
    """Counts changes of conditions and measures how long deletions take. Not thread-safe."""

    def __init__(self) -> None:
        self._changes: dict[str, Counter[Labels]] = {kind: Counter() for kind in KINDS.values()}
        self._spans: dict[str, dict[Labels, Histogram]] = {kind: {} for kind in KINDS.values()}
        self._ends: dict[str, dict[Labels, Histogram]] = {kind: {} for kind in KINDS.values()}

    def note(self, change: Change, now: datetime, *, is_new: bool) -> None:
        """Record a change of an object. An object older than this process has no transitions when first seen."""
        place, before, after = change.kind.name, change.before, change.after
        if place not in KINDS or _is_foreign(place, after or before):
            return
        kind, added = KINDS[place], _added_labels(place, after or before)
        if after is None:
            deleted = moment(before, "deletionTimestamp")
            if deleted is not None:
                _observe(self._ends[kind], labelled(**added), (now - deleted).total_seconds())
        elif before is not None or is_new:
            self._note_conditions(kind, added, before, after)

    def families(self) -> Iterator[Family]:
        """Yield a copy of what was counted."""
        for kind in KINDS.values():
            name = f"operator_{kind}"
            changes = dict(self._changes[kind])
            text = "Conditions that appeared or changed their status, by the new status."
            yield Family(f"{name}_status_condition_transitions_total", "counter", text, changes)
            text = "How long conditions had a status before it changed."
            yield Family(
                f"{name}_status_condition_transition_seconds", "histogram", text, _copied(self._spans[kind])
            )
            text = "Time from the deletion of an object until it is gone."
            yield Family(f"{name}_termination_duration_seconds", "histogram", text, _copied(self._ends[kind]))

    def _note_conditions(
        self, kind: str, added: Mapping[str, str], before: Any, after: Mapping[str, Any]
    ) -> None:
        old_conditions = {condition.get("type"): condition for condition in conditions_of(before)}
        for condition in conditions_of(after):
            old = old_conditions.get(condition.get("type"), {})
            if old.get("status") == condition.get("status"):
                continue
            self._changes[kind][
                labelled(**added, **_condition_labels(condition, "type", "status", "reason"))
            ] += 1
            since, until = time_of(old, "lastTransitionTime"), time_of(condition, "lastTransitionTime")
            if since is not None and until is not None:
                labels = labelled(**added, **_condition_labels(old, "type", "status"))
                _observe(self._spans[kind], labels, (until - since).total_seconds())


def _is_foreign(place: str, obj: Mapping[str, Any]) -> bool:
    return place == NODEPOOLS.name and is_foreign(obj)


def _added_labels(place: str, obj: Mapping[str, Any]) -> dict[str, str]:
    object_labels = obj["metadata"].get("labels") or {}
    return {
        key.translate(_PER_LABEL): str(object_labels.get(key, "")) for key in _ADDED_LABEL_KEYS.get(place, ())
    }


def _condition_labels(condition: Mapping[str, Any], *names: str) -> dict[str, str]:
    return {name: str(condition.get(name, "")) for name in names}


def _observe(series: dict[Labels, Histogram], labels: Labels, seconds: float) -> None:
    series.setdefault(labels, Histogram(BUCKETS)).observe(max(0.0, seconds))


def _copied(series: Mapping[Labels, Histogram]) -> dict[Labels, Histogram]:
    return {labels: histogram.copy() for labels, histogram in series.items()}
