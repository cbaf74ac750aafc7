"""Simulation: where the pods of some nodes would go without these nodes, and what would have to be bought for them.

Existing nodes and offerings are computed once for a whole pass; a trial fills copies. Pods that need a node in any case
are placed first, and their places are reserved; what is bought for them is up to provisioning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import ClassVar

from nodesmith.decisions.disruption.candidates import Candidate, is_settling
from nodesmith.decisions.disruption.simulation.zones import Zones, evenly
from nodesmith.decisions.packing import GOOD_ENOUGH
from nodesmith.decisions.provisioning.alternatives import Attempt, cheapest
from nodesmith.decisions.provisioning.clusterstate import (
    Reserved,
    effective_snapshot,
    living_claims,
    needs,
    reserved,
    without,
)
from nodesmith.decisions.provisioning.nodepools.tiers import pools
from nodesmith.decisions.provisioning.plan import Inputs, PlannedNode
from nodesmith.decisions.provisioning.planner import Planner, Search
from nodesmith.decisions.provisioning.purchase.order import Purchase
from nodesmith.decisions.provisioning.reasons import why_left
from nodesmith.decisions.scheduling.demands import shape_refusal
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import reservation_limit
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.preferences import PreferenceMode, has_preferences
from nodesmith.decisions.scheduling.topology.mergednodes import ClusterNodes
from nodesmith.decisions.scheduling.topology.topology import affinity_terms, anti_affinity_terms
from nodesmith.decisions.scheduling.workloads import Splits
from nodesmith.model.apimachinery.frozen import NO_ITEMS
from nodesmith.model.apimachinery.labels import SPOT, ZONE
from nodesmith.model.apimachinery.quantities import NOTHING, Resources
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool, rebalances_zones
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.policies import PreferencePolicy
from nodesmith.model.snapshot import Snapshot

_AWAITED = "pods that wait for a node, or are about to move, depend on where it runs"


@dataclass(frozen=True, slots=True)
class Trial:
    """What would become of the pods of some nodes. `displaced` are those (namespace/name) that would have no place.

    `destinations` maps each pod to the name of a Node, or of the claim that would be bought. `existing_nodes` are those
    that take pods, with these pods on them; `tiers` is what may still be bought afterwards.
    """

    nodes: tuple[PlannedNode, ...]
    destinations: Mapping[str, str]
    displaced: tuple[str, ...]
    existing_nodes: tuple[ExistingNode, ...]
    tiers: tuple[tuple[Template, ...], ...]
    preference_modes: int = 1
    """how many ways of treating the pods' preferences were tried"""
    split: str = ""
    """Which workload keeps pods off spot, and how many, if that concerns these pods."""
    obstacles: Mapping[str, str] = NO_ITEMS
    """Why the first of `displaced`, and the first on each node, have no place."""

    @property
    def refusal(self) -> str:
        """Why the nodes have to stay, in a sentence; empty if all pods have a place."""
        if not self.displaced:
            return ""
        more = f" (and {len(self.displaced) - 1} more)" if len(self.displaced) > 1 else ""
        return self.refusal_of(self.displaced[0], more) + (f": {self.split}" if self.split else "")

    def refusal_of(self, pod: str, more: str = "") -> str:
        """Return that a pod would have no place, and why if that is known."""
        obstacle = self.obstacles.get(pod)
        return f"pod {pod}{more} would have no node{f': {obstacle}' if obstacle else ''}"


