"""`nodesmith status`: a cluster's nodes and pods, its interruptions with the time left, and its disruptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import fsum
from typing import Any

from nodesmith.decisions.disruption.costs import HeldNode, held_for_buffers
from nodesmith.decisions.provisioning.buffers.resolutions import PROVISIONING, Resolution, resolutions
from nodesmith.decisions.readiness.launchconditions import BOUGHT_IN_VAIN, NEAR_LIMIT
from nodesmith.decisions.scheduling.existing import is_closed
from nodesmith.decisions.takeover import shown_standby
from nodesmith.decisions.termination.waiting import AWAITING_REPLACEMENT, why_not_gone
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.ec2.zonalshifts import shown_shifts
from nodesmith.model.karpenter.nodeclaims import COMING, NodeClaim, Phase
from nodesmith.model.karpenter.ownership import nodeclass_group, server_of
from nodesmith.model.ledger.ledger import shown_pause
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.limits.quotas import format_limits, parse_quotas
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.access.awsclients import aws_client
from nodesmith_cli.costs.commitments import commitments_of, commitments_report, lines_of, with_commitments
from nodesmith_cli.costs.limits import limit_lines, limit_reports, read_region
from nodesmith_cli.output.printing import print_report
from nodesmith_cli.views.explaining.commands import SAME, RecordSource
from nodesmith_cli.views.explaining.node import Subject, region_of, subjects
from nodesmith_cli.views.explaining.nodecommand import catalog_of, snapshot_of
from nodesmith_cli.views.explaining.stay import observed_inputs
from nodesmith_formats.decisions.records import Blobs
from nodesmith_formats.kubernetes.objects import condition_of, dig, name_of, namespace_of
from nodesmith_formats.prices import estimate_mark
from nodesmith_formats.wording import counted, moment, span

Report = Mapping[str, Any]
_INTERRUPTION_CAUSES, _REASONS = frozenset(InterruptionCause), frozenset(Reason)
_OLD_SECONDS = 60
"""The age from which the time of a snapshot is printed. A bucket or folder may have no newer snapshot."""
_CLOSED = "closed to new pods: its move is Proposed or Replacing"


def status(source: RecordSource, *, kubeconfig: str, output: str, now: datetime) -> int:
    """Print the status of the live cluster, or of the newest snapshot in a bucket or folder."""
    snapshot, blobs = snapshot_of(source, kubeconfig, now)
    held = _held(snapshot, blobs, now) if snapshot.capacitybuffers else ()
    report = {**report_of(snapshot, now, held), **_commitments(snapshot, blobs, now)}
    report |= _spending_limits(source, snapshot, now)
    print_report(report, lines(report), output, schema="status")
    return SAME


def _held(snapshot: Snapshot, blobs: Blobs | None, now: datetime) -> Sequence[HeldNode]:
    """Return the nodes that only CapacityBuffers keep; none if the region's catalogue is unknown."""
    managed = [subject for subject in subjects(snapshot, now) if subject.claim is not None]
    regions = sorted({region for subject in managed if (region := region_of(subject))})
    catalog = catalog_of(regions[0], blobs) if regions else None
    claims = [subject.claim for subject in managed if subject.claim is not None]
    return held_for_buffers(observed_inputs(claims, snapshot, catalog, now)) if catalog is not None else ()


def _commitments(snapshot: Snapshot, blobs: Blobs | None, now: datetime) -> dict[str, Any]:
    """Return the use of commitments by all clusters; empty if there are none or no bucket is named."""
    managed = [subject for subject in subjects(snapshot, now) if subject.claim is not None]
    regions = sorted({region for subject in managed if (region := region_of(subject))})
    catalog = catalog_of(regions[0], blobs) if regions and blobs is not None else None
    if catalog is None:
        return {}
    claims = [subject.claim for subject in managed if subject.claim is not None]
    inputs = with_commitments(
        observed_inputs(claims, snapshot, catalog, now), commitments_of(catalog.region, blobs)
    )
    report = commitments_report(inputs.ledger, catalog, now)
    return {"commitments": report} if report is not None else {}


