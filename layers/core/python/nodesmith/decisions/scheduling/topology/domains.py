"""Which domains the pods of one shape may use, by their own hard rules and those of pods already placed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nodesmith.decisions.scheduling.labelsets import LabelSets
from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.decisions.scheduling.topology.dependencies import TopologyDependencies, followed
from nodesmith.decisions.scheduling.topology.nodefilters import Rule, seeing
from nodesmith.decisions.scheduling.topology.topology import Topology, affinity_terms, anti_affinity_terms
from nodesmith.decisions.scheduling.topologyspread import Domain, Tally
from nodesmith.model.apimachinery.labels import HOSTNAME, ZONE
from nodesmith.model.kubernetes.pods import Shape


class Domains:
    """The topology keys that matter to a shape (`keys`, sorted), and which of their values are allowed.

    The shape may ask for more than `plain`, which is what the pods strictly require: a preferred spread changes which
    nodes the other rules look at. `bound` are the keys of hard rules; the other keys are settled only so that pods
    placed later know them. `tallies` lack the domains that only new nodes have until `open` is called.
    """

    def __init__(
        self,
        shape: Shape,
        plain: Shape,
        topology: Topology,
        sets: LabelSets,
        dependencies: TopologyDependencies,
        launching: Launching,
    ) -> None:
        self._shape, self._topology, self._sets, self._launching = shape, topology, sets, launching
        self._own_rules = list(
            dict.fromkeys((*dependencies.own_rules(shape), *dependencies.own_rules(plain)))
        )
        self._held = [held for held in topology.held_over(shape) if held[0] not in self._own_rules]
        self._anti_affinity_terms = [
            t for t in anti_affinity_terms(shape) if sets.selected(t.selector, t.namespaces)
        ]
        self._followed = followed(shape, sets)
        following = sorted({t.topology_key for t in affinity_terms(shape)} - {HOSTNAME})
        needed = {*(rule.key for rule in self._own_rules), *following}
        self._needed = frozenset(needed)
        shunned = (*(t.topology_key for t in self._anti_affinity_terms), *topology.repelling_keys(shape))
        self.bound = frozenset((*needed, *shunned, *(rule.key for rule, _ in self._held)))
        counted = dependencies.counted_by(shape)
        watched = {*(key for key, _ in counted), *dependencies.asked_over(shape)} - self.bound
        settled = {key for key in sorted(watched) if any(map(any, launching.domains(shape, (key,))))}
        self.keys = tuple(sorted({*self.bound, *settled} - {HOSTNAME}))
        self._matched = {key: topology.counts(key, self._followed).pods for key in following}
        self.is_first = bool(following) and not any(any(found.values()) for found in self._matched.values())
        self._views: list[tuple[Tally, Rule]] = []
        self.tallies = [*self._own_tallies(), *self._held_tallies(), *self._courtesy(counted)]

    @property
    def follows_nobody(self) -> bool:
        """True where the pods must follow others of which none has a place, and do not match their own term."""
        return self.is_first and not self._followed >> self._sets.number(self._shape) & 1

    @property
    def is_spread(self) -> bool:
        """True where the pods' own spreads ask for the domain with the fewest."""
        return bool(self._own_rules)

    def allows(self, domain: Domain) -> bool:
        """Return whether affinity and anti-affinity allow pods in a domain; `tallies` are checked separately."""
        for key, value in zip(self.keys, domain, strict=True):
            if not value:
                if key in self._needed:
                    return False
            elif self._topology.repelled(key, value, self._shape) or not self._leads_to(key, value):
                return False
        return True

    def follows(self, first: Domain | None, other: Domain) -> bool:
        """Return whether pods in domain `other` satisfy affinity when the first of them is in domain `first`."""
        return first is not None and all(
            one == two for key, one, two in zip(self.keys, first, other, strict=True) if key in self._matched
        )

    def _leads_to(self, key: str, value: str) -> bool:
        """Return whether affinity over a key allows a value: the pods to follow are there, or nowhere yet."""
        return self.is_first or key not in self._matched or bool(self._matched[key].get(value))

    def open(
        self, present: Mapping[str, Collection[str]] | None = None, avoided_zones: Collection[str] = ()
    ) -> None:
        """Add to the spreads' tallies the domains that new nodes may have; they are empty and count for the fewest.

        Once the values of a key that will be `present` are known, other values no longer count; nor do avoided zones.
        """
        for tally, rule in self._views:
            expected = (present or {}).get(rule.key)
            for value, *others in self._launching.domains(seeing(rule.view), (rule.key, *rule.view.keys)):
                avoided = rule.key == ZONE and value in avoided_zones
                if value and all(others) and not avoided and (expected is None or value in expected):
                    tally.counts.setdefault(value, 0)

    def forget_others(self) -> None:
        """Drop the spreads of pods that are already placed."""
        self.tallies = [tally for tally in self.tallies if tally.only is None]

    def pins(self, domain: Domain) -> dict[str, str]:
        """Return the labels of nodes in a domain; an empty value means that the nodes lack the label."""
        return dict(zip(self.keys, domain, strict=True))

    def _own_tallies(self) -> list[Tally]:
        number = self._sets.number(self._shape)
        found = [self._tally(r, counts_self=r.selected >> number & 1 == 1) for r in self._own_rules]
        for term in self._anti_affinity_terms:
            selected = self._sets.selected(term.selector, term.namespaces)
            counts = self._topology.counts(term.topology_key, selected).pods
            axis = self.keys.index(term.topology_key)
            own = selected >> number & 1
            found.append(Tally(axis, dict(counts), own == 1, most=own))
        return found

    def _held_tallies(self) -> list[Tally]:
        """Return the spreads of pods already placed: kube-scheduler may bind those pods last."""
        return [self._tally(rule, counts_self=True, only=frozenset(values)) for rule, values in self._held]

    def _tally(self, rule: Rule, *, counts_self: bool, only: frozenset[str] | None = None) -> Tally:
        counted = self._topology.counts(rule.key, rule.selected, rule.view)
        axis, pods, unsure = self.keys.index(rule.key), dict(counted.pods), dict(counted.unsure)
        sure = rule.view.must_show(self._shape, {}) or only is None
        found = Tally(axis, pods, counts_self, rule.spread, only=only, unsure=unsure, adds_sure=sure)
        if only is not None:  # the pods' own spreads look at every node that these may be on
            found.overlooks = lambda domain: not rule.view.may_show(self._shape, self.pins(domain))
        self._views.append((found, rule))
        return found

    def _courtesy(self, counted: Sequence[tuple[str, int]]) -> list[Tally]:
        """Return tallies that prefer the domains where spreads of other pods count fewest.

        This leaves those pods the most freedom. The tallies order domains but exclude none.
        """
        known = {(rule.key, rule.selected) for _, rule in self._views}
        return [
            Tally(self.keys.index(key), dict(self._topology.counts(key, selected).pods), counts_self=True)
            for key, selected in counted
            if key in self.keys and (key, selected) not in known
        ]

    def why_none(self, launchable: Sequence[Domain]) -> str:
        """Return what keeps a pod out of every domain."""
        for key, found in self._matched.items():
            if not self.is_first:
                there = ", ".join(sorted(value for value, count in found.items() if count))
                if not any(found.get(d[self.keys.index(key)]) for d in launchable):
                    return f"required pod affinity over {key}: matching pods are only in {there}, where nothing fits"
            elif not any(d[self.keys.index(key)] for d in launchable):
                why = "no node with that label has room, and none that can be launched would have it"
                return f"required pod affinity over {key}: {why}"
        for tally in self.tallies:
            why = self._why_held_back(tally, launchable)
            if why:
                return why
        if self._held and not any(
            all(t.admits(d) for t in self.tallies if t.only is not None) for d in launchable
        ):
            keys = " and ".join(sorted({rule.key for rule, _ in self._held}))
            return f"topology spread of other pods over {keys}: one more pod in any domain would exceed their maxSkew"
        for key in self._topology.repelling_keys(self._shape):
            return f"anti-affinity of other pods over {key}: it keeps them out of every domain they may go to"
        keys = " and ".join(self.keys)
        return f"no domain of {keys} meets all rules at once"

    def _why_held_back(self, tally: Tally, launchable: Sequence[Domain]) -> str:
        key = self.keys[tally.axis]
        if tally.most is not None:
            if any(tally.admits(domain) for domain in launchable):
                return ""
            taken = ", ".join(sorted(value for value, count in tally.counts.items() if count))
            return f"required pod anti-affinity over {key}: pods that they must avoid are in {taken}"
        if tally.spread is None or tally.only is not None:
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
