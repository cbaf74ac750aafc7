"""Simulation: where the pods of some nodes would go without these nodes, and what would have to be bought for them.

Existing nodes and offerings are computed once for a whole pass; a trial fills copies. Pods that need a node in any case
are placed first, and their places are reserved; what is bought for them is up to provisioning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count

from nodesmith.decisions.disruption.candidates import Candidate, is_settling
from nodesmith.decisions.disruption.costs import moves
from nodesmith.decisions.disruption.simulation.existingnodes import ClusterNodes
from nodesmith.decisions.disruption.simulation.zonechoice import evenly
from nodesmith.decisions.disruption.simulation.zones import Zones
from nodesmith.decisions.launch import Templates
from nodesmith.decisions.nomination import preempting_only
from nodesmith.decisions.packing import GOOD_ENOUGH
from nodesmith.decisions.provisioning.decide import Inputs, reserve, without, without_ending
from nodesmith.decisions.provisioning.nodepooltiers import pools
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.purchase.bought import Origin, written_down
from nodesmith.decisions.provisioning.purchase.order import Learned, Order, Purchase
from nodesmith.decisions.provisioning.purchase.purchase import buy
from nodesmith.decisions.provisioning.search.alternatives import Attempt, best
from nodesmith.decisions.provisioning.search.moves import keep_for_sources
from nodesmith.decisions.provisioning.search.runningpods import Try, sparing
from nodesmith.decisions.scheduling.assign import Known, assign
from nodesmith.decisions.scheduling.choices import Choices
from nodesmith.decisions.scheduling.demands import Assignment
from nodesmith.decisions.scheduling.nodes.existing import ExistingNode, existing_nodes, is_going, nominations
from nodesmith.decisions.scheduling.nodes.shiftedzones import outside, with_zones_cordoned
from nodesmith.decisions.scheduling.offerings.launchable import TemplateLaunching
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.offerings.unavailable import UnavailableDomains
from nodesmith.decisions.scheduling.pending import provisionable, shape_refusal, unserved
from nodesmith.decisions.scheduling.preferences import PreferenceMode, has_preferences
from nodesmith.decisions.scheduling.topology.topology import affinity_terms
from nodesmith.decisions.termination.protection import kept
from nodesmith.model.apimachinery.labels import SPOT, ZONE
from nodesmith.model.apimachinery.resources import NOTHING
from nodesmith.model.defaultspreads import with_default_spreads
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, rebalances_zones
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.kubernetes.shapes import Shape
from nodesmith.model.policies import PreferencePolicy
from nodesmith.model.snapshot import Snapshot

_MANY = 1_000_000
"""as if there were so many pods that only one way of buying for them is tried"""


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
    ways: int = 1
    """how many ways of treating the pods' preferences were tried"""


