"""The controller of repair: check nodes' conditions, and end unhealthy nodes or report why they stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.controllers.observation import newest_snapshot, shows_now
from nodesmith.controllers.runs import EventDeduplication, Report, publish_new
from nodesmith.decisions.disruption.repair import Finding, findings, next_change
from nodesmith.decisions.takeover import standby
from nodesmith.effects import begin_end
from nodesmith.errors import Conflict, Failures
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.apimachinery.times import first
from nodesmith.model.commands import End
from nodesmith.model.functions import Concern, Heartbeat, Hint
from nodesmith.model.karpenter.nodepools import NODE_REPAIR, parsed_nodepools
from nodesmith.model.metrics.metrics import Metrics, snake_case
from nodesmith.ports import Blobs, Cluster, Hints, Store

AGAIN_AFTER = timedelta(minutes=15)
"""How long the same Event on the same Node is not repeated, as in Karpenter."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What a run needs."""

    cluster_name: str
    store: Store
    cluster: Cluster
    blobs: Blobs
    hints: Hints
    clock: Callable[[], datetime]
    last_heartbeat: Callable[[], Heartbeat | None]
    """returns the forwarder's newest heartbeat, which confirms a snapshot that is old because nothing has changed"""
    stale_after: timedelta
    published: EventDeduplication = field(default_factory=dict)
    """kept from run to run"""
    metrics: Metrics = field(default_factory=Metrics)


def repair_nodes(run: Repair) -> Report:
    """Begin to end unhealthy nodes; report how many were found, and what was done about them.

    Raises Transient if a call failed, after all others are done.
    """
    snapshot = newest_snapshot(run.blobs, run.cluster_name)
    if snapshot is None:
        return Report()
    ledger, now = run.store.load(), run.clock()
    if (held := standby(ledger, snapshot, now)) is not None:
        return Report(due=held.until)
    pools = parsed_nodepools(snapshot.nodepools)
    results = findings(ledger.claims, snapshot, pools, now, ledger.shifted(now))
    if results and not shows_now(snapshot, run.last_heartbeat, run.stale_after, now):
        # The nodes may have recovered since: their time runs on although nobody can see them.
        return Report(Counter(SnapshotsStale=1), due=now)
    counts: Counter[str] = Counter({"NodesUnhealthy": len(results)})
    with Failures() as failures:
        for finding in results:
            with failures.of(f"Node {finding.node.name}"):
                _treat(run, finding, now, counts)
        if counts["NodesRepaired"]:
            for concern in (Concern.TERMINATION, Concern.PROVISIONING):
                run.hints.send(concern, Hint(run.cluster_name, "unhealthy nodes end"))
    published_until = (
        run.published.get(_event(finding), now) for finding in results if finding.ending is None
    )
    return Report(counts, due=first((next_change(ledger.claims, snapshot, pools, now), *published_until)))


def _treat(run: Repair, finding: Finding, now: datetime, counts: Counter[str]) -> None:
    try:
        if finding.ending is not None:
            begin_end(End(finding.ending), run.store, run.cluster)
            counts["NodesRepaired"] += 1
            _count(run.metrics, finding)
        counts["RepairsBlocked"] += bool(finding.held_by)
        publish_new(run.cluster, [_event(finding)], run.published, now, AGAIN_AFTER)
    except Conflict:
        counts["Conflict"] += 1


def _count(metrics: Metrics, finding: Finding) -> None:
    claim = finding.claim
    metrics.count(
        "nodeclaims_unhealthy_disrupted_total",
        condition=snake_case(finding.condition),
        nodepool=claim.nodepool,
        capacity_type=claim.capacity_type,
        image_id=claim.image_id,
    )


def _event(finding: Finding) -> ObjectEvent:
    name, reason = finding.node.name, finding.message
    if finding.ending is not None:
        return ObjectEvent("Node", name, "NodeRepair", f"the node is replaced: {reason}", warning=True)
    if finding.held_by:
        message = f"the node would be replaced, but {finding.held_by}: {reason}"
        return ObjectEvent("Node", name, "NodeRepairBlocked", message, warning=True)
    message = f"with {NODE_REPAIR}: On its NodePool would replace the node: {reason}"
    return ObjectEvent("Node", name, "NodeUnhealthy", message, warning=True)
