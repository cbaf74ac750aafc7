"""`nodesmith explain node`: what a terminating node waits for, and what would block any other node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.decisions.termination.evictions import must_go
from nodesmith.decisions.termination.waiting import AWAITING_NODE, Waiting, obstacles, why_not_gone
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODEPOOL,
    OS,
    REGION,
    TENANCY,
    ZONE,
)
from nodesmith.model.apimachinery.problems import meant
from nodesmith.model.karpenter.nodeclaimobjects import DELETED
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.ownership import nodeclass_group, server_of
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.sharing.foreign import foreign_nodepool
from nodesmith_cli.views.explaining.stay import StayReason
from nodesmith_formats.nodeclaims import shown_claim

Report = dict[str, Any]
PriceOf = Callable[[str, Mapping[str, str]], tuple[float, bool] | None]
"""Returns USD an hour and whether that is an estimate, given a region and a node's labels."""
_SUGGESTED = 3
_NOTHING = 0.0, False
"""The price of a Node whose instance is gone."""
_SECONDS_AN_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Subject:
    """A Node, its NodeClaim, or both. `deadline` is the latest time at which the instance terminates."""

    node: Node | None
    claim: NodeClaim | None
    deadline: datetime | None = None

    @property
    def name(self) -> str:
        """The Node's name, or the NodeClaim's while there is no Node."""
        if self.node is not None:
            return self.node.name
        return self.claim.name if self.claim else ""

    @property
    def names(self) -> set[str]:
        """Every name that identifies it: Node, NodeClaim and instance id."""
        claim = self.claim
        ids = {self.name, self.node.provider_id.rpartition("/")[2] if self.node else ""}
        return (ids | ({claim.name, claim.instance_id, claim.node_name} if claim else set())) - {""}

    @property
    def is_ending(self) -> bool:
        """True once its deletion has been requested."""
        return (self.node is not None and self.node.deleting) or (
            self.claim is not None and self.claim.is_ending
        )


def subjects(snapshot: Snapshot, now: datetime) -> list[Subject]:
    """Return all Nodes and NodeClaims, sorted by name. Ignores NodeClaims that cannot be read."""
    listed, claimed = [], set()
    for manifest in snapshot.nodeclaims:
        claim = shown_claim(manifest, now).value
        if claim is not None:
            node = snapshot.node_of(claim)
            claimed.add(node.name if node is not None else "")
            if node is not None and node.deleting and not claim.is_ending:  # the claim will follow
                claim = claim.terminating(DELETED, "", snapshot.taken_at)
            deadline = deadline_of(claim, manifest, now) if claim.is_ending else None
            listed.append(Subject(node, claim, deadline))
    listed += [Subject(node, None) for node in snapshot.nodes if node.name not in claimed]
    return sorted(listed, key=lambda subject: subject.name)


def named(name: str, snapshot: Snapshot, now: datetime) -> Subject | None:
    """Return the node with this Node name, NodeClaim name or instance id, or None."""
    return next((subject for subject in subjects(snapshot, now) if name in subject.names), None)


def unknown_node(name: str, snapshot: Snapshot, now: datetime) -> str:
    """Return the message for an unknown node, with similar names."""
    names = sorted({alias for subject in subjects(snapshot, now) for alias in subject.names})
    near = meant(name, names, _SUGGESTED)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return f"cluster {snapshot.cluster} has no Node, NodeClaim or instance {name}{hint}"


