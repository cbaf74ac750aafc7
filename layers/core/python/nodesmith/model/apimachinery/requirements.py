"""Requirements: the values that a label may take, as sets or complements of sets, with integer bounds. Label selectors.

In = the set; NotIn = the complement of the set; Exists = the complement of the empty set; DoesNotExist = the empty set.
Gt, Lt, Gte and Lte are complements with bounds. The semantics are those of Karpenter v1's pkg/scheduling, in which an
intersection is again a requirement, so that NodePool, pod and instance type can be narrowed step by step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from nodesmith.model.apimachinery.labels import HOSTNAME, NODEPOOL, VALUES, WELL_KNOWN, normalised
from nodesmith.model.apimachinery.problems import did_you_mean, nearest

_INT64_MAX = 2**63 - 1


class Operator(StrEnum):
    """The operators of a requirement, as manifests spell them."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"
    GTE = "Gte"
    LTE = "Lte"


@dataclass(frozen=True, slots=True)
class Requirement:
    """The values allowed for one label key.

    If `complement` is True, `values` are the excluded values. `gte` and `lte` are integer bounds, and occur only on
    complements. `min_values` is the number of distinct values that must stay possible (flexibility), None for any
    number. `exists` is True if values are excluded but the label must be present (NotIn together with Exists).
    """

    key: str
    values: frozenset[str] = frozenset()
    complement: bool = False
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None
    exists: bool = False

    @property
    def operator(self) -> Operator:
        """The equivalent plain operator. Bounds count as Exists or NotIn."""
        if self.complement:
            return Operator.NOT_IN if self.values else Operator.EXISTS
        return Operator.IN if self.values else Operator.DOES_NOT_EXIST

    @property
    def is_empty(self) -> bool:
        """True if no value is allowed: the label must be absent."""
        return not self.complement and not self.values

    @property
    def tolerates_absence(self) -> bool:
        """True if a node without the label is acceptable (NotIn without bounds, DoesNotExist)."""
        excludes = self.complement and bool(self.values) and self.gte is None and self.lte is None
        return self.is_empty or (excludes and not self.exists)

    def allows(self, value: str) -> bool:
        """Return whether a label with this value satisfies the requirement."""
        return (value in self.values) != self.complement and self._within_bounds(value)

    def _within_bounds(self, value: str) -> bool:
        if self.gte is None and self.lte is None:
            return True
        number = _integer(value)
        if number is None:
            return False
        return (self.gte is None or number >= self.gte) and (self.lte is None or number <= self.lte)

    def intersection(self, other: Requirement) -> Requirement:
        """Return the requirement that allows exactly the values that both allow."""
        gte, lte = _tightest(self.gte, other.gte, max), _tightest(self.lte, other.lte, min)
        min_values = _tightest(self.min_values, other.min_values, max)
        if gte is not None and lte is not None and gte > lte:
            return Requirement(self.key, min_values=min_values)
        if self.complement and other.complement:
            bounded = Requirement(self.key, complement=True, gte=gte, lte=lte)
            excluded = frozenset(v for v in self.values | other.values if bounded.allows(v))
            unbounded = gte is None and lte is None
            exists = bool(excluded) and unbounded and not (self.tolerates_absence and other.tolerates_absence)
            return replace(bounded, values=excluded, min_values=min_values, exists=exists)
        concrete = other.values if self.complement else self.values
        allowed = frozenset(v for v in concrete if self.allows(v) and other.allows(v))
        return Requirement(self.key, allowed, min_values=min_values)

    def intersects(self, other: Requirement) -> bool:
        """Return whether any value satisfies both requirements."""
        if self.complement and other.complement:
            return not self.intersection(other).is_exhausted
        concrete, rest = (other, self) if self.complement else (self, other)
        return any(rest.allows(value) and concrete.allows(value) for value in concrete.values)

    @property
    def is_exhausted(self) -> bool:
        """True if it allows no value: it is empty, or every integer within its bounds is excluded."""
        if not self.complement:
            return not self.values
        if self.gte is None or self.lte is None:
            return False
        return self.lte - self.gte + 1 <= len({n for n in map(_integer, self.values) if n is not None})

    def __str__(self) -> str:
        bounds = [f">={self.gte}"] * (self.gte is not None) + [f"<={self.lte}"] * (self.lte is not None)
        words = sorted(self.values)
        listed = ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")
        return " ".join([self.key, *(bounds or [self.operator]), f"[{listed}]" if words else ""]).strip()


