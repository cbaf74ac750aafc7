"""What controllers write in the background: hashes, the condition `Consolidatable`, pod events, and tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.controllers.runs import ClusterPorts, Spread
from nodesmith.decisions.disruption.candidates import MOST_AT_ONCE, consolidatable, to_stamp
from nodesmith.decisions.provisioning.nodeclaims import unclaimed, unread_nodeclaims
from nodesmith.decisions.readiness.launchconditions import rehashed, unstated
from nodesmith.effects import show
from nodesmith.errors import Conflict, Failures, Transient
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaimobjects import CONSOLIDATABLE, condition_item, nodeclaim_content
from nodesmith.model.karpenter.nodeclaims import NodeClaim, tags_due
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Cluster, Store

SOONEST, TICK = timedelta(seconds=15), timedelta(minutes=1)
"""Bounds of the wait for the next look: not a look for each node that becomes quiet, and none after the next tick."""
MOST_A_MINUTE = 100
"""The most NodeClaims that one process writes in a minute, however often it looks."""


@dataclass(slots=True)
class Pace:
    """The times at which this process has written conditions in the last minute; kept from run to run."""

    written: list[datetime] = field(default_factory=list)

    def allowed(self, now: datetime) -> int:
        """Return how many conditions may be written now."""
        self.written = [moment for moment in self.written if now - moment < TICK]
        return min(MOST_AT_ONCE, MOST_A_MINUTE - len(self.written))


def show_consolidatable(
    claims: Iterable[NodeClaim],
    snapshot: Snapshot,
    pools: Mapping[str, NodePool],
    cluster: Cluster,
    now: datetime,
    pace: Pace,
    counts: Counter[str],
    failures: Failures,
) -> timedelta | None:
    """Write as many changed conditions as `pace` allows; return the wait until the next look, None for the next tick.

    Errors are added to `failures`; the next run writes those conditions.
    """
    changes = consolidatable(claims, snapshot, pools, now, pace.allowed(now))
    for name, condition in changes.due.items():
        pace.written.append(now)
        with failures.of(f"NodeClaim {name}"):
            cluster.merge_status("NodeClaim", name, {"conditions": [condition_item(condition)]})
            counts[CONSOLIDATABLE] += 1
    if changes.left and pace.allowed(now):
        return SOONEST
    if changes.next_at is None or changes.next_at - now >= TICK:
        return None
    return max(SOONEST, changes.next_at - now)


def stamp(
    claims: Iterable[NodeClaim], snapshot: Snapshot, cluster: Cluster, now: datetime, failures: Failures
) -> int:
    """Write the times of pod events that are due; return the number of claims. Errors are added to `failures`."""
    stamped = 0
    for name, at in to_stamp(claims, snapshot, now).items():
        with failures.of(f"NodeClaim {name}"):
            cluster.merge_status("NodeClaim", name, {"lastPodEventTime": format_time(at)})
            stamped += 1
    return stamped


# Tags of single claims are written after a CreateFleet call that served several claims. Karpenter writes them in
# the background as well (its tagging controller). Nothing waits for them: an instance is found by the id in its
# claim.
MOST_TAGGED = 40
"""The most instances tagged in one run. Each takes a call, and launches share EC2's limit on mutating calls."""
AGAIN = timedelta(seconds=10)
"""The wait until the next run continues: by then EC2's token bucket has gained 50 calls."""


