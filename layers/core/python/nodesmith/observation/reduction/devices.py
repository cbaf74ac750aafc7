"""Reduce the kinds of dynamic resource allocation, and resolve what pods claim to what decisions read.

resource.k8s.io v1 and v1beta2 are alike; v1beta1 has its fields one level higher. Devices keep only the attributes and
capacities that some selector or constraint names, so that those of a model are one kind and not many.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodesmith.model.kubernetes.devices import (
    ALL,
    ATTRIBUTE_TYPES,
    MOST_DEVICES,
    MOST_REQUESTS,
    node_of,
    parse_kind,
    parse_terms,
    qualified,
)
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.reduction.podspecs import without_empty

Device = tuple[str, str, str]
"""Driver, pool and name of a device."""
_MOST_ALTERNATIVES = 8
"""Kubernetes' limit."""
_KEEPS_ALL = re.compile(r"\+|\.(all|exists|exists_one|filter|map|lowerAscii|upperAscii)\(|string\(|size\(")
"""Signs of a selector that may name attributes in other ways than by their text."""
_WHOLE = {
    "allowMultipleAllocations": "is shared",
    "consumesCounters": "is a part of another",
    "taints": "is tainted",
}
_WHOLE |= {"bindingConditions": "is prepared only after it is allocated"}


@dataclass(frozen=True, slots=True)
class DeviceRef:
    """A claim in a pod's spec: its name there, the ResourceClaim if it is known, and the template it is made from."""

    name: str
    claim: str = ""
    template: str = ""


def device_refs(spec: Manifest, status: Manifest) -> tuple[DeviceRef, ...]:
    """Return the claims of a pod. Raises KeyError, TypeError or AttributeError for content no API server accepts."""
    if not spec.get("resourceClaims"):
        return ()
    made = {
        str(each["name"]): str(each.get("resourceClaimName") or "")
        for each in status.get("resourceClaimStatuses") or ()
    }
    return tuple(
        DeviceRef(
            str(each["name"]),
            str(each.get("resourceClaimName") or made.get(str(each["name"]), "")),
            str(each.get("resourceClaimTemplateName") or ""),
        )
        for each in spec["resourceClaims"]
    )


@dataclass(frozen=True, slots=True)
class ReducedDeviceClaim:
    """A ResourceClaim or ResourceClaimTemplate. `text` is what it asks for, as canonical JSON.

    `devices` are those that are allocated to it; `place` is where pods reach them, as JSON, empty if none is allocated.
    """

    namespace: str
    name: str
    text: str
    devices: tuple[Device, ...] = ()
    place: str = ""


def reduce_device_claim(manifest: Manifest) -> ReducedDeviceClaim:
    """Reduce a ResourceClaim. Raises KeyError, TypeError, AttributeError or ValueError for content that is odd."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    allocation = status.get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return ReducedDeviceClaim(
        str(metadata["namespace"]),
        str(metadata["name"]),
        _asked(manifest["spec"]),
        tuple(
            (str(each["driver"]), str(each["pool"]), str(each["device"]))
            for each in results
            if not each.get("adminAccess")
        ),
        _text(_place(allocation.get("nodeSelector"))) if allocation else "",
    )


def reduce_claim_template(manifest: Manifest) -> ReducedDeviceClaim:
    """Reduce a ResourceClaimTemplate. Raises KeyError, TypeError, AttributeError or ValueError."""
    metadata = manifest["metadata"]
    return ReducedDeviceClaim(
        str(metadata["namespace"]), str(metadata["name"]), _asked(manifest["spec"]["spec"])
    )


def reduce_device_class(manifest: Manifest) -> dict[str, Any]:
    """Keep a DeviceClass's name and selectors. Raises KeyError, TypeError or AttributeError."""
    spec = manifest.get("spec") or {}
    return {"metadata": {"name": str(manifest["metadata"]["name"])}, "selectors": _selectors(spec)}


def _place(selector: Manifest | None) -> dict[str, Any]:
    terms = (selector or {}).get("nodeSelectorTerms") or ()
    node = node_of(terms)
    if node:
        return {"node": node}
    found = [list(term.get("matchExpressions") or ()) for term in terms]
    parse_terms(found)
    return {"terms": found}


def _selectors(holder: Manifest) -> list[str]:
    return [str(each["cel"]["expression"]) for each in holder.get("selectors") or ()]