class Fleet:
    """Existing nodes and offerings, as all trials of a pass see them. Only `settle` changes them.

    `moving` are claims that moves in progress take; the Nodes in `avoided` are no destinations. `promised` has the
    names of nodes on which pods that need a node will be placed. Until these pods are bound, no pod that depends on
    them is moved. A pod that keeps a pending pod of another workload out of its zone or another domain is not moved
    either: the pending pod would take the domain once the other is evicted, which could then run nowhere.
    """

    planner: ClassVar[type[Planner]] = Planner

    def __init__(
        self,
        inputs: Inputs,
        pools_by_name: Mapping[str, NodePool],
        moving: Collection[str] = (),
        avoided: Collection[str] = (),
    ) -> None:
        claims = living_claims(inputs)
        context = without(
            effective_snapshot(inputs), {c.provider_id for c in claims if c.name in moving and c.provider_id}
        )
        offers = pools(context, inputs.ledger, inputs.catalog, inputs.settings, inputs.now)
        self.promised, self._needed, self._followers = frozenset[str](), frozenset[Shape](), set[Shape]()
        self._inputs, self._offers = inputs, offers
        self._known: dict[tuple[Shape, str | None], str] = {}
        self._shapes = {pod.key: pod.shape for pod in context.pods}
        shapes = list(dict.fromkeys(self._shapes.values()))
        self._respects_zones = rebalances_zones(pools_by_name.values())
        self._splits = Splits(context, claims, inputs.now)
        movable = [*(shape for shape in shapes if shape.moves), *self._splits.variants]
        demand = needs(context, inputs)
        room = reserved(context, demand.wanted, inputs)
        # Also room that gangs have booked.
        hosted = (shape for existing in room.free for shape in existing.hosted)
        known_shapes = dict.fromkeys([*shapes, *hosted])
        self._planner = self.planner(inputs, offers, movable, known_shapes, for_zones=self._respects_zones)
        self._planner.tiers = tuple(tuple(map(_with_wide_lists, tier)) for tier in offers.tiers)
        self._on_their_way = frozenset(
            p.key for p in context.pods if p.node in demand.leaving_nodes and not p.deleting
        )
        free = self._with_pending_placed(room)
        closed = _no_destinations(free, context, claims, pools_by_name, inputs.now) | frozenset(avoided)
        self._cluster_nodes = ClusterNodes(free, closed, shapes)

    @property
    def tiers(self) -> tuple[tuple[Template, ...], ...]:
        """What may be bought, with what is left of the NodePools' limits."""
        return self._planner.tiers

    def _with_pending_placed(self, room: Reserved) -> list[ExistingNode]:
        """Return the existing nodes after every pod that needs a node is placed as far as possible."""
        if room.fresh:
            mode = PreferenceMode.RULE if self._respects_zones else PreferenceMode.BUY
            fresh = self._splits.narrowed(room.fresh).pods
            assignment = self._planner.assign(fresh, room.free, mode)
            self.promised = frozenset(assignment.placed)
            keys = {key for keys in assignment.placed.values() for key in keys}
            expected = {pod.shape for pod in room.fresh if not pod.node and pod.key in keys}
            stuck = {pod.shape for pods, _ in assignment.stuck for pod in pods if not pod.node}
            self._needed = frozenset(
                s
                for s in {*self._shapes.values()}
                if any(_may_require(s, e) for e in expected) or any(_keeps_away(s, e) for e in stuck)
            )
        return room.free

    def try_without(
        self, sources: Collection[Candidate], *, thorough: bool = False, good_enough: float = GOOD_ENOUGH
    ) -> Trial:
        """Try to place the pods of these nodes elsewhere; if `thorough`, compare many ways of buying.

        A purchase whose price is within the factor `good_enough` of its lower bound is not improved further.
        """
        pods = [replace(pod, shape=self._shapes[pod.key]) for source in sources for pod in source.pods]
        shapes = {pod.shape: None for pod in pods}
        stuck = {shape for shape in shapes if shape_refusal(shape) or self._is_needed(shape)}
        refused = {
            pod.key: pod.refusal or shape_refusal(pod.shape) or _AWAITED
            for pod in pods
            if pod.refusal or pod.shape in stuck
        }
        if refused:
            return Trial((), {}, tuple(sorted(refused)), (), self.tiers, obstacles=refused)
        split = self._splits.narrowed(pods)
        pods = split.pods
        free = self._cluster_nodes.without({source.node.name for source in sources}, shapes)
        search = Search(self._planner, pods, free, thorough=thorough, remembers=True, good_enough=good_enough)
        chosen, existing_nodes = self._chosen(search, shapes)
        trial = _trial(
            chosen, self._written_down(chosen.purchase, existing_nodes), existing_nodes, search.ways
        )
        if trial.displaced:
            firsts = {*trial.displaced[:1], *_firsts(sources, frozenset(trial.displaced))}
            trial = replace(trial, obstacles=why_left(chosen, self._offers, firsts, self._known))
        return replace(trial, split=split.first(trial.displaced)) if split.splits else trial

    def _is_needed(self, shape: Shape) -> bool:
        """Return whether a shape's pods stay: pending pods depend on that, or pods just moved have affinity to them."""
        return shape in self._needed or any(_wants(other, shape) for other in self._followers)

    def _chosen(self, search: Search, shapes: Iterable[Shape]) -> tuple[Attempt, list[ExistingNode]]:
        """Return the best attempt, and the existing nodes with its pods on them."""
        ignores = self._inputs.settings.preference_policy == PreferencePolicy.IGNORE
        if ignores or not any(map(has_preferences, shapes)):
            chosen, _ = search.best(PreferenceMode.RULE)
        else:
            chosen, _ = cheapest(search.best, respects_zones=self._respects_zones)
        return chosen, search.nodes_of(chosen)

    def open_to(self, shapes: Collection[Shape]) -> list[ExistingNode]:
        """Return the existing nodes that a trial with pods of these shapes may fill."""
        return self._cluster_nodes.nodes_for(shapes)

    def existing_nodes_of(self, nodes: Iterable[str]) -> list[ExistingNode]:
        """Return the existing nodes with these Nodes' names, in their present state."""
        return [
            self._cluster_nodes.existing_nodes[name]
            for name in sorted(nodes)
            if name in self._cluster_nodes.existing_nodes
        ]

    def zones(self, *, again: bool) -> Zones:
        """Count what spreads over zones count. In a validation (`again`), pods in transit do not block a move."""
        cluster_nodes = self._cluster_nodes.existing_nodes.values()
        return Zones(cluster_nodes, self._shapes, self._sold_in, () if again else self._on_their_way)

    def _sold_in(self, shape: Shape) -> list[str]:
        return [zone for (zone,) in self._planner.launching.domains(shape, (ZONE,))]

    def settle(self, sources: Iterable[Candidate], trial: Trial | None) -> None:
        """Apply a trial: the sources are gone, and what it takes is used up. Sources without pods need no trial."""
        for source in sources:
            self._splits.leave(source.pods)
            self._cluster_nodes.drop(source.node.name)
            self._followers.update(filter(affinity_terms, (self._shapes[pod.key] for pod in source.pods)))
        if trial is None:
            return
        self._planner.tiers = trial.tiers
        for existing in trial.existing_nodes:
            self._cluster_nodes.put(existing)
        for node in trial.nodes:
            claim = node.claim
            labels = {**claim.requirements.settled, **claim.labels}
            hosted = Counter(self._shapes[key] for key in claim.nominated)
            self._cluster_nodes.closed.add(claim.name)
            self._cluster_nodes.put(
                ExistingNode(claim.name, labels, claim.taints, NOTHING, hosted, in_flight=True)
            )

    def take_reserved(self, reservations: Iterable[str]) -> None:
        """Use up an instance of each of these reservations (ids), for nodes that no trial has planned."""
        taken = Counter(map(reservation_limit, reservations))

        def without(template: Template) -> Template:
            if taken.keys().isdisjoint(template.reservations):
                return template
            left = {name: max(0, free - taken[name]) for name, free in template.reservations.items()}
            return replace(template, reservations=Resources(left))

        self._planner.tiers = tuple(tuple(map(without, tier)) for tier in self._planner.tiers)

    def _written_down(
        self, purchase: Purchase, existing_nodes: Sequence[ExistingNode]
    ) -> tuple[PlannedNode, ...]:
        nodes = self._planner.written_down(purchase)
        if self._inputs.settings.preference_policy == PreferencePolicy.IGNORE:
            return nodes
        return evenly(nodes, {t.name: t for t in self._planner.templates}, existing_nodes, self._shapes)