def write_tags(
    run: ClusterPorts, claims: Sequence[NodeClaim], spread: Spread, counts: Counter[str], failures: Failures
) -> timedelta | None:
    """Write the tags that are due, and record on each claim that they are written. Each step can be repeated.

    Return the wait until the next run continues, None if nothing is left or a call failed.
    """
    due = [claim for claim in claims if claim.instance_id and tags_due(claim)]

    def write(claim: NodeClaim) -> str:
        try:
            run.cloud.tag(claim.instance_id, tags_due(claim))
            saved = run.store.save(replace(claim, launch=FrozenMap()))
            if saved.registered_at is not None:  # its object was written before, without the tags
                show(saved, run.cluster)
        except Conflict:
            return "Conflict"  # the claim has moved on meanwhile, and is tagged again
        except Transient as error:
            return str(error)
        return ""

    results = list(spread(write, due[:MOST_TAGGED]))
    written, trouble = results.count(""), [result for result in results if result not in ("", "Conflict")]
    counts.update({"Tagged": written} if written else {})
    if trouble:
        failures.add(Transient(f"{len(trouble)} instances are not tagged yet: {trouble[0]}"))
        return None
    return AGAIN if written < len(due) else None


def rewrite(claims: Iterable[NodeClaim], store: Store, cluster: Cluster, failures: Failures) -> int:
    """Write claims as they are; return their number. A claim that has moved on meanwhile is left to the next run."""
    count = 0
    for claim in claims:
        with failures.of(f"NodeClaim {claim.name}"), suppress(Conflict):
            show(store.save(claim), cluster)
            count += 1
    return count


Read = Iterable[tuple[Mapping[str, Any], NodePool | EC2NodeClass | None]]
"""Objects of the API server: each manifest with the object parsed from it, None if it is invalid."""


def state_hashes(objects: Read, ca_bundle: str, cluster: Cluster, failures: Failures) -> tuple[str, ...]:
    """Write the hash of its content onto each object that lacks it; return the `Kind/name` of those written."""
    written: list[str] = []
    for statement in filter(None, (unstated(obj, read, ca_bundle) for obj, read in objects)):
        about = f"{statement.kind}/{statement.name}"
        with failures.of(about):
            cluster.annotate(statement.kind, statement.name, statement.annotations)
            written.append(about)
    return tuple(written)


def renew_hashes(
    claims: Iterable[NodeClaim],
    pools: Mapping[str, NodePool],
    nodeclasses: Mapping[str, EC2NodeClass],
    ca_bundle: str,
    store: Store,
    cluster: Cluster,
    failures: Failures,
) -> int:
    """Renew the hashes of claims with another hash version, in the ledger and on their objects; return their number."""
    return rewrite(rehashed(claims, pools, nodeclasses, ca_bundle), store, cluster, failures)


NODECLAIMS_AT_ONCE = 50
"""The most users' NodeClaims that one run reads: each takes a call."""


def keep_contents(
    run: ClusterPorts, pools: Iterable[NodePool], snapshot: Snapshot, ledger: Ledger, failures: Failures
) -> list[str]:
    """Save the content hashes that the ledger lacks, and forget those of objects that are gone.

    `pools` must come from the API server. Return the `Kind/name` of the objects whose hashes were saved.
    """
    read = {f"NodePool/{pool.name}": pool.content for pool in pools}
    read |= _nodeclaims(run, snapshot, ledger, failures)
    written = {key: content for key, content in sorted(read.items()) if ledger.contents.get(key) != content}
    stale = ledger.contents.keys() - read.keys()
    if written:
        run.store.save_contents(written)
    if stale:
        run.store.forget_contents(stale)
    return list(written)


def _nodeclaims(run: ClusterPorts, snapshot: Snapshot, ledger: Ledger, failures: Failures) -> dict[str, str]:
    """Return the content hashes of users' NodeClaims that wait for their launch and exist on the API server."""
    keys = {f"NodeClaim/{m['metadata']['name']}" for m in unclaimed(snapshot, ledger.claims)}
    contents = {key: content for key, content in ledger.contents.items() if key in keys}
    for name in unread_nodeclaims(snapshot, ledger)[:NODECLAIMS_AT_ONCE]:
        contents.pop(f"NodeClaim/{name}", None)
        with failures.of(f"NodeClaim {name}"):
            manifest = run.cluster.nodeclaim(name)
            content = nodeclaim_content(manifest) if manifest is not None else ""
            if content:
                contents[f"NodeClaim/{name}"] = content
    return contents
