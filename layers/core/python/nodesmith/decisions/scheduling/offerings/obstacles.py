"""Why a NodePool has nothing to buy: its requirements, images, offerings, or what its DaemonSets take."""

from __future__ import annotations

from collections.abc import Sequence

from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    TypeSet,
    allows_offering,
    matching_types,
)
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.quantities import amount_text, rounded_down_text, total
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.nodeclasses.status import Image

NO_SUBNET, NO_RESERVATION = "its EC2NodeClass launches in", "no free capacity reservation"
NOT_SOLD = "none is sold"
"""NO_SUBNET, NO_RESERVATION and NOT_SOLD are parts of the sentence why no offering is left, by cause."""
NO_IMAGE = "no instance type can boot the images of its EC2NodeClass"
_MOST_NAMED = 3


def _removing(types: TypeSet, requirements: Requirements) -> str:
    """Return which requirements remove most of these types, each with the number of types it removes."""
    left = {key: len(matching_types(types, Requirements.of(requirements[key])).types) for key in requirements}
    removed = {key: len(types.types) - left[key] for key in requirements}
    worst = sorted(filter(removed.get, removed), key=lambda key: (-removed[key], key))[:_MOST_NAMED]
    named = "; ".join(
        f"{requirements[key]}{_typo(types, requirements[key])} removes {removed[key]:,}" for key in worst
    )
    return f"of {len(types.types):,} types, {named}"


def _typo(types: TypeSet, wanted: Requirement) -> str:
    """Return the value that a requirement may mean if no type has one of its values; empty if there is none."""
    known = {kind.labels[wanted.key] for kind in types.types if wanted.key in kind.labels}
    if wanted.complement or not wanted.values or not known.isdisjoint(wanted.values):
        return ""
    return "".join(
        f" ({hint.removeprefix(', ')})" for hint in [did_you_mean(min(wanted.values), known)] if hint
    )


def image_conflict(images: Sequence[Image], requirements: Requirements) -> str:
    """Return what keeps every image off nodes that meet the requirements; empty where an image is compatible.

    Example: `ami-1 (al2023) boots kubernetes.io/arch In [amd64] only, asked for is kubernetes.io/arch In [arm64]`.
    """
    found = []
    for image in images:
        asked = Requirements({key: r for key, r in requirements.items() if key in image.requirements})
        conflict = image.requirements.conflict(asked)
        if conflict is None:
            return ""
        name = f"{image.id} ({image.name})" if image.name else image.id
        found.append(f"{name} boots {conflict.offered} only, asked for is {conflict.wanted}")
    return "; ".join(found[:_MOST_NAMED])


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
        found = image_conflict(images, requirements) if matching_types(types, requirements).types else ""
        if found:
            return f"{NO_IMAGE}: {found}"
        return f"no instance type meets its requirements ({_removing(bootable, requirements)})"
    if offered:
        return (
            f"its DaemonSets ask for more than any of its instance types offers{_crowded(offered, daemons)}"
        )
    why = _no_offering(allowed, requirements, zones)
    return f"none of its {len(allowed.types):,} instance types has an offering left: {why}"


def _no_offering(allowed: TypeSet, requirements: Requirements, zones: frozenset[str]) -> str:
    """Return why types that a NodePool allows have no offering that it may buy."""
    wanted, listed = requirements.get(ZONE), ", ".join(sorted(zones))
    kind = requirements.get(CAPACITY_TYPE)
    if wanted is not None and not any(map(wanted.allows, zones)):
        return f"it requires {wanted}, and {NO_SUBNET} {listed or 'no zone'} only"
    if kind is not None and not (kind.allows(SPOT) or kind.allows(ON_DEMAND)):
        return f"it requires {kind}, and its EC2NodeClass has {NO_RESERVATION} of such types"
    own = {key: requirements[key] for key in OFFERING_KEYS if key in requirements}
    sold = [o for t in allowed.types for o in t.offerings if o.zone in zones and allows_offering(own, o)]
    if not sold:
        asked = "; ".join(str(own[key]) for key in sorted(own))
        return f"{NOT_SOLD} with a known price{f' in {listed}' if listed else ''}{f' ({asked})' if asked else ''}"
    return f"EC2 lately refused all {len(sold):,} that it may buy, for lack of capacity, quota or permission"


def _crowded(offered: Sequence[InstanceType], daemons: Sequence[tuple[Shape, frozenset[str]]]) -> str:
    """Return what DaemonSets ask of the largest type, what it offers, and which of them asks most."""
    kind = max(offered, key=lambda one: (one.allocatable.cpu_milli, one.name))
    there = [daemon for daemon, types in daemons if kind.name in types]
    taken = total([daemon.requests for daemon in there])
    lacking = [name for name in sorted(taken) if taken[name] > kind.allocatable.of(name)]
    if not lacking:
        return ""
    name = lacking[0]
    most = max(there, key=lambda daemon: (daemon.requests.of(name), daemon.owner))
    asked, offers = amount_text(name, taken[name]), rounded_down_text(name, max(0, kind.allocatable.of(name)))
    own = f"{most.namespace}/{most.owner.removeprefix('DaemonSet/')} {amount_text(name, most.requests.of(name))}"
    return f": {asked} {name}, {own} of it; the largest, {kind.name}, offers {offers}"
