"""Encode which demands may share a new node, as groups and caps for the packing.

In addition to the rules of `conflicts`, this covers labels that a NodePool leaves open: a node has one value of each,
so demands that ask for different values cannot share a node. Each distinct value gets a number, encoded bit by bit: a
demand with a 1 in some bit excludes demands with a 0 there. That takes two groups per bit instead of one for every pair
of values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nodesmith.decisions.scheduling.compatibility import is_given
from nodesmith.decisions.scheduling.conflicts import Cap, PodConflicts, Rules
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import DECIDED, TENANCY
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.ec2.instancetypes import ANY_TENANCY
from nodesmith.model.kubernetes.pods import Shape

_Open = Mapping[str, Sequence[Requirement]]
"""What each NodePool allows for a label that it leaves open, by label."""


def shared(
    demands: Sequence[Demand],
    conflicts: PodConflicts,
    templates: Iterable[Template],
    daemonsets: Sequence[Shape],
) -> list[Demand]:
    """Return the demands with their groups and caps; merge those that are the same to every node."""
    nonempty = [d for d in demands if d.pods]
    fallbacks = [d.fallback for d in nonempty if d.fallback is not None]
    labels = _open_labels(templates, nonempty)
    ruled = _ruled(nonempty, conflicts, labels, daemonsets)
    ruled_fallbacks = iter(_ruled(fallbacks, conflicts, labels, daemonsets))  # bought later, separately
    return _merged(
        (own, demand if demand.fallback is None else replace(demand, fallback=next(ruled_fallbacks)[1]))
        for own, demand in ruled
    )


def _ruled(
    demands: Sequence[Demand], conflicts: PodConflicts, labels: _Open, daemonsets: Sequence[Shape]
) -> list[tuple[tuple[int, ...], Demand]]:
    """Return demands with their groups and caps, each with the groups of which it limits its own number."""
    rules = [conflicts.rules(demand.shape) for demand in demands]
    preferred = [
        Rules((*rule.groups, *groups), (*rule.caps, *((group ^ 1, 0) for group in groups)))
        if groups
        else rule
        for rule, groups in zip(rules, _open_label_groups(demands, labels), strict=True)
    ]
    busy = _Exclusions(preferred)
    return [
        (
            tuple([group for group, _ in preference.caps if group in preference.groups]),
            Demand(  # several times faster than `replace`
                demand.shape,
                demand.pods,
                demand.pins,
                min(demand.per_node, rule.per_node),
                busy.groups(preference),
                busy.caps(preference),
                tuple([d for d in daemonsets if conflicts.conflict(demand.shape, d)]),
                demand.fallback,
                demand.unit,
                demand.members,
            ),
        )
        for demand, rule, preference in zip(demands, rules, preferred, strict=True)
    ]


def _merged(demands: Iterable[tuple[tuple[int, ...], Demand]]) -> list[Demand]:
    """Merge demands that are equal in everything that matters to a node."""
    by_key: dict[tuple[object, ...], list[Demand]] = {}
    asks = _Asks()
    for limited, demand in demands:
        alike = limited, asks.key(demand), demand.fallback and asks.key(demand.fallback)
        by_key.setdefault(alike, []).append(demand)
    return [
        replace(group[0], pods=tuple(p for d in group for p in d.pods)) if len(group) > 1 else group[0]
        for group in by_key.values()
    ]


class _Asks:
    """Numbers of what shapes ask of a node: equal for shapes that ask the same."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._number_of: dict[Shape, int] = {}

    def key(self, demand: Demand) -> tuple[object, ...]:
        """Return everything about a demand that matters to a node."""
        number = self._number_of.get(demand.shape)
        if number is None:
            shape = demand.shape
            conditions = (
                shape.requests,
                shape.terms,
                shape.own_terms,
                shape.tolerations,
                shape.shuns_soft_taints,
            )
            number = self._number_of[shape] = self._numbers.setdefault(conditions, len(self._numbers))
        return (
            number,
            demand.pins,
            demand.per_node,
            demand.groups,
            demand.caps,
            demand.excluding_daemonsets,
            demand.unit,
        )


class _Exclusions:
    """The groups and caps that can exclude another demand, numbered from 0.

    Groups without a cap are left out, and so are caps on a demand's own kind alone, which `per_node` covers.
    """

    def __init__(self, rules: Sequence[Rules]) -> None:
        self._members = Counter(group for one in rules for group in one.groups)
        self._numbers: dict[int, int] = {}
        for one in rules:
            for group, _ in self._stopping(one):
                self._numbers.setdefault(group, len(self._numbers))

    def _stopping(self, rules: Rules) -> list[Cap]:
        return [cap for cap in rules.caps if self._members[cap[0]] > (cap[0] in rules.groups)]

    def caps(self, rules: Rules) -> tuple[Cap, ...]:
        """Return the caps of `rules` that can exclude another demand, renumbered."""
        return tuple([(self._numbers[group], most) for group, most in self._stopping(rules)])

    def groups(self, rules: Rules) -> tuple[int, ...]:
        """Return the groups of `rules` that some cap limits, renumbered."""
        return tuple([self._numbers[group] for group in rules.groups if group in self._numbers])


def _open_labels(templates: Iterable[Template], demands: Iterable[Demand]) -> _Open:
    open_labels: dict[str, dict[Requirement, None]] = {}
    has_tenancy = any(TENANCY in term for demand in demands for term in demand.shape.terms)
    for template in templates:
        if has_tenancy and TENANCY not in template.requirements:
            open_labels.setdefault(TENANCY, {})[ANY_TENANCY] = None
        for key, requirement in template.requirements.items():
            if key not in DECIDED and (requirement.complement or len(requirement.values) > 1):
                open_labels.setdefault(key, {})[requirement] = None
    return {key: tuple(open_labels[key]) for key in sorted(open_labels)}


def _open_label_groups(demands: Sequence[Demand], labels: _Open) -> list[list[int]]:
    """Return the groups that encode what each demand asks of open labels.

    They are negative, unlike all other groups; `group ^ 1` is the opposite value of the same bit.
    """
    all_groups: list[list[int]] = [[] for _ in demands]
    first = -2
    for key, offered in labels.items():
        numbers: dict[str, int] = {}
        preferred = [_preference(demand, key, offered) for demand in demands]
        for preference in filter(None, preferred):
            numbers.setdefault(preference, len(numbers))
        bits = max(0, len(numbers) - 1).bit_length()
        for groups, preference in zip(all_groups, preferred, strict=True):
            if preference:
                groups += [first - 2 * bit + (numbers[preference] >> bit & 1) for bit in range(bits)]
        first -= 2 * bits
    return all_groups


def _preference(demand: Demand, key: str, offered: Iterable[Requirement]) -> str:
    """Describe what a demand asks of an open label; empty when it asks nothing, or what every NodePool provides."""
    if key in demand.pins:
        return f"{key} In [{demand.pins[key]}]"
    requirements = dict.fromkeys(term[key] for term in demand.shape.terms if key in term)
    return " or ".join(
        str(requirement)
        for requirement in requirements
        if not all(is_given(offer, requirement) for offer in offered)
    )
