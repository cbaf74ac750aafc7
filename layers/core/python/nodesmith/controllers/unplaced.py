"""Pods that stay are told why: provisioning writes down what its decision could not place, lifecycle makes it Events.

Provisioning itself never talks to the API server, so that nothing stands between a pending pod and its node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.provisioning import Plan, canonical
from nodesmith.decisions.provisioning.byhand import unclaimed
from nodesmith.model.frozen import NO_ITEMS
from nodesmith.model.reasons import Reason
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Cluster
from nodesmith.settings import unplaced_key

AGAIN_AFTER = timedelta(minutes=5)
"""as Karpenter: the same said of the same pod within this time is said once"""
EVENTS_AT_ONCE = 50
"""in one run; pods of which nothing is said are told of by `nodesmith explain pod`"""
_STALE_AFTER = timedelta(minutes=15)
FAILED_SCHEDULING = "FailedScheduling"
Told = MutableMapping[tuple[str, str], datetime]
"""when what was last said of which pod"""


def write_unplaced(
    blobs: Blobs, cluster: str, plan: Plan, now: datetime, refused: Mapping[str, str] = NO_ITEMS
) -> None:
    """Write down the pods that a decision did not place, and users' NodeClaims that it refused, and why."""
    groups = [
        {"pods": list(group.pods), "reason": group.why.text, "fix": group.why.fix} for group in plan.unplaced
    ]
    blobs.put(
        unplaced_key(cluster),
        canonical({"at": now.isoformat(), "unplaced": groups, "refused": dict(refused)}),
    )


def tell_unplaced(blobs: Blobs, cluster: Cluster, snapshot: Snapshot, told: Told, now: datetime) -> int:
    """Publish an Event on each pod that still waits; give how many. `told` is kept from run to run."""
    data = blobs.get(unplaced_key(snapshot.cluster))
    if data is None:
        return 0
    for key in [key for key, at in told.items() if now - at >= AGAIN_AFTER]:
        del told[key]
    written = json.loads(data)
    if now - datetime.fromisoformat(written["at"]) > _STALE_AFTER:
        return 0
    count = _tell_refused(cluster, snapshot, written.get("refused") or {}, told, now)
    pending = {pod.key for pod in snapshot.pods if not pod.node and not pod.deleting}
    for pod, message in _messages(written):
        if pod not in pending or (pod, message) in told:
            continue
        if count == EVENTS_AT_ONCE:
            break
        cluster.event("Pod", pod, FAILED_SCHEDULING, message, warning=True)
        told[pod, message] = now
        count += 1
    return count


def _tell_refused(
    cluster: Cluster, snapshot: Snapshot, refused: Mapping[str, str], told: Told, now: datetime
) -> int:
    """Say of users' NodeClaims and static NodePools why nothing is launched for them; give how many were told."""
    count = 0
    for manifest in snapshot.nodepools:
        name = str(manifest["metadata"]["name"])
        why = refused.get(f"NodePool/{name}", "")
        if why and (name, why) not in told:
            cluster.event("NodePool", name, "ReplicasMissing", why, warning=True)
            told[name, why] = now
            count += 1
    for manifest in unclaimed(snapshot, ()):
        name = str(manifest["metadata"]["name"])
        why = refused.get(f"NodeClaim/{name}", "")
        if why and (name, why) not in told:
            condition = {
                "type": "Launched",
                "status": "Unknown",
                "reason": "LaunchFailed",
                "message": why[:1024],
            }
            cluster.nodeclaim_status(name, {"conditions": [condition]})
            told[name, why] = now
            count += 1
    return count


def _messages(written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give pods and messages, one of each group in turn: many of one kind must not silence the others."""
    groups = [
        [(pod, str(Reason(group["reason"], fix=group["fix"]))) for pod in group["pods"]]
        for group in written["unplaced"]
    ]
    for turn in range(max(map(len, groups), default=0)):
        yield from (group[turn] for group in groups if turn < len(group))
