"""Events on pods, NodePools and NodeClaims that get no node, and on pods that a node was bought for; buffers' statuses.

Provisioning writes down what its decision could not place, and lifecycle turns that into Events, and deletes users'
NodeClaims that will not be launched. Provisioning never calls the API server, so that a pending pod does not wait for
such a call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

from nodesmith.controllers.runs import ClusterPorts, EventDeduplication, publish_new, unpublished
from nodesmith.decisions.provisioning import Plan, canonical
from nodesmith.decisions.provisioning.nodeclaims import overdue, unclaimed, unlaunchable
from nodesmith.decisions.provisioning.nodepools.tiers import UNREAD
from nodesmith.decisions.provisioning.plan import BACK_OFF, DELAYED
from nodesmith.decisions.reporting.events import not_scaled_up, pod_events, scale_up_events
from nodesmith.decisions.scheduling.offerings.quotas import limit_owner
from nodesmith.errors import Failures
from nodesmith.keys import unplaced_key
from nodesmith.model.apimachinery.frozen import NO_ITEMS
from nodesmith.model.apimachinery.problems import LONGEST_MESSAGE, ObjectEvent, shortened
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.nodeclaimobjects import LAUNCHED
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.karpenter.ownership import is_unclaimed
from nodesmith.model.kubernetes.pods import Reason
from nodesmith.model.limits.quotas import CAPACITY_QUOTA
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Cluster, Store

AGAIN_AFTER = timedelta(minutes=5)
"""How long the same Event on the same pod is not repeated, as in Karpenter."""
EVENTS_AT_ONCE = 50
"""The most Events in one run. For pods without an Event, `nodesmith explain pod` gives the reason."""
PODS_AT_ONCE = 10
"""The most Events in one run on pods that get a node: Karpenter's burst. Nodes must not wait for their pods' Events."""
STATUSES_AT_ONCE = 50
"""The most statuses of CapacityBuffers in one run."""
_SOON = timedelta(minutes=1)
"""For how long a pod gets no Event because readiness is about to read a NodePool, from its decision on."""
LONG = timedelta(hours=1)
"""As long as an API server keeps an Event."""
STALE_AFTER = timedelta(minutes=15)
"""From what age on the last decision's list of pods is no longer reported."""
FAILED_SCHEDULING, BACKED_OFF = "FailedScheduling", "ProvisioningBackOff"
SCALE_UP_DELAYED = "ScaleUpDelayed"
_EVENTS = {BACK_OFF: BACKED_OFF, DELAYED: SCALE_UP_DELAYED}
"""What blocks a pod → the reason of its Event."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The reasons why users' NodeClaims and static NodePools get no node.

    `for_now` maps `Kind/name` to the current reason, `unschedulable` the names of NodeClaims that nothing fits.
    """

    for_now: Mapping[str, str] = NO_ITEMS
    unschedulable: Mapping[str, str] = NO_ITEMS

    @property
    def any(self) -> bool:
        """Whether anything is refused."""
        return bool(self.for_now or self.unschedulable)


NOTHING_REFUSED = Refused()


def write_unplaced(
    blobs: Blobs,
    cluster: str,
    plan: Plan,
    now: datetime,
    refused: Refused = NOTHING_REFUSED,
    limited: Mapping[str, Sequence[str]] = NO_ITEMS,
) -> None:
    """Write down the pods that a decision did not place or refused, NodePools without instance types, and `refused`.

    `limited` are the NodePools of each limit in the way that is no object of the cluster.
    """
    groups = [
        {
            "pods": list(group.pods),
            "reason": group.cause.text,
            "fix": group.cause.fix,
            "event": _EVENTS.get(group.cause.blocking, FAILED_SCHEDULING),
            **({"limit": owner} if (owner := limit_owner(group.cause)) else {}),
        }
        for group in (*plan.unplaced, *plan.refused)
    ]
    written: dict[str, Any] = {
        "at": now.isoformat(),
        "unplaced": groups,
        "refused": dict(refused.for_now),
        "withoutTypes": dict(plan.without_types),
    }
    if limited:
        written["limited"] = {owner: list(limited[owner]) for owner in sorted(limited)}
    if refused.unschedulable:
        written["unschedulable"] = dict(refused.unschedulable)
    if plan.tried:
        written["tried"] = list(plan.tried)
    if plan.rooms:
        written["rooms"] = [asdict(room) for room in plan.rooms]
    blobs.put(unplaced_key(cluster), canonical(written))


