"""Resolve the devices that pods claim, and the devices that exist, to the fields that decisions read.

Devices keep only the attributes and capacities that some selector, constraint or request names, so that those of a
model are one kind and not many.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.reduction.devices import (
    Device,
    DeviceRef,
    ReducedDevice,
    ReducedDeviceClaim,
    ReducedSlice,
    text_of,
)
from nodesmith.observation.reduction.podspecs import without_empty

_KEEPS_ALL = re.compile(r"\+|\.(all|exists|exists_one|filter|map|lowerAscii|upperAscii)\(|string\(|size\(")
"""Signs of a selector that may name attributes in other ways than by their text."""


class DeviceClaims:
    """The devices that pods claim, resolved, and the devices that exist. `encoding` writes both into snapshots."""

    def __init__(
        self,
        claims: Iterable[ReducedDeviceClaim],
        templates: Iterable[ReducedDeviceClaim],
        classes: Iterable[Mapping[str, Any]],
        slices: Iterable[ReducedSlice],
    ) -> None:
        self._claims = {(claim.namespace, claim.name): claim for claim in claims}
        self._templates = {(template.namespace, template.name): template for template in templates}
        self._classes = {
            str(device_class["metadata"]["name"]): device_class["selectors"] for device_class in classes
        }
        self._slices = list(slices)

    def resolved(self, namespace: str, refs: Iterable[DeviceRef], *, is_bound: bool) -> str:
        """Return the claims of a pod as JSON, as `model.kubernetes.devices` reads them; empty for a pod without.

        The node of allocated devices is left out for a pod on a node (`is_bound`), since it is there.
        """
        resolved_claims = [self._resolved(namespace, ref, is_bound=is_bound) for ref in refs]
        return text_of(resolved_claims) if resolved_claims else ""

    def _resolved(self, namespace: str, ref: DeviceRef, *, is_bound: bool) -> dict[str, Any]:
        claim = self._claims.get((namespace, ref.claim)) if ref.claim else None
        source = claim or (self._templates.get((namespace, ref.template)) if ref.template else None)
        if source is None:
            return {"name": ref.name, "problem": _missing(namespace, ref)}
        document = {"name": ref.name, **json.loads(source.text)}
        if not ref.template:
            document["key"] = f"{namespace}/{ref.claim}"
        place = json.loads(claim.place) if claim is not None and claim.place else {}
        if place and not (is_bound and "node" in place):
            document["allocation"] = place
        return document

    def document(self) -> dict[str, Any]:
        """Return the devices and DeviceClasses as a part of a snapshot."""
        named, kinds = self._selector_names(), dict[str, int]()
        taken = {device for claim in self._claims.values() for device in claim.devices}
        used = self._used()
        pools = []
        for (driver, name), slices in sorted(_by_pool(self._slices).items()):
            newest = max(part.generation for part in slices)
            current = [part for part in slices if part.generation == newest]
            devices = [(driver, name, device) for device in _devices_of(current)]
            pool = _Pool(
                current,
                {device[-1] for device in devices if device in taken},
                {device[-1]: used.get(device, Counter()) for device in devices},
            )
            about = {"driver": driver, "name": name, "complete": len(current) == current[0].total}
            for place, at_place in sorted(_by_place(current).items()):
                pools.append({**about, **pool.at(at_place, kinds, named), **json.loads(place)})
        return {"classes": self._classes, "kinds": [json.loads(text) for text in kinds], "pools": pools}

    def _used(self) -> dict[Device, Counter[str]]:
        """Return how much claims take of each capacity of shared devices."""
        used: dict[Device, Counter[str]] = {}
        for claim in self._claims.values():
            for device, name, amount in claim.consumed:
                used.setdefault(device, Counter())[name] += amount
        return used

    def _selector_names(self) -> _SelectorNames:
        claims = [*self._claims.values(), *self._templates.values()]
        selectors = [text for texts in self._classes.values() for text in texts]
        return _SelectorNames("\n".join((*selectors, *(claim.text for claim in claims))))


def _devices_of(slices: Iterable[ReducedSlice]) -> Iterator[str]:
    return (device.name for part in slices for device in part.devices)


class _Pool:
    """A pool with what is left of its counters. `used` is what claims take of shared devices, by name and capacity."""

    def __init__(
        self, slices: Sequence[ReducedSlice], taken: set[str], used: Mapping[str, Mapping[str, int]]
    ) -> None:
        self._taken, self._used = taken, used
        self._totals = {name: amount for part in slices for name, amount in part.counters}
        self._left = Counter(self._totals)
        self._divided: dict[str, dict[str, Any]] = {}
        places = set()
        for device in (device for part in slices for device in part.devices):
            kind = json.loads(device.text)
            if kind.get("consumes") or kind.get("shared"):
                self._divided[device.name] = kind
            for name, amount in kind.get("consumes", {}).items():
                places.add(device.place)
                self._left[name] -= amount if device.name in taken else 0
        self._is_spread = len(places) > 1
        """Whether nodes have counters in common. Decisions count those of one node only."""

    def at(
        self, devices: Iterable[ReducedDevice], kinds: dict[str, int], named: Callable[[str], str]
    ) -> dict[str, Any]:
        """Return the devices of one place, each kind by its number in `kinds`, which grows."""
        counts, free, divisible = Counter[int](), Counter[int](), Counter[tuple[int, bool, str]]()
        counters: dict[str, tuple[int, int]] = {}
        for device in devices:
            kind = self._divided.get(device.name, {})
            if device.why_not or not self._is_sound(kind):
                continue
            number = kinds.setdefault(named(device.text), len(kinds))
            is_free = device.name not in self._taken or bool(kind.get("shared"))
            counters |= {name: (self._left[name], self._totals[name]) for name in kind.get("consumes", ())}
            if kind:
                divisible[number, is_free, text_of(self._used[device.name])] += 1
                continue
            counts[number] += 1
            free[number] += is_free
        rows = [
            [number, n, n * is_free, json.loads(u)] for (number, is_free, u), n in sorted(divisible.items())
        ]
        stock = [[number, counts[number], free[number]] for number in sorted(counts)]
        return {"stock": stock, **without_empty({"divisible": rows, "counters": counters})}

    def _is_sound(self, kind: Manifest) -> bool:
        consumes = kind.get("consumes") or {}
        return not consumes or (not self._is_spread and consumes.keys() <= self._totals.keys())


class _SelectorNames:
    """Reduces a kind to the attributes and capacities that these texts name."""

    def __init__(self, texts: str) -> None:
        self._texts, self._keeps_all = texts, _KEEPS_ALL.search(texts) is not None
        self._known: dict[str, bool] = {}

    def __call__(self, text: str) -> str:
        if self._keeps_all:
            return text
        kind = json.loads(text)
        for part in ("attributes", *(() if kind.get("shared") else ("capacity",))):
            kind[part] = {name: value for name, value in (kind.get(part) or {}).items() if self._names(name)}
        return text_of(without_empty(kind))

    def _names(self, name: str) -> bool:
        if name not in self._known:
            self._known[name] = name.rpartition("/")[2] in self._texts
        return self._known[name]


def _missing(namespace: str, ref: DeviceRef) -> str:
    if ref.template:
        return f"its ResourceClaimTemplate {namespace}/{ref.template} does not exist"
    return f"its ResourceClaim {namespace}/{ref.claim or ref.name} does not exist"


def _by_pool(slices: Iterable[ReducedSlice]) -> dict[tuple[str, str], list[ReducedSlice]]:
    by_pool: dict[tuple[str, str], list[ReducedSlice]] = {}
    for part in slices:
        by_pool.setdefault((part.driver, part.pool), []).append(part)
    return by_pool


def _by_place(slices: Iterable[ReducedSlice]) -> dict[str, list[ReducedDevice]]:
    by_place: dict[str, list[ReducedDevice]] = {}
    for part in slices:
        by_place.setdefault(part.place, [])
        for device in part.devices:
            by_place.setdefault(device.place, []).append(device)
    return by_place