def requirement(
    key: str, operator: str, values: Iterable[str] = (), min_values: int | None = None
) -> Requirement:
    """Build a requirement from a manifest's key, operator and values; the key is normalised.

    Raises ValueError for an unknown operator, or for a bound that is not exactly one non-negative integer.
    """
    key, words = normalised(key), frozenset(values)
    match _operator(operator):
        case Operator.IN:
            return Requirement(key, words, min_values=min_values)
        case Operator.NOT_IN:
            return Requirement(key, words, complement=True, min_values=min_values)
        case Operator.EXISTS:
            return Requirement(key, complement=True, min_values=min_values)
        case Operator.DOES_NOT_EXIST:
            return Requirement(key, min_values=min_values)
        case Operator.GT:
            return _at_least(key, _bound(operator, words) + 1, min_values)
        case Operator.GTE:
            return _at_least(key, _bound(operator, words), min_values)
        case Operator.LT:
            return _at_most(key, _bound(operator, words) - 1, min_values)
        case Operator.LTE:
            return _at_most(key, _bound(operator, words), min_values)


def _at_least(key: str, bound: int, min_values: int | None) -> Requirement:
    if bound > _INT64_MAX:
        return Requirement(key, min_values=min_values)
    return Requirement(key, complement=True, gte=bound, min_values=min_values)


def _at_most(key: str, bound: int, min_values: int | None) -> Requirement:
    return Requirement(key, complement=True, lte=bound, min_values=min_values)


def _operator(word: str) -> Operator:
    try:
        return Operator(word)
    except ValueError:
        operators = tuple(operator.value for operator in Operator)
        hint = did_you_mean(word, operators) or f", use one of {', '.join(operators)}"
        raise ValueError(f"unknown operator {word!r}{hint}") from None


def _bound(operator: str, values: frozenset[str]) -> int:
    number = _integer(next(iter(values))) if len(values) == 1 else None
    if number is None or number < 0:
        given = ", ".join(sorted(values)) or "nothing"
        raise ValueError(f"{operator} takes exactly one non-negative integer, found {given}")
    return number


def _integer(text: str) -> int | None:
    digits = text.removeprefix("-")
    number = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
    return number if number is not None and -_INT64_MAX <= number <= _INT64_MAX else None


def _tightest(a: int | None, b: int | None, choose: Callable[[int, int], int]) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return choose(a, b)


