"""The planner: places pods on existing nodes and buys for the rest, for decisions and for the trials of disruption.

Everything that does not depend on the places of pods is computed once: where new nodes can be launched, and facts about
shapes.

`bounds` has the prices that no plan for the same pods can undercut. They leave open what an attempt settles before it
buys (domains, existing nodes, the first NodePool), so they hold for all plans, not only for those that settle it alike.
The bounds then rest on the pods, their own demands on a node, which of them may share one, and all offers. Free
capacity costs nothing: its greatest possible value, at the dual prices of each resource (see `resource_prices`), is
subtracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from math import ceil, fsum
from operator import le

from nodesmith.decisions.launch import Templates
from nodesmith.decisions.packing import GOOD_ENOUGH, Bin, Item, lower_bound, pack, resource_prices
from nodesmith.decisions.provisioning.alternatives import NO_BOUNDS, Attempt, Bounds, best
from nodesmith.decisions.provisioning.nodepools.tiers import Pools
from nodesmith.decisions.provisioning.plan import FIRST_TIME, Inputs, PlannedNode, RepetitionOf
from nodesmith.decisions.provisioning.purchase.claims import WarmFor
from nodesmith.decisions.provisioning.purchase.order import (
    Learned,
    Order,
    Origin,
    Purchase,
    written_down,
)
from nodesmith.decisions.provisioning.purchase.packednodes import dearer_than, with_node_usd
from nodesmith.decisions.provisioning.purchase.packingproblem import PackingProblem, packing_problem
from nodesmith.decisions.provisioning.purchase.purchase import buy
from nodesmith.decisions.scheduling.assign import ShapeFacts, assign
from nodesmith.decisions.scheduling.conflicts import PodConflicts
from nodesmith.decisions.scheduling.demands import Assignment, Choices, Demand, UnavailableDomains, by_shape
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.launchable import Admission, TemplateLaunching
from nodesmith.decisions.scheduling.offerings.options import Pricing, undominated_offers, vector
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import is_of_users
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.preferences import PreferenceMode
from nodesmith.decisions.scheduling.sharing import shared
from nodesmith.model.kubernetes.pods import Pod, Shape

_FEW = 64
"""Up to so many pods it is worth packing what must be bought to get the bound."""
_EXACT, _FUZZ = 1 + 1e-9, 1e-9
"""How near a bound must be where each node has a high price, and what rounding may have added to it."""


def bounds(
    attempt: Attempt,
    pods: Sequence[Pod],
    existing_nodes: Sequence[ExistingNode],
    templates: Sequence[Template],
    daemonsets: Sequence[Shape],
    conflicts: PodConflicts,
) -> Bounds:
    """Return lower bounds on all plans that place what this attempt places.

    `existing_nodes` have the capacity that was free before the attempt; `conflicts` cover the shapes of all pods. 0
    where no bound is claimed.
    """
    purchase = attempt.purchase
    if not purchase.nodes or not purchase.is_bounded:
        return NO_BOUNDS
    of_all = _OfAllPlans(attempt, pods, existing_nodes, templates, daemonsets, conflicts)
    is_own = _settles_nothing(attempt)
    price = (
        purchase.bound_hourly_usd if is_own else min(of_all.least(Pricing.PRICE), purchase.price_hourly_usd)
    )
    is_surcharged = any(template.type_options.is_surcharged for template in templates)
    least = min(of_all.least(Pricing.PAID), purchase.cost_hourly_usd) if is_surcharged else price
    if not any(template.least_nodes for template in templates):
        return Bounds(price, least, keeps_weights=is_own)
    nodes, cost = of_all.least_nodes(len(purchase.nodes))
    least = max(least, min(cost, purchase.cost_hourly_usd))
    fewest = min(nodes, len(purchase.nodes))
    return Bounds(price, least, fewest, is_own) if is_surcharged else Bounds(least, least, fewest)


def takes_much_of_limits(before: Iterable[Template], after: Iterable[Template]) -> bool:
    """Return whether less than three times what a purchase took is left of a limit of NodePools, or of a quota.

    Another plan might then be cheaper only because it exceeds the limit, which bounds do not count.
    """
    limits = {template.name: template.remaining for template in after}
    for template in before:
        for name in filter(is_of_users, template.remaining):
            remaining = limits[template.name].of(name)
            if 0 <= remaining < _MUCH * (template.remaining[name] - remaining):
                return True
    return False


class _OfAllPlans:
    """Bounds on all plans that place what an attempt places, whatever the attempt has settled."""

    def __init__(
        self,
        attempt: Attempt,
        pods: Sequence[Pod],
        existing_nodes: Sequence[ExistingNode],
        templates: Sequence[Template],
        daemonsets: Sequence[Shape],
        conflicts: PodConflicts,
    ) -> None:
        self._attempt, self._pods, self._existing = attempt, pods, existing_nodes
        self._templates, self._daemonsets, self._conflicts = templates, daemonsets, conflicts

    @cached_property
    def _demands(self) -> list[Demand]:
        served = _served(self._attempt, self._pods)
        demands = [Demand(shape, tuple(alike)) for shape, alike in served]
        return shared(demands, self._conflicts, self._templates, self._daemonsets)

    def least(self, pricing: Pricing) -> float:
        """Return a lower bound on the cost, USD an hour."""
        offered = packing_problem(self._templates, self._demands, pricing=pricing)
        return max(0.0, self._bound(offered, offered.bins) - offered.worth_hourly_usd)

    def least_nodes(self, number: int) -> tuple[int, float]:
        """Return a lower bound on the number of nodes, and one on the cost of plans with no more than `number`.

        With U added to the price of each node, any plan of n nodes costs at least the bound B of that problem: its
        nodes themselves then cost at least B - n × U.
        """
        offered = packing_problem(self._templates, self._demands, pricing=Pricing.PAID)
        fewest = self._bound(offered, [replace(bin_, price=1.0, substitute=None) for bin_ in offered.bins])
        node_usd = dearer_than(number, offered.bins)
        most = number * node_usd
        bound = self._bound(offered, with_node_usd(offered.bins, node_usd), _EXACT) * (1 - _FUZZ)
        return ceil(fewest - _FUZZ * max(1.0, fewest)), max(0.0, bound - most - offered.worth_hourly_usd)

    def _bound(self, offered: PackingProblem, bins: Sequence[Bin], good_enough: float = GOOD_ENOUGH) -> float:
        if not bins:
            return 0.0
        items = _displaced(offered, self._existing) if self._existing else offered.items
        few = sum(item.count for item in offered.items) <= _FEW
        bound = pack(items, bins, good_enough=good_enough).bound if few else lower_bound(items, bins)
        return max(bound, _beside(offered, bins, self._existing)) if self._existing else bound


def _settles_nothing(attempt: Attempt) -> bool:
    """Return whether the purchase's own bound holds for all plans that prefer NodePools as their weights demand.

    It does if nothing was decided before the purchase beyond what the rules require.
    """
    if attempt.assignment.placed or len(attempt.purchase.served_by) > 1:
        return False
    return not any(demand.is_settled for demand in attempt.assignment.demands)


def _served(attempt: Attempt, pods: Sequence[Pod]) -> list[tuple[Shape, list[Pod]]]:
    unserved = {pod.key for demand in attempt.purchase.left for pod in demand.pods}
    unserved |= {pod.key for stuck, _ in attempt.assignment.stuck for pod in stuck}
    return by_shape(pod for pod in pods if pod.key not in unserved)


def _displaced(offered: PackingProblem, existing_nodes: Sequence[ExistingNode]) -> list[Item]:
    """Return the items; those that an existing node could take have count 0, the rest must be bought for."""
    largest = [max(existing.free.of(name) for existing in existing_nodes) for name in offered.dimensions]
    return [
        replace(item, count=0)
        if all(map(le, item.size, largest))
        and any(
            existing.fits(demand.shape, 1) and existing.admits(demand.shape) for existing in existing_nodes
        )
        else item
        for item, demand in zip(offered.items, offered.demands, strict=True)
    ]


def _beside(offered: PackingProblem, bins: Sequence[Bin], existing_nodes: Sequence[ExistingNode]) -> float:
    """Bound the price if existing nodes may take some pods.

    The bound is the dual value of all requests minus that of the free capacity.
    """
    prices = resource_prices(offered.items, bins)
    amounts = [sum(item.size[axis] * item.count for item in offered.items) for axis in range(len(prices))]
    named = list(zip(offered.dimensions, prices, amounts, strict=True))
    covered = [
        price * max(0, min(existing.free.of(n), most))
        for existing in existing_nodes
        for n, price, most in named
    ]
    worth = [price * amount for _, price, amount in named]
    return fsum(worth) - fsum(covered)


def unschedulable(
    pods: Iterable[Pod], existing_nodes: Sequence[ExistingNode], templates: Sequence[Template]
) -> int:
    """Return how many pods have no place whatever happens to all others."""
    unservable: dict[Shape, bool] = {}
    count = 0
    for pod in pods:
        if pod.shape not in unservable:
            unservable[pod.shape] = not _is_servable(pod.shape, existing_nodes, templates)
        count += unservable[pod.shape]
    return count


def _is_servable(shape: Shape, existing_nodes: Iterable[ExistingNode], templates: Iterable[Template]) -> bool:
    if any(existing.fits(shape, 1) and existing.admits(shape) for existing in existing_nodes):
        return True
    return any(_holds(template, shape) for template in templates)


def _holds(template: Template, shape: Shape) -> bool:
    names = tuple(sorted(shape.requests.nonzero()))
    size, limits = vector(shape.requests, names), tuple(sorted(template.remaining))
    remaining = vector(template.remaining, limits)
    admission = Admission(template, (Demand(shape, ()),))
    return any(
        all(map(le, size, offer.room)) and all(map(le, offer.cost, remaining))
        for type_options in (template.type_options, template.reserved)
        for _, types, purchase_options in admission.by_demands(type_options)
        for offer in undominated_offers(type_options, types, purchase_options, names, limits)
    )


Numbering = tuple["count[int]", Templates]
"""The numbers of the next planned nodes, and the launch templates of those before."""
_MUCH = 3
"""How much of a limit is enough for other plans, in terms of what this one takes."""
_MANY = 1_000_000
"""as if there were so many pods that only one way of buying for them is tried"""


class Planner:
    """Plans for pods of known shapes. `tiers` is what may be bought; callers set it to what earlier plans leave.

    `shapes` are those of the pods to place, `others` those that these pods may meet on a node. `for_zones` prepares for
    `PreferenceMode.ZONES`. Planned nodes are numbered on from plan to plan, and share launch templates; with `after`
    they are numbered on from those of that planner.
    """

    def __init__(
        self,
        inputs: Inputs,
        offers: Pools,
        shapes: Iterable[Shape],
        others: Iterable[Shape],
        *,
        for_zones: bool = False,
        after: Planner | None = None,
    ) -> None:
        self.inputs, self.offers, self.tiers = inputs, offers, offers.tiers
        self.daemonsets = inputs.snapshot.daemonsets
        self.launching = TemplateLaunching(offers.templates)
        policy, shapes, others = inputs.settings.preference_policy, list(shapes), [*self.daemonsets, *others]
        self._known = self._zonal = ShapeFacts.of(shapes, others, self.launching, policy)
        if for_zones:
            self._zonal = ShapeFacts.of(shapes, others, self.launching, policy, zones_only=True)
        self.numbering: Numbering = (count(), Templates()) if after is None else after.numbering

    @property
    def conflicts(self) -> PodConflicts:
        """The rules for sharing a node of all shapes that this planner knows."""
        return self._known.conflicts

    @property
    def templates(self) -> tuple[Template, ...]:
        """All templates, in tier order."""
        return tuple(template for tier in self.tiers for template in tier)

    def assign(
        self,
        pods: Iterable[Pod],
        free: Sequence[ExistingNode],
        preference_mode: PreferenceMode,
        choices: Choices | None = None,
        unavailable: UnavailableDomains | None = None,
    ) -> Assignment:
        """Place pods on existing nodes, which this fills, and turn the rest into demands."""
        return assign(
            pods,
            free,
            self.launching,
            self.templates,
            self.daemonsets,
            self.inputs.settings.preference_policy,
            choices,
            unavailable,
            self._zonal if preference_mode is PreferenceMode.ZONES else self._known,
            preference_mode,
        )

    def buy(self, assignment: Assignment, order: Order) -> Purchase:
        """Buy for the demands of an assignment."""
        if self.inputs.ledger.cluster is None or not assignment.demands:
            return Purchase([list(tier) for tier in self.tiers], left=assignment.demands)
        return buy(self.tiers, assignment.demands, order)

    def written_down(
        self,
        purchase: Purchase,
        warm: WarmFor | None = None,
        repetition_of: RepetitionOf = lambda _: FIRST_TIME,
    ) -> tuple[PlannedNode, ...]:
        """Return the nodes of the chosen purchase as intents; with `warm`, as instances that will be stopped.

        `repetition_of` returns how often nodes were bought for the pods of a node.
        """
        cluster = self.inputs.ledger.cluster
        if cluster is None:
            return ()
        inputs = self.inputs
        origin = Origin(inputs.decision, cluster, inputs.now, *self.numbering, warm, repetition_of)
        return written_down(purchase.nodes, origin)


class Search:
    """The search for the best way to place some pods. All its purchases learn from each other.

    Attempts fill copies of the existing nodes in `free`, which `nodes_of` returns if `remembers`. Unless `thorough`,
    one way of buying is tried. If `bounded`, the search ends as soon as a lower bound proves a plan the best.
    A purchase whose price is within the factor `good_enough` of its lower bound is not improved further. `ways` counts
    how many ways of treating the pods' preferences were tried.
    """

    def __init__(
        self,
        planner: Planner,
        pods: Sequence[Pod],
        free: Sequence[ExistingNode],
        *,
        thorough: bool = True,
        bounded: bool = False,
        remembers: bool = False,
        good_enough: float = GOOD_ENOUGH,
    ) -> None:
        self._planner, self._pods, self._free = planner, pods, free
        self._number = len(pods) if thorough else _MANY
        self._bounded, self._good_enough = bounded, good_enough
        self._templates, self._learned = planner.templates, Learned()
        self._remembers, self._filled = remembers, list[tuple[Assignment, list[ExistingNode]]]()
        self.ways = 0

    def best(self, preference_mode: PreferenceMode) -> tuple[Attempt, Bounds]:
        """Return the best attempt and its lower bounds, 0 if it is not bounded."""
        self.ways += 1

        def assigned(choices: Choices, unavailable: UnavailableDomains) -> Assignment:
            nodes = [existing.copy() for existing in self._free]
            assignment = self._planner.assign(self._pods, nodes, preference_mode, choices, unavailable)
            if self._remembers:
                self._filled.append((assignment, nodes))
            return assignment

        offerings = sum(len(template.type_options) for template in self._templates)
        return best(
            self._number,
            offerings,
            assigned,
            self._purchase,
            self._bound,
            self._in_vain,
            may_cost_more=self._planner.inputs.settings.few_nodes_tolerance > 0,
        )

    def nodes_of(self, attempt: Attempt) -> list[ExistingNode]:
        """Return the existing nodes with the pods that an attempt places on them."""
        return next(nodes for assignment, nodes in self._filled if assignment is attempt.assignment)

    def _purchase(self, assignment: Assignment, choices: Choices, quick: bool) -> Purchase:
        settings = self._planner.inputs.settings
        return self._planner.buy(
            assignment, Order(settings, choices, self._good_enough, self._learned, quick)
        )

    def _bound(self, attempt: Attempt) -> Bounds:
        if not self._bounded:
            return NO_BOUNDS
        planner = self._planner
        about = planner.daemonsets, planner.conflicts
        return bounds(attempt, self._pods, self._free, self._templates, *about)

    def _in_vain(self, pods: Iterable[Pod]) -> int:
        return unschedulable(pods, self._free, self._templates) if self._bounded else 0
