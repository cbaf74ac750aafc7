"""Reduce the kinds of dynamic resource allocation: claims, DeviceClasses and the devices of ResourceSlices.

resource.k8s.io v1 and v1beta2 are alike; v1beta1 has its fields one level higher.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nodesmith.model.kubernetes.devices import (
    ALL,
    ATTRIBUTE_TYPES,
    MOST_DEVICES,
    MOST_REQUESTS,
    amount_of,
    described,
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
_ODD = {"taints": "is tainted", "bindingConditions": "is prepared only after it is allocated"}


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
    generated = {
        str(entry["name"]): str(entry.get("resourceClaimName") or "")
        for entry in status.get("resourceClaimStatuses") or ()
    }
    return tuple(
        DeviceRef(
            str(entry["name"]),
            str(entry.get("resourceClaimName") or generated.get(str(entry["name"]), "")),
            str(entry.get("resourceClaimTemplateName") or ""),
        )
        for entry in spec["resourceClaims"]
    )


@dataclass(frozen=True, slots=True)
class ReducedDeviceClaim:
    """A ResourceClaim or ResourceClaimTemplate. `text` is what it asks for, as canonical JSON.

    `devices` are those that are allocated to it; `place` is where pods reach them, as JSON, empty if none is allocated.
    `consumed` are the amounts that it takes of those that claims share, by capacity.
    """

    namespace: str
    name: str
    text: str
    devices: tuple[Device, ...] = ()
    place: str = ""
    consumed: tuple[tuple[Device, str, int], ...] = ()


def reduce_device_claim(manifest: Manifest) -> ReducedDeviceClaim:
    """Reduce a ResourceClaim. Raises KeyError, TypeError, AttributeError or ValueError for content that is odd."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    allocation = status.get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return ReducedDeviceClaim(
        str(metadata["namespace"]),
        str(metadata["name"]),
        _requests_text(manifest["spec"]),
        tuple(_named_device(result) for result in results if not result.get("adminAccess")),
        text_of(_place(allocation.get("nodeSelector"))) if allocation else "",
        tuple(
            (_named_device(result), qualified(str(name), str(result["driver"])), amount_of(amount))
            for result in results
            for name, amount in sorted((result.get("consumedCapacity") or {}).items())
        ),
    )


def _named_device(result: Manifest) -> Device:
    return str(result["driver"]), str(result["pool"]), str(result["device"])


def reduce_claim_template(manifest: Manifest) -> ReducedDeviceClaim:
    """Reduce a ResourceClaimTemplate. Raises KeyError, TypeError, AttributeError or ValueError."""
    metadata = manifest["metadata"]
    return ReducedDeviceClaim(
        str(metadata["namespace"]), str(metadata["name"]), _requests_text(manifest["spec"]["spec"])
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
    expressions = [list(term.get("matchExpressions") or ()) for term in terms]
    parse_terms(expressions)
    return {"terms": expressions}


def _selectors(holder: Manifest) -> list[str]:
    return [str(selector["cel"]["expression"]) for selector in holder.get("selectors") or ()]


def _requests_text(spec: Manifest) -> str:
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or ()
    constraints = devices.get("constraints") or ()
    problems = [*map(_unsupported, requests), _too_many(requests)]
    if any(constraint.get("distinctAttribute") for constraint in constraints):
        problems.append("its constraint distinctAttribute is not simulated")
    document = {
        "requests": [_request(request) for request in requests[:MOST_REQUESTS]],
        "constraints": [
            {
                "requests": list(constraint.get("requests") or ()),
                "attribute": str(constraint["matchAttribute"]),
            }
            for constraint in constraints
            if constraint.get("matchAttribute")
        ],
        "problem": next(filter(None, problems), ""),
    }
    return text_of(without_empty(document))


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
                **without_empty({"capacity": _amounts((part.get("capacity") or {}).get("requests"))}),
            }
            for part in _parts(request)
        ],
    }


def _amounts(quantities: Manifest | None) -> dict[str, int]:
    return {str(name): amount_of(quantity) for name, quantity in (quantities or {}).items()}


def _unsupported(request: Manifest) -> str:
    for part in _parts(request):
        subject = f"request {request.get('name')}"
        if part.get("adminAccess"):
            return f"{subject} has adminAccess, which is not simulated"
        if part.get("allocationMode") not in (None, "", "ExactCount", "All"):
            return (
                f"{subject} has the allocationMode {str(part['allocationMode'])[:64]!r}, which is not known"
            )
    return ""


def _too_many(requests: Sequence[Manifest]) -> str:
    counts = (
        max((int(part.get("count") or 1) for part in _parts(request)), default=1) for request in requests
    )
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
    counters: tuple[tuple[str, int], ...] = ()
    """Counters of the pool (`counter set/counter`), and how much there is of each."""


def reduce_slice(manifest: Manifest) -> ReducedSlice:
    """Reduce a ResourceSlice. Raises KeyError, TypeError, AttributeError or ValueError for content that is odd."""
    spec = manifest["spec"]
    pool, driver = spec["pool"], str(spec["driver"])
    place = text_of(_located(spec))
    return ReducedSlice(
        str(manifest["metadata"]["name"]),
        driver,
        str(pool["name"]),
        int(pool.get("generation") or 0),
        int(pool.get("resourceSliceCount") or 1),
        tuple(
            _device(device, driver, place, each_has_place=bool(spec.get("perDeviceNodeSelection")))
            for device in spec.get("devices") or ()
        ),
        place,
        tuple(sorted(_counters(spec.get("sharedCounters"), "name").items())),
    )


def _counters(sets: Sequence[Manifest] | None, key: str) -> dict[str, int]:
    return {
        f"{counter_set[key]}/{name}": amount_of(counter["value"])
        for counter_set in sets or ()
        for name, counter in (counter_set.get("counters") or {}).items()
    }


def _located(holder: Manifest) -> dict[str, Any]:
    if holder.get("nodeName"):
        return {"node": str(holder["nodeName"])}
    return _place(holder.get("nodeSelector"))


def _device(device: Manifest, driver: str, place: str, *, each_has_place: bool) -> ReducedDevice:
    body = {**device, **(device.get("basic") or {})}
    parts = described(body)
    kind = {
        "driver": driver,
        "attributes": {
            qualified(str(n), driver): v
            for n, v in parts["attributes"].items()
            if v.keys() <= ATTRIBUTE_TYPES.keys()
        },
        "capacity": {qualified(str(n), driver): v for n, v in parts["capacity"].items()},
        "shared": parts.get("shared"),
        "policies": {qualified(str(n), driver): v for n, v in parts.get("policies", {}).items()},
        "consumes": _counters(body.get("consumesCounters"), "counterSet"),
    }
    parse_kind(kind)
    refusal = next((reason for name, reason in _ODD.items() if body.get(name)), "")
    own_place = text_of(_located(body)) if each_has_place else place
    return ReducedDevice(str(device["name"]), text_of(without_empty(kind)), own_place, refusal)


def text_of(value: object) -> str:
    """Return JSON that is equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
