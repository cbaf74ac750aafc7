"""Decisions of a local run: records read from the bucket as they appear, kept, and put on the timeline.

Objects of cost allocation are kept with them, for `nodesmith ledger`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodesmith.keys import decision_key, decision_snapshot_key
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.costs.allocations import DAYS, HOURS, MONTHS, MOVES, allocations_prefix, booked_key
from nodesmith.model.functions import Heartbeat
from nodesmith_formats.decisions.records import Blobs, Folder, Records
from nodesmith_formats.decisions.summaries import in_a_sentence, summary
from nodesmith_local.runs.quiet import FOR_GOOD
from nodesmith_local.runs.timeline import DECIDED, Entry, Timeline


class Decisions:
    """Follows the records of one cluster. `collect` reads new records; threads may share it."""

    def __init__(self, blobs: Blobs, cluster: str, timeline: Timeline, keep: Folder | None = None) -> None:
        self._blobs = blobs
        self._records = Records(blobs, cluster)
        self._timeline = timeline
        self._keep = keep
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, Any]] = {}
        self._booked: bytes | None = None
        """The state of cost allocation when its objects were last kept."""

    @property
    def all(self) -> tuple[dict[str, Any], ...]:
        """Every record so far, oldest first."""
        with self._lock:
            return tuple(self._known[decision] for decision in sorted(self._known))

    def collect(self) -> None:
        """Read new records, keep them with their snapshots and booked hours, and put them on the timeline.

        A decision to buy appears once it is carried out, which is when its snapshot is written.
        """
        with self._lock:
            self._keep_allocations()
            new = [decision for decision in self._records.ids() if decision not in self._known]
            for decision in new:
                record = self._records.read(decision)
                if record.get("superseded") or (
                    record["plan"]["nodes"] and not self._is_carried_out(decision)
                ):
                    continue
                self._known[decision] = record
                self._store(decision)
                self._timeline.add(
                    Entry(parse_time(record["at"]), DECIDED, f"Decision/{decision}", summary(record))
                )

    def _keep_allocations(self) -> None:
        """Keep the objects of cost allocation that have been written since the last time."""
        cluster, keep = self._records.cluster, self._keep
        booked = self._blobs.get(booked_key(cluster))
        if keep is None or booked is None or booked == self._booked:
            return
        for kind in (HOURS, DAYS, MONTHS, MOVES):
            for key in self._blobs.keys(allocations_prefix(kind, cluster)):
                data = self._blobs.get(key) if keep.get(key) is None else None
                if data is not None:
                    keep.put(key, data)
        self._booked = booked

    def reasons(self) -> dict[str, str]:
        """Return the reason why each pending pod waits, from the last decision about it."""
        reasons_by_pod: dict[str, str] = {}
        for record in self.all:
            reasons_by_pod |= reasons_of(record)
        return reasons_by_pod

    def refused(self, heartbeat: Heartbeat | None) -> dict[str, datetime]:
        """Return the pods for which the last decision bought nothing, each with the time of that decision's snapshot.

        That time is when its snapshot was taken, or the time of the forwarder's `heartbeat` if nothing has changed
        since.
        """
        refused_at: dict[str, datetime] = {}
        for record in self.all:
            plan, looked_at = record["plan"], parse_time(record["inputs"]["snapshot"]["takenAt"])
            if heartbeat is not None and heartbeat.changed <= looked_at:
                looked_at = max(looked_at, min(heartbeat.at, parse_time(record["at"])))
            refused_at |= {pod: looked_at for group in plan["unplaced"] for pod in group["pods"]}
            refused_at |= {pod: FOR_GOOD for group in plan["ignored"] for pod in group["pods"]}
            for pod in helped_by(record):
                refused_at.pop(pod, None)
        return refused_at

    def problems(self) -> tuple[str, ...]:
        """Return the problems of the last decision's inputs."""
        records = self.all
        return tuple(records[-1]["plan"]["problems"]) if records else ()

    def _is_carried_out(self, decision: str) -> bool:
        return self._records.snapshot(decision) is not None

    def _store(self, decision: str) -> None:
        if self._keep is None:
            return
        for key in (
            decision_key(self._records.cluster, decision),
            decision_snapshot_key(self._records.cluster, decision),
        ):
            data = self._blobs.get(key)
            if data is not None:
                self._keep.put(key, data)


def reasons_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return a decision's statement on each pod that is not bound yet."""
    plan = record["plan"]
    reasons_by_pod = {pod: f"waits for NodeClaim {claim}" for pod, claim in plan["waiting"].items()}
    reasons_by_pod |= {pod: f"has room on {name}" for name, pods in plan["placed"].items() for pod in pods}
    for node in plan["nodes"]:
        nominated = node["claim"].get("nominated") or ()
        reasons_by_pod |= dict.fromkeys(nominated, f"waits for NodeClaim {node['claim']['name']}")
    return reasons_by_pod | refused_by(record)


def refused_by(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the pods for which a decision does nothing, with the reasons."""
    groups = (*record["plan"]["ignored"], *record["plan"]["unplaced"])
    return {pod: in_a_sentence(group) for group in groups for pod in group["pods"]}


def helped_by(record: Mapping[str, Any]) -> set[str]:
    """Return the pods for which a decision has a node."""
    return reasons_of(record).keys() - refused_by(record).keys()