def _firsts(sources: Iterable[Candidate], displaced: Collection[str]) -> Iterator[str]:
    """Yield the first displaced pod of each node that has one."""
    for source in sources:
        yield from islice((pod.key for pod in source.pods if pod.key in displaced), 1)


def _may_require(shape: Shape, other: Shape) -> bool:
    """Return whether pods of a shape may need pods of another one to be allowed on a node."""
    counted = any(spread.hard and spread.selects(other, shape.namespace) for spread in shape.spreads)
    return counted or _wants(shape, other)


def _keeps_away(shape: Shape, other: Shape) -> bool:
    """Return whether an anti-affinity keeps pods of another workload out of the domains of a shape's pods."""
    if (shape.namespace, shape.owner) == (other.namespace, other.owner):
        return False
    mutual = ((shape, other), (other, shape))
    return any(term.selects(to) for one, to in mutual for term in anti_affinity_terms(one))


def _wants(shape: Shape, other: Shape) -> bool:
    """Return whether pods of a shape have affinity to pods of another one."""
    return any(term.selects(other) for term in affinity_terms(shape))


def _with_wide_lists(template: Template) -> Template:
    """Treat spot as scarce everywhere, so that launch lists are wide: a replacement for a working node should last.

    Offerings that are not cheaper than what they replace are cut afterwards.
    """
    zones = {offering.zone for choice in template.choices for offering in choice.offerings}
    return replace(template, scarce=template.scarce | {(SPOT, zone) for zone in zones})


def _trial(
    chosen: Attempt, nodes: tuple[PlannedNode, ...], existing_nodes: Iterable[ExistingNode], ways: int
) -> Trial:
    places = {key: name for name, keys in chosen.assignment.placed.items() for key in keys}
    for node in nodes:
        places.update(dict.fromkeys(node.claim.nominated, node.claim.name))
    displaced = tuple(sorted(pod.key for pod in chosen.left))
    tiers = tuple(tuple(tier) for tier in chosen.purchase.tiers)
    touched = tuple(existing for existing in existing_nodes if existing.name in chosen.assignment.placed)
    return Trial(nodes, places, displaced, touched, tiers, ways)


def _no_destinations(
    free: Iterable[ExistingNode],
    context: Snapshot,
    claims: Iterable[NodeClaim],
    pools_by_name: Mapping[str, NodePool],
    now: datetime,
) -> frozenset[str]:
    """Return the names of nodes that take no pods of disrupted nodes: in-flight ones, and settling ones."""
    names = {existing.name for existing in free if existing.in_flight}
    for claim in claims:
        node = context.node_of(claim)
        if node is not None and is_settling(claim, node, pools_by_name.get(claim.nodepool), now):
            names.add(node.name)
    return frozenset(names)
