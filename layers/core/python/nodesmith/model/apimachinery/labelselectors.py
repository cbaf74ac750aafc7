"""Label selectors, which determine the pods that a constraint counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.requirements import Requirement, Requirements, contradiction, requirement

_NOTHING = Requirements.of(Requirement("", complement=True, gte=1, lte=0))
"""No labels satisfy it."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed label selector. `key` is a canonical form, for comparing selectors."""

    requirements: Requirements
    key: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels is selected."""
        return self.requirements.allow_labels(labels)

    def __str__(self) -> str:
        """Return the selector for messages: `app In [web]; tier Exists`."""
        return "; ".join(str(self.requirements[key]) for key in sorted(self.requirements)) or "any labels"


def parse_selector(
    raw: Mapping[str, Any] | None,
    also: Mapping[str, str] | None = None,
    unlike: Mapping[str, str] | None = None,
) -> Selector | None:
    """Read a LabelSelector. Return None, which selects nothing, if `raw` is None.

    `also` are labels that must match too (matchLabelKeys), and `unlike` are labels that must not match
    (mismatchLabelKeys). Raises ValueError for an unknown operator.
    """
    if raw is None:
        return None
    labels = {**(raw.get("matchLabels") or {}), **(also or {})}
    parts = [requirement(str(key), "In", (str(value),)) for key, value in labels.items()]
    parts += [requirement(str(key), "NotIn", (str(value),)) for key, value in (unlike or {}).items()]
    for expression in raw.get("matchExpressions") or ():
        values = [str(value) for value in expression.get("values") or ()]
        parts.append(requirement(str(expression.get("key")), str(expression.get("operator")), values))
    requirements = _NOTHING if contradiction(parts) else Requirements.of(*parts)
    return Selector(requirements, json.dumps([_written(requirements[key]) for key in sorted(requirements)]))


def _written(part: Requirement) -> list[object]:
    return [part.key, part.operator, sorted(part.values), part.gte, part.lte]
