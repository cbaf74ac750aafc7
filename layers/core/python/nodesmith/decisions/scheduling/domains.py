"""Which domains the pods of one shape may have, by hard rules of their own and of the pods that are placed already."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nodesmith.decisions.scheduling.following import followed
from nodesmith.decisions.scheduling.labelsets import LabelSets
from nodesmith.decisions.scheduling.launching import Launching
from nodesmith.decisions.scheduling.spread import Domain, Tally
from nodesmith.decisions.scheduling.topology import Topology, attractions, aversions, spread_view
from nodesmith.decisions.scheduling.watching import Watch, keyed_spreads
from nodesmith.model.labels import HOSTNAME, ZONE
from nodesmith.model.requirements import NO_REQUIREMENTS
from nodesmith.model.shapes import Shape, Spread
from nodesmith.model.taints import Toleration


class Domains:
    """The topology keys that matter to a shape (`keys`, sorted), and what is allowed of them.

    `bound` are those of hard rules; the others are only settled so that pods placed later know. `tallies` are yet
    without the domains that only new nodes have, see `opened`.
    """

    def __init__(
        self, shape: Shape, topology: Topology, sets: LabelSets, watch: Watch, launching: Launching
    ) -> None:
        self._shape, self._topology, self._sets, self._launching = shape, topology, sets, launching
        self._spreads = keyed_spreads(shape)
        self._aversions = [t for t in aversions(shape) if sets.selected(t.selector, t.namespaces)]
        self._followed = followed(shape, sets)
        following = sorted({t.topology_key for t in attractions(shape)} - {HOSTNAME})
        needed = {*(s.topology_key for s in self._spreads), *following}
        self._needed = frozenset(needed)
        shunned = (*(t.topology_key for t in self._aversions), *topology.repelling_keys(shape))
        self.bound = frozenset((*needed, *shunned))
        counted = watch.counted_by(shape)
        watched = {*(key for key, _ in counted), *watch.asked_over(shape)} - self.bound
        settled = {key for key in sorted(watched) if any(map(any, launching.domains(shape, (key,))))}
        self.keys = tuple(sorted({*self.bound, *settled} - {HOSTNAME}))
        self._matched = {key: topology.counts(key, self._followed) for key in following}
        self.is_first = bool(following) and not any(any(found.values()) for found in self._matched.values())
        self.tallies = [*self._own_tallies(), *self._courtesy(counted)]

    @property
    def follows_nobody(self) -> bool:
        """True where the pods must follow others of which none is anywhere, and are not of that kind themselves."""
        return self.is_first and not self._followed >> self._sets.number(self._shape) & 1

    @property
    def is_spread(self) -> bool:
        """True where the pods themselves ask to go to the domain with the fewest."""
        return bool(self._spreads)

    def allows(self, domain: Domain) -> bool:
        """Tell whether pods may be in a domain as far as other pods go; tallies are another matter."""
        for key, value in zip(self.keys, domain, strict=True):
            if not value:
                if key in self._needed:
                    return False
            elif self._topology.repelled(key, value, self._shape) or not self._leads_to(key, value):
                return False
        return True

    def _leads_to(self, key: str, value: str) -> bool:
        """Tell whether the pods that must be followed are in a domain, or are not asked for."""
        return self.is_first or key not in self._matched or bool(self._matched[key].get(value))

    def open(
        self, present: Mapping[str, Collection[str]] | None = None, avoided_zones: Collection[str] = ()
    ) -> None:
        """Let spreads know the domains that anybody's new nodes may have: they are empty, and count for the fewest.

        Once it is known which values of a key will be `present`, the others no longer count, nor do avoided zones.
        """
        for tally in self.tallies:
            if tally.spread is not None:
                key, seen = tally.spread.topology_key, _seen_by(tally.spread, self._shape)
                for (value,) in self._launching.domains(seen, (key,)):
                    avoided = key == ZONE and value in avoided_zones
                    if value and not avoided and (present is None or value in present[key]):
                        tally.counts.setdefault(value, 0)

    def pins(self, domain: Domain) -> dict[str, str]:
        """Give the labels that nodes in a domain have; empty are those that they must not have."""
        return dict(zip(self.keys, domain, strict=True))

    def _own_tallies(self) -> list[Tally]:
        found = []
        number = self._sets.number(self._shape)
        for spread in self._spreads:
            selected = self._sets.selected(spread.selector, frozenset((self._shape.namespace,)))
            counts = self._topology.counts(spread.topology_key, selected, spread_view(spread, self._shape))
            axis = self.keys.index(spread.topology_key)
            found.append(Tally(axis, dict(counts), selected >> number & 1 == 1, spread=spread))
        for term in self._aversions:
            selected = self._sets.selected(term.selector, term.namespaces)
            counts = self._topology.counts(term.topology_key, selected)
            axis = self.keys.index(term.topology_key)
            own = selected >> number & 1
            found.append(Tally(axis, dict(counts), own == 1, most=own))
        return found

    def _courtesy(self, counted: Sequence[tuple[str, int]]) -> list[Tally]:
        """Go where the spreads of others count fewest, so that they are left the most freedom."""
        own = {
            (s.topology_key, self._sets.selected(s.selector, frozenset((self._shape.namespace,))))
            for s in self._spreads
        }
        return [
            Tally(self.keys.index(key), dict(self._topology.counts(key, selected)), counts_self=True)
            for key, selected in counted
            if key in self.keys and (key, selected) not in own
        ]

    def why_none(self, launchable: Sequence[Domain]) -> str:
        """Say what keeps a pod out of every domain."""
        for key, found in self._matched.items():
            if not self.is_first:
                there = ", ".join(sorted(value for value, count in found.items() if count))
                if not any(found.get(d[self.keys.index(key)]) for d in launchable):
                    return f"required pod affinity over {key}: matching pods are only in {there}, where nothing fits"
        for tally in self.tallies:
            why = self._why_held_back(tally, launchable)
            if why:
                return why
        for key in self._topology.repelling_keys(self._shape):
            return f"anti-affinity of other pods over {key} keeps them out of every domain they may go to"
        keys = " and ".join(self.keys)
        return f"no domain of {keys} meets all rules at once"

    def _why_held_back(self, tally: Tally, launchable: Sequence[Domain]) -> str:
        key = self.keys[tally.axis]
        if tally.most is not None:
            if any(tally.admits(domain) for domain in launchable):
                return ""
            taken = ", ".join(sorted(value for value, count in tally.counts.items() if count))
            return f"required pod anti-affinity over {key}: pods that they keep away from are in {taken}"
        if tally.spread is None:
            return ""
        if not tally.counts:
            return f"topology spread over {key}: no node has that label, and none that can be launched would"
        if any(tally.admits(domain) for domain in launchable):
            return ""
        value = min(tally.counts, key=lambda v: (tally.counts[v], v))
        return (
            f"topology spread over {key} with maxSkew {tally.spread.max_skew}: {value} has"
            f" {tally.counts[value]} matching pods, no room, and nothing can be launched there"
        )


def _seen_by(spread: Spread, shape: Shape) -> Shape:
    """Give pods that may be on exactly the nodes that a spread looks at (nodeAffinityPolicy, nodeTaintsPolicy)."""
    return Shape(
        shape.namespace,
        {},
        terms=shape.own_terms if spread.honor_affinity else (NO_REQUIREMENTS,),
        tolerations=shape.tolerations if spread.honor_taints else (Toleration(operator="Exists"),),
    )
