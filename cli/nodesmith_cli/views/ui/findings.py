"""Findings about a cluster and about the data read from it, as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodesmith.decisions.readiness.launchconditions import BOUGHT_IN_VAIN
from nodesmith.decisions.takeover import shown_standby
from nodesmith.model.ledger.ledger import Ledger
from nodesmith_cli.views.top.rows import NodeRow, State, View, duration
from nodesmith_cli.views.ui.archive import Archive
from nodesmith_formats.wording import counted, some

BAD, WARN, GOOD, NOTE = "bad", "warn", "good", "note"
_ORDER = (BAD, WARN, NOTE, GOOD)
_LONG_PENDING_SECONDS, _LONG_JOINING_SECONDS = 300, 600
_LATE_SECONDS = 3600
_MOST = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: how bad it is, what it is about, and a sentence."""

    level: str
    title: str
    text: str

    @property
    def is_problem(self) -> bool:
        """Return whether somebody should do something."""
        return self.level in (BAD, WARN)


def findings(
    view: View,
    nodepools: Sequence[Mapping[str, Any]],
    archive: Archive,
    ledger: Ledger | None,
    notes: Sequence[str],
) -> list[Finding]:
    """Return all findings, the worst first."""
    results = [
        *_reading(view, notes),
        *_pods(view),
        *_nodes(view),
        *_pools(nodepools),
        *_decided(archive),
        *(_joins(ledger, view.at) if ledger else ()),
    ]
    return sorted(results, key=lambda finding: _ORDER.index(finding.level))


def _reading(view: View, notes: Sequence[str]) -> Iterator[Finding]:
    if view.is_current:
        yield Finding(GOOD, "Cluster", "Nodes, pods, NodeClaims and NodePools are up to date.")
    else:
        yield Finding(
            WARN, "Cluster", "Not everything has been listed yet, or a watch has ended and begins again."
        )
    yield from (Finding(WARN, "Not readable", note) for note in (*view.notes, *notes))
    if view.unpriced:
        yield Finding(NOTE, "Prices", f"{counted(view.unpriced, 'node')} without a known price count as $0.")


def _pods(view: View) -> Iterator[Finding]:
    late = [pod for pod in view.pending if pod.age_seconds > _LONG_PENDING_SECONDS]
    if late:
        oldest = duration(late[0].age_seconds)
        yield Finding(
            BAD,
            "Pods wait",
            f"{counted(len(late), 'pod')} pending for more than 5 minutes, the oldest for {oldest}.",
        )


def _nodes(view: View) -> Iterator[Finding]:
    for level, state, title in (
        (WARN, State.INTERRUPTED, "Interrupted by EC2"),
        (BAD, State.NOT_READY, "Not ready"),
    ):
        rows = [row for row in view.nodes if row.state is state]
        if rows:
            yield Finding(
                level, title, f"{counted(len(rows), 'node')}: {some(sorted(row.name for row in rows))}."
            )
    for row in [row for row in view.moving if row.state is State.DRAINING and _is_late(row, view.at)][:_MOST]:
        yield Finding(
            WARN, "Drains for long", f"{row.name}: {row.detail or 'its termination was requested'}."
        )
    slow = [
        row for row in view.moving if row.state in (State.LAUNCHING, State.JOINING) and _is_slow(row, view.at)
    ]
    if slow:
        named = some(sorted(row.name for row in slow))
        yield Finding(
            WARN, "Slow to join", f"{counted(len(slow), 'node')} for more than 10 minutes: {named}."
        )


def _is_late(row: NodeRow, now: datetime) -> bool:
    """Return whether a draining node is past its deadline, or has none and waits for something."""
    if row.deadline is not None:
        return now >= row.deadline
    return bool(row.detail) and (now - row.created_at).total_seconds() > _LATE_SECONDS


def _is_slow(row: NodeRow, now: datetime) -> bool:
    return (now - row.created_at).total_seconds() > _LONG_JOINING_SECONDS


def _pools(nodepools: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    standby = shown_standby(nodepools)
    if standby:
        yield Finding(WARN, "Stands by", f"nodesmith stands by: {standby}")
    for pool in nodepools:
        name = (pool.get("metadata") or {}).get("name")
        for condition in (pool.get("status") or {}).get("conditions") or ():
            kind, status = condition.get("type"), condition.get("status")
            reason = f"{condition.get('reason') or ''}: {condition.get('message') or ''}".strip(": ")
            if kind == "Ready" and status == "False":
                yield Finding(BAD, "NodePool not ready", f"{name}: {reason}")
            elif kind == BOUGHT_IN_VAIN and status == "True":
                yield Finding(
                    BAD, "Nodes bought in vain", f"NodePool {name}: {condition.get('message') or ''}"
                )
            elif kind == "NearLimit" and status == "True":
                yield Finding(WARN, "Near its limit", f"NodePool {name}: {condition.get('message') or ''}")


def _decided(archive: Archive) -> Iterator[Finding]:
    newest = next(
        (decision for decision in reversed(archive.decisions) if decision.concern == "provisioning"), None
    )
    if newest is None:
        return
    yield from (Finding(WARN, "Manifest", problem) for problem in newest.problems[:_MOST])
    for pool, reason in sorted(newest.obstacles.items())[:_MOST]:
        yield Finding(WARN, "NodePool buys nothing", f"{pool}: {reason}")


def _joins(ledger: Ledger, now: datetime) -> Iterator[Finding]:
    for name, health in sorted(ledger.health.items()):
        if health.is_unhealthy:
            reason = f"{health.reason}: {health.message}".strip(": ")
            yield Finding(
                BAD, "Nodes do not join", f"NodePool {name}, {counted(health.failures, 'node')}: {reason}"
            )
    held = sum(backoff.holds(now) for backoff in ledger.unavailable.values())
    if held:
        yield Finding(
            NOTE, "No capacity", f"{counted(held, 'pool')} of EC2 are not asked for now; see the risk map."
        )
