"""Pods that must share a node with others: they go where these run, or a node is bought for all of them together.

kube-scheduler admits a pod with required affinity over the hostname only to a node with a matching pod. If there is no
matching pod anywhere, the first of the pods that match their own term may go to any node, and the others must follow
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nodesmith.decisions.scheduling.compatibility import joined_terms
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.placement import Placement, PlacementContext
from nodesmith.decisions.scheduling.topology.domains import followed, shares_node
from nodesmith.decisions.scheduling.topology.topology import affinity_terms, anti_affinity_terms
from nodesmith.decisions.scheduling.topologyspread import Domain, share_out
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import HOSTNAME, common
from nodesmith.model.apimachinery.quantities import total
from nodesmith.model.kubernetes.devices import CLAIM_LABEL
from nodesmith.model.kubernetes.pods import Pod, Shape

_Queue = Sequence[tuple[Shape, Pod]]


def _rule(shape: Shape) -> str:
    """Return what makes pods of a shape share a node: what they ask for, or else a ResourceClaim that they share."""
    shared = sum(label.startswith(CLAIM_LABEL) for label in shape.labels)
    terms = [term for term in affinity_terms(shape) if term.topology_key == HOSTNAME]
    return "a shared ResourceClaim" if 0 < len(terms) <= shared else f"required pod affinity over {HOSTNAME}"


class Colocation:
    """The placement of pods that must share a node.

    `affinity_group` has the pods of all shapes that must be near the same pods, those of `shape` first.
    """

    def __init__(
        self,
        context: PlacementContext,
        shape: Shape,
        plain: Shape,
        affinity_group: Sequence[tuple[Shape, list[Pod]]],
    ) -> None:
        self._context, self._shape, self._plain, self._affinity_group = context, shape, plain, affinity_group
        self._units = Units(context)
        sets = context.conflicts.sets
        self._leaders = followed(shape, sets)
        self._is_own_leader = bool(self._leaders >> sets.number(shape) & 1)

    @property
    def follows_nobody(self) -> bool:
        """True if no pod that they must share a node with has a place, and they do not match their own term."""
        return not self._is_own_leader and not self._hosts() and not any(self._hosting())

    def place(self) -> dict[Shape, tuple[list[Pod], str]]:
        """Place pods; return by shape those left and the reason.

        Pods of the other shapes in `affinity_group` are only placed together with the very first pod.
        """
        pods = list(self._affinity_group[0][1])
        hosts, hosting = self._hosts(), list(self._hosting())
        if not hosts and not hosting and self._is_own_leader:
            return self._start()
        placement = Placement(
            self._context, self._shape, self._plain, only=lambda existing: existing.name in hosts
        )
        left, _ = placement.place(pods)
        choices, places = self._context.choices, sum(len(d.pods) // d.unit for d in hosting)
        if left and places > 1 and choices.pick(("together", self._plain), 2):
            places = 1
        for demand in choices.first(("join", self._plain), hosting if left else ()):
            left = self._join(demand, left, places)
        reason = f"{_rule(self._shape)}: the nodes with matching pods have no room for them"
        return {self._plain: (left, reason if left else "")}

    def _matches(self, shape: Shape) -> bool:
        return bool(self._leaders >> self._context.conflicts.sets.number(shape) & 1)

    def _hosts(self) -> frozenset[str]:
        """Return the names of the existing nodes that hold a matching pod."""
        existing_nodes = self._context.available.existing_nodes.values()
        return frozenset(
            r.name for r in existing_nodes if any(n and self._matches(s) for s, n in r.hosted.items())
        )

    def _hosting(self) -> Iterator[Demand]:
        """Return the demands for nodes that will hold a matching pod."""
        return (d for d in self._context.result.demands if any(map(self._matches, d.members or (d.shape,))))

    def _join(self, demand: Demand, pods: list[Pod], places: int) -> list[Pod]:
        """Add pods to the units of a demand, as evenly as needed for all to fit; return those left."""
        members = demand.members or (demand.shape,)
        per_node = -(-len(pods) // places)
        labels: dict[str, str] | None = None
        while per_node:
            unit = self._units.make((*members, *(self._shape,) * per_node), demand.pins)
            labels = self._units.place(unit, Counter({self._plain: per_node}), demand.pins)
            if labels is not None:
                break
            per_node //= 2
        if labels is None:
            return pods
        most = self._units.admitted(self._plain, len(pods), labels)
        units = min(len(demand.pods) // demand.unit, most // per_node)
        joined = [
            pod
            for n in range(units)
            for pod in (
                *demand.pods[n * demand.unit : (n + 1) * demand.unit],
                *pods[n * per_node : (n + 1) * per_node],
            )
        ]
        remainder = replace(demand, pods=demand.pods[units * demand.unit :])
        self._replace(demand, replace(unit, pods=tuple(joined), pins=FrozenMap(labels)), remainder)
        self._context.topology.add(labels, self._plain, units * per_node)
        news = {key: value for key, value in labels.items() if key not in demand.pins}
        for member in members if news else ():
            self._context.topology.add(news, member, units)
        left = pods[units * per_node :]
        return self._join(remainder, left, 1) if remainder.pods and left and units else left

    def _replace(self, demand: Demand, *by: Demand) -> None:
        demands = self._context.result.demands
        at = next(index for index, one in enumerate(demands) if one is demand)
        demands[at : at + 1] = [one for one in by if one.pods]

    def _start(self) -> dict[Shape, tuple[list[Pod], str]]:
        """Put the group on the tightest existing node that holds all of it, else as much as one new node holds."""
        queue = [(shape, pod) for shape, pods in self._affinity_group for pod in pods]
        existing = self._room_for(queue)
        count = len(queue)
        if existing is None:
            count = self._most_on_one_node(queue)
            if count:
                self._buy(queue[:count])
        else:
            for shape, number in Counter(shape for shape, _ in queue).items():
                self._context.available.take(existing, shape, number)
                self._context.topology.add(existing.labels, shape, number, existing)
            self._context.result.placed.setdefault(existing.name, []).extend(pod.key for _, pod in queue)
        unplaced: dict[Shape, tuple[list[Pod], str]] = {shape: ([], "") for shape, _ in self._affinity_group}
        reason = f"{_rule(self._shape)}: all must share one node, and none holds more than {count}"
        for shape, pod in queue[count:]:
            unplaced[shape] = ([*unplaced[shape][0], pod], reason)
        return unplaced

    def _room_for(self, queue: _Queue) -> ExistingNode | None:
        kinds = Counter(shape for shape, _ in queue)
        unit = self._units.make([shape for shape, _ in queue], FrozenMap())
        if not self._context.conflicts.may_share(unit.members):
            return None
        existing_nodes = self._context.available.candidates(unit.shape)
        return next(
            (existing for existing in existing_nodes if self._units.allows(kinds, existing.labels)), None
        )

    def _most_on_one_node(self, queue: _Queue) -> int:
        low, high = 0, len(queue)
        while low < high:
            middle = (low + high + 1) // 2
            if self._place_for(queue[:middle]) is None:
                high = middle - 1
            else:
                low = middle
        return low

    def _place_for(self, queue: _Queue) -> dict[str, str] | None:
        unit = self._units.make([shape for shape, _ in queue], FrozenMap())
        return self._units.place(unit, Counter(shape for shape, _ in queue), {})

    def _buy(self, queue: _Queue) -> None:
        pins = self._place_for(queue) or {}
        unit = self._units.make([shape for shape, _ in queue], FrozenMap(pins))
        is_preference = self._shape is not self._plain and not shares_node(self._plain)
        fallback = Demand(self._plain, ()) if is_preference else None
        self._context.result.demands.append(
            replace(unit, pods=tuple(pod for _, pod in queue), fallback=fallback)
        )
        for shape, number in Counter(shape for shape, _ in queue).items():
            self._context.topology.add(pins, shape, number)


class Units:
    """Creates units and finds domains for them."""

    def __init__(self, context: PlacementContext) -> None:
        self._context = context

    def make(self, members: Sequence[Shape], pins: FrozenMap[str]) -> Demand:
        """Return the demand, without pods, for a unit of `members`; a shape that occurs n times stands for n pods."""
        shape = united(members)
        self._context.conflicts.register_unit(shape, members)
        return Demand(shape, (), pins, unit=len(members), members=tuple(members))

    def place(
        self, unit: Demand, kinds: Mapping[Shape, int], fixed: Mapping[str, str]
    ) -> dict[str, str] | None:
        """Return the labels of a domain in which a node can hold a unit, usually the cheapest; None if there is none.

        `kinds` are the unit's pods that have no domain yet, by shape; `fixed` are the labels of the domain of the
        others.
        """
        context = self._context
        if not context.conflicts.may_share(unit.members):
            return None
        keys = tuple(sorted({*fixed, *(key for kind in kinds for key in context.domains(kind).keys)}))
        priced: list[tuple[float, Domain]] = []
        for domain in context.launching.domains(unit.shape, keys):
            labels = dict(zip(keys, domain, strict=True))
            most = (context.unavailable.most(kind, unit.shape, labels) for kind in kinds)
            if any(each is not None for each in most):
                continue
            if all(labels[key] == value for key, value in fixed.items()) and self.allows(kinds, labels):
                priced.append((context.launching.price(unit.shape, keys, domain), domain))
        chosen = context.choices.first(("unit", unit.shape), sorted(priced))
        return dict(zip(keys, chosen[0][1], strict=True)) if chosen else None

    def allows(self, kinds: Mapping[Shape, int], labels: Mapping[str, str]) -> bool:
        """Return whether all these pods may be in one domain."""
        if any(self.admitted(kind, count, labels) < count for kind, count in kinds.items()):
            return False
        selects = self._context.conflicts.sets.selects
        return not any(
            labels.get(term.topology_key) and selects(term.selector, term.namespaces, other)
            for kind in kinds
            for term in anti_affinity_terms(kind)
            for other in kinds
            if other is not kind
        )

    def admitted(self, kind: Shape, count: int, labels: Mapping[str, str]) -> int:
        """Return how many of `count` pods of a shape may be in a domain."""
        domains = self._context.domains(kind)
        domains.open()
        domain = tuple(labels.get(key, "") for key in domains.keys)
        return share_out(count, domains.tallies, {domain: None})[domain] if domains.allows(domain) else 0


def united(members: Sequence[Shape]) -> Shape:
    """Return one shape for pods that share a node.

    It has the requests and constraints of all of them, and tolerates what all of them tolerate.
    """
    kinds = list(dict.fromkeys(members))
    first = kinds[0]
    terms, tolerations = first.terms, first.tolerations
    for kind in kinds[1:]:
        terms, tolerations = joined_terms(terms, kind.terms), common(tolerations, kind.tolerations)
    return Shape(
        namespace=first.namespace,
        labels=first.labels,
        owner=first.owner,
        requests=total([shape.requests for shape in members]),
        terms=terms,
        own_terms=terms,
        tolerations=tolerations,
        host_ports=tuple(port for shape in members for port in shape.host_ports),
    )
