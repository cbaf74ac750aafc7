"""Record what kubectl shows of a NodePool's NodeClaims, Nodes and Events, from the first change to the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodesmith_local.runs.timeline import condition
from tests.e2e.systems.system import System

Manifest = Mapping[str, Any]
DISRUPTED = "karpenter.sh/disrupted"


@dataclass(frozen=True, slots=True)
class Moment:
    """An object after a change, and all NodeClaims that existed then, by name."""

    object: Manifest
    claims: Mapping[str, Manifest]


@dataclass(slots=True)
class Observer:
    """Everything seen so far. A NodeClaim belongs to the NodePool that its name starts with."""

    claims: list[Moment] = field(default_factory=list)
    events: list[Manifest] = field(default_factory=list)
    there: dict[str, Manifest] = field(default_factory=dict)
    nodes: dict[str, Manifest] = field(default_factory=dict)
    gone_nodes: set[str] = field(default_factory=set)

    def note_claim(self, claim: Manifest, _: datetime, *, gone: bool) -> None:
        """Record a change of a NodeClaim."""
        name = claim["metadata"]["name"]
        there = {other: each for other, each in self.there.items() if other != name}
        now = there if gone else {**there, name: claim}
        # First the history: a test that waits until something is there reads its history next.
        self.claims.append(Moment(claim, now))
        self.there = now

    def note_node(self, node: Manifest, _: datetime, *, gone: bool) -> None:
        """Record a change of a Node."""
        self.nodes[node["metadata"]["name"]] = node
        if gone:
            self.gone_nodes.add(node["metadata"]["name"])

    def note_event(self, event: Manifest, _: datetime, *, gone: bool) -> None:
        """Record an Event."""
        if not gone:
            self.events.append(event)

    def moments(self, pool: str) -> list[dict[str, Manifest]]:
        """Return a NodePool's claims by name, after each change to one of them."""
        return [
            {name: claim for name, claim in moment.claims.items() if _is_of(name, pool)}
            for moment in self.claims
            if _is_of(moment.object["metadata"]["name"], pool)
        ]

    def names(self, pool: str) -> list[str]:
        """Return the names of all claims that a NodePool has ever had, oldest first."""
        seen = (m.object["metadata"]["name"] for m in self.claims)
        return list(dict.fromkeys(name for name in seen if _is_of(name, pool)))

    def now(self, pool: str) -> dict[str, Manifest]:
        """Return a NodePool's current claims by name."""
        return {name: claim for name, claim in self.there.items() if _is_of(name, pool)}

    def only(self, pool: str) -> Manifest:
        """Return a NodePool's only current claim; an empty mapping if it has none or several."""
        claims = list(self.now(pool).values())
        return claims[0] if len(claims) == 1 else {}

    def ended(self, pool: str) -> list[str]:
        """Return the names of the claims that have been deleted, in the order of their deletion."""
        deleted = (
            name
            for moment in self.moments(pool)
            for name, claim in moment.items()
            if claim["metadata"].get("deletionTimestamp")
        )
        return list(dict.fromkeys(deleted))

    def conditions(self, name: str, kind: str) -> list[str]:
        """Return the successive reasons of a claim's condition, without repetitions; "" where it had none."""
        mine = (m.object for m in self.claims if m.object["metadata"]["name"] == name)
        found = [str(condition(each, kind).get("reason", "")) for each in mine]
        return [reason for reason, before in zip(found, [None, *found], strict=False) if reason != before]

    def reports(self, pool: str, reason: str) -> set[tuple[str, str]]:
        """Return kind and message of each Event with this reason about a NodePool, its claims or its Nodes."""
        nodes = {claim.object["status"].get("nodeName") for claim in self.claims_of(pool)} - {None, ""}
        return {
            (about["kind"], event["message"])
            for event in list(self.events)
            if event["reason"] == reason
            for about in [event["involvedObject"]]
            if about["name"] == pool or _is_of(about["name"], pool) or about["name"] in nodes
        }

    def claims_of(self, pool: str) -> Iterator[Moment]:
        """Return the changes of a NodePool's claims that have a status."""
        return (
            m
            for m in list(self.claims)
            if _is_of(m.object["metadata"]["name"], pool) and m.object.get("status")
        )

    def is_tainted(self, claim: Manifest) -> bool:
        """Return whether a claim's Node has Karpenter's disruption taint."""
        node = self.nodes.get((claim.get("status") or {}).get("nodeName") or "", {})
        return any(taint["key"] == DISRUPTED for taint in (node.get("spec") or {}).get("taints") or ())


def _is_of(claim: str, pool: str) -> bool:
    return claim.rpartition("-")[0] == pool


@contextmanager
def observing(system: System) -> Iterator[Observer]:
    """Observe a cluster for the duration of the block."""
    observer = Observer()
    with ExitStack() as stack:
        stack.enter_context(system.followed("nodes", observer.note_node))
        stack.enter_context(system.followed("nodeclaims", observer.note_claim))
        stack.enter_context(system.followed("events", observer.note_event, "default"))
        yield observer