@dataclass(frozen=True, slots=True)
class Requirements(Mapping[str, Requirement]):
    """Requirements by key, at most one for each key: those on the same key are intersected."""

    by_key: Mapping[str, Requirement]

    @classmethod
    def of(cls, *requirements: Requirement) -> Requirements:
        """Return a collection of requirements, with those on the same key intersected."""
        return cls({}).adding(*requirements)

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Requirements:
        """Return labels as requirements: each key must have exactly its value."""
        return cls.of(*(Requirement(normalised(k), frozenset((v,))) for k, v in labels.items()))

    def __getitem__(self, key: str) -> Requirement:
        return self.by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_key)

    def __len__(self) -> int:
        return len(self.by_key)

    def __hash__(self) -> int:
        return hash(frozenset(self.by_key.values()))

    def adding(self, *requirements: Requirement) -> Requirements:
        """Return these requirements narrowed by further ones."""
        merged = dict(self.by_key)
        for new in requirements:
            before = merged.get(new.key)
            merged[new.key] = before.intersection(new) if before else new
        return Requirements(merged)

    @property
    def settled(self) -> dict[str, str]:
        """Label key → value for the keys that are left with exactly one value."""
        return {
            key: next(iter(item.values))
            for key, item in self.by_key.items()
            if not item.complement and len(item.values) == 1
        }

    def union(self, other: Requirements) -> Requirements:
        """Return all requirements of both, intersected key by key."""
        return self.adding(*other.by_key.values())

    def allow_labels(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with exactly these labels satisfies all requirements."""
        return self.first_refusal(labels) is None

    def first_refusal(self, labels: Mapping[str, str]) -> Requirement | None:
        """Return the first requirement, by key, that a node with these labels does not satisfy, None if all hold."""
        for key in sorted(self.by_key):
            required, value = self.by_key[key], labels.get(key)
            if not (required.tolerates_absence if value is None else required.allows(value)):
                return required
        return None

    def conflict(self, other: Requirements, *, undefined: frozenset[str] = WELL_KNOWN) -> Conflict | None:
        """Return the conflict of `other` with these requirements, the first by key, or None if they are compatible.

        A key that only `other` names must be in `undefined` (the well-known keys for new nodes, none for existing
        nodes) unless `other` accepts its absence. NotIn and DoesNotExist never conflict with each other.
        """
        for key in sorted(other.by_key):
            wanted, offered = other.by_key[key], self.by_key.get(key)
            if offered is None:
                if key not in undefined and not wanted.tolerates_absence:
                    return Conflict(wanted, None, undefined.union(self.by_key))
            elif not offered.intersects(wanted) and not (
                offered.tolerates_absence and wanted.tolerates_absence
            ):
                return Conflict(wanted, offered)
        return None


def contradiction(parts: Sequence[Requirement]) -> str:
    """Return the first key on which no node can satisfy all parts, empty if there is none.

    An intersection with no values left reads as DoesNotExist. That is right for step-by-step narrowing, but not for the
    requirements of one object: `In [a]` and `NotIn [a]` do not ask for a node without the label.
    """
    merged = Requirements.of(*parts)
    clashing = (
        part.key
        for part in parts
        if (merged[part.key].is_exhausted and not part.tolerates_absence) or (merged[part.key].lte or 0) < 0
    )
    return min(clashing, default="")


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why requirements are incompatible: the wanted one, what is offered for its key, and the keys that are known.

    Most callers only check whether there is a conflict, so the text is composed only when it is needed.
    """

    wanted: Requirement
    offered: Requirement | None
    known_keys: frozenset[str] = frozenset()

    def __str__(self) -> str:
        if self.offered is None and self.wanted.key == HOSTNAME:
            return f"needs {self.wanted}, but no new node has that name"
        if self.offered is None:
            hint = did_you_mean(self.wanted.key, self.known_keys)
            return f"label {self.wanted.key!r} does not have known values{hint}"
        return f"needs {self.wanted}, but {self.offered} is offered"

    @property
    def remedy(self) -> str:
        """What helps if no NodePool can offer what is wanted; empty if one could."""
        required = self.wanted
        if required.key == NODEPOOL:
            return "create that NodePool, or select another"
        values = VALUES.get(required.key, ())
        is_unknown = bool(values and required.values) and required.values.isdisjoint(values)
        return nearest(min(required.values), values) if is_unknown and not required.complement else ""


NO_REQUIREMENTS = Requirements({})


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


def read_requirements(items: Iterable[Mapping[str, Any]]) -> Requirements:
    """Read a list of requirements that has passed its schema. Requirements on one key are intersected."""
    return Requirements.of(
        *(
            requirement(item["key"], item["operator"], item.get("values", ()), item.get("minValues"))
            for item in items
        )
    )


def write_requirements(requirements: Requirements) -> list[dict[str, object]]:
    """Write requirements so that reading them returns the same: sorted by key, bounds as Gte and Lte.

    A requirement with bounds needs several entries with its key, since an entry has only one operator. Karpenter omits
    the values that are excluded within bounds; this function writes them as NotIn.
    """
    return [entry for key in sorted(requirements) for entry in _entries(requirements[key])]


def _entries(item: Requirement) -> list[dict[str, object]]:
    parts: list[tuple[Operator, list[str]]] = []
    if item.gte is not None:
        parts.append((Operator.GTE, [str(item.gte)]))
    if item.lte is not None and item.lte >= 0:
        parts.append((Operator.LTE, [str(item.lte)]))
    elif item.lte is not None:
        parts.append((Operator.LT, ["0"]))  # bounds in manifests are not negative
    if item.exists:
        parts.append((Operator.EXISTS, []))
    if not parts or item.values:
        parts.append((item.operator, sorted(item.values)))
    flexible = {} if item.min_values is None else {"minValues": item.min_values}
    return [
        {"key": item.key, "operator": operator.value, **({"values": values} if values else {}), **flexible}
        for operator, values in parts
    ]
