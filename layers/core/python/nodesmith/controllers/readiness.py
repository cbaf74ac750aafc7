"""The controller of readiness: describe the cluster, resolve EC2NodeClasses, save the results, write statuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from nodesmith.controllers.nodeclaims.objects import keep_contents, renew_hashes, state_hashes
from nodesmith.controllers.observation import newest_snapshot
from nodesmith.controllers.runs import ClusterPorts
from nodesmith.decisions.budgets import paused
from nodesmith.decisions.readiness.launchconditions import (
    NEAR_LIMIT,
    announcements,
    breaker_condition,
    breaker_events,
    launch_fault,
    limit_condition,
    limit_events,
    next_resolution,
    requirements_by_nodeclass,
    shift_condition,
    shown,
    to_resolve,
    with_past,
)
from nodesmith.decisions.readiness.readiness import (
    QUOTA_NEAR_LIMIT,
    StatusUpdate,
    nodeclass_update,
    nodepool_update,
    of_provisioner,
    quota_update,
    ready_condition,
)
from nodesmith.decisions.scheduling.offerings.options import Usage
from nodesmith.decisions.scheduling.offerings.quotas import on_nodepool, usages
from nodesmith.decisions.takeover import Standby, held_nodeclasses, next_hold, standby, standby_conditions
from nodesmith.errors import Failures, Rejected, Transient
from nodesmith.model.apimachinery.problems import ObjectEvent, Parsed
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.apimachinery.times import first, first_after
from nodesmith.model.ec2.zonalshifts import ZonalShift, next_end, reconciled, shifts_to_keep
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.karpenter.nodepools import PROVISIONER, NodePool, parse_nodepools, parsed_nodepools
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.model.ledger.learned import RegistrationHealth, basis_of, current_health
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.limits.quotas import CAPACITY_QUOTA, parse_quotas
from nodesmith.model.nodeclasses.nodeclasses import NODE_TEMPLATE, EC2NodeClass, parse_nodeclasses
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus, StatusCondition
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Cluster

Readable = TypeVar("Readable")
ParsedClasses = list[tuple[Mapping[str, Any], Parsed[EC2NodeClass]]]
ParsedPools = list[tuple[Mapping[str, Any], Parsed[NodePool]]]
SHIFTS_AGAIN = timedelta(minutes=1)
_OLD_KINDS = {PROVISIONER: "Provisioner", NODE_TEMPLATE: "AWSNodeTemplate"}


@dataclass(frozen=True, slots=True)
class Readiness(ClusterPorts):
    """What a run needs."""


@dataclass(frozen=True, slots=True)
class ReadinessReport:
    """The result of a run.

    `resolved` are EC2NodeClasses that were resolved again with a new result, `written` objects (`Kind/name`) whose
    status or annotations were written, and `unhealthy` NodePools that are unhealthy. `due` is when to look again even
    if nothing changes, None for never. `tripped` is the number of breakers that have tripped.
    """

    resolved: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    unhealthy: tuple[str, ...] = ()
    due: datetime | None = None
    tripped: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The values for metrics."""
        return {
            "Resolved": len(self.resolved),
            "StatusesWritten": len(self.written),
            "NodePoolsUnhealthy": len(self.unhealthy),
            "NodesBoughtInVain": self.tripped,
        }