def _asked(spec: Manifest) -> str:
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or ()
    constraints = devices.get("constraints") or ()
    problems = [*map(_unsupported, requests), _too_many(requests)]
    if any(each.get("distinctAttribute") for each in constraints):
        problems.append("its constraint distinctAttribute is not simulated")
    kept = {
        "requests": [_request(each) for each in requests[:MOST_REQUESTS]],
        "constraints": [
            {"requests": list(each.get("requests") or ()), "attribute": str(each["matchAttribute"])}
            for each in constraints
            if each.get("matchAttribute")
        ],
        "problem": next(filter(None, problems), ""),
    }
    return _text(without_empty(kept))


def _parts(request: Manifest) -> list[Manifest]:
    """Return the alternatives of a request; one if it has no `firstAvailable`."""
    return list(request.get("firstAvailable") or [request.get("exactly") or request])[:_MOST_ALTERNATIVES]


def _request(request: Manifest) -> dict[str, Any]:
    return {
        "name": str(request["name"]),
        "wants": [
            {
                "name": str(part.get("name") or ""),
                "class": str(part.get("deviceClassName") or ""),
                "selectors": _selectors(part),
                "count": ALL if part.get("allocationMode") == "All" else max(1, int(part.get("count") or 1)),
            }
            for part in _parts(request)
        ],
    }


def _unsupported(request: Manifest) -> str:
    for part in _parts(request):
        named = f"request {request.get('name')}"
        if part.get("adminAccess"):
            return f"{named} has adminAccess, which is not simulated"
        if (part.get("capacity") or {}).get("requests"):
            return f"{named} asks for a part of a device's capacity, which is not simulated"
        if part.get("allocationMode") not in (None, "", "ExactCount", "All"):
            return f"{named} has the allocationMode {str(part['allocationMode'])[:64]!r}, which is not known"
    return ""


def _too_many(requests: Sequence[Manifest]) -> str:
    counts = (max((int(part.get("count") or 1) for part in _parts(each)), default=1) for each in requests)
    if len(requests) > MOST_REQUESTS or sum(counts) > MOST_DEVICES:
        return f"it asks for more than {MOST_DEVICES} devices, Kubernetes' limit for a claim"
    return ""


@dataclass(frozen=True, slots=True)
class ReducedDevice:
    """A device of a ResourceSlice. `text` is its kind, as JSON; `why_not` is why nothing is allocated from it."""

    name: str
    text: str
    place: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class ReducedSlice:
    """A ResourceSlice: one of `total` of a generation of a pool."""

    name: str
    driver: str
    pool: str
    generation: int
    total: int
    devices: tuple[ReducedDevice, ...]
    place: str


def reduce_slice(manifest: Manifest) -> ReducedSlice:
    """Reduce a ResourceSlice. Raises KeyError, TypeError, AttributeError or ValueError for content that is odd."""
    spec = manifest["spec"]
    pool, driver = spec["pool"], str(spec["driver"])
    place = _text(_located(spec))
    return ReducedSlice(
        str(manifest["metadata"]["name"]),
        driver,
        str(pool["name"]),
        int(pool.get("generation") or 0),
        int(pool.get("resourceSliceCount") or 1),
        tuple(
            _device(each, driver, place, each_has_place=bool(spec.get("perDeviceNodeSelection")))
            for each in spec.get("devices") or ()
        ),
        place,
    )


def _located(holder: Manifest) -> dict[str, Any]:
    if holder.get("nodeName"):
        return {"node": str(holder["nodeName"])}
    return _place(holder.get("nodeSelector"))


