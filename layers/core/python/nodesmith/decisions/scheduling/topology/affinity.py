"""Required pod affinity: which pods a shape must follow, in which order shapes come, and why some find no leader.

A pod *follows* the pods that its required affinity terms select; those are its *leaders*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from nodesmith.decisions.scheduling.labelsets import LabelSets, bits
from nodesmith.decisions.scheduling.topology.topology import affinity_terms
from nodesmith.model.apimachinery.labels import HOSTNAME
from nodesmith.model.kubernetes.pods import Shape

_MOST_LINKS = 100


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
