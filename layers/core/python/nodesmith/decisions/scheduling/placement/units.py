"""Units: pods that share a node, placed and bought for as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodesmith.decisions.scheduling.compatibility import joined_terms
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.placement.placement import PlacementContext
from nodesmith.decisions.scheduling.spreadshares import Domain, share_out
from nodesmith.decisions.scheduling.topology.topology import anti_affinity_terms
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.resources import total
from nodesmith.model.apimachinery.taints import common
from nodesmith.model.kubernetes.pods import Shape


class Units:
    """Creates units and finds domains for them."""

    def __init__(self, context: PlacementContext) -> None:
        self._context = context

    def make(self, members: Sequence[Shape], pins: FrozenMap[str]) -> Demand:
        """Return the demand, without pods, for a unit of `members`; a shape that occurs n times stands for n pods."""
        shape = united(members)
        self._context.conflicts.unite(shape, members)
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
        found: list[tuple[float, Domain]] = []
        for domain in context.launching.domains(unit.shape, keys):
            labels = dict(zip(keys, domain, strict=True))
            most = (context.unavailable.most(kind, unit.shape, labels) for kind in kinds)
            if any(each is not None for each in most):
                continue
            if all(labels[key] == value for key, value in fixed.items()) and self.suits(kinds, labels):
                found.append((context.launching.price(unit.shape, keys, domain), domain))
        chosen = context.choices.first(("unit", unit.shape), sorted(found))
        return dict(zip(keys, chosen[0][1], strict=True)) if chosen else None

    def suits(self, kinds: Mapping[Shape, int], labels: Mapping[str, str]) -> bool:
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
    for one in kinds[1:]:
        terms, tolerations = joined_terms(terms, one.terms), common(tolerations, one.tolerations)
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
