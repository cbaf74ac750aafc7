"""Pods that must be where others are: whom they follow, in which order they come, and why some have nobody."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nodesmith.decisions.scheduling.labelsets import LabelSets, bits
from nodesmith.decisions.scheduling.topology import attractions
from nodesmith.model.shapes import Shape


def followed(shape: Shape, sets: LabelSets) -> int:
    """Give the label sets that meet all required affinity terms of a shape; a pod must meet all to count for one."""
    terms = attractions(shape)
    found = sets.selected(terms[0].selector, terms[0].namespaces) if terms else 0
    for term in terms[1:]:
        found &= sets.selected(term.selector, term.namespaces)
    return found


def leaders_first(shapes: Sequence[Shape], sets: LabelSets) -> list[Shape]:
    """Order shapes so that each comes after those it follows, as far as they do not follow each other in a circle."""
    by_number: dict[int, list[Shape]] = {}
    for shape in shapes:
        by_number.setdefault(sets.number(shape), []).append(shape)
    known = sum(1 << number for number in by_number)
    ordered: dict[Shape, None] = {}
    entered: set[Shape] = set()
    stack = [(shape, False) for shape in reversed(shapes)]
    while stack:
        shape, done = stack.pop()
        if done:
            ordered[shape] = None
        elif shape not in entered:
            entered.add(shape)
            stack.append((shape, True))
            leaders = [one for number in bits(followed(shape, sets) & known) for one in by_number[number]]
            stack += [(one, False) for one in reversed(leaders) if one not in entered]
    return list(ordered)


def flock(shape: Shape, sets: LabelSets) -> tuple[object, ...]:
    """Give what is equal for all shapes that follow the same pods over the same keys."""
    return followed(shape, sets), *sorted({term.topology_key for term in attractions(shape)})


def why_nobody(shape: Shape, waiting: Collection[Shape], sets: LabelSets) -> str:
    """Say whom pods must follow and cannot: there is nobody, or only some that wait in their turn."""
    term = attractions(shape)[0]
    leaders = followed(shape, sets)
    names = sorted({other.owner or "other pods" for other in waiting if leaders >> sets.number(other) & 1})
    if names:
        return (
            f"required pod affinity over {term.topology_key}: only pods of {', '.join(names[:3])} match, and these have"
            " no place themselves, for they must be where others are"
        )
    asked = term.selector.requirements if term.selector is not None else {}
    wanted = "; ".join(str(asked[key]) for key in sorted(asked))
    return f"required pod affinity over {term.topology_key}: no pod anywhere matches {wanted or 'it'}"
