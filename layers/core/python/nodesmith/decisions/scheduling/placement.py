"""Place the pods of one shape: on existing nodes first, the tightest that take them, then in domains of new nodes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import fsum

from nodesmith.decisions.packing.problem import Sharing
from nodesmith.decisions.scheduling.conflicts import PodConflicts
from nodesmith.decisions.scheduling.demands import (
    Assignment,
    Choices,
    Demand,
    UnavailableDomains,
    grouped_by_shape,
)
from nodesmith.decisions.scheduling.existing import ExistingNode, admission
from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.decisions.scheduling.topology.domains import Domains, TopologyDependencies
from nodesmith.decisions.scheduling.topology.topology import (
    Topology,
    kept_out,
    keyed_spreads,
    narrowed,
    undecided,
)
from nodesmith.decisions.scheduling.topologyspread import Domain, distributed, share_out
from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.kubernetes.pods import Pod, Shape


@dataclass(frozen=True, slots=True)
class PlacementContext:
    """Everything that placing pods reads and changes."""

    conflicts: PodConflicts
    available: AvailableCapacity
    topology: Topology
    launching: Launching
    dependencies: TopologyDependencies
    choices: Choices = field(default_factory=Choices)
    unavailable: UnavailableDomains = field(default_factory=UnavailableDomains)
    result: Assignment = field(default_factory=Assignment)

    def domains(self, shape: Shape, plain: Shape | None = None) -> Domains:
        """Return the domains that pods of a shape may use as things stand."""
        return Domains(
            shape, plain or shape, self.topology, self.conflicts.sets, self.dependencies, self.launching
        )


class Placement:
    """The placement of pods of one shape.

    `shape` may ask for more than `plain`, which is what the pods strictly require.

    If all pods must be in one domain, `siblings` must be able to go where the first pod goes. With `only`, pods go to
    existing nodes that satisfy it, and nothing is bought. With `present`, pods keep to the values of a key that some
    node has anyway. With `last`, the spreads of other pods are ignored, because kube-scheduler applies only a pod's
    own. With `mixed`, the pods may be of shapes that differ from `shape` in their requests, and that no existing node
    takes.
    """

    def __init__(
        self,
        context: PlacementContext,
        shape: Shape,
        plain: Shape,
        siblings: Sequence[Shape] = (),
        only: Callable[[ExistingNode], bool] | None = None,
        present: Mapping[str, Collection[str]] | None = None,
        *,
        last: bool = False,
        mixed: bool = False,
    ) -> None:
        self._context, self._shape, self._plain, self._siblings = context, shape, plain, siblings
        self._only, self._present, self._mixed = only, present, mixed
        self._domains = context.domains(shape, plain)
        if last:
            self._domains.forget_others()
        scarce = context.launching.scarce_zones
        self._avoided_zones = scarce if scarce and ZONE not in self._bound else frozenset()

    @cached_property
    def _bound(self) -> frozenset[str]:
        """The keys of the rules that the pods strictly require."""
        is_plain = self._plain is self._shape
        return (self._domains if is_plain else self._context.domains(self._plain)).bound

    @property
    def keys(self) -> tuple[str, ...]:
        """The topology keys that matter to the pods."""
        return self._domains.keys

    def place(self, pods: Sequence[Pod]) -> tuple[list[Pod], str]:
        """Place pods; return those left and the reason."""
        context, domains = self._context, self._domains
        if domains.follows_nobody:
            return list(pods), ""
        if not domains.keys:
            return self._place_anywhere(pods)
        existing_nodes = self._existing_nodes()
        launchable = self._launchable()
        if not (launchable or existing_nodes or self._only or context.launching.domains(self._shape, ())):
            return self._buy_anywhere(pods)
        domains.open(self._present, self._avoided_zones)
        open_ = [domain for domain in launchable if domains.allows(domain)] if self._only is None else []
        unplaced = list(pods)
        if domains.is_first:
            chosen = self._first(len(unplaced), existing_nodes, open_)
            existing_nodes = {d: nodes for d, nodes in existing_nodes.items() if domains.follows(chosen, d)}
            open_ = [d for d in open_ if domains.follows(chosen, d)]
        if not domains.is_spread:  # then capacity that is paid for comes first
            unplaced = self._share(unplaced, existing_nodes, ())
            existing_nodes = {}
            if len(open_) > 1 and unplaced:
                open_ = self._in_turn(open_, {})
        unplaced = self._share(unplaced, existing_nodes, open_)
        return unplaced, domains.why_none(launchable) if unplaced else ""

    def _place_anywhere(self, pods: Sequence[Pod]) -> tuple[list[Pod], str]:
        unplaced = self._fill(list(pods), self._candidates())
        return self._buy_anywhere(unplaced) if unplaced and self._only is None else (unplaced, "")

    def _buy_anywhere(self, pods: Sequence[Pod]) -> tuple[list[Pod], str]:
        if self._shape is not self._plain and not self._context.launching.domains(self._shape, ()):
            return list(pods), ""
        self._demand(pods, {})  # if nothing serves it, the purchase finds the reason
        return [], ""

    def _launchable(self) -> Sequence[Domain]:
        """Return the domains in which nodes can be launched.

        Unless a hard rule binds the zone, leave out zones in which EC2 recently lacked capacity, if others remain.
        """
        domains, launching = self._domains, self._context.launching
        launchable = launching.domains(self._shape, domains.keys)
        if ZONE not in domains.keys:
            return launchable
        axis = domains.keys.index(ZONE)
        return [domain for domain in launchable if domain[axis] not in self._avoided_zones] or launchable

    def _candidates(self) -> Iterator[ExistingNode]:
        labelled = {spread.topology_key for spread in keyed_spreads(self._shape)}
        choices = self._context.choices
        for existing in self._context.available.candidates(self._shape):
            if labelled and not labelled <= existing.labels.keys():
                continue
            if self._only is None or self._only(existing):
                if not choices.is_single and choices.pick(("existing", self._plain), 2):
                    return
                yield existing

    def _existing_nodes(self) -> dict[Domain, list[ExistingNode]]:
        """Return the nodes that take such pods, tightest first, by domain."""
        by_domain: dict[Domain, list[ExistingNode]] = {}
        for existing in self._candidates():
            domain = tuple([existing.labels.get(key, "") for key in self._domains.keys])
            by_domain.setdefault(domain, []).append(existing)
        return {domain: nodes for domain, nodes in by_domain.items() if self._domains.allows(domain)}

    def _first(
        self, count: int, existing_nodes: Mapping[Domain, Sequence[ExistingNode]], open_: Iterable[Domain]
    ) -> Domain | None:
        """Choose the domain of the first pod, which all others must follow.

        Most pods on existing nodes come first, then the lowest price.
        """
        context, keys = self._context, self._domains.keys
        launching = context.launching
        candidates = sorted({*existing_nodes, *open_})
        candidates = [d for d in candidates if all(tally.admits(d) for tally in self._domains.tallies)]
        for sibling in self._siblings:
            reachable = frozenset(launching.domains(sibling, keys))
            candidates = [d for d in candidates if d in reachable] or candidates

        def rank(domain: Domain) -> tuple[int, float, Domain]:
            price = fsum(launching.price(sibling, keys, domain) for sibling in (self._shape, *self._siblings))
            return -self._existing(existing_nodes.get(domain, ()), count), price, domain

        candidates.sort(key=rank)
        return next(iter(context.choices.first(("first", self._plain), candidates)), None)

    def _existing(self, existing_nodes: Iterable[ExistingNode], wanted: int) -> int:
        """Return how many of `wanted` pods the nodes take together."""
        count = 0
        for existing in existing_nodes:
            count += self._capacity(existing, wanted)
            if count >= wanted and self._context.choices.is_single:  # otherwise all choices must be known
                break
        return min(wanted, count)

    def _capacity(self, existing: ExistingNode, wanted: int) -> int:
        count = self._context.available.capacity(existing, self._shape, wanted)
        return self._context.choices.share_of(("capacity", self._plain, existing.name), count)

    def _share(
        self,
        pods: list[Pod],
        existing_nodes: Mapping[Domain, Sequence[ExistingNode]],
        open_: Sequence[Domain],
    ) -> list[Pod]:
        """Share pods out over domains; demand nodes for those that find no capacity in their domain.

        Return the pods left.
        """
        if self._context.unavailable.is_empty:
            limits: dict[Domain, int | None] = dict.fromkeys(open_)
        else:
            limits = {domain: self._purchasable(domain) for domain in open_}
        for domain, nodes in existing_nodes.items():
            limit = limits.get(domain, 0)
            if limit is not None:
                limits[domain] = limit + self._existing(nodes, len(pods))
        if self._domains.is_spread:
            limits = {domain: limits[domain] for domain in self._in_turn(limits, existing_nodes)}
        first = self._context.choices.one(("filled", self._plain), limits) if len(limits) > 1 else None
        total = len(pods)
        shares = share_out(total, self._domains.tallies, limits, first)
        if self._mixed:
            pods = distributed(pods, shares.values())
        for domain, share in shares.items():
            mine, pods = pods[:share], pods[share:]
            unplaced = self._fill(mine, existing_nodes.get(domain, ()), total)
            if unplaced:
                self._demand(unplaced, self._domains.pins(domain))
        return pods

    def _in_turn(
        self, domains: Iterable[Domain], existing_nodes: Mapping[Domain, Sequence[ExistingNode]]
    ) -> list[Domain]:
        """Order domains: most existing nodes with capacity first, then the lowest price of a new node."""
        launching, keys = self._context.launching, self._domains.keys
        free = {d: len(existing_nodes.get(d, ())) for d in domains}
        alike = Counter(free.values())
        prices = {d: launching.price(self._shape, keys, d) for d, number in free.items() if alike[number] > 1}
        ordered = sorted(free, key=lambda d: (-free[d], prices.get(d, 0.0), d))
        return self._context.choices.first(("domain", self._plain), ordered)

    def _fill(self, pods: list[Pod], existing_nodes: Iterable[ExistingNode], wanted: int = 0) -> list[Pod]:
        """Put pods on nodes, one node after the other; return those that find no capacity.

        With `wanted`, each node takes as many of that number as it does when asked by `_existing`, so both agree.
        """
        context = self._context
        for existing in existing_nodes:
            if not pods:
                break
            count = min(len(pods), self._capacity(existing, wanted or len(pods)))
            mine, pods = pods[:count], pods[count:]
            if mine:
                context.available.take(existing, self._plain, count)
                context.topology.add(existing.labels, self._plain, count, existing)
                context.result.placed.setdefault(existing.name, []).extend(pod.key for pod in mine)
        return pods

    def _demand(self, pods: Sequence[Pod], pins: Mapping[str, str]) -> None:
        """Demand nodes for pods.

        Pins over keys that no hard rule binds serve other pods or preferences; the `fallback` drops them if nothing can
        be bought with them.
        """
        bound = FrozenMap({key: value for key, value in pins.items() if key in self._bound})
        is_preference = self._shape is not self._plain or len(bound) < len(pins)
        shape, pinned = self._counting(pins), _pinned(tuple(pins.items()))
        for plain, alike in grouped_by_shape(pods).items() if self._mixed else [(self._plain, pods)]:
            merged = self._alike(plain, shape) if self._mixed else shape
            fallback = Demand(plain, (), bound) if is_preference or shape is not self._shape else None
            self._context.result.demands.append(Demand(merged, tuple(alike), pinned, fallback=fallback))
        self._context.topology.add(pins, self._plain, len(pods), bought_as=shape)

    def _alike(self, plain: Shape, bought_as: Shape) -> Shape:
        """Return what to buy for pods of shape `plain` where `bought_as` is bought for those of the first shape."""
        if bought_as is self._shape:
            return plain
        relabelled = replace(plain, terms=bought_as.terms, tolerations=bought_as.tolerations)
        self._context.conflicts.sets.share_label_set(relabelled, plain)
        return relabelled

    def _purchasable(self, domain: Domain) -> int | None:
        """Return how many pods may be bought for in a domain; None for any number."""
        pins, demanded = self._domains.pins(domain), self._context.result.demands
        return self._context.unavailable.most(self._plain, self._counting(pins), pins, demanded)

    def _counting(self, pins: Mapping[str, str]) -> Shape:
        """Return the shape to buy for, where spreads of other pods may or may not look at the new node.

        The usual choice narrows the shape to nodes that count for all these spreads, if such nodes are for sale: then
        the counts are certain.
        """
        context = self._context
        views = undecided(self._shape, context.dependencies.rules_over(self._plain), pins)
        if not views:
            return self._shape
        keys, values = tuple(pins), tuple(pins.values())

        def is_sold(shape: Shape) -> bool:
            return values in context.launching.domains(shape, keys)

        shown, hidden = narrowed(self._shape, views), kept_out(self._shape, views, pins, is_sold)
        variants = list(dict.fromkeys((*filter(is_sold, (shown,)), self._shape, hidden)))
        shape = variants[context.choices.pick(("counted", self._plain), len(variants))]
        if shape is self._shape or context.unavailable.most(self._plain, shape, pins) is not None:
            return self._shape
        context.conflicts.sets.share_label_set(shape, self._shape)
        return shape


@lru_cache(maxsize=1024)
def _pinned(labels: tuple[tuple[str, str], ...]) -> FrozenMap[str]:
    """Return labels as a map, the same object for the same labels: comparing two maps is slow."""
    return FrozenMap(dict(labels)) if labels else NO_ITEMS


class AvailableCapacity:
    """Existing nodes, tightest first, so that large ones stay free for large pods; in-flight nodes come last."""

    def __init__(self, existing_nodes: Sequence[ExistingNode], conflicts: PodConflicts) -> None:
        self.existing_nodes = {existing.name: existing for existing in existing_nodes}
        self._conflicts = conflicts
        self._sharing: dict[str, Sharing] = {}
        self._order = sorted(_rank(existing) for existing in existing_nodes)
        self._values: dict[str, frozenset[str]] = {}
        self._admitting: dict[tuple[object, ...], Callable[[ExistingNode], bool]] = {}

    def values(self, key: str) -> frozenset[str]:
        """Return the values that nodes have of a label."""
        if key not in self._values:
            labels = (existing.labels for existing in self.existing_nodes.values())
            self._values[key] = frozenset(node_labels[key] for node_labels in labels if key in node_labels)
        return self._values[key]

    def candidates(self, shape: Shape) -> Iterator[ExistingNode]:
        """Yield the nodes that take at least one pod of a shape, tightest first.

        Placing pods during the iteration does not change the order.
        """
        requests, rules, admits = shape.requests, self._conflicts.rules(shape), self._admission(shape)
        cpu = max(0, requests.cpu_milli)
        for in_flight in (False, True):
            start = bisect_left(self._order, (in_flight, cpu) if cpu else (in_flight,))
            end = bisect_left(self._order, (True,)) if not in_flight else len(self._order)
            for rank in self._order[start:end]:
                existing = self.existing_nodes[rank[-1]]
                fits = requests.fits_in(existing.free) and admits(existing)
                if fits and self._sharing_of(existing).capacity(rules, 1):
                    yield existing

    def capacity(self, existing: ExistingNode, shape: Shape, wanted: int) -> int:
        """Return how many of `wanted` pods a node takes by its resources, labels, taints and `PodConflicts`."""
        count = existing.fits(shape, wanted)
        if not count or not self._admission(shape)(existing):
            return 0
        return self._sharing_of(existing).capacity(self._conflicts.rules(shape), count)

    def take(self, existing: ExistingNode, shape: Shape, count: int) -> None:
        """Assign pods of a shape to a node."""
        sharing = self._sharing_of(existing)
        del self._order[bisect_left(self._order, _rank(existing))]
        existing.take(shape, count)
        insort(self._order, _rank(existing))
        sharing.hold(self._conflicts.rules(shape), count)

    def _admission(self, shape: Shape) -> Callable[[ExistingNode], bool]:
        """Return a predicate: whether a node admits a shape."""
        key = shape.terms, shape.tolerations
        if key not in self._admitting:
            self._admitting[key] = admission(shape)
        return self._admitting[key]

    def _sharing_of(self, existing: ExistingNode) -> Sharing:
        """Return which groups of pods a node holds. Computed on demand: most nodes are never needed."""
        cached = self._sharing.get(existing.name)
        if cached is not None:
            return cached
        sharing = self._sharing[existing.name] = Sharing()
        for shape, count in existing.hosted.items():
            rules = self._conflicts.rules(shape, running=True)
            sharing.hold(rules, count)
            leaving = existing.leaving[shape]
            for group in rules.groups if leaving else ():
                if not self._conflicts.counts_leaving(group):
                    sharing.held[group] -= leaving
        for shape in existing.expected:
            sharing.hold(self._conflicts.rules(shape, running=True), 1)
        return sharing


def _rank(existing: ExistingNode) -> tuple[bool, int, int, str]:
    return existing.in_flight, existing.free.cpu_milli, existing.free.memory_bytes, existing.name
