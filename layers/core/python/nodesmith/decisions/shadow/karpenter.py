"""Karpenter's algorithm: the reference for nodesmith's prices, and the second shadow of an observed cluster.

It buys by first fit. Pods are placed largest first (cpu, then memory). Each goes to the open node with the fewest pods
on which it fits, as long as some type would hold them all; otherwise it opens a node that may still become any type.
Prices matter only at the end, when each node becomes the cheapest type that holds its pods.

It consolidates N nodes into at most one, and the first valid move wins. Candidates are sorted by price per eviction
cost. Among their prefixes of up to a hundred nodes, bisection finds the longest that fits into existing nodes and one
new, cheaper node; then single nodes are tried in the same order. Simulation and launch lists are nodesmith's own, so
that only the search differs. However, one node is bought for all pods, the cheapest that holds them, as in Karpenter's
simulation, instead of a packing into several.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from nodesmith.decisions.disruption.candidates import Candidate
from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.judgement import proposal
from nodesmith.decisions.disruption.search.searchpass import Pass
from nodesmith.decisions.disruption.simulation.simulation import Fleet
from nodesmith.decisions.disruption.worth import LEAST_SAVING, cut, for_spot
from nodesmith.decisions.provisioning import Inputs, Plan, decide
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.planner import Planner
from nodesmith.decisions.provisioning.purchase.order import Order, Purchase
from nodesmith.decisions.provisioning.purchase.packingproblem import TemplateOffers
from nodesmith.decisions.scheduling.colocation import united
from nodesmith.decisions.scheduling.demands import Assignment, Demand
from nodesmith.decisions.scheduling.offerings.options import vector
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, SPOT
from nodesmith.model.apimachinery.quantities import CPU, MEMORY
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.moves import Reason

_MOST, _STEPS = 100, 10**9
_CHEAPER = 1 - 1e-9
_SPOT_TYPES = 15

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """A type with its allocatable resources and its lowest price in USD an hour."""

    name: str
    capacity: Vector
    price: float


@dataclass(frozen=True, slots=True)
class BoughtNode:
    """A bought node, and the pods on it."""

    kind: Kind
    pods: tuple[Vector, ...]


@dataclass(slots=True)
class _Open:
    taken: Vector
    kinds: Sequence[Kind]
    pods: list[Vector]


def first_fit(pods: Iterable[Vector], kinds: Sequence[Kind]) -> list[BoughtNode]:
    """Return the bought nodes. Vectors are cpu, memory, then any others; a pod that fits no type is left out."""
    opened: list[_Open] = []
    order: list[tuple[int, int]] = []  # for open nodes: number of pods, number of the node
    for pod in sorted(pods, key=lambda p: (-p[0], -p[1], p)):
        refused: set[Vector] = set()
        for place, (count, number) in enumerate(order):
            node = opened[number]
            if node.taken in refused:
                continue
            if _add(node, pod):
                del order[place]
                insort(order, (count + 1, number))
                break
            refused.add(node.taken)
        else:
            fresh = _Open((0,) * len(pod), kinds, [])
            if _add(fresh, pod):
                order.insert(bisect_left(order, (1, len(opened))), (1, len(opened)))
                opened.append(fresh)
    return [BoughtNode(min(n.kinds, key=lambda k: (k.price, k.name)), tuple(n.pods)) for n in opened]


def _add(node: _Open, pod: Vector) -> bool:
    taken = tuple(map(sum, zip(node.taken, pod, strict=True)))
    fitting = [k for k in node.kinds if all(t <= r for t, r in zip(taken, k.capacity, strict=True))]
    if fitting:
        node.taken, node.kinds = taken, fitting
        node.pods.append(pod)
    return bool(fitting)


class FirstFitPlanner(Planner):
    """A planner that fills new nodes by first fit. Pods whose rules restrict who shares a node are bought as usual."""

    def buy(self, assignment: Assignment, order: Order) -> Purchase:
        """Buy one node for the pods of each open node."""
        alike: dict[object, list[Demand]] = {}
        demands: list[Demand] = []
        for demand in assignment.demands:
            if demand == Demand(demand.shape, demand.pods):
                alike.setdefault((demand.shape.terms, demand.shape.tolerations), []).append(demand)
            else:
                demands.append(demand)
        for same in alike.values():
            demands += self._filled(same)
        return super().buy(replace(assignment, demands=demands), order)

    def _filled(self, demands: Sequence[Demand]) -> list[Demand]:
        """Return one demand for the pods of each node that first fit opens, and those whose pods fit no node."""
        names = {name for demand in demands for name in demand.shape.requests.nonzero()}
        dimensions = (CPU, MEMORY, *sorted(names - {CPU, MEMORY}))
        kinds = self._kinds(demands[0], dimensions)
        waiting: dict[Vector, list[Pod]] = {}
        for demand in demands:
            waiting.setdefault(vector(demand.shape.requests, dimensions), []).extend(demand.pods)
        sizes = [size for size, pods in waiting.items() for _ in pods]
        queues = {size: iter(pods) for size, pods in waiting.items()}
        joined = [
            _together(tuple(next(queues[size]) for size in node.pods)) for node in first_fit(sizes, kinds)
        ]
        taken = {pod.key for demand in joined for pod in demand.pods}
        rest = (replace(d, pods=tuple(p for p in d.pods if p.key not in taken)) for d in demands)
        return [*joined, *(demand for demand in rest if demand.pods)]

    def _kinds(self, demand: Demand, dimensions: tuple[str, ...]) -> list[Kind]:
        """Return what nodes may become, by capacity at the lowest price, of the first NodePools that have any."""
        for tier in self.tiers:
            cheapest: dict[Vector, float] = {}
            for template in tier:
                offers = TemplateOffers(template, [demand], dimensions, 0)
                for offer in offers.holding(1, (0,) * len(dimensions)):
                    price = offer.offering.price_hourly_usd
                    cheapest[offer.room] = min(price, cheapest.get(offer.room, price))
            if cheapest:
                ordered = sorted(cheapest.items(), key=lambda item: (item[1], item[0]))
                return [Kind(str(number), room, price) for number, (room, price) in enumerate(ordered)]
        return []


def _together(pods: tuple[Pod, ...]) -> Demand:
    """Return the demand for pods that share one node."""
    if len(pods) == 1:
        return Demand(pods[0].shape, pods)
    members = tuple(pod.shape for pod in pods)
    return Demand(united(members), pods, unit=len(pods), members=members)


def first_fit_plan(inputs: Inputs) -> Plan:
    """Decide which nodes to buy as Karpenter does."""
    return decide(inputs, FirstFitPlanner)


class OneNodePlanner(Planner):
    """A planner that buys at most one node."""

    def buy(self, assignment: Assignment, order: Order) -> Purchase:
        """Buy one node for all demands."""
        return super().buy(replace(assignment, demands=_as_one(assignment.demands)), order)


class OneNode(Fleet):
    """A fleet whose trials buy at most one node."""

    planner = OneNodePlanner


def _as_one(demands: list[Demand]) -> list[Demand]:
    """Return one demand for all pods, or the demands unchanged if rules restrict who shares a node, or which node."""
    pods = tuple(pod for demand in demands for pod in demand.pods)
    if len(pods) < 2 or any(d != Demand(d.shape, d.pods) for d in demands):
        return demands
    return [_together(pods)]


def _is_wide_enough(
    sources: Sequence[Candidate], node: PlannedNode, templates: Mapping[str, Template]
) -> bool:
    """Return whether enough types are cheaper, if one spot node is replaced by another."""
    is_spot = [source.node.labels.get(CAPACITY_TYPE) == SPOT for source in sources] == [True]
    return not is_spot or for_spot(node, templates[node.claim.nodepool], _SPOT_TYPES) is not None


def one_command(inputs: Inputs) -> Proposal | None:
    """Return the first move that Karpenter's search would begin, or None if it finds none."""
    under_way = Pass(inputs, _STEPS, fleet=OneNode)
    candidates = under_way.consolidatable()
    empty = [candidate for candidate in candidates if not candidate.pods]
    removable = under_way.allowed.within(empty, Reason.EMPTY)
    if removable:
        return under_way.removal_of_empty(removable)
    order = sorted(
        (candidate for candidate in candidates if candidate.pods),
        key=lambda c: (-c.price_hourly_usd / (1 + c.eviction_cost), c.name),
    )
    window = under_way.allowed.within(order, Reason.UNDERUTILIZED, _MOST)
    return _longest(window, under_way) or _single(window, under_way)


def _longest(window: Sequence[Candidate], under_way: Pass) -> Proposal | None:
    low, high, best = 2, len(window), None
    while low <= high:
        middle = (low + high) // 2
        command = _command(window[:middle], under_way)
        if command is None:
            high = middle - 1
        else:
            best, low = command, middle + 1
    return best


def _single(window: Sequence[Candidate], under_way: Pass) -> Proposal | None:
    return next(filter(None, (_command([candidate], under_way) for candidate in window)), None)


def _command(sources: Sequence[Candidate], under_way: Pass) -> Proposal | None:
    trial = under_way.fleet.try_without(sources, good_enough=1 + LEAST_SAVING)
    if trial.displaced or len(trial.nodes) > 1:
        return None
    price = fsum(candidate.price_hourly_usd for candidate in sources)
    templates = {template.name: template for tier in trial.tiers for template in tier}
    nodes = cut(trial.nodes, price * _CHEAPER, templates)
    if nodes is None or not all(_is_wide_enough(sources, node, templates) for node in nodes):
        return None
    replacement_price = fsum(node.price_hourly_usd for node in nodes)
    return proposal(Reason.UNDERUTILIZED, sources, trial, nodes, price - replacement_price, 0.0)
