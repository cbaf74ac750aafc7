"""Domains: which pods depend on the domains of others, in which order shapes come, and which domains a shape may use.

A pod *follows* the pods that its required affinity terms select; those are its *leaders*. The domains of pods that
rules of other pending pods count must be settled, too. Which domains the pods of one shape may use follows from their
own hard rules and those of pods already placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from nodesmith.decisions.scheduling.conflicts import LabelSets, bits
from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.decisions.scheduling.topology.topology import (
    Rule,
    Topology,
    affinity_terms,
    anti_affinity_terms,
    keyed_spreads,
    seeing,
    spread_rules,
)
from nodesmith.decisions.scheduling.topologyspread import Domain, Tally, why_full
from nodesmith.model.apimachinery.labels import HOSTNAME, ZONE
from nodesmith.model.kubernetes.pods import Shape

_MOST_LINKS = 100
FOLLOWS = 2
"""The turn of shapes with required pod affinity."""


def followed(shape: Shape, sets: LabelSets) -> int:
    """Return the label sets that match all required affinity terms of a shape; a pod must match all terms to count."""
    terms = affinity_terms(shape)
    matching = sets.counted(shape, terms[0].selector, terms[0].namespaces) if terms else 0
    for term in terms[1:]:
        matching &= sets.counted(shape, term.selector, term.namespaces)
    return matching


def shares_node(shape: Shape) -> bool:
    """Return whether pods of a shape must share a node with the pods that they follow."""
    return any(term.topology_key == HOSTNAME for term in affinity_terms(shape))


def leaders_first(shapes: Mapping[Shape, Shape], sets: LabelSets) -> list[Shape]:
    """Order shapes so that each comes after those it follows, except within cycles.

    `shapes` maps each shape to what its pods strictly require, which may be less.
    """
    by_number: dict[int, list[Shape]] = {}
    for shape in shapes:
        by_number.setdefault(sets.number(shape), []).append(shape)
    mask = sum(1 << number for number in by_number)
    ordered: dict[Shape, None] = {}
    entered: set[Shape] = set()
    stack = [(shape, False) for shape in reversed(list(shapes))]
    while stack:
        shape, is_done = stack.pop()
        if is_done:
            ordered[shape] = None
        elif shape not in entered:
            entered.add(shape)
            stack.append((shape, True))
            leaders = [one for number in bits(followed(shape, sets) & mask) for one in by_number[number]]
            new = [leader for leader in reversed(leaders) if leader not in entered]
            stack += [(leader, False) for leader in new if not _may_precede(shape, leader, shapes, sets)]
    return list(ordered)


def _may_precede(shape: Shape, leader: Shape, plain: Mapping[Shape, Shape], sets: LabelSets) -> bool:
    """Return whether kube-scheduler may bind pods of `shape` before their `leader`, which must then be where they are.

    This holds for pods that match their own term, so that they can be first, before leaders that must share a node; and
    for pods that only prefer to follow, before leaders that must follow them.
    """
    number = sets.number(shape)
    if followed(shape, sets) >> number & 1 and shares_node(leader) and not shares_node(shape):
        return True
    return not affinity_terms(plain[shape]) and bool(followed(plain[leader], sets) >> number & 1)


def affinity_group(shape: Shape, sets: LabelSets) -> tuple[object, ...]:
    """Return a key that is equal for all shapes that follow the same pods over the same topology keys."""
    return followed(shape, sets), *sorted({term.topology_key for term in affinity_terms(shape)})


class UnsatisfiedAffinity:
    """Pods that must be where others are, when none of those has a place."""

    def __init__(self, shapes: Iterable[Shape], sets: LabelSets) -> None:
        self._sets = sets
        self._followed: dict[int, int] = {}
        for shape in shapes:
            number = sets.number(shape)
            self._followed[number] = self._followed.get(number, 0) | followed(shape, sets)
        self._numbers = sum(1 << number for number in self._followed)

    def unsatisfied_reason(self, shape: Shape) -> str:
        """Return the reason why pods cannot follow their leaders.

        Either no pod matches, or none is on a node with the label, or the matching pods have to wait themselves.
        """
        terms = affinity_terms(shape)
        keys = " and ".join(sorted({term.topology_key for term in terms}))
        selectors = " and ".join(dict.fromkeys(str(term.selector) for term in terms))
        prefix = f"required pod affinity over {keys}: "
        leaders = followed(shape, self._sets)
        if not leaders:
            return f"{prefix}no pod anywhere matches {selectors}" + (" at once" if len(terms) > 1 else "")
        if not leaders & self._numbers:
            return f"{prefix}no pod that matches {selectors} is, or will be, on a node with that label"
        circle = self._leads_back(shape)
        detail = "in turn wait for these: none can be the first" if circle else "wait for other pods"
        return f"{prefix}they must be with pods that match {selectors}, which {detail}"

    def _leads_back(self, shape: Shape) -> bool:
        """Return whether following leaders link by link, up to `_MOST_LINKS`, leads back to these pods."""
        seen: dict[int, None] = {}
        frontier = [followed(shape, self._sets) & self._numbers]
        while frontier and len(seen) < _MOST_LINKS:
            for number in islice(bits(frontier.pop()), _MOST_LINKS):
                if number not in seen:
                    seen[number] = None
                    frontier.append(self._followed[number] & self._numbers)
        return self._sets.number(shape) in seen


class TopologyDependencies:
    """By topology key, the label sets that hard spreads count, affinity follows and anti-affinity repels."""

    def __init__(self, shapes: Collection[Shape], sets: LabelSets, launching: Launching) -> None:
        self._sets, self._launching = sets, launching
        self._own: dict[Shape, list[Rule]] = {}
        self._rules: dict[Rule, None] = {}
        self._counted_per_node = 0
        self._followed: dict[str, int] = {}
        self._repelled: Counter[tuple[str, int]] = Counter()
        self._waiting = set(shapes)
        for shape in shapes:
            self._rules |= dict.fromkeys(self.own_rules(shape))
            self._counted_per_node |= self._counted_per_node_by(shape)
            self._repelled.update(self._repelled_by(shape))
            for term in affinity_terms(shape):
                selected = sets.counted(shape, term.selector, term.namespaces)
                self._followed[term.topology_key] = self._followed.get(term.topology_key, 0) | selected

    def placed(self, shape: Shape) -> None:
        """Note that all pods of a shape are placed: from now on `Topology.repelled` covers their anti-affinity."""
        if shape in self._waiting:
            self._waiting.remove(shape)
            self._repelled.subtract(self._repelled_by(shape))

    def own_rules(self, shape: Shape) -> list[Rule]:
        """Return the hard spreads of a shape; see `spread_rules`."""
        if shape not in self._own:
            self._own[shape] = spread_rules(shape, self._sets, self._launching)
        return self._own[shape]

    def rules_over(self, shape: Shape) -> list[Rule]:
        """Return the spreads that count pods of a shape."""
        number = self._sets.number(shape)
        return [rule for rule in self._rules if rule.selected >> number & 1]

    def counted_by(self, shape: Shape) -> list[tuple[str, int]]:
        """Return the spreads that count pods of a shape: the key, and all label sets counted together."""
        pairs = dict.fromkeys((rule.key, rule.selected) for rule in self.rules_over(shape))
        return sorted(pairs, key=lambda pair: pair[0])

    def asked_over(self, shape: Shape) -> list[str]:
        """Return the keys over which affinity or anti-affinity of unplaced pods looks at pods of a shape."""
        return sorted({*self._followed_over(shape), *self._repelled_over(shape)} - {HOSTNAME})

    def turn(self, shape: Shape) -> int:
        """Return the turn in which a shape is placed; lower turns come first.

        - 0: shapes that spreads of other shapes count or that affinity follows; and shapes that anti-affinity of others
          repels over a key that their own terms name, since these have no choice.
        - 1: other shapes with spreads or anti-affinity over a key other than the hostname; and shapes as in turn 0 that
          also spread over the hostname.
        - 2 (`FOLLOWS`): shapes with required pod affinity.
        - 3: all others. They may go anywhere, and nothing depends on where they are.
        """
        if affinity_terms(shape):
            return FOLLOWS
        if keyed_spreads(shape) or anti_affinity_terms(shape):
            own_pairs = {(r.key, r.selected) for r in self.own_rules(shape)}
            return 1 if own_pairs.issuperset(self.counted_by(shape)) else 0
        settled = any(key in term for key in self.asked_over(shape) for term in shape.terms)
        if (
            settled
            or self.counted_by(shape)
            or self._followed_over(shape)
            or self._is_counted_per_node(shape)
        ):
            return int(self._counted_per_node_by(shape) > 0)
        return 3

    def _followed_over(self, shape: Shape) -> list[str]:
        number = self._sets.number(shape)
        return [key for key, selected in self._followed.items() if selected >> number & 1]

    def _is_counted_per_node(self, shape: Shape) -> bool:
        """Return whether spreads over the hostname count pods of a shape that has no such spread itself."""
        return bool(self._counted_per_node >> self._sets.number(shape) & 1) and not self._counted_per_node_by(
            shape
        )

    def _counted_per_node_by(self, shape: Shape) -> int:
        counted = 0
        for spread in shape.spreads:
            if spread.hard and spread.topology_key == HOSTNAME:
                counted |= self._sets.selected(spread.selector, frozenset((shape.namespace,)))
        return counted

    def _repelled_over(self, shape: Shape) -> list[str]:
        number = self._sets.number(shape)
        return [key for (key, selected), pods in self._repelled.items() if pods and selected >> number & 1]

    def _repelled_by(self, shape: Shape) -> list[tuple[str, int]]:
        return [
            (t.topology_key, self._sets.selected(t.selector, t.namespaces))
            for t in anti_affinity_terms(shape)
        ]


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
        self._held = [entry for entry in topology.held_over(shape) if entry[0] not in self._own_rules]
        self._anti_affinity_terms = [
            t for t in anti_affinity_terms(shape) if sets.selected(t.selector, t.namespaces)
        ]
        self._followed = followed(shape, sets)
        following = sorted({t.topology_key for t in affinity_terms(shape)} - {HOSTNAME})
        needed = {*(rule.key for rule in self._own_rules), *following}
        self._needed = frozenset(needed)
        shunned = (*(t.topology_key for t in self._anti_affinity_terms), *topology.repelling_keys(shape))
        self.bound = frozenset((*needed, *shunned, *(rule.key for rule, _ in self._held)))
        pairs = dependencies.counted_by(shape)
        watched = {*(key for key, _ in pairs), *dependencies.asked_over(shape)} - self.bound
        settled = {key for key in sorted(watched) if any(map(any, launching.domains(shape, (key,))))}
        self.keys = tuple(sorted({*self.bound, *settled} - {HOSTNAME}))
        self._matched = {key: topology.counts(key, self._followed).pods for key in following}
        self.is_first = bool(following) and not any(any(counts.values()) for counts in self._matched.values())
        self._views: list[tuple[Tally, Rule]] = []
        self.tallies = [*self._own_tallies(), *self._held_tallies(), *self._spreads_of_others(pairs)]

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
        tallies = [self._tally(r, counts_self=r.selected >> number & 1 == 1) for r in self._own_rules]
        for term in self._anti_affinity_terms:
            selected = self._sets.selected(term.selector, term.namespaces)
            counts = self._topology.counts(term.topology_key, selected).pods
            axis = self.keys.index(term.topology_key)
            counts_self = selected >> number & 1
            tallies.append(Tally(axis, dict(counts), counts_self == 1, most=counts_self))
        return tallies

    def _held_tallies(self) -> list[Tally]:
        """Return the spreads of pods already placed: kube-scheduler may bind those pods last."""
        return [self._tally(rule, counts_self=True, only=frozenset(values)) for rule, values in self._held]

    def _tally(self, rule: Rule, *, counts_self: bool, only: frozenset[str] | None = None) -> Tally:
        counts = self._topology.counts(rule.key, rule.selected, rule.view)
        axis, pods, unsure = self.keys.index(rule.key), dict(counts.pods), dict(counts.unsure)
        sure = rule.view.must_show(self._shape, {}) or only is None
        tally = Tally(axis, pods, counts_self, rule.spread, only=only, unsure=unsure, adds_sure=sure)
        if only is not None:  # the pods' own spreads look at every node that these may be on
            tally.overlooks = lambda domain: not rule.view.may_show(self._shape, self.pins(domain))
        self._views.append((tally, rule))
        return tally

    def _spreads_of_others(self, counted: Sequence[tuple[str, int]]) -> list[Tally]:
        """Return tallies that prefer the domains where spreads of other pods count fewest.

        This leaves those pods the most freedom. The tallies order domains but exclude none.
        """
        seen_pairs = {(rule.key, rule.selected) for _, rule in self._views}
        return [
            Tally(self.keys.index(key), dict(self._topology.counts(key, selected).pods), counts_self=True)
            for key, selected in counted
            if key in self.keys and (key, selected) not in seen_pairs
        ]

    def why_none(self, launchable: Sequence[Domain]) -> str:
        """Return what keeps a pod out of every domain."""
        for key, counts in self._matched.items():
            if not self.is_first:
                places = ", ".join(sorted(value for value, count in counts.items() if count))
                if not any(counts.get(d[self.keys.index(key)]) for d in launchable):
                    return f"required pod affinity over {key}: matching pods are only in {places}, where nothing fits"
            elif not any(d[self.keys.index(key)] for d in launchable):
                reason = "no node with that label has room, and none that can be launched would have it"
                return f"required pod affinity over {key}: {reason}"
        for tally in self.tallies:
            reason = self._why_held_back(tally, launchable)
            if reason:
                return reason
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
            places = ", ".join(sorted(value for value, count in tally.counts.items() if count))
            return f"required pod anti-affinity over {key}: pods that they must avoid are in {places}"
        if tally.spread is None or tally.only is not None:
            return ""
        if not tally.counts:
            return f"topology spread over {key}: no node has that label, and none that can be launched would"
        if any(tally.admits(domain) for domain in launchable):
            return ""
        return why_full(tally, tally.spread, key)
