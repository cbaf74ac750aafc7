"""Which pods depend on the domains of others, by required affinity or other rules, and in which order shapes come.

A pod *follows* the pods that its required affinity terms select; those are its *leaders*. The domains of pods that
rules of other pending pods count must be settled, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from nodesmith.decisions.scheduling.labelsets import LabelSets, bits
from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.decisions.scheduling.topology.nodefilters import Rule, keyed_spreads, spread_rules
from nodesmith.decisions.scheduling.topology.topology import affinity_terms, anti_affinity_terms
from nodesmith.model.apimachinery.labels import HOSTNAME
from nodesmith.model.kubernetes.pods import Shape

_MOST_LINKS = 100
FOLLOWS = 2
"""The turn of shapes with required pod affinity."""


def followed(shape: Shape, sets: LabelSets) -> int:
    """Return the label sets that match all required affinity terms of a shape; a pod must match all terms to count."""
    terms = affinity_terms(shape)
    found = sets.selected(terms[0].selector, terms[0].namespaces) if terms else 0
    for term in terms[1:]:
        found &= sets.selected(term.selector, term.namespaces)
    return found


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
    known = sum(1 << number for number in by_number)
    ordered: dict[Shape, None] = {}
    entered: set[Shape] = set()
    stack = [(shape, False) for shape in reversed(list(shapes))]
    while stack:
        shape, done = stack.pop()
        if done:
            ordered[shape] = None
        elif shape not in entered:
            entered.add(shape)
            stack.append((shape, True))
            leaders = [one for number in bits(followed(shape, sets) & known) for one in by_number[number]]
            new = [one for one in reversed(leaders) if one not in entered]
            stack += [(one, False) for one in new if not _may_precede(shape, one, shapes, sets)]
    return list(ordered)


def _may_precede(shape: Shape, leader: Shape, plain: Mapping[Shape, Shape], sets: LabelSets) -> bool:
    """Return whether kube-scheduler may bind pods of `shape` before their `leader`, which must then be where they are.

    This holds for pods that match their own term, and so can be the first, before leaders that must share a node; and
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

    def why(self, shape: Shape) -> str:
        """Return the reason why pods cannot follow their leaders.

        Either no pod matches, or none is on a node with the label, or the matching pods have to wait themselves.
        """
        terms = affinity_terms(shape)
        keys = " and ".join(sorted({term.topology_key for term in terms}))
        wanted = " and ".join(dict.fromkeys(str(term.selector) for term in terms))
        begun = f"required pod affinity over {keys}: "
        leaders = followed(shape, self._sets)
        if not leaders:
            return f"{begun}no pod anywhere matches {wanted}" + (" at once" if len(terms) > 1 else "")
        if not leaders & self._numbers:
            return f"{begun}no pod that matches {wanted} is, or will be, on a node with that label"
        circle = self._follow_back(shape)
        why = "in turn wait for these: none can be the first" if circle else "wait for other pods"
        return f"{begun}they must be with pods that match {wanted}, which {why}"

    def _follow_back(self, shape: Shape) -> bool:
        """Return whether following leaders link by link, up to `_MOST_LINKS`, leads back to these pods."""
        seen: dict[int, None] = {}
        found = [followed(shape, self._sets) & self._numbers]
        while found and len(seen) < _MOST_LINKS:
            for number in islice(bits(found.pop()), _MOST_LINKS):
                if number not in seen:
                    seen[number] = None
                    found.append(self._followed[number] & self._numbers)
        return self._sets.number(shape) in seen


class TopologyDependencies:
    """By topology key, the label sets that hard spreads count, affinity follows and anti-affinity repels."""

    def __init__(self, shapes: Collection[Shape], sets: LabelSets, launching: Launching) -> None:
        self._sets, self._launching = sets, launching
        self._own: dict[Shape, list[Rule]] = {}
        self._rules: dict[Rule, None] = {}
        self._counted_per_node = 0
        self._followed: dict[str, int] = {}
        self._shunned: Counter[tuple[str, int]] = Counter()
        self._waiting = set(shapes)
        for shape in shapes:
            self._rules |= dict.fromkeys(self.own_rules(shape))
            self._counted_per_node |= self._counted_per_node_by(shape)
            self._shunned.update(self._shunned_by(shape))
            for term in affinity_terms(shape):
                selected = sets.selected(term.selector, term.namespaces)
                self._followed[term.topology_key] = self._followed.get(term.topology_key, 0) | selected

    def placed(self, shape: Shape) -> None:
        """Note that all pods of a shape are placed: from now on `Topology.repelled` covers their anti-affinity."""
        if shape in self._waiting:
            self._waiting.remove(shape)
            self._shunned.subtract(self._shunned_by(shape))

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
        found = dict.fromkeys((rule.key, rule.selected) for rule in self.rules_over(shape))
        return sorted(found, key=lambda pair: pair[0])

    def asked_over(self, shape: Shape) -> list[str]:
        """Return the keys over which affinity or anti-affinity of unplaced pods looks at pods of a shape."""
        return sorted({*self._followed_over(shape), *self._shunned_over(shape)} - {HOSTNAME})

    def turn(self, shape: Shape) -> int:
        """Return the turn in which a shape is placed; lower turns come first.

        - 0: shapes that spreads of other shapes count or that affinity follows; and shapes that anti-affinity of others
          repels over a key that their own terms name, since these have no choice.
        - 1: other shapes with spreads or anti-affinity over a key besides the hostname; and shapes as in turn 0 that
          also spread over the hostname.
        - 2 (`FOLLOWS`): shapes with required pod affinity.
        - 3: all others. They may go anywhere, and nothing depends on where they are.
        """
        if affinity_terms(shape):
            return FOLLOWS
        if keyed_spreads(shape) or anti_affinity_terms(shape):
            own = {(r.key, r.selected) for r in self.own_rules(shape)}
            return 1 if own.issuperset(self.counted_by(shape)) else 0
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
        found = 0
        for spread in shape.spreads:
            if spread.hard and spread.topology_key == HOSTNAME:
                found |= self._sets.selected(spread.selector, frozenset((shape.namespace,)))
        return found

    def _shunned_over(self, shape: Shape) -> list[str]:
        number = self._sets.number(shape)
        return [key for (key, selected), left in self._shunned.items() if left and selected >> number & 1]

    def _shunned_by(self, shape: Shape) -> list[tuple[str, int]]:
        return [
            (t.topology_key, self._sets.selected(t.selector, t.namespaces))
            for t in anti_affinity_terms(shape)
        ]
