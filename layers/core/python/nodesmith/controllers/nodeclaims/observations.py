"""What lifecycle notes: capacity, health and lasting purchases before claims move on, and sizes of CapacityBuffers."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.lifecycle import uses
from nodesmith.decisions.provisioning.attempts import stayed
from nodesmith.decisions.provisioning.buffers.resolutions import due_statuses, next_window, resolutions
from nodesmith.decisions.provisioning.buffers.room import with_stand_ins
from nodesmith.decisions.provisioning.growth import (
    History,
    Sizing,
    history_item,
    next_size_at,
    noted,
    read_history,
    sizing,
)
from nodesmith.decisions.provisioning.plan import Room
from nodesmith.decisions.readiness.readiness import registration_condition
from nodesmith.decisions.scheduling.workloads import Workloads
from nodesmith.errors import Conflict, Failures, Transient
from nodesmith.keys import growth_key, unplaced_key
from nodesmith.model.apimachinery.times import first
from nodesmith.model.commands import Command, Forget, GiveUp, Initialize, Register
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.karpenter.capacitybuffers import CAPACITY_BUFFER, CapacityBuffer, parse_buffers
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.breakers import CLOSED
from nodesmith.model.ledger.learned import Boot, Offered, RegistrationHealth, boot_of, current_health, learned
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Cluster, Hints, Store


def note_stayed(
    store: Store,
    ledger: Ledger,
    snapshot: Snapshot,
    moved: Collection[str],
    now: datetime,
    counts: Counter[str],
    failures: Failures,
) -> None:
    """Record on claims whether they are used and whose pods have stayed, except on claims that this run has `moved`.

    Errors go to `failures`.
    """
    claims = {claim.name: claim for claim in ledger.claims if claim.name not in moved}
    names = Workloads()
    extended = with_stand_ins(snapshot, resolutions(snapshot, now), ledger, names)
    served, uses_by_claim = stayed(ledger, extended, now, names), uses(ledger, extended, now, names)
    for name in sorted(claims.keys() & (served.keys() | uses_by_claim.keys())):
        claim = claims[name]
        with failures.of(f"NodeClaim {name}"):
            try:
                store.save(
                    replace(
                        claim, served=served.get(name, claim.served), use=uses_by_claim.get(name, claim.use)
                    )
                )
            except Conflict:
                continue  # it has moved on meanwhile; the next run sees the same pods
            counts["Served"] += 1


def learn(
    store: Store,
    commands: Iterable[Command],
    ledger: Ledger,
    snapshot: Snapshot,
    failures: Failures,
) -> None:
    """Compare what new nodes show with what is known, and keep it where a node offers less.

    Nothing waits for this: the next such node repeats an observation that could not be stored.
    """
    ready = [command.claim for command in commands if isinstance(command, Initialize)]
    observed = [
        replace(claim, capacity=node.capacity) for claim in ready if (node := snapshot.node_of(claim))
    ]
    if not observed:
        return
    try:
        offered = _offered(observed, ledger, store)
        if offered:
            store.learn(offered)
    except Transient as error:
        failures.add(error)


def _offered(observed: Iterable[NodeClaim], ledger: Ledger, store: Store) -> dict[Boot, Offered]:
    expected = {claim.name: claim.capacity.memory_bytes for claim in ledger.claims}
    ca_bundle = ledger.cluster.ca_bundle if ledger.cluster else ""
    earlier = store.learned()
    by_boot: dict[Boot, Offered] = {}
    for claim in observed:
        boot = boot_of(claim)
        if boot is None:
            continue
        offered = learned(by_boot.get(boot) or earlier.get(boot), claim, expected[claim.name], ca_bundle)
        if offered is not None:
            by_boot[boot] = offered
    return by_boot


def keep_health(
    store: Store,
    health: Mapping[str, RegistrationHealth],
    commands: list[Command],
    counts: Counter[str],
    failures: Failures,
) -> list[Command]:
    """Save `health`; return `commands` without those that must wait because their NodePool's health was not saved."""
    unkept: set[str] = set()
    for nodepool in sorted(health):
        try:
            store.save_health(nodepool, health[nodepool])
        except Conflict:
            unkept.add(nodepool)
            counts["Conflict"] += 1
        except Transient as error:
            unkept.add(nodepool)
            failures.add(error, f"NodePool {nodepool}")
    return [
        command
        for command in commands
        if command.claim.nodepool not in unkept or not isinstance(command, Register | GiveUp | Forget)
    ]


def wake_after_health(
    hints: Hints,
    cluster: str,
    before: Mapping[str, RegistrationHealth],
    health: Mapping[str, RegistrationHealth],
) -> None:
    """Wake readiness if a NodePool's condition changes, and provisioning if a NodePool may buy again."""
    if any(_shows(before.get(name), after) for name, after in health.items()):
        hints.send(Concern.READINESS, Hint(cluster, "registrations ended"))
    if any(_frees(before.get(name), after) for name, after in health.items()):
        hints.send(Concern.PROVISIONING, Hint(cluster, "nodes join"))