class Fleet:
    """Existing nodes and offerings, as all trials of a pass see them. Only `settle` changes them.

    `moving` are claims that moves in progress take; the Nodes in `avoided` are no destinations. `promised` has the
    names of nodes on which pods that need a node will be placed. Until these pods are bound, no pod that depends on
    them is moved.
    """

    def __init__(
        self,
        inputs: Inputs,
        pools_by_name: Mapping[str, NodePool],
        moving: Collection[str] = (),
        avoided: Collection[str] = (),
    ) -> None:
        settings, away = inputs.settings, inputs.ledger.shifted(inputs.now)
        claims = outside((c for c in inputs.ledger.claims if c.phase is not Phase.GIVEN_UP), away)
        observed = with_zones_cordoned(inputs.snapshot, away)
        seen = with_default_spreads(observed, settings.default_spreads)
        context = without_ending(preempting_only(seen, claims), claims)
        context = without(context, {c.provider_id for c in claims if c.name in moving and c.provider_id})
        offers = pools(context, inputs.ledger, inputs.catalog, settings, inputs.now)
        self.tiers = tuple(tuple(map(_widely, tier)) for tier in offers.tiers)
        self.promised, self._early, self._followers = frozenset[str](), frozenset[Shape](), set[Shape]()
        self._inputs, self._daemonsets = inputs, context.daemonsets
        self._launching = TemplateLaunching(offers.templates)
        self._shapes = {pod.key: pod.shape for pod in context.pods}
        shapes = list(dict.fromkeys(self._shapes.values()))
        placed = [shape for shape in shapes if moves(shape)]
        others = [*context.daemonsets, *shapes]
        policy = settings.preference_policy
        self._known = Known.of(placed, others, self._launching, policy)
        self._heeds_zones = rebalances_zones(pools_by_name.values())
        self._zonal = self._known
        if self._heeds_zones:
            self._zonal = Known.of(placed, others, self._launching, policy, zones_only=True)
        self._numbers, self._templates = count(), Templates()
        free = self._promise(context, claims)
        closed = _no_destinations(free, context, claims, pools_by_name, inputs.now) | frozenset(avoided)
        self._cluster_nodes = ClusterNodes(free, closed, shapes)

    def _promise(self, context: Snapshot, claims: Sequence[NodeClaim]) -> list[ExistingNode]:
        """Return the existing nodes after every pod that needs a node is placed as far as possible."""
        going = frozenset(node.name for node in context.nodes if is_going(node))
        self._on_their_way = frozenset(p.key for p in context.pods if p.node in going and not p.deleting)
        wanted, _ = provisionable(context.pods, going, kept(context, claims, self._inputs.now))
        free = existing_nodes(context, claims)
        keep_for_sources(free, context, self._inputs.ledger)
        if wanted:
            nominated = nominations(claims, self._inputs.now)
            fresh, waiting = unserved(wanted, nominated)
            _, outdone = reserve(waiting, nominated, claims, free, context)
            others = PreferenceMode.RULE if self._heeds_zones else PreferenceMode.BUY
            if fresh or outdone:
                placed = self._assign(
                    [*fresh, *outdone], free, Choices(), UnavailableDomains(), others
                ).placed
                self.promised = frozenset(placed)
                there = {key for keys in placed.values() for key in keys}
                expected = {p.shape for p in wanted if not p.node and p.key in there}
                self._early = frozenset(
                    s for s in {*self._shapes.values()} if any(_leans_on(s, e) for e in expected)
                )
        return free

    def try_without(
        self, sources: Collection[Candidate], *, thorough: bool = False, good_enough: float = GOOD_ENOUGH
    ) -> Trial:
        """Try to place the pods of these nodes elsewhere; if `thorough`, compare many ways of buying.

        A purchase whose price is within the factor `good_enough` of its lower bound is not improved further.
        """
        pods = [replace(pod, shape=self._shapes[pod.key]) for source in sources for pod in source.pods]
        shapes = {pod.shape: None for pod in pods}
        stuck = {shape for shape in shapes if shape_refusal(shape) or self._is_needed(shape)}
        refused = [pod.key for pod in pods if pod.refusal or pod.shape in stuck]
        if refused:
            return Trial((), {}, tuple(sorted(refused)), (), self.tiers)
        free = self._cluster_nodes.without({source.node.name for source in sources}, shapes)
        filled: list[tuple[Assignment, list[ExistingNode]]] = []

        number, learned, ways = len(pods) if thorough else _MANY, Learned(), list[PreferenceMode]()
        offerings = sum(len(template.type_options) for tier in self.tiers for template in tier)

        def bought(assignment: Assignment, choices: Choices, quick: bool) -> Purchase:
            order = Order(self._inputs.settings, choices, good_enough, learned, quick)
            return self._bought(assignment, order)

        def decided(preference_mode: PreferenceMode) -> tuple[Attempt, float]:
            def assigned(choices: Choices, unavailable: UnavailableDomains) -> Assignment:
                mine = [existing.copy() for existing in free]
                filled.append((self._assign(pods, mine, choices, unavailable, preference_mode), mine))
                return filled[-1][0]

            ways.append(preference_mode)
            return best(number, offerings, assigned, bought, _no_bound, _all_hope)

        chosen = self._chosen(decided, shapes)
        mine = next(mine for found, mine in filled if found is chosen.assignment)
        return _trial(chosen, self._written_down(chosen.purchase, mine), mine, len(ways))

    def _is_needed(self, shape: Shape) -> bool:
        """Return whether a shape's pods stay: they depend on unbound pods, or pods just moved have affinity to them."""
        return shape in self._early or any(_wants(other, shape) for other in self._followers)

    def _chosen(self, decided: Try, shapes: Iterable[Shape]) -> Attempt:
        ignores = self._inputs.settings.preference_policy == PreferencePolicy.IGNORE
        if ignores or not any(map(has_preferences, shapes)):
            return decided(PreferenceMode.RULE)[0]
        return sparing(decided, heeds_zones=self._heeds_zones)[0]

    def open_to(self, shapes: Collection[Shape]) -> list[ExistingNode]:
        """Return the existing nodes that a trial with pods of these shapes may fill."""
        return self._cluster_nodes.opened(shapes)

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
        return [zone for (zone,) in self._launching.domains(shape, (ZONE,))]

    def settle(self, sources: Iterable[Candidate], trial: Trial | None) -> None:
        """Apply a trial: the sources are gone, and what it takes is used up. Sources without pods need no trial."""
        for source in sources:
            self._cluster_nodes.drop(source.node.name)
            self._followers.update(filter(affinity_terms, (self._shapes[pod.key] for pod in source.pods)))
        if trial is None:
            return
        self.tiers = trial.tiers
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

    def _assign(
        self,
        pods: Iterable[Pod],
        free: Sequence[ExistingNode],
        choices: Choices,
        unavailable: UnavailableDomains,
        preference_mode: PreferenceMode,
    ) -> Assignment:
        templates = [t for tier in self.tiers for t in tier]
        policy, daemonsets = self._inputs.settings.preference_policy, self._daemonsets
        known = self._zonal if preference_mode is PreferenceMode.ZONES else self._known
        return assign(
            pods,
            free,
            self._launching,
            templates,
            daemonsets,
            policy,
            choices,
            unavailable,
            known,
            preference_mode,
        )

    def _bought(self, assignment: Assignment, order: Order) -> Purchase:
        if self._inputs.ledger.cluster is None or not assignment.demands:
            return Purchase([list(tier) for tier in self.tiers], left=assignment.demands)
        return buy(self.tiers, assignment.demands, order)

    def _written_down(self, purchase: Purchase, left: Sequence[ExistingNode]) -> tuple[PlannedNode, ...]:
        inputs, cluster = self._inputs, self._inputs.ledger.cluster
        if cluster is None:
            return ()
        origin = Origin(inputs.decision, cluster, inputs.now, self._numbers, self._templates)
        nodes = written_down(purchase.nodes, origin)
        if inputs.settings.preference_policy == PreferencePolicy.IGNORE:
            return nodes
        return evenly(nodes, {t.name: t for tier in self.tiers for t in tier}, left, self._shapes)