def make_ready(run: Readiness) -> ReadinessReport:
    """Update the ledger and the objects' conditions from the objects on the API server.

    Users' NodeClaims, and Nodes without a claim, come from the snapshot. Raises Transient if a call failed, after
    everything else is done; what could be resolved is kept.
    """
    # Other clusters wait for this, so it does not wait for the API server.
    run.store.save_shares()
    snapshot = newest_snapshot(run.blobs, run.cluster_name)
    if snapshot is None:
        return ReadinessReport()
    objects = run.cluster.nodepools_and_nodeclasses()
    nodepools = tuple(manifest for manifest in objects.nodepools if not is_foreign(manifest))
    nodeclasses = tuple(objects.nodeclasses)
    ledger, now = run.store.load(), run.clock()
    parsed = [*zip(nodeclasses, parse_nodeclasses(nodeclasses), strict=True)]
    pools = [*zip(nodepools, parse_nodepools(nodepools), strict=True)]
    snapshot = replace(snapshot, nodepools=nodepools, nodeclasses=nodeclasses)
    if (reason := standby(ledger, snapshot, now)) is not None:
        return _show_standby(run, pools, parsed, snapshot, ledger, reason)
    with Failures() as failures:
        shifts, is_shifting = _shifts(run, ledger, now, failures)
        requirements = requirements_by_nodeclass(_readable(pools))
        cluster, statuses, changed = _resolve(run, parsed, requirements, ledger, now, failures)
        read = keep_contents(run, _readable(pools), snapshot, ledger, failures)
        health = _health(run, pools, statuses, ledger)
        written: list[str] = []
        ledger = replace(ledger, zonal_shifts=shifts)
        quotas, near = _quotas(snapshot, ledger, now)
        for update in [*_updates(snapshot, pools, parsed, statuses, health, ledger, now), *quotas]:
            with failures.of(f"{update.kind} {update.name}"):
                _write(run.cluster, update)
                written.append(f"{update.kind}/{update.name}")
        if cluster is not None:
            written += _hashed(run, pools, parsed, ledger, cluster, failures)
        _announce(run, shifts, pools, statuses, failures)
        if near:
            with failures.of("Events about limits"):
                run.cluster.publish(near)
        released = _released(run, snapshot, ledger, now, failures)
        # Pods may get a node now, nodes may drift, a static NodePool may have surplus nodes.
        if changed or read or is_shifting:
            hint = Hint(run.cluster_name, "EC2NodeClasses resolved, NodePools read, or a zonal shift")
            for concern in (Concern.PROVISIONING, Concern.DISRUPTION, Concern.LIFECYCLE):
                run.hints.send(concern, hint)
    unhealthy = tuple(sorted(name for name, record in health.items() if record.is_unhealthy))
    breakers = (breaker for record in health.values() for breaker in (record.launches, record.moves))
    tripped = [breaker for breaker in breakers if breaker.is_tripped]
    finalized = set(held_nodeclasses(snapshot, ledger.claims, now)) - set(released)
    moments = (
        next_resolution(_readable(parsed), statuses),
        next_hold(snapshot, ledger.claims, now),
        # A zonal shift may be ended or extended at any time, so shifts are read again before their end.
        min(end, now + SHIFTS_AGAIN) if (end := next_end(shifts, now)) is not None else None,
        first_after(
            now, (ledger.paused.until if ledger.paused else None, *(breaker.until for breaker in tripped))
        ),
    )
    due = now if finalized else first(moments)
    return ReadinessReport(tuple(changed), tuple(written), unhealthy, due, len(tripped))


def _show_standby(
    run: Readiness,
    pools: ParsedPools,
    parsed: ParsedClasses,
    snapshot: Snapshot,
    ledger: Ledger,
    wait: Standby,
) -> ReadinessReport:
    """Write a condition and an Event on each NodePool, which say that Karpenter serves it, and nothing else on objects.

    The ledger is kept up to date, so that nodesmith can serve the cluster at once.
    """
    written, now = list[str](), run.clock()
    with Failures() as failures:
        requirements = requirements_by_nodeclass(_readable(pools))
        _, statuses, changed = _resolve(run, parsed, requirements, ledger, now, failures)
        keep_contents(run, _readable(pools), snapshot, ledger, failures)
        for name, condition in standby_conditions((manifest for manifest, _ in pools), wait):
            with failures.of(f"NodePool {name}"):
                run.cluster.merge_status("NodePool", name, {"conditions": [condition]})
                run.cluster.publish([ObjectEvent("NodePool", name, wait.reason, wait.message, warning=True)])
                written.append(f"NodePool/{name}")
    due = first((next_resolution(_readable(parsed), statuses), wait.until))
    return ReadinessReport(tuple(changed), tuple(written), due=due)


def _shifts(
    run: Readiness, ledger: Ledger, now: datetime, failures: Failures
) -> tuple[tuple[ZonalShift, ...], bool]:
    """Read the zonal shifts and keep them; return them, and whether one has begun or ended."""
    before, read = ledger.zonal_shifts, run.cloud.zonal_shifts(now)
    shifts = reconciled(before, read, now)
    if shifts != before:
        with failures.of("zonal shifts"):
            run.store.save_zonal_shifts(shifts)
    return shifts, any(not shift.announced for shift in shifts)


def _announce(
    run: Readiness,
    shifts: tuple[ZonalShift, ...],
    pools: ParsedPools,
    statuses: Mapping[str, NodeClassStatus],
    failures: Failures,
) -> None:
    """Publish Events about shifts that have begun or ended. After a crash, they are published again."""
    if all(shift.announced for shift in shifts):
        return
    with failures.of("Events about zonal shifts"):
        run.cluster.publish(announcements(shifts, _readable(pools), statuses))
        run.store.save_zonal_shifts(shifts_to_keep(shifts))


