"""Which rules of pending pods depend on the domains of other pods: these domains must be settled, in what order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from nodesmith.decisions.scheduling.labelsets import LabelSets
from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.decisions.scheduling.topology.nodefilters import Rule, keyed_spreads, spread_rules
from nodesmith.decisions.scheduling.topology.topology import affinity_terms, anti_affinity_terms
from nodesmith.model.apimachinery.labels import HOSTNAME
from nodesmith.model.kubernetes.pods import Shape

FOLLOWS = 2
"""The turn of shapes with required pod affinity."""


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