def _spending_limits(source: RecordSource, snapshot: Snapshot, now: datetime) -> dict[str, Any]:
    """Return the region's SpendingLimits and their use; empty if no bucket is named."""
    if not source.bucket:
        return {}
    region, error = read_region(aws_client("dynamodb", source.region))
    if region is None:
        return {"spendingLimitsUnknown": error}
    return {"spendingLimits": limit_reports(region, now, snapshot.nodepools)} if region.limits else {}


def report_of(snapshot: Snapshot, now: datetime, held: Sequence[HeldNode] = ()) -> dict[str, Any]:
    """Return the status as JSON data. Interruptions are sorted by deadline, the nearest first.

    `held` are the nodes that only CapacityBuffers keep.
    """
    nodes = subjects(snapshot, now)
    claims = [subject.claim for subject in nodes if subject.claim is not None]
    interrupted = [
        subject for subject in nodes if subject.claim is not None and _is_interrupted(subject.claim)
    ]
    interruptions = [
        _interruption(subject, subject.claim, claims, snapshot, now)
        for subject in interrupted
        if subject.claim
    ]
    waiting = [pod for pod in snapshot.pods if not pod.node and not pod.deleting]
    return {
        "nodes": len(snapshot.nodes),
        "notReady": sum(not node.is_ready for node in snapshot.nodes),
        "coming": sum(claim.phase in COMING and not claim.is_warm for claim in claims),
        "ending": sum(subject.is_ending for subject in nodes),
        "pods": len(snapshot.pods),
        "pending": len(waiting),
        "standby": shown_standby(snapshot.nodepools) or None,
        "paused": str(pause) if (pause := shown_pause(snapshot.nodepools)) else None,
        "limits": list(_limits(snapshot)),
        "zonalShifts": [str(shift) for shift in shown_shifts(snapshot.nodepools, now)],
        "nodeOverlays": len(snapshot.nodeoverlays),
        "leftOut": dict(_left_out(snapshot.nodeoverlays)),
        "foreignNodePools": {name_of(p): server_of(nodeclass_group(p)) for p in snapshot.foreign_nodepools},
        "capacityBuffers": _buffers(snapshot, now),
        "warmCapacity": _warm(claims),
        "heldForBuffers": sorted(node.claim.node_name or node.claim.name for node in held),
        "heldHourly": round(fsum(node.price_hourly_usd for node in held), 6),
        "heldEstimated": any(node.estimated for node in held),
        "interruptions": sorted(interruptions, key=lambda row: (row["deadline"] or "~", row["name"])),
        "disruptions": [_disruption(subject, snapshot, now) for subject in nodes if _is_disrupted(subject)],
        "snapshotAt": snapshot.taken_at.isoformat(),
        "snapshotAgeSeconds": max(0, round((now - snapshot.taken_at).total_seconds())),
    }


def _buffers(snapshot: Snapshot, now: datetime) -> list[dict[str, Any]]:
    manifests = {
        f"{namespace_of(manifest)}/{name_of(manifest)}": manifest for manifest in snapshot.capacitybuffers
    }
    return [_buffer(found, manifests.get(found.key, {})) for found in resolutions(snapshot, now)]


def _buffer(resolution: Resolution, manifest: Mapping[str, Any]) -> dict[str, Any]:
    state = resolution.message or (
        _shown_room(resolution, manifest) or "ready for provisioning"
        if resolution.is_ready
        else resolution.reason
    )
    sizing = {"sizedBy": resolution.sizing.message} if resolution.sizing is not None else {}
    return {
        "name": resolution.key,
        "pods": resolution.count,
        "ready": resolution.is_ready,
        "message": state,
        **sizing,
    }


def _shown_room(resolution: Resolution, manifest: Mapping[str, Any]) -> str:
    """Return what a buffer's status says about its room; empty if it does not fit the buffer as it is now."""
    shown = condition_of(manifest, PROVISIONING) or {}
    is_current = shown.get("observedGeneration", 0) == resolution.generation
    is_for_all = dig(manifest, "status", "replicas") == resolution.count
    return str(shown.get("message", "")) if is_current and is_for_all else ""


