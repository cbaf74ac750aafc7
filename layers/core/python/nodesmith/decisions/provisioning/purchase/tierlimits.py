"""The limits of a tier of NodePools as numbered vectors: their own, shared quotas, and what commitments pay for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodesmith.decisions.packing import Vector
from nodesmith.decisions.scheduling.offerings.options import SharedLimit, shared_limit
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.quantities import Resources


@dataclass(frozen=True, slots=True)
class TierLimits:
    """The limits of a tier's templates as numbered vectors. Templates that share a quota share one vector.

    `number` has the number of each template's vector, and `axes` where in it the template's limits are, in order of
    their names; `vectors` has what is left, by number. `names` are the templates' names, in order.
    """

    number: tuple[int, ...]
    axes: tuple[Vector, ...]
    vectors: Mapping[int, Vector]
    names: tuple[str, ...]
    committed: tuple[tuple[int, int], ...] = ()
    """The vectors' numbers, and the axes in them, that hold what is left of commitments."""

    @classmethod
    def of(cls, tier: Sequence[Template]) -> TierLimits:
        """Return the limits of a tier.

        A template that exceeds a limit of its own buys nothing, and shares no vector, in which it would stop others.
        """
        keys = [
            [(index, name) if one is None else one.key for name in names for one in (shared_limit(name),)]
            for index, names in enumerate(sorted(template.remaining) for template in tier)
        ]
        number = list(range(len(tier)))
        first: dict[object, int] = {}
        for index, template in enumerate(tier):
            for key in keys[index] if min(template.remaining.values(), default=0) >= 0 else ():
                known, mine = number[first.setdefault(key, index)], number[index]
                number = [known if each == mine else each for each in number]
        left: dict[int, dict[object, int]] = {}
        for index, template in enumerate(tier):
            vector = left.setdefault(number[index], {})
            for key, name in zip(keys[index], sorted(template.remaining), strict=True):
                vector[key] = min(template.remaining[name], vector.get(key, template.remaining[name]))
        places = {at: {key: place for place, key in enumerate(vector)} for at, vector in left.items()}
        axes = tuple(tuple(places[at][key] for key in mine) for at, mine in zip(number, keys, strict=True))
        vectors = {at: tuple(vector.values()) for at, vector in left.items() if vector}
        names = tuple(template.name for template in tier)
        paid = {each.key for each in _committed_limits(tier)}
        committed = tuple((at, known[key]) for at, known in places.items() for key in known if key in paid)
        return cls(tuple(number), axes, vectors, names, committed)

    def spread(self, index: int, cost: Vector) -> Vector:
        """Return what a node of a template takes, in the axes of its vector."""
        if not cost:
            return ()
        found = [0] * len(self.vectors[self.number[index]])
        for axis, amount in zip(self.axes[index], cost, strict=True):
            found[axis] += amount
        return tuple(found)

    def own(self, template: str, vector: Vector) -> Vector:
        """Return the part of a vector that belongs to a template's limits, in order of their names."""
        return tuple([vector[axis] for axis in self.axes[self.names.index(template)]]) if vector else ()


def _committed_limits(tier: Iterable[Template]) -> Iterator[SharedLimit]:
    for template in tier:
        for name in template.remaining if len(template.committed) else ():
            shared = shared_limit(name)
            if shared is not None and shared.is_of_commitments:
                yield shared


def with_limits_left(tier: Iterable[Template], others: Iterable[Template]) -> list[Template]:
    """Return the templates of a tier with no more left of each quota than the `others` have."""
    least: dict[tuple[str, str], int] = {}
    for template in others:
        for name, left in template.remaining.items():
            if (shared := shared_limit(name)) is not None:
                least[shared.key] = min(left, least.get(shared.key, left))

    def lowered(template: Template) -> Template:
        left = dict(template.remaining)
        for name, amount in template.remaining.items():
            if (shared := shared_limit(name)) is not None:
                left[name] = min(amount, least.get(shared.key, amount))
        return template if left == template.remaining else replace(template, remaining=Resources(left))

    return list(map(lowered, tier)) if least else list(tier)
