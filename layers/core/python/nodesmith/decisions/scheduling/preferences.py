"""Wishes of pods, taken for rules as long as that works: preferred affinities and spreads that are only wished for.

Under the policy Respect a pod is placed as if all it prefers were required; what cannot be had so is given up one by
one, in Karpenter's order: preferred pod affinity, preferred anti-affinity, preferred node affinity, spreads, at last
NodePools without a PreferNoSchedule taint; of each kind the heaviest first. Of node affinity only the heaviest left
counts. Nodes that are there are used whatever such taints they have, which Karpenter would not: by the time that
another had come kube-scheduler would have bound the pods to them. Under Ignore a wish costs nothing: preferred node
affinity decides between choices of the same price, everything else is left to kube-scheduler's scores.

Pods that run already, and whose node is to go, had their nodes bought before: see `PreferenceMode`.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from nodesmith.decisions.scheduling.offerings.launchable import Launching
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.kubernetes.shapes import PodAffinityTerm, Shape
from nodesmith.model.policies import PreferencePolicy


class PreferenceMode(Enum):
    """What wishes of pods count for whose node is to go, under Respect; those of pods that wait are rules anyway."""

    RULE = auto()
    """as those of pods that wait: they may cost a node that others have room for"""
    BUY = auto()
    """between free room, which comes first; then for what is bought, at any price"""
    CHOOSE = auto()
    """between free room, which comes first; what is bought is the cheapest"""
    NONE = auto()
    """nothing"""
    ZONES = auto()
    """spreads over zones are rules, all others nothing"""


RULES = frozenset({PreferenceMode.RULE, PreferenceMode.ZONES})
"""As these, wishes may cost a node that others have room for."""


def has_preferences(shape: Shape) -> bool:
    """Return whether pods prefer anything of nodes, or of who is near."""
    soft = any(not spread.hard for spread in shape.spreads)
    return soft or bool(shape.preferred_terms) or any(term.weight for term in shape.affinities)


def variants(
    shape: Shape, policy: PreferencePolicy, launching: Launching, *, zones_only: bool = False
) -> tuple[Shape, ...]:
    """Return a shape with its wishes as rules, then with ever fewer of them, at last the shape itself.

    With `zones_only` it wishes for nothing but to be spread over zones.
    """
    if zones_only:
        spread = variants(_spread_over_zones(shape), policy, launching)
        return (*(replace(one, shuns_soft_taints=False) for one in spread[:-1]), shape)
    attracted, repelled = _heaviest_first(shape, anti=False), _heaviest_first(shape, anti=True)
    preferred = [term for _, term in sorted(shape.preferred_terms, key=lambda pair: -pair[0])]
    soft = [spread for spread in shape.spreads if not spread.hard]
    shuns = policy == PreferencePolicy.RESPECT and launching.softly_tainted(shape)
    if not (attracted or repelled or preferred or soft or shuns):
        return (shape,)
    if policy == PreferencePolicy.IGNORE:
        found = _variant(shape, [], [], preferred, 0)
        costs_more = found is None or launching.price(found, (), ()) > launching.price(shape, (), ())
        return (shape,) if found is None or costs_more else (found, shape)
    steps = [(attracted[n:], repelled, preferred, len(soft)) for n in range(len(attracted))]
    steps += [([], repelled[n:], preferred, len(soft)) for n in range(len(repelled))]
    steps += [([], [], preferred[n:], len(soft)) for n in range(len(preferred))]
    steps += [([], [], [], left) for left in range(len(soft), 0, -1)]
    steps += [([], [], [], 0)] * shuns
    stricter = [_variant(shape, *step) for step in steps]
    return (*(replace(one, shuns_soft_taints=shuns) for one in stricter if one is not None), shape)


def _spread_over_zones(shape: Shape) -> Shape:
    """Return a shape without any wish but its spreads over zones."""
    return replace(
        shape,
        preferred_terms=(),
        affinities=tuple(term for term in shape.affinities if not term.weight),
        spreads=tuple(spread for spread in shape.spreads if spread.hard or spread.topology_key == ZONE),
    )


def _heaviest_first(shape: Shape, *, anti: bool) -> list[PodAffinityTerm]:
    terms = [term for term in shape.affinities if term.weight and term.anti is anti]
    return sorted(terms, key=lambda term: -term.weight)


def _variant(
    shape: Shape,
    attracted: list[PodAffinityTerm],
    repelled: list[PodAffinityTerm],
    preferred: list[Requirements],
    spreads: int,
) -> Shape | None:
    """Return a shape that requires these, and as many of its spreads (the last ones); None where it could never be."""
    terms = shape.terms
    if preferred:
        terms = tuple(
            term.union(preferred[0])
            for term in terms
            if term.conflict(preferred[0], undefined=frozenset(preferred[0])) is None
        )
    if not terms and shape.terms:
        return None
    required = [term for term in shape.affinities if not term.weight]
    first_kept = sum(not spread.hard for spread in shape.spreads) - spreads
    kept = []
    for spread in shape.spreads:
        if spread.hard:
            kept.append(spread)
        elif first_kept > 0:
            first_kept -= 1
        else:
            kept.append(replace(spread, hard=True))
    now_required = [replace(term, weight=0) for term in (*attracted, *repelled)]
    return replace(
        shape, terms=terms, affinities=(*required, *now_required), spreads=tuple(kept), preferred_terms=()
    )