def report_of(
    subject: Subject, snapshot: Snapshot, price_of: PriceOf, now: datetime, stay: StayReason | None = None
) -> Report:
    """Return what is known about a node, as JSON data.

    `waiting` is what a node waits for while it starts or terminates, else null. `obstacles` are what would block its
    termination; they are empty once it is terminating. `staying` is the reason why a node stays.
    """
    node, claim = subject.node, subject.claim
    waiting = _waiting(subject, snapshot, now)
    price = _NOTHING if waiting and waiting.reason == AWAITING_NODE else _price(subject, price_of)
    born = node.created_at if node is not None else claim.created_at if claim is not None else now
    return {
        "node": node.name if node else None,
        "nodeClaim": claim.name if claim else None,
        "nodePool": label_of(subject, NODEPOOL),
        "servedBy": _served_by(subject, snapshot),
        "instanceId": (claim.instance_id if claim else "") or (_instance(node) if node else None),
        "instanceType": label_of(subject, INSTANCE_TYPE),
        "zone": label_of(subject, ZONE),
        "capacityType": label_of(subject, CAPACITY_TYPE),
        "priceHourly": price[0] if price else None,
        "priceEstimated": price[1] if price else None,
        "phase": claim.phase.value if claim else None,
        "phaseSince": claim.phase_since.isoformat() if claim else None,
        "ready": node.is_ready if node else None,
        "createdAt": born.isoformat(),
        "ageSeconds": _seconds(born, now),
        "pods": sum(pod.node == node.name and must_go(pod.shape) for pod in snapshot.pods) if node else 0,
        "ending": subject.is_ending,
        "cause": (claim.cause if claim and claim.is_ending else "") or None,
        "staying": _staying(stay, price, now) if stay else None,
        "deadline": subject.deadline.isoformat() if subject.deadline else None,
        "waiting": _waiting_report(waiting, price, now) if waiting else None,
        "obstacles": [] if subject.is_ending else list(_obstacles(node, snapshot, now)),
        "snapshotAt": snapshot.taken_at.isoformat(),
        "snapshotAgeSeconds": _seconds(snapshot.taken_at, now),
    }


def _served_by(subject: Subject, snapshot: Snapshot) -> str | None:
    """Return the other software that serves a node's NodePool, or None if that is nodesmith or unknown."""
    pool = foreign_nodepool(snapshot.foreign_nodepools, label_of(subject, NODEPOOL) or "")
    return server_of(nodeclass_group(pool)) if pool else None


def _waiting(subject: Subject, snapshot: Snapshot, now: datetime) -> Waiting | None:
    """Return what a node waits for while it starts or terminates."""
    claim = subject.claim
    if claim is None:
        return None
    if claim.is_ending:
        return why_not_gone(claim, snapshot, now)
    if not claim.reason:
        return None
    return Waiting(claim.reason, claim.message, f"NodeClaim/{claim.name}", claim.phase_since)


def _waiting_report(waiting: Waiting, price: tuple[float, bool] | None, now: datetime) -> Report:
    seconds = _seconds(waiting.since, now)
    return {
        "reason": waiting.reason,
        "message": waiting.message,
        "on": waiting.on,
        "fix": waiting.fix or None,
        "since": waiting.since.isoformat(),
        "seconds": seconds,
        "cost": price[0] * seconds / _SECONDS_AN_HOUR if price else None,
    }


def _staying(stay: StayReason, price: tuple[float, bool] | None, now: datetime) -> Report:
    seconds = _seconds(stay.since, now) if stay.since else None
    return {
        "reason": stay.rule,
        "message": stay.message,
        "on": stay.on,
        "leaves": stay.leaves,
        "since": stay.since.isoformat() if stay.since else None,
        "seconds": seconds,
        "cost": price[0] * seconds / _SECONDS_AN_HOUR if price and seconds is not None else None,
    }


def _obstacles(node: Node | None, snapshot: Snapshot, now: datetime) -> Iterator[Report]:
    for obstacle in obstacles(node.name, snapshot, now) if node else ():
        yield {
            "reason": obstacle.reason,
            "message": obstacle.message,
            "on": obstacle.on,
            "fix": obstacle.fix or None,
        }


def _price(subject: Subject, price_of: PriceOf) -> tuple[float, bool] | None:
    if subject.claim is not None and subject.claim.phase is Phase.STOPPED:
        return subject.claim.stopped_price_hourly_usd, True  # the price of its volumes
    labels = {key: label_of(subject, key) or "" for key in (CAPACITY_TYPE, INSTANCE_TYPE, ZONE, OS, TENANCY)}
    return price_of(region_of(subject), labels)


def region_of(subject: Subject) -> str:
    """Return a node's region as given by its labels, or an empty string."""
    return label_of(subject, REGION) or (label_of(subject, ZONE) or "")[:-1]


def label_of(subject: Subject, key: str) -> str | None:
    """Return a label of the Node, or of its NodeClaim if the Node does not have it."""
    for labels in (
        subject.node.labels if subject.node else {},
        subject.claim.labels if subject.claim else {},
    ):
        if labels.get(key):
            return labels[key]
    return None


def _instance(node: Node) -> str | None:
    return node.provider_id.rpartition("/")[2] or None


def _seconds(since: datetime, now: datetime) -> int:
    return max(0, round((now - since).total_seconds()))
