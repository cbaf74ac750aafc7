"""The DaemonSets that will run on a NodePool's nodes, and what they request on each type, by offering."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    TypeSet,
    allows_offering,
    compatible_terms,
    types_for_pods,
)
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.apimachinery.resources import Resources, total
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.pods import Shape


@dataclass(frozen=True, slots=True)
class Running:
    """What a DaemonSet's pods request, and where they run: for each of its terms, the names of the types it allows."""

    requests: Resources
    terms: tuple[tuple[Requirements, frozenset[str]], ...]

    @property
    def types(self) -> frozenset[str]:
        """The names of the types that its pods may run on."""
        return frozenset().union(*(names for _, names in self.terms))

    @property
    def is_choosy(self) -> bool:
        """Whether zone or capacity type matter as well."""
        return not all(OFFERING_KEYS.isdisjoint(term) for term, _ in self.terms)

    def joins(self, name: str, offering: Offering) -> bool:
        """Return whether its pods run on a type bought with an offering."""
        return any(name in names and allows_offering(term, offering) for term, names in self.terms)


def running(
    pool: NodePool, requirements: Requirements, types: TypeSet, daemonsets: Sequence[Shape]
) -> list[tuple[Shape, Running]]:
    """Return the DaemonSets that will run on nodes of the pool."""
    given = frozenset(pool.labels)
    found: list[tuple[Shape, Running]] = []
    for daemon in daemonsets:
        if daemon.refusal or daemon.untolerated(pool.taints):
            continue
        terms = compatible_terms(requirements, daemon)
        named = tuple((term, frozenset(types_for_pods(types, term, given).names)) for term in terms)
        found.append((daemon, Running(daemon.requests, named)))
    return found


class Overhead:
    """What DaemonSets request on a node, by its type and offering."""

    def __init__(self, daemons: Iterable[Running]) -> None:
        self._daemons = [(each, each.types, each.is_choosy) for each in daemons]
        self._sums: dict[tuple[int, ...], Resources] = {}

    def of(
        self, name: str, offerings: tuple[Offering, ...]
    ) -> Iterator[tuple[Resources, tuple[Offering, ...]]]:
        """Yield the sum of requests on a type, each with the offerings it applies to."""
        mine = [(each, choosy) for each, types, choosy in self._daemons if name in types]
        if not any(choosy for _, choosy in mine):
            yield self._sum([each for each, _ in mine]), offerings
            return
        found: dict[tuple[int, ...], tuple[Resources, list[Offering]]] = {}
        for offering in offerings:
            joining = [each for each, choosy in mine if not choosy or each.joins(name, offering)]
            known = found.setdefault(tuple(map(id, joining)), (self._sum(joining), []))
            known[1].append(offering)
        yield from ((taken, tuple(alike)) for taken, alike in found.values())

    def _sum(self, daemons: Sequence[Running]) -> Resources:
        key = tuple(map(id, daemons))
        if key not in self._sums:
            self._sums[key] = total([each.requests for each in daemons])
        return self._sums[key]