def read_tried(blobs: Blobs, cluster: str) -> tuple[str, ...]:
    """Return the pods that the last decisions left without a node, which the next one considers after others.

    Empty if the last decision could consider all pods.
    """
    data = blobs.get(unplaced_key(cluster))
    return tuple(json.loads(data).get("tried", ())) if data else ()


def read_unschedulable(blobs: Blobs, cluster: str, now: datetime) -> tuple[datetime, Mapping[str, str]]:
    """Return the time of the last decision, and the reasons by name of the users' NodeClaims that nothing fitted then.

    The mapping is empty if that decision is more than 15 minutes old.
    """
    data = blobs.get(unplaced_key(cluster))
    written = json.loads(data) if data else {}
    at = datetime.fromisoformat(written["at"]) if written else now
    return at, written.get("unschedulable", {}) if now - at <= STALE_AFTER else {}


def publish_unplaced(
    blobs: Blobs,
    cluster: Cluster,
    store: Store,
    snapshot: Snapshot,
    published: EventDeduplication,
    now: datetime,
    *,
    as_autoscaler: bool = False,
) -> int:
    """Publish Events on what still waits for a node; return their number. `published` is kept from run to run.

    If `as_autoscaler`, pods also get the Event that Cluster Autoscaler would send.

    A NodeClaim that the ledger holds by now gets no Event and no condition: it is being launched, whatever was decided
    before, and its conditions come from the ledger alone.
    """
    data = blobs.get(unplaced_key(snapshot.cluster))
    if data is None:
        return 0
    written = json.loads(data)
    decided_at = datetime.fromisoformat(written["at"])
    if now - decided_at > STALE_AFTER:
        return 0
    refused = unpublished(_of_nodeclaims(written, snapshot), published, now)
    launched = store.existing_claims([event.name for event in refused]) if refused else ()
    refused = [event for event in refused if event.name not in launched]
    for event in refused:
        _show_refusal(cluster, event)
    pending = {pod.key for pod in snapshot.pods if not pod.node and not pod.deleting}
    pods: list[ObjectEvent] = []
    for pod, reason, message in _messages(written):
        if pod not in pending or (UNREAD in message and now - decided_at < _SOON):
            continue
        pods.append(ObjectEvent("Pod", pod, reason, message, warning=reason != SCALE_UP_DELAYED))
        if as_autoscaler and reason != SCALE_UP_DELAYED:
            pods.append(not_scaled_up(pod, message))
    others = [*_of_nodepools(written, snapshot), *_of_limits(written, snapshot), *refused]
    return publish_new(cluster, [*others, *pods], published, now, AGAIN_AFTER, EVENTS_AT_ONCE)


def publish_pods(
    cluster: Cluster,
    claims: Sequence[NodeClaim],
    snapshot: Snapshot,
    published: EventDeduplication,
    now: datetime,
    pools: Mapping[str, NodePool] | None = None,
) -> int:
    """Publish Events on pods that are nominated for a node or protected from disruption; return their number.

    With `pools`, the valid NodePools by name, pods also get the Event that Cluster Autoscaler would send.
    """
    events = list(pod_events(claims, snapshot.pods, now))
    if pools is not None:
        scaled_up = scale_up_events(claims, snapshot.pods, pools, now)
        events = [event for pair in zip_longest(scaled_up, events) for event in pair if event is not None]
    return publish_new(cluster, events, published, now, LONG, PODS_AT_ONCE)


def _of_nodepools(written: Mapping[str, Any], snapshot: Snapshot) -> Iterator[ObjectEvent]:
    """Yield Events on static NodePools that lack nodes, and on NodePools whose requirements leave no instance type."""
    refused, without_types = written.get("refused") or {}, written.get("withoutTypes") or {}
    for manifest in snapshot.nodepools:
        name = str(manifest["metadata"]["name"])
        reason = refused.get(f"NodePool/{name}")
        if reason and UNREAD not in reason:
            yield ObjectEvent("NodePool", name, "ReplicasMissing", reason, warning=True)
        if reason := without_types.get(name):
            yield ObjectEvent("NodePool", name, "NoCompatibleInstanceTypes", reason, warning=True)