def _warm(claims: Sequence[NodeClaim]) -> dict[str, Any]:
    """Return how many instances are stopped or being prepared, and what the stopped ones cost an hour."""
    warm = [claim for claim in claims if claim.is_warm]
    stopped = [claim for claim in warm if claim.phase is Phase.STOPPED]
    hourly = round(fsum(claim.stopped_price_hourly_usd for claim in stopped), 6)
    return {"stopped": len(stopped), "preparing": len(warm) - len(stopped), "stoppedHourly": hourly}


def _limits(snapshot: Snapshot) -> Iterator[str]:
    """Yield the use of CapacityQuotas, as their status shows it, and the limits that affect NodePools."""
    for manifest, parsed in zip(snapshot.quotas, parse_quotas(snapshot.quotas), strict=True):
        quota, used = parsed.value, ((manifest.get("status") or {}).get("used") or {}).get("resources") or {}
        if quota is not None and quota.fault:
            yield f"{quota.owner} cannot be read: {quota.fault}: {quota.remedy}"
        elif quota is not None:
            limits = format_limits(quota.limits)
            amounts = ", ".join(f"{used.get(n, 'unknown')} of {limits[n]} {n}" for n in sorted(limits))
            yield f"{quota.owner}: {amounts} used"
    for pool in snapshot.nodepools:
        for condition in (pool.get("status") or {}).get("conditions") or ():
            is_shown = condition.get("type") in (NEAR_LIMIT, BOUGHT_IN_VAIN)
            if is_shown and condition.get("status") == "True":
                yield f"NodePool {name_of(pool)}: {condition.get('message')}"


