"""Which shapes may not share a new node: those that repel each other, and those that want different labels of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nodesmith.decisions.scheduling.neighbours import counted, hostname_spreads, in_conflict, is_touchy
from nodesmith.decisions.scheduling.templates import Template
from nodesmith.model.labels import WELL_KNOWN
from nodesmith.model.pods import Pod
from nodesmith.model.shapes import Shape


def companies(groups: Sequence[tuple[Shape, list[Pod]]], templates: Iterable[Template]) -> dict[Shape, str]:
    """Name the company of every shape that may not share a node with all; shapes of one company may share."""
    open_keys = {
        key
        for template in templates
        for key, requirement in template.requirements.items()
        if key not in WELL_KNOWN and (requirement.complement or len(requirement.values) > 1)
    }
    shapes = [shape for shape, _ in groups]
    touchy = [s for s in shapes if _is_touchy(s)]
    found: dict[Shape, str] = {}
    for index, shape in enumerate(shapes):
        company = _label_wishes(shape, open_keys)
        others = shapes if _is_touchy(shape) else touchy
        if any(other is not shape and _apart(shape, other) for other in others):
            company = f"{company}#{index}"
        if company:
            found[shape] = company
    return found


def _is_touchy(shape: Shape) -> bool:
    return is_touchy(shape) or bool(hostname_spreads(shape))


def _apart(shape: Shape, other: Shape) -> bool:
    """Tell whether two shapes conflict, or one limits by a spread over nodes how many of the other share its own."""
    return (
        in_conflict(shape, other)
        or any(counted(s, shape, other) for s in hostname_spreads(shape))
        or any(counted(s, other, shape) for s in hostname_spreads(other))
    )


def _label_wishes(shape: Shape, open_keys: set[str]) -> str:
    """Spell what the shape asks of labels that a NodePool leaves open."""
    return " or ".join(
        "; ".join(str(term[key]) for key in sorted(open_keys & set(term)))
        for term in shape.terms
        if open_keys & set(term)
    )
