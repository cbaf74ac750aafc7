"""Devices that pods claim, as an audit counts them: how many a pod takes, and how many an instance type has.

Selectors are not evaluated: a node with fewer devices than its pods claim is wrong for any selector.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodesmith_cli.audit.reading.fields import UNREADABLE, Manifest
from nodesmith_cli.audit.reading.pods import Pod

DEVICES = "devices that NodeOverlays declare"
"""The name of the amount of devices among the resources of an instance type."""
_ANNOTATION = "nodesmith.dev/devices"
_ANY_NUMBER = 1_000_000
_KINDS = {"resourceClaimName": "ResourceClaim", "resourceClaimTemplateName": "ResourceClaimTemplate"}


def declared(overlay: Manifest) -> int:
    """Return how many devices a NodeOverlay declares. Raises an error of UNREADABLE for an invalid amount.

    Partitions count one by one. A device that claims share counts as more than any pods claim.
    """
    text = (overlay["metadata"].get("annotations") or {}).get(_ANNOTATION)
    return sum(map(_number_in, json.loads(text))) if text else 0


def _number_in(entry: Manifest) -> int:
    partitions: Sequence[Manifest] = entry.get("partitions") or [{}]
    parts = sum(int(part.get("count", 1)) for part in partitions)
    shares = _ANY_NUMBER if entry.get("allowMultipleAllocations") is True else 1
    return int(entry.get("count", 1)) * parts * shares


class DeviceClaims:
    """The ResourceClaims and templates of a cluster. With ResourceSlices, types may have more than is declared."""

    def __init__(self, kinds: Mapping[str, Sequence[Manifest]]) -> None:
        self.is_published = bool(kinds.get("ResourceSlice"))
        self._asked = {
            (
                kind,
                manifest["metadata"].get("namespace") or "default",
                manifest["metadata"]["name"],
            ): manifest["spec"]
            for kind in _KINDS.values()
            for manifest in kinds.get(kind, ())
        }

    def count(self, pods: Iterable[Pod]) -> int | None:
        """Return the least number of devices that pods claim together, None if some claim is not known.

        Pods that name the same ResourceClaim share its devices.
        """
        counts: dict[object, int] = {}
        for pod in pods:
            for claim in pod.spec.get("resourceClaims") or ():
                field = next((name for name in _KINDS if claim.get(name)), "")
                key = _KINDS.get(field, ""), pod.namespace, claim.get(field)
                if key not in self._asked:
                    return None
                is_shared = field == "resourceClaimName"
                try:
                    counts[key if is_shared else (pod.key, claim["name"])] = _least(self._asked[key])
                except UNREADABLE:
                    return None
        return sum(counts.values())


def _least(spec: Any) -> int:
    devices = (spec.get("spec") or spec).get("devices") or {}
    return sum(min(map(_number, _parts(request))) for request in devices.get("requests") or ())


def _parts(request: Manifest) -> Sequence[Manifest]:
    return request.get("firstAvailable") or [request.get("exactly") or request]


def _number(part: Manifest) -> int:
    return 1 if part.get("allocationMode") == "All" else int(part.get("count") or 1)
