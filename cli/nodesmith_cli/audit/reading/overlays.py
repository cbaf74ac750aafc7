"""NodeOverlays as an audit reads them: every label of every offering is compared with every requirement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith_cli.audit.reading.devices import DEVICES, declared
from nodesmith_cli.audit.reading.fields import (
    UNREADABLE,
    ZONE,
    Amounts,
    Manifest,
    amounts,
    node_labels,
    today,
)
from nodesmith_cli.audit.reading.pools import Pool
from nodesmith_cli.audit.reading.selectors import holds

_CAPACITY_TYPE, _EKS, _ZONE_ID = (
    "karpenter.sh/capacity-type",
    "eks.amazonaws.com/capacityType",
    "topology.k8s.aws/zone-id",
)
Pools = Mapping[str, Pool]
Place = tuple[str, str, str, str]
"""A NodePool, an instance type, a zone and a capacity type."""


@dataclass(frozen=True, slots=True)
class _Overlay:
    name: str
    weight: int
    requirements: Sequence[Manifest]
    price: str
    capacity: Amounts


def with_overlays(pools: Pools, manifests: Sequence[Manifest]) -> dict[str, Pool]:
    """Return the NodePools with the prices and resources that NodeOverlays give to their instance types.

    Unreadable NodeOverlays, and those that contradict an earlier one of the same weight, are left out.
    """
    overlay_results: list[tuple[_Overlay, frozenset[Place]]] = []
    for overlay in sorted(_readable(manifests), key=_order):
        places = frozenset(_places(overlay, pools))
        if not any(_contradict(overlay, places, *other) for other in overlay_results):
            overlay_results.append((overlay, places))
    return (
        {name: _changed(pool, overlay_results) for name, pool in pools.items()}
        if overlay_results
        else dict(pools)
    )


def _order(overlay: _Overlay) -> tuple[int, list[int]]:
    return -overlay.weight, [-ord(letter) for letter in overlay.name] + [1]


def _readable(manifests: Sequence[Manifest]) -> Iterator[_Overlay]:
    for manifest in manifests:
        try:
            spec: Any = manifest["spec"]
            price = str(spec.get("price") or spec.get("priceAdjustment") or "")
            _priced(price, 1.0)
            name, weight = str(manifest["metadata"]["name"]), int(spec.get("weight") or 0)
            added = amounts(spec.get("capacity"))
            if devices := declared(manifest):
                added = {**added, DEVICES: devices}
            yield _Overlay(name, weight, spec["requirements"], price, added)
        except UNREADABLE:
            continue


def _places(overlay: _Overlay, pools: Pools) -> Iterator[Place]:
    for name, pool in pools.items():
        for kind in pool.types.values():
            labels = {**pool.labels, **node_labels(kind.labels)}
            for offering in kind.offerings:
                if all(_meets(requirement, labels, kind, offering) for requirement in overlay.requirements):
                    yield name, kind.name, offering.zone, offering.capacity_type


def _meets(requirement: Manifest, labels: Mapping[str, str], kind: InstanceType, offering: Offering) -> bool:
    key, values = today(requirement["key"]), requirement.get("values") or ()
    sold = {
        ZONE: offering.zone,
        _ZONE_ID: offering.zone_id,
        _CAPACITY_TYPE: offering.capacity_type,
        _EKS: "SPOT" if offering.capacity_type == "spot" else "ON_DEMAND",
    }
    actual = sold.get(key, labels.get(key))
    open_to = kind.requirements.get(key)
    if actual is None and open_to is not None and not open_to.complement and open_to.values:
        return any(holds(requirement["operator"], values, value) for value in open_to.values)
    return holds(requirement["operator"], values, actual)


def _contradict(
    overlay: _Overlay, own_places: frozenset[Place], other: _Overlay, other_places: frozenset[Place]
) -> bool:
    if overlay.weight != other.weight:
        return False
    if overlay.price and other.price and own_places & other_places:
        return True
    types, others = ({place[:2] for place in places} for places in (own_places, other_places))
    return bool(overlay.capacity.keys() & other.capacity.keys()) and bool(types & others)


def _changed(pool: Pool, overlay_results: Sequence[tuple[_Overlay, frozenset[Place]]]) -> Pool:
    return replace(
        pool, types={name: _type(pool.name, kind, overlay_results) for name, kind in pool.types.items()}
    )


def _type(
    pool: str, kind: InstanceType, overlay_results: Sequence[tuple[_Overlay, frozenset[Place]]]
) -> InstanceType:
    offerings, added = [], dict[str, int]()
    for offering in kind.offerings:
        place = pool, kind.name, offering.zone, offering.capacity_type
        applying = [overlay for overlay, places in overlay_results if place in places]
        price = next((overlay.price for overlay in applying if overlay.price), "")
        changed = _priced(price, offering.price_hourly_usd) if price else offering.price_hourly_usd
        offerings.append(replace(offering, price_hourly_usd=changed))
        for overlay in applying:
            added = {**overlay.capacity, **added}
    resources = type(kind.capacity)
    return replace(
        kind,
        offerings=tuple(offerings),
        capacity=resources({**kind.capacity, **added}),
        allocatable=resources({**kind.allocatable, **added}),
    )


def _priced(text: str, price: float) -> float:
    if not text:
        return price
    amount = float(text.rstrip("%"))
    if text[0] not in "+-":
        return amount
    return max(0.0, price + (price * amount / 100 if text.endswith("%") else amount))
