"""Whether pods of a shape may run on a NodePool's nodes or on an instance type, and if not, why not.

If a NodePool has nothing to buy at all, `no_choice` says why: its requirements, images, offerings, or DaemonSets.

kube-scheduler does not compare operating systems, so a pod shows by its selectors or tolerations that it runs on
Windows nodes. All other pods count as Linux pods: their images fail on Windows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    DECIDED,
    EKS_CAPACITY_TYPE,
    EKS_CAPACITY_TYPES,
    HOSTNAME,
    NODECLASS,
    NODEPOOL,
    ON_DEMAND,
    OS,
    SPOT,
    TENANCY,
    TYPE_KEYS,
    WELL_KNOWN,
    WINDOWS_BUILD,
    ZONE,
    ZONE_ID,
    Effect,
    Taint,
)
from nodesmith.model.apimachinery.problems import suggestion
from nodesmith.model.apimachinery.quantities import amount_text, rounded_down_text, total
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import ANY_TENANCY, InstanceType
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.nodeclasses.status import Image

OFFERING_KEYS = frozenset({ZONE, ZONE_ID, CAPACITY_TYPE, EKS_CAPACITY_TYPE})
"""Labels that belong to an offering. They are checked per offering, not per type."""
_MOST_ALTERNATIVES = 32


def type_refusal(requirements: Requirements, instance_type: InstanceType) -> Requirement | None:
    """Return the first requirement (by key) that the type cannot meet; None if it meets all.

    Keys that no type defines belong to the NodePool and are not checked here.
    """
    for key in sorted(requirements):
        requirement = requirements[key]
        value = instance_type.labels.get(key)
        if value is not None:
            if not requirement.allows(value):
                return requirement
            continue
        offered = instance_type.requirements.get(key)
        if offered is None or key in OFFERING_KEYS:
            continue
        if not offered.intersects(requirement) and not (
            offered.tolerates_absence and requirement.tolerates_absence
        ):
            return requirement
    return None


def allows_offering(requirements: Mapping[str, Requirement], offering: Offering) -> bool:
    """Return whether the offering meets the requirements on the labels in `OFFERING_KEYS`."""
    values = offering_labels(offering.zone, offering.zone_id, offering.capacity_type)
    return all(requirements[key].allows(value) for key, value in values.items() if key in requirements)


def offering_labels(zone: str, zone_id: str, capacity_type: str) -> dict[str, str]:
    """Return the labels in `OFFERING_KEYS`; the zone id is empty if it is unknown."""
    return {
        ZONE: zone,
        ZONE_ID: zone_id,
        CAPACITY_TYPE: capacity_type,
        EKS_CAPACITY_TYPE: EKS_CAPACITY_TYPES[capacity_type],
    }


class TypeSet:
    """Instance types in order of name.

    A set is compared by identity, so it is a cheap key; `type_set` returns the same object for the same types.
    """

    __slots__ = ("_by_key", "names", "types")

    def __init__(self, types: tuple[InstanceType, ...]) -> None:
        self.types = types
        self.names = frozenset(t.name for t in types)
        self._by_key: dict[str, list[tuple[InstanceType, frozenset[str]]]] = {}

    def refused(self, requirement: Requirement) -> frozenset[str]:
        """Return the names of the types that cannot meet a requirement.

        Types that agree on its key are checked once.
        """
        if requirement.key not in self._by_key:
            self._by_key[requirement.key] = _grouped(self.types, requirement.key)
        alone = Requirements({requirement.key: requirement})
        alike = self._by_key[requirement.key]
        return frozenset().union(
            *(names for example, names in alike if type_refusal(alone, example) is not None)
        )


def _grouped(types: Iterable[InstanceType], key: str) -> list[tuple[InstanceType, frozenset[str]]]:
    """Group types by their value for a key; return one type of each group, and the names of all types in it."""
    groups: dict[object, list[InstanceType]] = {}
    for instance_type in types:
        value = (
            instance_type.labels[key] if key in instance_type.labels else instance_type.requirements.get(key)
        )
        if value is not None:
            groups.setdefault(value, []).append(instance_type)
    return [(alike[0], frozenset(t.name for t in alike)) for alike in groups.values()]


def type_set(types: tuple[InstanceType, ...]) -> TypeSet:
    """Return the set of these types. Cached: equal types give the same object."""
    return _set_of_same(_Identity(types))


class _Identity:
    """Types as a cheap key, compared by identity: comparing a thousand equal types takes 4 ms."""

    __slots__ = ("types",)

    def __init__(self, types: tuple[InstanceType, ...]) -> None:
        self.types = types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.types is other.types

    def __hash__(self) -> int:
        return id(self.types)


@lru_cache(maxsize=64)
def _set_of_same(identity: _Identity) -> TypeSet:
    return _set_of_equal(identity.types)


@lru_cache(maxsize=64)
def _set_of_equal(types: tuple[InstanceType, ...]) -> TypeSet:
    return TypeSet(types)


@lru_cache(maxsize=512)
def matching_types(types: TypeSet, requirements: Requirements) -> TypeSet:
    """Return the types that meet all requirements. Cached: NodePools and shapes repeat from run to run."""
    refused = frozenset().union(*(types.refused(requirement) for requirement in requirements.values()))
    return TypeSet(tuple(t for t in types.types if t.name not in refused))


@lru_cache(maxsize=512)
def types_for_pods(types: TypeSet, term: Requirements, given: frozenset[str] = frozenset()) -> TypeSet:
    """Return the types whose nodes meet the requirements of pods.

    A node lacks the labels that its type lacks, except for those in `given`.
    """
    needed_keys = [
        k for k, r in term.items() if k in TYPE_KEYS and k not in given and not r.tolerates_absence
    ]
    matching = matching_types(types, term)
    if all(key in t.requirements for t in matching.types for key in needed_keys):
        return matching
    return TypeSet(tuple(t for t in matching.types if all(key in t.requirements for key in needed_keys)))


def compatible_terms(offered: Requirements, shape: Shape) -> tuple[Requirements, ...]:
    """Return the alternatives of the shape's node affinity that are compatible with `offered`.

    Shapes joined because they must share a node may leave no alternative at all.
    """
    return tuple(term for term in shape.terms if offered.conflict(term, undefined=WELL_KNOWN) is None)


def joined_terms(terms: Iterable[Requirements], others: Sequence[Requirements]) -> tuple[Requirements, ...]:
    """Return the alternatives of pods that need one of `terms` and one of `others`; none if no two agree."""
    return tuple(
        term.union(other)
        for term in terms
        for other in others
        if term.conflict(other, undefined=frozenset(other)) is None
    )[:_MOST_ALTERNATIVES]


def agreeing_terms(offered: Requirements, shape: Shape) -> tuple[Requirements, ...]:
    """Return the compatible alternatives that a node can meet with one set of labels.

    If alternatives need different values of labels that only the NodePool defines, return those that agree with the
    first.
    """
    terms = compatible_terms(offered, shape)
    if len(terms) < 2:
        return terms
    preferences = [own_preferences(offered, term) for term in terms]
    return tuple(t for t, preference in zip(terms, preferences, strict=True) if preference == preferences[0])


def own_preferences(offered: Requirements, term: Requirements) -> dict[str, Requirement]:
    """Return a term's requirements on labels that a launch chooses, if some nodes of the NodePool may not meet them.

    These are labels that only the NodePool defines, and the tenancy.
    """
    preferences = {
        key: r for key, r in term.items() if key not in DECIDED and (key in offered or key == TENANCY)
    }
    return {key: r for key, r in preferences.items() if not is_given(offered.get(key, ANY_TENANCY), r)}


def is_given(offered: Requirement, requirement: Requirement) -> bool:
    """Return whether a label satisfies `requirement` whichever of the `offered` values a node gets."""
    return not offered.complement and offered.intersection(requirement) == offered


def label_refusal(labels: Mapping[str, str], terms: Iterable[Requirements]) -> str | None:
    """Return the requirement that a node with these labels does not meet; None if it meets one alternative."""
    refusals = [term.first_refusal(labels) for term in terms]
    return None if any(r is None for r in refusals) else f"pods need {refusals[0]}"


WINDOWS = "windows"
_DISTINGUISHING = frozenset({OS, WINDOWS_BUILD, NODEPOOL, NODECLASS, HOSTNAME})
"""Labels that distinguish some nodes from others for pods that select them."""


def is_for_linux(shape: Shape, labels: Collection[str], taints: Iterable[Taint]) -> bool:
    """Return whether nothing shows that pods are meant for Windows nodes with these labels and taints.

    Pods show it if they select the operating system, the NodePool or a label of the user, or tolerate a taint that
    keeps other pods off. The labels and taints must admit the pods otherwise.
    """
    if any(taint.effect != Effect.PREFER_NO_SCHEDULE for taint in taints):
        return False
    distinguishing = _DISTINGUISHING.union(key for key in labels if key not in WELL_KNOWN)
    return all(distinguishing.isdisjoint(term) for term in shape.terms)


NO_SUBNET, NO_RESERVATION = "its EC2NodeClass launches in", "no free capacity reservation"
NOT_SOLD = "none is sold"
"""NO_SUBNET, NO_RESERVATION and NOT_SOLD are parts of the sentence that says why no offering is left."""
NO_IMAGE = "no instance type can boot the images of its EC2NodeClass"
_MOST_NAMED = 3


def _removing(types: TypeSet, requirements: Requirements) -> str:
    """Return the requirements that remove most of these types, each with the number of types that it removes."""
    remaining = {
        key: len(matching_types(types, Requirements.of(requirements[key])).types) for key in requirements
    }
    removed = {key: len(types.types) - remaining[key] for key in requirements}
    worst = sorted(filter(removed.get, removed), key=lambda key: (-removed[key], key))[:_MOST_NAMED]
    named = "; ".join(
        f"{requirements[key]}{_typo(types, requirements[key])} removes {removed[key]:,}" for key in worst
    )
    return f"of {len(types.types):,} types, {named}"


def _typo(types: TypeSet, requirement: Requirement) -> str:
    """Return the value that a requirement may mean if no type has one of its values; empty if there is none."""
    values = {kind.labels[requirement.key] for kind in types.types if requirement.key in kind.labels}
    if requirement.complement or not requirement.values or not values.isdisjoint(requirement.values):
        return ""
    hint = suggestion(min(requirement.values), values)
    return f" ({hint})" if hint else ""


def image_conflict(images: Sequence[Image], requirements: Requirements) -> str:
    """Return what keeps every image off nodes that meet the requirements; empty if an image is compatible.

    Example: `ami-1 (al2023) boots kubernetes.io/arch In [amd64] only, asked for is kubernetes.io/arch In [arm64]`.
    """
    conflicts = []
    for image in images:
        relevant = Requirements({key: r for key, r in requirements.items() if key in image.requirements})
        conflict = image.requirements.conflict(relevant)
        if conflict is None:
            return ""
        name = f"{image.id} ({image.name})" if image.name else image.id
        conflicts.append(f"{name} boots {conflict.offered} only, asked for is {conflict.wanted}")
    return "; ".join(conflicts[:_MOST_NAMED])


def no_choice(
    types: TypeSet,
    bootable: TypeSet,
    allowed: TypeSet,
    requirements: Requirements,
    images: Sequence[Image],
    zones: frozenset[str],
    offered: Sequence[InstanceType],
    daemons: Sequence[tuple[Shape, frozenset[str]]],
) -> str:
    """Return why nothing is left to buy.

    `types` are narrowed to those `bootable` and then to those `allowed`; `offered` have an offering left.
    """
    if not types.types:
        return "the catalogue has no instance types for its region"
    if not bootable.types:
        return NO_IMAGE
    if not allowed.types:
        conflict = image_conflict(images, requirements) if matching_types(types, requirements).types else ""
        if conflict:
            return f"{NO_IMAGE}: {conflict}"
        return f"no instance type meets its requirements ({_removing(bootable, requirements)})"
    if offered:
        return (
            f"its DaemonSets ask for more than any of its instance types offers{_crowded(offered, daemons)}"
        )
    reason = _no_offering(allowed, requirements, zones)
    return f"none of its {len(allowed.types):,} instance types has an offering left: {reason}"


def _no_offering(allowed: TypeSet, requirements: Requirements, zones: frozenset[str]) -> str:
    """Return why types that a NodePool allows have no offering that it may buy."""
    zone_requirement, listed = requirements.get(ZONE), ", ".join(sorted(zones))
    capacity_type = requirements.get(CAPACITY_TYPE)
    if zone_requirement is not None and not any(map(zone_requirement.allows, zones)):
        return f"it requires {zone_requirement}, and {NO_SUBNET} {listed or 'no zone'} only"
    if capacity_type is not None and not (capacity_type.allows(SPOT) or capacity_type.allows(ON_DEMAND)):
        return f"it requires {capacity_type}, and its EC2NodeClass has {NO_RESERVATION} of such types"
    offering_requirements = {key: requirements[key] for key in OFFERING_KEYS if key in requirements}
    offerings = [
        o
        for t in allowed.types
        for o in t.offerings
        if o.zone in zones and allows_offering(offering_requirements, o)
    ]
    if not offerings:
        named = "; ".join(str(offering_requirements[key]) for key in sorted(offering_requirements))
        return f"{NOT_SOLD} with a known price{f' in {listed}' if listed else ''}{f' ({named})' if named else ''}"
    return f"EC2 lately refused all {len(offerings):,} that it may buy, for lack of capacity, quota or permission"


def _crowded(offered: Sequence[InstanceType], daemons: Sequence[tuple[Shape, frozenset[str]]]) -> str:
    """Return what DaemonSets request on the largest type, what it offers, and which of them requests most."""
    largest = max(
        offered, key=lambda instance_type: (instance_type.allocatable.cpu_milli, instance_type.name)
    )
    running = [daemon for daemon, types in daemons if largest.name in types]
    requests = total([daemon.requests for daemon in running])
    lacking = [name for name in sorted(requests) if requests[name] > largest.allocatable.of(name)]
    if not lacking:
        return ""
    name = lacking[0]
    most = max(running, key=lambda daemon: (daemon.requests.of(name), daemon.owner))
    requested, available = (
        amount_text(name, requests[name]),
        rounded_down_text(name, max(0, largest.allocatable.of(name))),
    )
    share = f"{most.namespace}/{most.owner.removeprefix('DaemonSet/')} {amount_text(name, most.requests.of(name))}"
    return f": {requested} {name}, {share} of it; the largest, {largest.name}, offers {available}"