def _leans_on(shape: Shape, other: Shape) -> bool:
    """Return whether pods of a shape may need pods of another one to be allowed on a node."""
    counted = any(spread.hard and spread.selects(other, shape.namespace) for spread in shape.spreads)
    return counted or _wants(shape, other)


def _wants(shape: Shape, other: Shape) -> bool:
    """Return whether pods of a shape have affinity to pods of another one."""
    return any(term.selects(other) for term in affinity_terms(shape))


def _widely(template: Template) -> Template:
    """Treat spot as scarce everywhere, so that launch lists are wide: a replacement for a working node should last.

    Offerings that are not cheaper than what they replace are cut afterwards.
    """
    zones = {offering.zone for choice in template.choices for offering in choice.offerings}
    return replace(template, scarce=template.scarce | {(SPOT, zone) for zone in zones})


def _trial(chosen: Attempt, nodes: tuple[PlannedNode, ...], left: Iterable[ExistingNode], ways: int) -> Trial:
    places = {key: name for name, keys in chosen.assignment.placed.items() for key in keys}
    for node in nodes:
        places.update(dict.fromkeys(node.claim.nominated, node.claim.name))
    displaced = tuple(sorted(pod.key for pod in chosen.left))
    tiers = tuple(tuple(tier) for tier in chosen.purchase.tiers)
    touched = tuple(existing for existing in left if existing.name in chosen.assignment.placed)
    return Trial(nodes, places, displaced, touched, tiers, ways)


def _no_destinations(
    free: Iterable[ExistingNode],
    context: Snapshot,
    claims: Iterable[NodeClaim],
    pools_by_name: Mapping[str, NodePool],
    now: datetime,
) -> frozenset[str]:
    """Return the names of nodes that take no pods of disrupted nodes: in-flight ones, and settling ones."""
    found = {existing.name for existing in free if existing.in_flight}
    for claim in claims:
        node = context.node_of(claim)
        if node is not None and is_settling(claim, node, pools_by_name.get(claim.nodepool), now):
            found.add(node.name)
    return frozenset(found)


def _no_bound(_: Attempt) -> float:
    return 0.0


def _all_hope(_: Iterable[Pod]) -> int:
    return 0
