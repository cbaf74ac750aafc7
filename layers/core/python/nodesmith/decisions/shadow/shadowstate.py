"""The state of a shadow within one step: what it pays, which pods come and go, and how decisions see it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.shadow.actual import LONGEST_STEP, View, workload_of
from nodesmith.decisions.shadow.fleet import OTHERS, ObservedNode, hourly_usd, lasting_claim
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DISRUPTED, INITIALIZED, NODEPOOL, SPOT, is_ephemeral
from nodesmith.model.costs.shadow import Fleet, Leaving, PodLocation, Tally
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.nodes import REGISTERED_UNSCHEDULABLE, Condition, Node

NOTICE = timedelta(seconds=120)
"""The time between the notice of an interruption and its end."""
_MONTH = timedelta(hours=730)
_NOT_COPIED = frozenset({DISRUPTED.identity, REGISTERED_UNSCHEDULABLE.identity})


class ShadowState:
    """A shadow that is taken from its last step to the time of a view."""

    def __init__(self, fleet: Fleet, view: View, name: str, *, is_bounded: bool) -> None:
        self._view, self._name, self._now, self._is_bounded = view, name, view.now, is_bounded
        self._since = max(min(fleet.at, view.now), view.now - LONGEST_STEP)
        self._before = fleet
        self._claims = {claim.name: claim for claim in fleet.claims}
        self._locations = dict(fleet.locations)
        self._leaving = list(fleet.leaving)
        self._ready_at, self._touched = dict(fleet.ready_at), dict(fleet.touched)
        self._rested_at, self._searched_at = fleet.rested_at, fleet.searched_at
        self._bound, self._bounded_at = fleet.bound_hourly_usd, fleet.bounded_at
        self._pods = {pod.key: pod for pod in view.pods()}
        self._pools = parsed_nodepools(view.inputs.snapshot.nodepools)
        self._steps = 0
        self._came = Tally()

    def ended(self) -> tuple[Fleet, Tally]:
        """Return the fleet and its tally."""
        names = self._claims.keys()
        fleet = Fleet(
            self._now,
            tuple(self._claims[name] for name in sorted(names)),
            dict(sorted(self._locations.items())),
            tuple(departure for departure in self._leaving if departure.until > self._now),
            {name: at for name, at in sorted(self._ready_at.items()) if name in names},
            {name: at for name, at in sorted(self._touched.items()) if name in names},
            self._rested_at,
            self._bound,
            self._bounded_at,
            self._searched_at,
        )
        return fleet, self._came

    def begin(self) -> None:
        """Copy the cluster's nodes, with their pods."""
        homes = {pod.node for pod in self._pods.values() if pod.node}
        for observed in self._view.nodes:
            if observed.price is not None and (observed.node.name in homes or not observed.node.deleting):
                self._adopt(observed)
        for pod in self._pods.values():
            is_there = pod.node in self._claims
            since = None if is_there else pod.created_at
            self._locations[pod.key] = PodLocation(workload_of(pod), pod.node if is_there else "", since)

    def _adopt(self, observed: ObservedNode) -> None:
        node = observed.node
        pool = node.labels.get(NODEPOOL, "")
        labels = {key: value for key, value in node.labels.items() if key != NODEPOOL or pool in self._pools}
        lasting = tuple(t for t in node.taints if not (is_ephemeral(t) or t.identity in _NOT_COPIED))
        node = replace(
            node,
            labels=FrozenMap({**labels, INITIALIZED: "true"}),
            taints=lasting,
            provider_id=node.provider_id or f"shadow:///{node.name}",
        )
        claim = lasting_claim(node, pool if pool in self._pools else OTHERS, self._pools)
        self._claims[node.name] = replace(claim, price_hourly_usd=observed.price or 0.0)
        self._touched[node.name] = node.last_pod_event_at or self._now
        self._changed()

    def _changed(self) -> None:
        self._rested_at = None

    def _touch(self, name: str, at: datetime | None = None) -> None:
        self._touched[name] = max(at or self._now, self._touched.get(name, at or self._now))
        self._changed()

    # Money

    def _price(self, claim: NodeClaim) -> float:
        price = hourly_usd(claim.labels, self._view.inputs.catalog)
        return claim.price_hourly_usd if price is None else price

    def _add(self, **amounts: float) -> None:
        self._came += Tally(**amounts)  # type: ignore[arg-type]

    def _charge(
        self, price: float, start: datetime, end: datetime, *, spot: bool, ready_at: datetime | None = None
    ) -> None:
        seconds = max(0.0, (end - start).total_seconds())
        idle = max(0.0, (min(end, ready_at) - start).total_seconds()) if ready_at else 0.0
        usd = price * seconds / 3600
        self._add(
            usd=usd,
            spot_usd=usd if spot else 0.0,
            starting_usd=price * idle / 3600,
            node_seconds=seconds,
            spot_seconds=seconds if spot else 0.0,
        )

    def pay(self) -> None:
        """Count what the time since the last step costs."""
        start, now = self._since, self._now
        for claim in self._claims.values():
            spot = claim.capacity_type == SPOT
            self._charge(self._price(claim), start, now, spot=spot, ready_at=self._ready_at.get(claim.name))
        for departure in self._leaving:
            end = min(departure.until, now)
            self._charge(departure.hourly_usd, start, end, spot=departure.is_spot, ready_at=end)
        seconds = (now - start).total_seconds()
        self._add(pod_seconds=seconds * sum(bool(location.node) for location in self._locations.values()))
        if self._is_bounded and self._bounded_at is not None:
            self._add(bound_usd=self._bound * seconds / 3600, bound_seconds=seconds)

    # Pods

    def grow(self) -> None:
        """Let nodes that have booted run the pods that wait for them."""
        for name, ready_at in sorted(self._ready_at.items()):
            claim = self._claims.get(name)
            if claim is None or ready_at > self._now or claim.phase is Phase.INITIALIZED:
                continue
            for key in claim.nominated:
                location = self._locations.get(key)
                if location is not None and not location.node:
                    self._wait(location, ready_at)
                    self._locations[key] = PodLocation(location.workload, name)
            self._claims[name] = replace(
                claim, phase=Phase.INITIALIZED, phase_since=ready_at, initialized_at=ready_at, nominated=()
            )
            self._touch(name, ready_at)

    def _wait(self, location: PodLocation, until: datetime) -> None:
        """Count how long a pod has waited in this step."""
        start = location.since or self._since
        if start < self._since and location.since is not None:
            start = self._since
        self._add(pending_seconds=max(0.0, (until - start).total_seconds()))

    def follow_pods(self) -> None:
        """Let pods come and go as in the cluster. A pod that replaces one of its workload takes over its place.

        Otherwise, what the cluster's own autoscaler evicts would move in the shadow, too.
        """
        places_left: dict[str, list[str]] = {}
        for key in sorted(self._locations):
            pod = self._pods.get(key)
            if pod is None or pod.deleting:
                places_left.setdefault(self._locations[key].workload, []).append(key)
        for pod in self._pods.values():
            if pod.key in self._locations or pod.deleting:
                continue
            workload = workload_of(pod)
            places = places_left.get(workload) if pod.shape.owner else None
            if places:
                old = places.pop(0)
                location = self._locations.pop(old)
                self._locations[pod.key] = location
                self._renominate(old, pod.key)
            else:
                self._locations[pod.key] = PodLocation(workload, "", pod.created_at)
                self._changed()
        for key in [key for key in self._locations if key not in self._pods]:
            location = self._locations.pop(key)
            if location.node:
                self._touch(location.node)

    def _renominate(self, old: str, new: str) -> None:
        for name in self._ready_at:
            claim = self._claims.get(name)
            if claim is not None and old in claim.nominated:
                nominated = tuple(new if key == old else key for key in claim.nominated)
                self._claims[name] = replace(claim, nominated=nominated)

    def interrupt(self) -> None:
        """Let EC2 reclaim spot nodes, at the assumed rate and the same ones in every run."""
        share = self._view.assumed.interruptions_a_month * (self._now - self._since) / _MONTH
        for name in sorted(self._claims):
            claim = self._claims[name]
            if claim.capacity_type != SPOT or claim.phase is not Phase.INITIALIZED:
                continue
            if _drawn(name, self._now) >= share:
                continue
            moved = self._evicted(name, self._now + NOTICE)
            self._add(evictions=moved, interrupted=moved)
            self._leave(claim, self._now + NOTICE)

    def _evicted(self, name: str, since: datetime) -> int:
        keys = [key for key, location in self._locations.items() if location.node == name]
        for key in keys:
            self._locations[key] = PodLocation(self._locations[key].workload, "", since)
        return len(keys)

    def _leave(self, claim: NodeClaim, until: datetime) -> None:
        del self._claims[claim.name]
        self._leaving.append(Leaving(self._price(claim), until, claim.capacity_type == SPOT))
        self._changed()

    # How decisions see it

    def _inputs(self, *, going: Iterable[str] = ()) -> Inputs:
        """Return the inputs of a decision about the shadow. The nodes in `going` are going away, without claims."""
        inputs, removed = self._view.inputs, frozenset(going)
        self._steps += 1
        pods = []
        for key, pod in self._pods.items():
            location = self._locations.get(key)
            if location is None:
                continue
            waits = not location.node and (bool(pod.node) or pod.unschedulable)
            pods.append(replace(pod, node=location.node, unschedulable=waits, nominated_node=""))
        nodes = [self._node(c) for c in self._claims.values() if c.phase is Phase.INITIALIZED]
        snapshot = replace(
            inputs.snapshot,
            taken_at=self._now,
            pods=tuple(sorted(pods, key=lambda pod: pod.key)),
            nodes=tuple(replace(n, deleting=n.name in removed) for n in sorted(nodes, key=lambda n: n.name)),
        )
        claims = tuple(self._claims[name] for name in sorted(self._claims) if name not in removed)
        decision = f"{self._name}-{self._now:%Y%m%d%H%M%S}-{self._steps}"
        ledger = replace(inputs.ledger, claims=claims)
        return replace(inputs, snapshot=snapshot, ledger=ledger, decision=decision)

    def _node(self, claim: NodeClaim) -> Node:
        return Node(
            claim.name,
            claim.created_at,
            provider_id=claim.provider_id,
            labels=claim.labels,
            taints=claim.taints,
            capacity=claim.capacity,
            allocatable=claim.allocatable,
            conditions={"Ready": Condition("True")},
            last_pod_event_at=self._touched.get(claim.name),
        )

    def _waiting(self) -> list[str]:
        promised = {key for claim in self._claims.values() for key in claim.nominated}
        return [key for key, location in self._locations.items() if not location.node and key not in promised]


def _drawn(name: str, now: datetime) -> float:
    """Return a number from 0 to 1 that is the same for a node and a time in every run."""
    digest = hashlib.sha256(f"{name} {now.isoformat()}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
