"""NodeOverlays: which of them apply, and what they make of the instance types of a NodePool.

For each NodePool, instance type and offering, the heaviest NodeOverlay that sets a price wins; each extended resource
comes from the heaviest that names it. Two of equal weight that set the same of one node contradict each other: the
later one, in order of application, is left out everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby

from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    TypeSet,
    allows_offering,
    matching_types,
    type_set,
)
from nodesmith.decisions.scheduling.offerings.templates import template_labels
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.problems import Problem
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.ec2.catalog import Catalog, Offering
from nodesmith.model.ec2.instancetypes import InstanceType, by_price, instance_types
from nodesmith.model.karpenter.nodeoverlays import (
    CAPACITY_APPLIED,
    PRICE_APPLIED,
    NodeOverlay,
    in_order,
    parse_nodeoverlays,
)
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.kubernetes.devices import DeviceKind
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration, parse_nodeclasses
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Why a NodeOverlay is left out: `other` has the same weight and sets the same, such as the price of `example`."""

    other: str
    field: str
    example: str

    def __str__(self) -> str:
        return (
            f"contradicts NodeOverlay {self.other}, which has the same weight and also sets {self.field} of "
            f"{self.example}: give one of them another weight, or requirements that do not overlap"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Overlays:
    """The NodeOverlays of a cluster that apply, in order, and why the others do not.

    `problems` are those of NodeOverlays that are invalid or odd. `_pools` are the NodePools that are known, and
    `_types` their instance types without NodeOverlays.
    """

    applied: tuple[NodeOverlay, ...] = ()
    contradicting: Mapping[str, Contradiction] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    _pools: Mapping[str, NodePool] = field(default_factory=dict)
    _types: Mapping[str, TypeSet] = field(default_factory=dict)
    _prices: dict[str, Mapping[tuple[str, str, str], float]] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[str, ...]:
        """What is wrong with NodeOverlays, each in a sentence: their problems, and which ones contradict another."""
        left_out = (
            f"NodeOverlay/{name}: {contradiction}"
            for name, contradiction in sorted(self.contradicting.items())
        )
        return (*map(str, self.problems), *left_out)

    def on(self, pool: NodePool, types: TypeSet) -> TypeSet:
        """Return a NodePool's instance types as decisions see them: the same object if none of them is changed."""
        labels = FrozenMap(template_labels(pool))
        applying = tuple(overlay for overlay in self.applied if _allows_labels(overlay, labels))
        return _overlaid(types, applying, _decided_keys(applying, labels)) if applying else types

    def devices(self) -> dict[tuple[str, str], tuple[tuple[DeviceKind, int], ...]]:
        """Return the devices that NodeOverlays declare, by NodePool and instance type."""
        if not any(overlay.devices for overlay in self.applied):
            return {}
        changed = ((name, self.on(pool, self._types[name])) for name, pool in self._pools.items())
        return {
            (name, instance_type.name): instance_type.devices
            for name, types in changed
            for instance_type in types.types
            if instance_type.devices
        }

    def reach(self, overlay: NodeOverlay) -> dict[str, int]:
        """Return how many instance types of each NodePool a NodeOverlay applies to."""
        pools = {name: FrozenMap(template_labels(pool)) for name, pool in self._pools.items()}
        return {
            name: len(_matched(self._types[name], overlay, _decided_keys((overlay,), labels)))
            if _allows_labels(overlay, labels)
            else 0
            for name, labels in pools.items()
        }

    def example(self, pool: NodePool, overlay: NodeOverlay) -> tuple[str, Offering] | None:
        """Return a type of a NodePool with the first offering that a NodeOverlay prices, None if there is none."""
        types = self.on(pool, self._types[pool.name]).types if overlay.price else ()
        offerings = (
            (instance_type.name, offering)
            for instance_type in types
            for offering in instance_type.offerings
            if offering.overlay == overlay.name
        )
        return next(offerings, None)

    def price_of(self, pool: NodePool, kind: str, zone: str, capacity_type: str) -> float | None:
        """Return the price of an offering of a NodePool's node that a NodeOverlay sets, None if none does."""
        if pool.name not in self._types:
            return None
        if pool.name not in self._prices:
            changed = self.on(pool, self._types[pool.name])
            self._prices[pool.name] = {
                (instance_type.name, offering.zone, offering.capacity_type): offering.price_hourly_usd
                for instance_type in changed.types
                for offering in instance_type.offerings
                if offering.overlay
            }
        return self._prices[pool.name].get((kind, zone, capacity_type))


NO_OVERLAYS = Overlays()


class _Last:
    """The result of the last call: a decision evaluates the NodeOverlays once, however many NodePools there are."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._found = NO_OVERLAYS

    def __call__(self, snapshot: Snapshot, catalog: Catalog, settings: NodeSettings) -> Overlays:
        """Return the NodeOverlays of a snapshot. Without any, nothing is computed."""
        if not snapshot.nodeoverlays:
            return NO_OVERLAYS
        of = (snapshot.nodeoverlays, snapshot.nodepools, snapshot.nodeclasses, catalog)
        is_same = len(self._of) == len(of) + 1 and all(a is b for a, b in zip(of, self._of, strict=False))
        if not is_same or self._of[-1] != settings:
            self._found, self._of = _evaluated(snapshot, catalog, settings), (*of, settings)
        return self._found


overlays_of = _Last()


def _evaluated(snapshot: Snapshot, catalog: Catalog, settings: NodeSettings) -> Overlays:
    parsed = parse_nodeoverlays(snapshot.nodeoverlays)
    pools = parsed_nodepools(snapshot.nodepools)
    types = dict(_types(snapshot, pools.values(), catalog, settings))
    known_pools = {name: pools[name] for name in sorted(types)}
    scenes = tuple((FrozenMap(template_labels(pool)), types[name]) for name, pool in known_pools.items())
    applied, contradicting = _sorted_out(
        tuple(in_order(result.value for result in parsed if result.value is not None)), scenes
    )
    problems = tuple(problem for result in parsed for problem in result.problems)
    return Overlays(applied, contradicting, problems, known_pools, types)


@lru_cache(maxsize=8)
def _sorted_out(
    overlays: tuple[NodeOverlay, ...], scenes: tuple[tuple[FrozenMap[str], TypeSet], ...]
) -> tuple[tuple[NodeOverlay, ...], Mapping[str, Contradiction]]:
    """Return the NodeOverlays that apply, of these in order, and why the others do not. Cached from run to run.

    `scenes` are the labels and instance types of each NodePool.
    """
    applied: list[NodeOverlay] = []
    contradicting: dict[str, Contradiction] = {}
    for _, equals in groupby(overlays, key=lambda overlay: overlay.weight):
        accepted: list[NodeOverlay] = []
        for overlay in equals:
            contradiction = next(_contradictions(overlay, accepted, scenes), None)
            if contradiction is None:
                accepted.append(overlay)
            else:
                contradicting[overlay.name] = contradiction
        applied += accepted
    return tuple(applied), contradicting


def _types(
    snapshot: Snapshot, pools: Iterable[NodePool], catalog: Catalog, settings: NodeSettings
) -> Iterator[tuple[str, TypeSet]]:
    """Yield the instance types of each NodePool whose EC2NodeClass can be read."""
    classes = {
        result.value.name: result.value for result in parse_nodeclasses(snapshot.nodeclasses) if result.value
    }
    for pool in pools:
        if pool.nodeclass.name in classes:
            configuration = NodeConfiguration.of(classes[pool.nodeclass.name])
            yield pool.name, type_set(instance_types(catalog, configuration, settings))


def _contradictions(
    overlay: NodeOverlay, others: Sequence[NodeOverlay], scenes: Sequence[tuple[FrozenMap[str], TypeSet]]
) -> Iterator[Contradiction]:
    """Yield what a NodeOverlay has in common with others of its weight."""
    for other in others:
        shared = sorted(overlay.adds & other.adds)
        both_price = bool(overlay.price and other.price)
        if not (both_price or shared):
            continue
        for labels, types in scenes:
            if not (_allows_labels(overlay, labels) and _allows_labels(other, labels)):
                continue
            mine, theirs = (
                _matched(types, each, _decided_keys((each,), labels)) for each in (overlay, other)
            )
            for name in sorted(mine.keys() & theirs.keys()):
                if shared:
                    yield Contradiction(other.name, shared[0], name)
                common = [offering for offering in mine[name] if offering in theirs[name]]
                if both_price and common:
                    place = f"{name} ({common[0].capacity_type}, {common[0].zone})"
                    yield Contradiction(other.name, "the price", place)


def overlay_marks(options: Iterable[tuple[InstanceType, Offering]]) -> dict[str, str]:
    """Return the annotations of a claim for these options that say what NodeOverlays have changed."""
    pairs = list(options)
    marks = {
        PRICE_APPLIED: any(offering.overlay for _, offering in pairs),
        CAPACITY_APPLIED: any(kind.overlays for kind, _ in pairs),
    }
    return {key: "true" for key, applied in marks.items() if applied}


def _allows_labels(overlay: NodeOverlay, labels: Mapping[str, str]) -> bool:
    """Return whether the labels of a NodePool's nodes agree with a NodeOverlay, as far as they decide."""
    requirements = overlay.requirements
    return all(requirements[key].allows(value) for key, value in labels.items() if key in requirements)


def _decided_keys(overlays: Iterable[NodeOverlay], labels: Mapping[str, str]) -> frozenset[str]:
    """Return the keys of NodeOverlays that the NodePool's own labels decide."""
    return frozenset(key for overlay in overlays for key in overlay.requirements if key in labels)


@lru_cache(maxsize=512)
def _matched(types: TypeSet, overlay: NodeOverlay, own: frozenset[str]) -> Mapping[str, tuple[Offering, ...]]:
    """Return the offerings that a NodeOverlay applies to, by type. `own` are the keys that the NodePool decides."""
    requirements = overlay.requirements
    type_requirements = Requirements(
        {key: requirements[key] for key in requirements if key not in OFFERING_KEYS}
    )
    needed_keys = [
        key
        for key, requirement in type_requirements.items()
        if key not in own and not requirement.tolerates_absence
    ]
    pairs = (
        (instance_type.name, tuple(o for o in instance_type.offerings if allows_offering(requirements, o)))
        for instance_type in matching_types(types, type_requirements).types
        if all(key in instance_type.requirements or key in instance_type.labels for key in needed_keys)
    )
    return {name: offerings for name, offerings in pairs if offerings}


@lru_cache(maxsize=64)
def _overlaid(types: TypeSet, overlays: tuple[NodeOverlay, ...], own: frozenset[str]) -> TypeSet:
    """Return types with NodeOverlays applied. Types without any stay the same objects, and a set of them does too."""
    by_type: dict[str, list[NodeOverlay]] = {}
    for overlay in overlays:
        keys = own.intersection(overlay.requirements)
        for name in _matched(types, overlay, keys):
            by_type.setdefault(name, []).append(overlay)
    if not by_type:
        return types
    return TypeSet(
        tuple(
            _changed(instance_type, by_type[instance_type.name])
            if instance_type.name in by_type
            else instance_type
            for instance_type in types.types
        )
    )


def _changed(kind: InstanceType, overlays: Sequence[NodeOverlay]) -> InstanceType:
    pricing = [other for other in overlays if other.price]
    offerings = kind.offerings
    if pricing:
        offerings = tuple(sorted((_priced(offering, pricing) for offering in kind.offerings), key=by_price))
    added: dict[str, int] = {}
    for overlay in reversed(overlays):
        added.update(overlay.capacity)
    devices = tuple(_devices(overlays))
    if not added:
        return replace(kind, offerings=offerings, devices=devices)
    return replace(
        kind,
        offerings=offerings,
        capacity=Resources({**kind.capacity, **added}),
        allocatable=Resources({**kind.allocatable, **added}),
        overlays=tuple(other.name for other in overlays if other.capacity),
        devices=devices,
    )


def _devices(overlays: Iterable[NodeOverlay]) -> Iterator[tuple[DeviceKind, int]]:
    """Yield the devices of a type: for each driver, those that the first NodeOverlay with any declares."""
    owners: dict[str, str] = {}
    for overlay in overlays:
        for kind, count in overlay.devices:
            if owners.setdefault(kind.driver, overlay.name) == overlay.name:
                yield kind, count


def _priced(offering: Offering, overlays: Iterable[NodeOverlay]) -> Offering:
    """Return an offering with the price of the first of these NodeOverlays that applies to it."""
    first = next((overlay for overlay in overlays if allows_offering(overlay.requirements, offering)), None)
    if first is None:
        return offering
    listed = offering.price_hourly_usd
    return replace(
        offering, price_hourly_usd=first.priced(listed), overlay=first.name, listed_hourly_usd=listed
    )