def _released(
    run: Readiness, snapshot: Snapshot, ledger: Ledger, now: datetime, failures: Failures
) -> list[str]:
    """Remove the finalizers that Karpenter left on deleted EC2NodeClasses, unless it still runs; return the names."""
    released: list[str] = []
    nodeclasses = held_nodeclasses(snapshot, ledger.claims, now)
    if not nodeclasses:
        return released
    with failures.of("EC2NodeClasses held by Karpenter's finalizer"):
        if run.cluster.karpenter_runs():
            return released
        for name in nodeclasses:
            run.cluster.release_nodeclass(name)
            released.append(name)
    return released


def _health(
    run: Readiness, pools: ParsedPools, statuses: Mapping[str, NodeClassStatus], ledger: Ledger
) -> dict[str, RegistrationHealth]:
    """Return the registration health of NodePools as they are now; forget NodePools that are gone."""
    for name in sorted(ledger.health.keys() - {str(m["metadata"]["name"]) for m, _ in pools}):
        run.store.forget_health(name)
    bases = {pool.name: basis_of(pool, statuses.get(pool.nodeclass.name)) for pool in _readable(pools)}
    current = {name: current_health(ledger.health.get(name), basis) for name, basis in bases.items()}
    return {name: health for name, health in current.items() if health is not None}


def _resolve(
    run: Readiness,
    parsed: ParsedClasses,
    requirements: Mapping[str, Sequence[Requirements]],
    ledger: Ledger,
    now: datetime,
    failures: Failures,
) -> tuple[ClusterInfo | None, dict[str, NodeClassStatus], list[str]]:
    """Resolve what is due; return the cluster, the newest status of each EC2NodeClass, and the names that changed."""
    nodeclasses = list(_readable(parsed))
    names = {n.name for n in nodeclasses}
    statuses = {name: status for name, status in ledger.nodeclasses.items() if name in names}
    changed: list[str] = []
    for name in sorted(set(ledger.nodeclasses) - names):
        run.store.forget_nodeclass(name)
    due = to_resolve(nodeclasses, ledger, now)
    if not due and ledger.cluster is not None:
        return ledger.cluster, statuses, changed
    try:
        cluster = run.cloud.cluster_info()
    except (Transient, Rejected) as error:
        failures.add(error, f"cluster {run.cluster_name}")
        return ledger.cluster, statuses, changed
    if cluster != ledger.cluster:
        run.store.save_cluster(cluster)
        changed.append(f"cluster {cluster.name}")
    for nodeclass in due:
        try:
            status = run.cloud.resolve(nodeclass, cluster, now, requirements.get(nodeclass.name, ()))
        except Transient as error:
            failures.add(error, f"EC2NodeClass {nodeclass.name}")
            continue
        status = with_past(status, nodeclass, cluster, ledger)
        run.store.save_nodeclass(status)
        if _allows_more(ledger.nodeclasses.get(nodeclass.name), status):
            changed.append(nodeclass.name)
        statuses[nodeclass.name] = status
    return cluster, statuses, changed


def _allows_more(before: NodeClassStatus | None, after: NodeClassStatus) -> bool:
    """Return whether pods that had to wait may get a node now."""
    return after.is_ready and (before is None or not before.is_ready or before.content != after.content)


def _updates(
    snapshot: Snapshot,
    pools: ParsedPools,
    parsed: ParsedClasses,
    statuses: Mapping[str, NodeClassStatus],
    health: Mapping[str, RegistrationHealth],
    ledger: Ledger,
    now: datetime,
) -> list[StatusUpdate]:
    updates: list[StatusUpdate] = []
    states = {}
    usage_by_owner = _usages(snapshot, ledger, now)
    for manifest, result in parsed:
        name = str((manifest.get("metadata") or {}).get("name"))
        fault = launch_fault(name, _readable(pools), health)
        update = nodeclass_update(manifest, result, statuses.get(name), now, shown(fault, manifest))
        states[name] = ready_condition(update, manifest)
        if update is not None and (kind := _shown_by(manifest, "EC2NodeClass", NODE_TEMPLATE)):
            updates.append(replace(update, kind=kind))
    pause = paused(ledger, snapshot, now)
    for manifest, pool in pools:
        record = health.get(str(manifest["metadata"]["name"]))
        shifted: list[StatusCondition] = []
        if (one_pool := pool.value) is not None:
            status = statuses.get(one_pool.nodeclass.name)
            shifted = shift_condition(one_pool, status, ledger.zonal_shifts, manifest, now)
            shifted += _near_limit(one_pool, manifest, usage_by_owner)
            shifted += breaker_condition(health.get(one_pool.name), manifest, now)
        pool_update = nodepool_update(
            manifest, pool, states, record, snapshot, now, pause, ledger.claims, shifted
        )
        if pool_update is not None and (kind := _shown_by(manifest, "NodePool", PROVISIONER)):
            is_old = kind == "Provisioner"
            updates.append(of_provisioner(pool_update, manifest, now) if is_old else pool_update)
    return updates


