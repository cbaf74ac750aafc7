"""Simulation: where the pods of some nodes would go if these were gone, and what would have to be bought for them.

What stands, and what may be bought, is worked out once for a whole pass; a trial fills copies. Pods that
wait for a node anyway have their places first: those are promised; what is bought for them is no concern of this room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import fsum

from nodesmith.decisions.disruption.candidates import Candidate, is_settling
from nodesmith.decisions.launch import Templates
from nodesmith.decisions.nomination import preempting_only
from nodesmith.decisions.provisioning.alternatives import Attempt, best
from nodesmith.decisions.provisioning.buying import Order, Purchase, buy
from nodesmith.decisions.provisioning.decide import Inputs, reserve, without_ending
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.pools import pools
from nodesmith.decisions.scheduling.assign import assign
from nodesmith.decisions.scheduling.choices import Choices
from nodesmith.decisions.scheduling.demands import Assignment
from nodesmith.decisions.scheduling.launching import TemplateLaunching
from nodesmith.decisions.scheduling.pending import provisionable, shape_refusal, unserved
from nodesmith.decisions.scheduling.rooms import Room, is_going, nominations, rooms
from nodesmith.decisions.scheduling.templates import Template
from nodesmith.decisions.scheduling.unsold import Unsold
from nodesmith.model.defaultspreads import with_default_spreads
from nodesmith.model.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodepools import NodePool
from nodesmith.model.pods import Pod
from nodesmith.model.resources import NOTHING
from nodesmith.model.shapes import Shape
from nodesmith.model.snapshot import Snapshot

_MANY = 1_000_000
"""so many pods that only one way of buying for them is tried"""


@dataclass(frozen=True, slots=True)
class Trial:
    """What would become of the pods of some nodes. `homeless` are those (namespace/name) that would have no place.

    `destinations` are by pod: a Node's name, or that of the claim that would be bought. `rooms` and `tiers` are what
    is left afterwards.
    """

    nodes: tuple[PlannedNode, ...]
    destinations: Mapping[str, str]
    homeless: tuple[str, ...]
    rooms: Mapping[str, Room]
    tiers: tuple[tuple[Template, ...], ...]

    @property
    def price_hourly_usd(self) -> float:
        """What the nodes to buy cost together, each at its cheapest."""
        return fsum(node.price_hourly_usd for node in self.nodes)


class Fleet:
    """What stands and what may be bought, as all trials of a pass see it. Changes only by `settle`.

    `promised` names the rooms in which pods that wait for a node will find their place.
    """

    def __init__(
        self, inputs: Inputs, pools_by_name: Mapping[str, NodePool], moving: Collection[str] = ()
    ) -> None:
        settings = inputs.settings
        self._inputs, self._pools = inputs, pools_by_name
        claims = [c for c in inputs.ledger.claims if c.phase is not Phase.GIVEN_UP]
        seen = with_default_spreads(inputs.snapshot, settings.default_spreads)
        ground = without_ending(preempting_only(seen, claims), claims)
        ground = _without(ground, {c.provider_id for c in claims if c.name in moving and c.provider_id})
        offers = pools(ground, inputs.ledger, inputs.catalog, settings, inputs.now)
        self.tiers, self._daemonsets = offers.tiers, ground.daemonsets
        self._launching = TemplateLaunching(offers.templates)
        self.shapes = {pod.key: pod.shape for pod in ground.pods}
        self._numbers: Iterator[int] = count()
        self._templates = Templates()
        self.promised: frozenset[str] = frozenset()
        self.rooms = self._promised(ground, claims)
        self._closed = self._no_destinations(ground, claims)

    def _promised(self, ground: Snapshot, claims: Sequence[NodeClaim]) -> dict[str, Room]:
        """Give the rooms that are left once every pod that needs a node has what is there for it."""
        going = frozenset(node.name for node in ground.nodes if is_going(node))
        wanted, _ = provisionable(ground.pods, going)
        free = rooms(ground, claims)
        if wanted:
            nominated = nominations(claims, self._inputs.now)
            fresh, waiting = unserved(wanted, nominated)
            _, outdone = reserve(waiting, nominated, claims, free, ground)
            if fresh or outdone:
                placed = self._assign([*fresh, *outdone], free, Choices(), Unsold()).placed
                self.promised = frozenset(placed)
        return {room.name: room for room in free}

    def _no_destinations(self, ground: Snapshot, claims: Iterable[NodeClaim]) -> frozenset[str]:
        """Name the rooms that take no pods of disrupted nodes: those in flight, and those whose own have just moved."""
        by_provider = {claim.provider_id: claim for claim in claims if claim.provider_id}
        found = {name for name, room in self.rooms.items() if room.in_flight}
        for node in ground.nodes:
            claim = by_provider.get(node.provider_id)
            if claim and is_settling(claim, node, self._pools.get(claim.nodepool), self._inputs.now):
                found.add(node.name)
        return frozenset(found)

    def try_without(self, sources: Collection[Candidate], *, thorough: bool = False) -> Trial:
        """Try what becomes of the pods of these nodes; where it is worth it, `thorough`ly, in many ways."""
        gone = {source.node.name for source in sources}
        refused = [p.key for s in sources for p in s.pods if p.refusal or shape_refusal(p.shape)]
        if refused:
            return Trial((), {}, tuple(sorted(refused)), {}, self.tiers)
        pods = [replace(pod, shape=self.shapes.get(pod.key, pod.shape)) for s in sources for pod in s.pods]
        free = [self._opened(room) for name, room in self.rooms.items() if name not in gone]
        templates = [t for tier in self.tiers for t in tier]
        filled: list[tuple[Assignment, list[Room]]] = []

        def assigned(choices: Choices, unsold: Unsold) -> Assignment:
            mine = [room.copy() for room in free]
            found = self._assign(pods, mine, choices, unsold)
            filled.append((found, mine))
            return found

        number = len(pods) if thorough else _MANY
        offerings = sum(len(template.stock) for template in templates)
        chosen, _ = best(number, offerings, assigned, self._bought, _no_bound, _all_hope)
        return self._trial(chosen, next(mine for found, mine in filled if found is chosen.assignment))

    def _trial(self, chosen: Attempt, left: Iterable[Room]) -> Trial:
        places = {key: name for name, keys in chosen.assignment.placed.items() for key in keys}
        for node in chosen.purchase.nodes:
            places.update(dict.fromkeys(node.claim.nominated, node.claim.name))
        homeless = tuple(sorted(pod.key for pod in chosen.left))
        tiers = tuple(tuple(tier) for tier in chosen.purchase.tiers)
        touched = {room.name: room for room in left if room.name in chosen.assignment.placed}
        return Trial(tuple(chosen.purchase.nodes), places, homeless, touched, tiers)

    def settle(self, sources: Iterable[Candidate], trial: Trial | None) -> None:
        """Take a trial for done: the sources are gone, and what it takes is no longer there for others.

        Sources without pods need no trial.
        """
        for source in sources:
            self.rooms.pop(source.node.name, None)
        if trial is None:
            return
        self.rooms.update(trial.rooms)
        self.tiers = trial.tiers
        for node in trial.nodes:
            claim = node.claim
            labels = {**claim.requirements.settled, **claim.labels}
            room = Room(
                claim.name, labels, claim.taints, NOTHING, _hosted(claim, self.shapes), in_flight=True
            )
            self.rooms[claim.name] = room
            self._closed |= {claim.name}

    def _opened(self, room: Room) -> Room:
        """Give a room as trials see it: what takes no pods has no room, but counts as a neighbour."""
        return replace(room, free=NOTHING) if room.name in self._closed else room

    def _assign(
        self, pods: Iterable[Pod], free: Sequence[Room], choices: Choices, unsold: Unsold
    ) -> Assignment:
        templates = [t for tier in self.tiers for t in tier]
        policy = self._inputs.settings.preference_policy
        return assign(pods, free, self._launching, templates, self._daemonsets, policy, choices, unsold)

    def _bought(self, assignment: Assignment, choices: Choices) -> Purchase:
        inputs, cluster = self._inputs, self._inputs.ledger.cluster
        if cluster is None or not assignment.demands:
            return Purchase([list(tier) for tier in self.tiers], left=assignment.demands)
        about = inputs.decision, cluster, inputs.now, inputs.settings, choices, self._numbers, self._templates
        return buy(self.tiers, assignment.demands, Order(*about))


def _hosted(claim: NodeClaim, shapes: Mapping[str, Shape]) -> Counter[Shape]:
    return Counter(shapes[key] for key in claim.nominated if key in shapes)


def _without(snapshot: Snapshot, providers: Collection[str]) -> Snapshot:
    """Give the snapshot in which the Nodes of these instances are being deleted."""
    if not providers:
        return snapshot
    nodes = tuple(replace(n, deleting=True) if n.provider_id in providers else n for n in snapshot.nodes)
    return replace(snapshot, nodes=nodes)


def _no_bound(_: Attempt) -> float:
    return 0.0


def _all_hope(_: Iterable[Pod]) -> int:
    return 0
