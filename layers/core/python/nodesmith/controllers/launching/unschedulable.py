"""Pods, NodePools and NodeClaims that stay without a node are told why, and pods that will have one, where.

Provisioning writes down what its decision could not place, lifecycle makes it Events: provisioning itself never talks
to the API server, so that nothing stands between a pending pod and its node.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodesmith.controllers.runs.eventdeduplication import EventDeduplication, publish_new, unpublished
from nodesmith.decisions.podnotifications import of_pods
from nodesmith.decisions.provisioning import Plan, canonical
from nodesmith.decisions.provisioning.nodeclaims.unlaunched import unclaimed
from nodesmith.decisions.provisioning.plan import BACK_OFF
from nodesmith.model.apimachinery.frozen import NO_ITEMS
from nodesmith.model.karpenter.nodeclaimconditions import LAUNCHED
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.model.kubernetes.messages import shortened
from nodesmith.model.kubernetes.unschedulable import Reason
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Cluster, Store
from nodesmith.settings import unplaced_key

AGAIN_AFTER = timedelta(minutes=5)
"""as Karpenter: the same said of the same pod within this time is said once"""
EVENTS_AT_ONCE = 50
"""in one run; pods of which nothing is said are told of by `nodesmith explain pod`"""
PODS_AT_ONCE = 10
"""in one run, of pods that do not stay: Karpenter's burst. Nodes must not wait for what is told of their pods"""
LONG = timedelta(hours=1)
"""as long as an API server remembers an Event"""
_STALE_AFTER = timedelta(minutes=15)
FAILED_SCHEDULING, BACKED_OFF = "FailedScheduling", "ProvisioningBackOff"


@dataclass(frozen=True, slots=True)
class Refused:
    """Why users' NodeClaims and static NodePools get nothing now, by `Kind/name`; and of NodeClaims that never will."""

    for_now: Mapping[str, str] = NO_ITEMS
    unschedulable: Mapping[str, str] = NO_ITEMS

    @property
    def any(self) -> bool:
        """Whether anything is refused."""
        return bool(self.for_now or self.unschedulable)


NOTHING_REFUSED = Refused()


def write_unplaced(
    blobs: Blobs, cluster: str, plan: Plan, now: datetime, refused: Refused = NOTHING_REFUSED
) -> None:
    """Write down the pods that a decision did not place or refused, barren NodePools, and what got nothing."""
    groups = [
        {
            "pods": list(group.pods),
            "reason": group.why.text,
            "fix": group.why.fix,
            "event": BACKED_OFF if group.why.blocking == BACK_OFF else FAILED_SCHEDULING,
        }
        for group in (*plan.unplaced, *plan.refused)
    ]
    barren = {name: (plan.obstacles or {})[name] for name in plan.barren}
    written: dict[str, Any] = {
        "at": now.isoformat(),
        "unplaced": groups,
        "refused": dict(refused.for_now),
        "barren": barren,
    }
    if refused.unschedulable:
        written["hopeless"] = dict(refused.unschedulable)
    if plan.tried:
        written["tried"] = list(plan.tried)
    blobs.put(unplaced_key(cluster), canonical(written))


def read_tried(blobs: Blobs, cluster: str) -> tuple[str, ...]:
    """Return the pods that the last decision wants decided about after others; empty where it could take in all."""
    data = blobs.get(unplaced_key(cluster))
    return tuple(json.loads(data).get("tried", ())) if data else ()


def read_unschedulable(blobs: Blobs, cluster: str, now: datetime) -> tuple[datetime, Mapping[str, str]]:
    """Return when the last decision was made, and the users' NodeClaims that nothing fitted then, with why."""
    data = blobs.get(unplaced_key(cluster))
    written = json.loads(data) if data else {}
    at = datetime.fromisoformat(written["at"]) if written else now
    return at, written.get("hopeless", {}) if now - at <= _STALE_AFTER else {}


def tell_unplaced(
    blobs: Blobs, cluster: Cluster, store: Store, snapshot: Snapshot, told: EventDeduplication, now: datetime
) -> int:
    """Publish Events on what still waits; give how many. `told` is kept from run to run.

    Of a NodeClaim that the ledger holds by now nothing is said: whatever was decided before, it is being launched, and
    the ledger alone says what its conditions are.
    """
    data = blobs.get(unplaced_key(snapshot.cluster))
    if data is None:
        return 0
    written = json.loads(data)
    if now - datetime.fromisoformat(written["at"]) > _STALE_AFTER:
        return 0
    refused = unpublished(_of_nodeclaims(written, snapshot), told, now)
    launched = store.known([event.name for event in refused]) if refused else ()
    refused = [event for event in refused if event.name not in launched]
    for event in refused:
        _show_refusal(cluster, event)
    pending = {pod.key for pod in snapshot.pods if not pod.node and not pod.deleting}
    pods = [
        ObjectEvent("Pod", pod, reason, message, warning=True)
        for pod, reason, message in _messages(written)
        if pod in pending
    ]
    return publish_new(
        cluster, [*_of_nodepools(written, snapshot), *refused, *pods], told, now, AGAIN_AFTER, EVENTS_AT_ONCE
    )


def tell_pods(
    cluster: Cluster, claims: Iterable[NodeClaim], snapshot: Snapshot, told: EventDeduplication, now: datetime
) -> int:
    """Publish Events on pods that have been promised a node or protection; give how many."""
    return publish_new(cluster, of_pods(claims, snapshot.pods, now), told, now, LONG, PODS_AT_ONCE)


def _of_nodepools(written: Mapping[str, Any], snapshot: Snapshot) -> Iterator[ObjectEvent]:
    """Say of static NodePools why nodes are missing, and of others that their requirements leave no instance type."""
    refused, barren = written.get("refused") or {}, written.get("barren") or {}
    for manifest in snapshot.nodepools:
        name = str(manifest["metadata"]["name"])
        if why := refused.get(f"NodePool/{name}"):
            yield ObjectEvent("NodePool", name, "ReplicasMissing", why, warning=True)
        if why := barren.get(name):
            yield ObjectEvent("NodePool", name, "NoCompatibleInstanceTypes", why, warning=True)


def _of_nodeclaims(written: Mapping[str, Any], snapshot: Snapshot) -> Iterator[ObjectEvent]:
    """Say of users' NodeClaims why nothing is launched for them."""
    refused = written.get("refused") or {}
    for manifest in unclaimed(snapshot, ()):
        name = str(manifest["metadata"]["name"])
        if why := refused.get(f"NodeClaim/{name}"):
            yield ObjectEvent("NodeClaim", name, "LaunchFailed", why, warning=True)


def _show_refusal(cluster: Cluster, event: ObjectEvent) -> None:
    condition = {
        "type": LAUNCHED,
        "status": "Unknown",
        "reason": event.reason,
        "message": shortened(event.message),
    }
    cluster.merge_status(event.kind, event.name, {"conditions": [condition]})


def _messages(written: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield pods, an Event's reason and its message, one of each group in turn.

    Many of one kind must not silence the others.
    """
    groups = [
        [
            (pod, group.get("event", FAILED_SCHEDULING), str(Reason(group["reason"], fix=group["fix"])))
            for pod in group["pods"]
        ]
        for group in written["unplaced"]
    ]
    for turn in range(max(map(len, groups), default=0)):
        yield from (group[turn] for group in groups if turn < len(group))