def _device(device: Manifest, driver: str, place: str, *, each_has_place: bool) -> ReducedDevice:
    body = {**device, **(device.get("basic") or {})}
    capacity = body.get("capacity") or {}
    kind = {
        "driver": driver,
        "attributes": {
            qualified(str(n), driver): v
            for n, v in (body.get("attributes") or {}).items()
            if v.keys() <= ATTRIBUTE_TYPES.keys()
        },
        "capacity": {
            qualified(str(n), driver): str(v["value"] if isinstance(v, Mapping) else v)
            for n, v in capacity.items()
        },
    }
    parse_kind(kind)
    why_not = next((why for name, why in _WHOLE.items() if body.get(name)), "")
    own = _text(_located(body)) if each_has_place else place
    return ReducedDevice(str(device["name"]), _text(without_empty(kind)), own, why_not)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class DeviceClaims:
    """What pods claim, resolved, and the devices there are. `encoding` writes both into snapshots."""

    def __init__(
        self,
        claims: Iterable[ReducedDeviceClaim],
        templates: Iterable[ReducedDeviceClaim],
        classes: Iterable[Mapping[str, Any]],
        slices: Iterable[ReducedSlice],
    ) -> None:
        self._claims = {(each.namespace, each.name): each for each in claims}
        self._templates = {(each.namespace, each.name): each for each in templates}
        self._classes = {str(each["metadata"]["name"]): each["selectors"] for each in classes}
        self._slices = list(slices)

    def resolved(self, namespace: str, refs: Iterable[DeviceRef], *, is_bound: bool) -> str:
        """Return the claims of a pod as JSON, as `model.kubernetes.devices` reads them; empty for a pod without.

        The node of allocated devices is left out for a pod on a node (`is_bound`), since it is there.
        """
        found = [self._resolved(namespace, ref, is_bound=is_bound) for ref in refs]
        return _text(found) if found else ""

    def _resolved(self, namespace: str, ref: DeviceRef, *, is_bound: bool) -> dict[str, Any]:
        claim = self._claims.get((namespace, ref.claim)) if ref.claim else None
        asked = claim or (self._templates.get((namespace, ref.template)) if ref.template else None)
        if asked is None:
            return {"name": ref.name, "problem": _missing(namespace, ref)}
        found = {"name": ref.name, **json.loads(asked.text)}
        if not ref.template:
            found["key"] = f"{namespace}/{ref.claim}"
        place = json.loads(claim.place) if claim is not None and claim.place else {}
        if place and not (is_bound and "node" in place):
            found["allocation"] = place
        return found

    def document(self) -> dict[str, Any]:
        """Return the devices and DeviceClasses as a part of a snapshot."""
        kept = self._named()
        taken = {device for claim in self._claims.values() for device in claim.devices}
        kinds: dict[str, int] = {}
        pools = []
        for (driver, name), slices in sorted(_by_pool(self._slices).items()):
            newest = max(each.generation for each in slices)
            current = [each for each in slices if each.generation == newest]
            complete = len(current) == current[0].total
            for place, devices in sorted(_by_place(current).items()):
                counts = Counter[int]()
                free = Counter[int]()
                for device in devices:
                    if device.why_not:
                        continue
                    number = kinds.setdefault(kept(device.text), len(kinds))
                    counts[number] += 1
                    free[number] += (driver, name, device.name) not in taken
                stock = [[number, counts[number], free[number]] for number in sorted(counts)]
                about = {"driver": driver, "name": name, "complete": complete, "stock": stock}
                pools.append({**about, **json.loads(place)})
        return {"classes": self._classes, "kinds": [json.loads(text) for text in kinds], "pools": pools}

    def _named(self) -> _Kept:
        claims = [*self._claims.values(), *self._templates.values()]
        selectors = [text for each in self._classes.values() for text in each]
        return _Kept("\n".join((*selectors, *(claim.text for claim in claims))))


class _Kept:
    """Reduces a kind to the attributes and capacities that these texts name."""

    def __init__(self, texts: str) -> None:
        self._texts, self._keeps_all = texts, _KEEPS_ALL.search(texts) is not None
        self._known: dict[str, bool] = {}

    def __call__(self, text: str) -> str:
        if self._keeps_all:
            return text
        kind = json.loads(text)
        for part in ("attributes", "capacity"):
            kind[part] = {name: value for name, value in (kind.get(part) or {}).items() if self._names(name)}
        return _text(without_empty(kind))

    def _names(self, name: str) -> bool:
        if name not in self._known:
            self._known[name] = name.rpartition("/")[2] in self._texts
        return self._known[name]


def _missing(namespace: str, ref: DeviceRef) -> str:
    if ref.template:
        return f"its ResourceClaimTemplate {namespace}/{ref.template} does not exist"
    return f"its ResourceClaim {namespace}/{ref.claim or ref.name} does not exist"


def _by_pool(slices: Iterable[ReducedSlice]) -> dict[tuple[str, str], list[ReducedSlice]]:
    found: dict[tuple[str, str], list[ReducedSlice]] = {}
    for each in slices:
        found.setdefault((each.driver, each.pool), []).append(each)
    return found


def _by_place(slices: Iterable[ReducedSlice]) -> dict[str, list[ReducedDevice]]:
    found: dict[str, list[ReducedDevice]] = {}
    for each in slices:
        found.setdefault(each.place, [])
        for device in each.devices:
            found.setdefault(device.place, []).append(device)
    return found