def _shows(before: RegistrationHealth | None, now: RegistrationHealth) -> bool:
    if _breakers(before) != _breakers(now):
        return True
    return registration_condition(current_health(before, now.basis)) != registration_condition(now)


def _breakers(health: RegistrationHealth | None) -> tuple[tuple[int, datetime | None], ...]:
    breakers = (health.launches, health.moves) if health is not None else (CLOSED, CLOSED)
    return tuple((breaker.trips, breaker.until) for breaker in breakers)


def _frees(before: RegistrationHealth | None, now: RegistrationHealth) -> bool:
    """Return whether the NodePool, or one of its offerings, was in back-off and no longer is."""
    if before is None:
        return False
    if before.launches.is_tripped and not now.launches.is_tripped:
        return True
    if now.backoff is not None:
        return False
    return before.backoff is not None or bool(before.offerings.keys() - now.offerings.keys())


STATUSES_AT_ONCE = 50
"""The most statuses of CapacityBuffers that one run writes; the others follow in the next."""
MOST_HISTORIES = 100
"""The most workloads with a history; the first by name are kept. One with noise for four weeks takes 12 KB."""
_FORMAT = 1


def publish_buffer_status(
    blobs: Blobs, cluster: Cluster, snapshot: Snapshot, now: datetime
) -> tuple[int, bool]:
    """Note what workloads want that size buffers, and write each status that does not show what was found last.

    Return the number of written statuses, and whether the size of a buffer has changed.
    """
    if not snapshot.capacitybuffers:
        return 0, False
    sizes = _sizes(blobs, snapshot, now)
    data = blobs.get(unplaced_key(snapshot.cluster))
    written = json.loads(data).get("rooms", ()) if data else ()
    rooms = {item["buffer"]: Room(**{f: item[f] for f in Room.__slots__ if f in item}) for item in written}
    due = list(due_statuses(snapshot, rooms, now, sizes))[:STATUSES_AT_ONCE]
    for key, status in due:
        cluster.merge_status(CAPACITY_BUFFER.name, key, status)
    manifests = {f"{m['metadata']['namespace']}/{m['metadata']['name']}": m for m in snapshot.capacitybuffers}
    news = any(
        key in sizes and (manifests[key].get("status") or {}).get("replicas") != status["replicas"]
        for key, status in due
    )
    return len(due), news


def next_sizes(snapshot: Snapshot, now: datetime) -> datetime | None:
    """Return when buffers that are sized by history may have another size, None if there are none."""
    buffers = (buffer.value for buffer in parse_buffers(snapshot.capacitybuffers))
    if not any(buffer is not None and buffer.quantile for buffer in buffers):
        return None
    return first((next_size_at(now), next_window(snapshot, now)))


def _sizes(blobs: Blobs, snapshot: Snapshot, now: datetime) -> Mapping[str, Sizing]:
    """Return the sizes of the buffers that are sized by history, by their key, after noting what workloads want now."""
    buffers = [buffer.value for buffer in parse_buffers(snapshot.capacitybuffers) if buffer.value]
    sized = [buffer for buffer in buffers if buffer.quantile is not None]
    if not sized:
        return {}
    before = _read(blobs.get(growth_key(snapshot.cluster)))
    histories = _noted(before, sized, snapshot, now)
    if histories != before:
        items = {name: history_item(history) for name, history in sorted(histories.items())}
        text = json.dumps({"format": _FORMAT, "workloads": items}, separators=(",", ":"))
        blobs.put(growth_key(snapshot.cluster), gzip.compress(text.encode(), mtime=0))
    return {
        buffer.key: sizing(buffer, buffer.quantile, histories.get(buffer.template_key), now)
        for buffer in sized
        if buffer.quantile is not None
    }


def _noted(
    before: Mapping[str, History], sized: list[CapacityBuffer], snapshot: Snapshot, now: datetime
) -> dict[str, History]:
    """Return the histories of the workloads that buffers refer to. A workload that is gone keeps its history."""
    histories: dict[str, History] = {}
    for name in sorted({buffer.template_key for buffer in sized})[:MOST_HISTORIES]:
        template = snapshot.podtemplates.get(name)
        if template is not None:
            histories[name] = noted(before.get(name), template.replicas, now)
        elif name in before:
            histories[name] = before[name]
    return histories


def _read(data: bytes | None) -> dict[str, History]:
    """Read the histories. Damaged ones, and those that a later release wrote, start again."""
    try:
        document = json.loads(gzip.decompress(data)) if data else {}
        items = document.get("workloads", {}) if document.get("format") == _FORMAT else {}
        return {str(name): read_history(item) for name, item in items.items()}
    except (KeyError, TypeError, ValueError, AttributeError, OSError, EOFError, zlib.error):
        return {}
