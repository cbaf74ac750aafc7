"""Node resources that a pod takes: requests by the API's rules for init containers, host ports, volume claims.

Deliberately separate from nodesmith's own arithmetic, since this scheduler judges what nodesmith buys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from nodesmith.model.apimachinery.quantities import QuantityError, cpu_milli, whole_units
from nodesmith_formats.kubernetes.objects import View, dig

Amounts: TypeAlias = dict[str, int]  # CPU in millicores, anything else in base units
Port: TypeAlias = tuple[str, int]  # protocol, number


def needs_of(spec: View) -> Amounts:
    """Return the requests of a pod spec, including its overhead and one of `pods`."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, own)
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _sum(sidecars, own))
    running = sidecars
    for container in spec.get("containers") or ():
        running = _sum(running, _requests(container))
    pod_needs = {**_most(peak, running), **amounts(dig(spec, "resources", "requests") or {})}
    total = _sum(pod_needs, amounts(spec.get("overhead") or {}))
    return {**{name: amount for name, amount in total.items() if amount}, "pods": 1}


def ports_of(spec: View) -> frozenset[Port]:
    """Return the host ports that a pod spec uses."""
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    containers = [*(spec.get("containers") or ()), *sidecars]
    return frozenset(
        (port.get("protocol", "TCP"), int(port["hostPort"]))
        for container in containers
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def claims_of(spec: View) -> list[str]:
    """Return the names of the PersistentVolumeClaims that a pod spec mounts."""
    volumes = spec.get("volumes") or ()
    return [str(name) for volume in volumes if (name := dig(volume, "persistentVolumeClaim", "claimName"))]


def amounts(quantities: Mapping[str, Any]) -> Amounts:
    """Parse a resource list; an invalid quantity counts as zero."""
    parsed: Amounts = {}
    for name, value in quantities.items():
        try:
            parsed[name] = cpu_milli(value) if name == "cpu" else whole_units(value)
        except QuantityError:
            parsed[name] = 0
    return parsed


def _requests(container: View) -> Amounts:
    return amounts(dig(container, "resources", "requests") or {})


def _sum(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, 0) + right.get(name, 0) for name in left.keys() | right.keys()}


def _most(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left.keys() | right.keys()}