def _left_out(overlays: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the NodeOverlays whose status shows that they do not apply, each with the reason."""
    for overlay in overlays:
        validation = condition_of(overlay, "ValidationSucceeded") or {}
        if validation.get("status") == "False":
            yield name_of(overlay), f"{validation.get('reason')}: {validation.get('message')}"


def _is_interrupted(claim: NodeClaim) -> bool:
    return claim.is_ending and claim.cause in _INTERRUPTION_CAUSES


def _is_disrupted(subject: Subject) -> bool:
    """Return whether a node is part of a move: closed to new pods, or terminating for a disruption reason."""
    claim, node = subject.claim, subject.node
    if claim is not None and claim.is_ending:
        return claim.cause in _REASONS
    return node is not None and not node.deleting and is_closed(node)


def _disruption(subject: Subject, snapshot: Snapshot, now: datetime) -> dict[str, Any]:
    claim = subject.claim
    ending = claim if claim is not None and claim.is_ending else None
    waiting = why_not_gone(ending, snapshot, now) if ending else None
    return {
        "name": subject.name,
        "nodeClaim": claim.name if claim else None,
        "reason": ending.cause if ending else None,
        "phase": ending.phase.value if ending else None,
        "waitsFor": waiting.message if waiting else None,
    }


def _interruption(
    subject: Subject, claim: NodeClaim, claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime
) -> dict[str, Any]:
    seconds_left = subject.deadline and max(0, round((subject.deadline - now).total_seconds()))
    return {
        "name": subject.name,
        "nodeClaim": claim.name,
        "instanceId": claim.instance_id or None,
        "cause": claim.cause,
        "phase": claim.phase.value,
        "deadline": subject.deadline.isoformat() if subject.deadline else None,
        "secondsLeft": seconds_left,
        "waitsFor": _waits_for(claim, claims, snapshot, now),
    }


def _waits_for(
    claim: NodeClaim, claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime
) -> str | None:
    """Return what an interrupted node waits for. For a replacement, include how far the new nodes have come."""
    if claim.phase is Phase.TERMINATING and claim.reason == AWAITING_REPLACEMENT:
        since = claim.terminating_at or claim.phase_since
        bought = [c for c in claims if c.phase in COMING and c.created_at >= since.replace(microsecond=0)]
        coming = ", ".join(f"{c.name} has been {c.phase} for {_for(c, now)}" for c in bought)
        return claim.message + (f": {coming}" if coming else "")
    waiting = why_not_gone(claim, snapshot, now)
    return waiting.message if waiting else None


def _for(claim: NodeClaim, now: datetime) -> str:
    return span(max(0, round((now - claim.phase_since).total_seconds())))


def lines(report: Report) -> Iterator[str]:
    """Yield the human-readable lines."""
    if report["snapshotAgeSeconds"] >= _OLD_SECONDS:
        yield f"as of {moment(report['snapshotAt'])}, the time of the newest snapshot"
    counts = [f"{report[field]} {word}" for field, word in _COUNTS if report[field]]
    yield _count(report["nodes"], "node") + (f" ({', '.join(counts)})" if counts else "")
    yield _count(report["pods"], "pod") + (f" ({report['pending']} pending)" if report["pending"] else "")
    for name, server in report["foreignNodePools"].items():
        yield f"NodePool {name} is served by {server}: nodesmith leaves it and its nodes alone"
    if report["nodeOverlays"]:
        applied = report["nodeOverlays"] - len(report["leftOut"])
        yield f"{_count(report['nodeOverlays'], 'NodeOverlay')} ({applied} applied)"
    for name, reason in report["leftOut"].items():
        yield f"  NodeOverlay {name} is left out: {reason}"
    yield from report["zonalShifts"]
    yield from report["limits"]
    yield from limit_lines(report.get("spendingLimits", ()))
    if "spendingLimitsUnknown" in report:
        yield f"SpendingLimits are not known: {report['spendingLimitsUnknown']}"
    if report["standby"]:
        yield f"nodesmith stands by: {report['standby']}"
    if "commitments" in report:
        yield from lines_of(report["commitments"])
    if report["paused"]:
        yield report["paused"]
    yield from _rooms(report)
    yield from _disrupted(report["disruptions"])
    interruptions = report["interruptions"]
    yield f"{_count(len(interruptions), 'interruption')} in progress"
    width = max((len(row["name"]) for row in interruptions), default=0)
    for row in interruptions:
        time_left = "no deadline" if row["secondsLeft"] is None else f"{row['secondsLeft']} s left"
        reason = f"waiting: {row['waitsFor']}" if row["waitsFor"] else "nothing blocks it"
        yield f"  {row['name']:<{width}}  {row['cause']:<20}  {time_left:>11}  {row['phase']}, {reason}"


def _rooms(report: Report) -> Iterator[str]:
    buffers = report["capacityBuffers"]
    if buffers:
        nodes = _count(len(report["heldForBuffers"]), "node")
        mark = estimate_mark(report["heldEstimated"])
        price = f"{nodes} held for them alone at {mark}${report['heldHourly']:.4f}/hour"
        yield f"{_count(len(buffers), 'CapacityBuffer')}, {price}"
    warm = report["warmCapacity"]
    if warm["stopped"] or warm["preparing"]:
        stopped = f"{_count(warm['stopped'], 'stopped instance')} at ${warm['stoppedHourly']:.4f}/hour"
        yield f"warm capacity: {stopped}, {warm['preparing']} being prepared"
    for buffer in buffers:
        sized = f"; {buffer['sizedBy']}" if "sizedBy" in buffer else ""
        yield f"  {buffer['name']}  room for {_count(buffer['pods'], 'pod')}: {buffer['message']}{sized}"


def _disrupted(nodes: Sequence[Report]) -> Iterator[str]:
    if nodes:
        yield f"{_count(len(nodes), 'node')} under disruption"
    for node in nodes:
        wait = f", waiting: {node['waitsFor']}" if node["waitsFor"] else ""
        state = f"{node['reason']}: {node['phase']}{wait}" if node["phase"] else _CLOSED
        yield f"  {node['name']}  {state}"


def _count(count: int, noun: str) -> str:
    return counted(count, noun) if count else f"no {noun}s"


_COUNTS = (("notReady", "not Ready"), ("coming", "starting"), ("ending", "terminating"))