def _of_limits(written: Mapping[str, Any], snapshot: Snapshot) -> Iterator[ObjectEvent]:
    """Yield Events on NodePools and CapacityQuotas whose limit keeps pods without a node.

    Those of other limits are on the NodePools that they limit.
    """
    objects = {("NodePool", name) for name in parsed_nodepools(snapshot.nodepools)}
    objects |= {(CAPACITY_QUOTA.name, str(manifest["metadata"]["name"])) for manifest in snapshot.quotas}
    for group in written["unplaced"]:
        owner = group.get("limit", "")
        pools = (written.get("limited") or {}).get(owner, ())
        for kind, _, name in [owner.partition(" "), *(("NodePool", "", pool) for pool in pools)]:
            if (kind, name) in objects:
                yield ObjectEvent(kind, name, "LimitReached", group["reason"], warning=True)


def _of_nodeclaims(written: Mapping[str, Any], snapshot: Snapshot) -> Iterator[ObjectEvent]:
    """Yield Events with the reason why a user's NodeClaim is not launched."""
    refused = written.get("refused") or {}
    for manifest in unclaimed(snapshot, ()):
        name = str(manifest["metadata"]["name"])
        if reason := refused.get(f"NodeClaim/{name}"):
            yield ObjectEvent("NodeClaim", name, "LaunchFailed", reason, warning=True)


def _show_refusal(cluster: Cluster, event: ObjectEvent) -> None:
    condition = {
        "type": LAUNCHED,
        "status": "Unknown",
        "reason": event.reason,
        "message": shortened(event.message),
    }
    cluster.merge_status(event.kind, event.name, {"conditions": [condition]})


def _messages(written: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield a pod, the reason and the message of its Event, from each group in turn.

    Taking turns prevents a large group from using up all Events of a run.
    """
    groups = [
        [
            (pod, group.get("event", FAILED_SCHEDULING), _message(group["reason"], group["fix"]))
            for pod in group["pods"]
        ]
        for group in written["unplaced"]
    ]
    for turn in range(max(map(len, groups), default=0)):
        yield from (group[turn] for group in groups if turn < len(group))


def _message(reason: str, fix: str) -> str:
    """Return the message of an Event, which keeps the remedy if the reason is too long."""
    room = LONGEST_MESSAGE - len(f"; {fix}")
    whole = Reason(reason, fix=fix)
    if len(str(whole)) <= LONGEST_MESSAGE or room <= 0:
        return str(whole)
    return str(Reason(f"{reason[: room - 1]}…", fix=fix))


DELETED_AT_ONCE = 50
"""The most NodeClaims that one run deletes: each takes three calls."""


def delete_unlaunchable(
    run: ClusterPorts,
    requested: Sequence[Mapping[str, Any]],
    snapshot: Snapshot,
    now: datetime,
    failures: Failures,
) -> list[str]:
    """Delete users' NodeClaims that will not be launched, if the API server confirms it; return their names.

    Their EC2NodeClass is missing or not Ready, nothing fits them, or they have waited too long. The API server is read
    because the snapshot may be older than the EC2NodeClass, or show a NodeClaim that another run has just launched.
    """
    deleted: list[str] = []
    decided_at, unschedulable = (
        read_unschedulable(run.blobs, run.cluster_name, now) if requested else (now, {})
    )

    def to_delete(
        manifests: Sequence[Mapping[str, Any]], nodeclasses: Iterable[Mapping[str, Any]]
    ) -> dict[str, tuple[str, str]]:
        older = [
            name
            for manifest in manifests
            if (name := manifest["metadata"]["name"]) in unschedulable and is_older(manifest)
        ]
        unfit = {name: ("InsufficientCapacityError", unschedulable[name]) for name in older}
        return {**overdue(manifests, now), **unfit, **unlaunchable(manifests, nodeclasses, now)}

    def is_older(manifest: Mapping[str, Any]) -> bool:
        return parse_time(manifest["metadata"]["creationTimestamp"]) <= decided_at

    suspects = list(to_delete(requested, snapshot.nodeclasses))[:DELETED_AT_ONCE]
    if not suspects:
        return deleted
    with failures.of("NodeClaims that will not be launched"):
        nodeclasses = run.cluster.nodepools_and_nodeclasses().nodeclasses
        current = [m for name in suspects if (m := run.cluster.nodeclaim(name)) is not None]
        claimed = run.store.existing_claims(suspects)
        requested = [
            manifest
            for manifest in current
            if is_unclaimed(manifest) and manifest["metadata"]["name"] not in claimed
        ]
        for name, (reason, message) in to_delete(requested, nodeclasses).items():
            run.cluster.publish([ObjectEvent("NodeClaim", name, reason, message, warning=True)])
            run.cluster.delete_nodeclaim(name)
            deleted.append(name)
    return deleted