def _usages(snapshot: Snapshot, ledger: Ledger, now: datetime) -> dict[str, Usage]:
    """Return what counts against all quotas but those of the registration, by owner."""
    return {usage.quota.owner: usage for usage in usages(snapshot, ledger, NodeSettings(), now)}


def _near_limit(
    pool: NodePool, manifest: Mapping[str, Any], usage_by_owner: Mapping[str, Usage]
) -> list[StatusCondition]:
    mine = on_nodepool(pool, usage_by_owner.values())
    return limit_condition(mine, manifest, NEAR_LIMIT, f"NodePool {pool.name}")


def _quotas(
    snapshot: Snapshot, ledger: Ledger, now: datetime
) -> tuple[list[StatusUpdate], list[ObjectEvent]]:
    """Return the statuses of CapacityQuotas to write, and the Events about all limits that are nearly used."""
    usage_by_owner = _usages(snapshot, ledger, now)
    updates, events = list[StatusUpdate](), list[ObjectEvent]()
    for manifest, parsed in zip(snapshot.quotas, parse_quotas(snapshot.quotas), strict=True):
        name = str(manifest["metadata"]["name"])
        owner = f"{CAPACITY_QUOTA.name} {name}"
        usage = usage_by_owner.get(owner)
        near = limit_condition([usage] if usage is not None else [], manifest, QUOTA_NEAR_LIMIT, owner)
        update = quota_update(manifest, parsed, usage, near, now)
        updates += [update] if update is not None else []
        events += limit_events(CAPACITY_QUOTA.name, name, manifest, near)
    pools = parsed_nodepools(snapshot.nodepools)
    for manifest in filter(_is_of_the_cluster, snapshot.nodepools):
        name = str(manifest["metadata"]["name"])
        pool = pools.get(name)
        near = _near_limit(pool, manifest, usage_by_owner) if pool is not None else []
        breakers = breaker_condition(ledger.health.get(name), manifest, now)
        events += [*limit_events("NodePool", name, manifest, near), *breaker_events(name, manifest, breakers)]
    return updates, events


def _hashed(
    run: Readiness,
    pools: ParsedPools,
    parsed: ParsedClasses,
    ledger: Ledger,
    cluster: ClusterInfo,
    failures: Failures,
) -> tuple[str, ...]:
    """Write hashes onto objects that exist in the cluster, renew those of claims; return each `Kind/name` written."""
    read: list[tuple[Mapping[str, Any], NodePool | EC2NodeClass | None]]
    read = [*((m, result.value) for m, result in pools), *((m, result.value) for m, result in parsed)]
    stating = [pair for pair in read if _is_of_the_cluster(pair[0])]
    stated = state_hashes(stating, cluster.ca_bundle, run.cluster, failures)
    by_name = {pool.name: pool for pool in _readable(pools)}
    nodeclasses = {nodeclass.name: nodeclass for nodeclass in _readable(parsed)}
    renew_hashes(ledger.claims, by_name, nodeclasses, cluster.ca_bundle, run.store, run.cluster, failures)
    return stated


def _readable(parsed: Iterable[tuple[Mapping[str, Any], Parsed[Readable]]]) -> Iterator[Readable]:
    """Return the objects that are valid."""
    return (result.value for _, result in parsed if result.value is not None)


def _is_of_the_cluster(manifest: Mapping[str, Any]) -> bool:
    """Return whether the object exists in the cluster. One converted from an object of an old kind has no uid."""
    return bool((manifest.get("metadata") or {}).get("uid"))


def _shown_by(manifest: Mapping[str, Any], kind: str, origin: str) -> str:
    """Return the kind of the object that shows a status: the old kind if `manifest` was converted from it; "" for none.

    `origin` is the annotation that names the old object. The AWS part of a Provisioner has no object of its own.
    """
    annotations = (manifest.get("metadata") or {}).get("annotations") or {}
    old = _OLD_KINDS[origin] if annotations.get(origin) else ""
    return kind if _is_of_the_cluster(manifest) else old


def _write(cluster: Cluster, update: StatusUpdate) -> None:
    cluster.merge_status(update.kind, update.name, update.status)
    if update.warnings:
        cluster.publish(update.events)
