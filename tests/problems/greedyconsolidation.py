"""Consolidation as in Karpenter, the reference for ours: N nodes into at most one, and the first valid move wins.

Candidates are sorted by price per eviction cost. Among their prefixes of up to a hundred nodes, bisection finds the
longest that fits into existing nodes and one new, cheaper node; then single nodes are tried in the same order.
Simulation and launch lists are nodesmith's own, as for large fleets, so that only the search differs. However, one node
is bought for all pods, the cheapest that holds them, as in Karpenter's simulation, instead of a packing into several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum

from nodesmith.decisions.disruption.candidates import Candidate
from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.judgement import proposal
from nodesmith.decisions.disruption.search.searchpass import Pass
from nodesmith.decisions.disruption.simulation.simulation import Fleet
from nodesmith.decisions.disruption.worth import LEAST_SAVING, cut, for_spot
from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.planner import Planner
from nodesmith.decisions.provisioning.purchase.order import Order, Purchase
from nodesmith.decisions.scheduling.colocation import united
from nodesmith.decisions.scheduling.demands import Assignment, Demand
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, SPOT
from nodesmith.model.ledger.moves import Reason

_MOST, _STEPS = 100, 10**9
_CHEAPER = 1 - 1e-9
_SPOT_TYPES = 15


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
    members = tuple(demand.shape for demand in demands for _ in demand.pods)
    return [Demand(united(members), pods, unit=len(pods), members=members)]


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
    empty = [one for one in candidates if not one.pods]
    if empty:
        return under_way.emptied(under_way.allowed.within(empty, Reason.EMPTY) or empty[:1])
    order = sorted(candidates, key=lambda one: (-one.price_hourly_usd / (1 + one.harm), one.name))
    window = under_way.allowed.within(order, Reason.UNDERUTILIZED, _MOST)
    return _longest(window, under_way) or _single(window, under_way)


def _longest(window: Sequence[Candidate], under_way: Pass) -> Proposal | None:
    low, high, best = 2, len(window), None
    while low <= high:
        middle = (low + high) // 2
        found = _command(window[:middle], under_way)
        if found is None:
            high = middle - 1
        else:
            best, low = found, middle + 1
    return best


def _single(window: Sequence[Candidate], under_way: Pass) -> Proposal | None:
    return next(filter(None, (_command([one], under_way) for one in window)), None)


def _command(sources: Sequence[Candidate], under_way: Pass) -> Proposal | None:
    trial = under_way.fleet.try_without(sources, good_enough=1 + LEAST_SAVING)
    if trial.displaced or len(trial.nodes) > 1:
        return None
    price = fsum(one.price_hourly_usd for one in sources)
    templates = {template.name: template for tier in trial.tiers for template in tier}
    nodes = cut(trial.nodes, price * _CHEAPER, templates)
    if nodes is None or not all(_is_wide_enough(sources, node, templates) for node in nodes):
        return None
    bought = fsum(node.price_hourly_usd for node in nodes)
    return proposal(Reason.UNDERUTILIZED, sources, trial, nodes, price - bought, 0.0)
