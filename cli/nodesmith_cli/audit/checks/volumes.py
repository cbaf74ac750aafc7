"""The checks of volumes: reachable from the pod's node, within the attach limit, and each claim in one zone."""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.purchases import Purchase
from nodesmith_cli.audit.reading.fields import ZONE
from nodesmith_cli.audit.reading.places import Place
from nodesmith_cli.audit.reading.pods import Pod
from nodesmith_cli.audit.violations import Kind

_ATTACHABLE, _TYPE = "attachable-volumes-csi-", "node.kubernetes.io/instance-type"


def check_volumes(result: Outcome) -> None:
    """Check that every pod's volumes can be reached and attached on its planned node."""
    mounted: dict[str, list[tuple[Pod, Place]]] = {}
    for pod, place in result.placed():
        for claim in result.cluster.volumes.claims(pod):
            reason = result.cluster.volumes.refusal(claim, place.labels, place.node_name)
            if reason:
                result.report(Kind.VOLUME, pod.key, f"on {place.name}: {reason}")
            mounted.setdefault(claim.key, []).append((pod, place))
    _check_shared(result, mounted)
    for place in result.places.values():
        if any(pod.spec.get("volumes") for pod in place.pods):
            _check_attachments(result, place)


def _check_shared(result: Outcome, mounted: Mapping[str, list[tuple[Pod, Place]]]) -> None:
    """Check claims that several pods mount. The first pod of an unbound claim determines the zone for the others."""
    volumes = result.cluster.volumes
    held = {
        claim.key: pod.key
        for place in result.places.values()
        for pod in place.bound
        if pod.spec.get("volumes")
        for claim in volumes.claims(pod)
        if volumes.is_exclusive(claim)
    }
    for key, users in mounted.items():
        pod = users[0][0]
        claim = next(claim for claim in volumes.claims(pod) if claim.key == key)
        zones = {place.labels.get(ZONE) for _, place in users}
        if len(zones) > 1 and volumes.is_unbound(claim):
            result.report(
                Kind.VOLUME, pod.key, f"claim {key} is mounted in several zones: {sorted(map(str, zones))}"
            )
        if volumes.is_exclusive(claim) and (len(users) > 1 or key in held):
            result.report(
                Kind.VOLUME, pod.key, f"claim {key} is ReadWriteOncePod, but another pod mounts it too"
            )


def _check_attachments(result: Outcome, place: Place) -> None:
    volumes = result.cluster.volumes
    attached: dict[str, set[str]] = {}
    for pod in (*place.bound, *place.pods):
        for claim in volumes.claims(pod):
            counted = volumes.attached(claim)
            if counted:
                attached.setdefault(counted[0], set()).add(counted[1])
    limits = volumes.limits.get(place.name, {})
    bought = result.purchases.get(place.name)
    for driver, handles in sorted(attached.items()):
        most = _least(result, bought, driver) if bought else limits.get(driver)
        if most is not None and len(handles) > most:
            message = f"needs to attach {len(handles)} volumes of {driver}, but can attach {most}"
            result.report(Kind.ATTACH_LIMIT, place.name, message)


def _least(result: Outcome, bought: Purchase, driver: str) -> int | None:
    """Return the smallest attach limit among a node's instance types, or None if it is unknown for all.

    A limit that is not in the catalogue comes from existing nodes of the type.
    """
    resource, limits = _ATTACHABLE + driver, result.cluster.volumes.limits
    stated = {m.type.name: m.type.allocatable.get(resource) for m in bought.machines}
    unstated = {name for name, most in stated.items() if most is None}
    shown = [
        limits[place.name][driver]
        for place in result.cluster.places.values()
        if place.labels.get(_TYPE) in unstated and driver in limits.get(place.name, {})
    ]
    return min([*shown, *(most for most in stated.values() if most is not None)], default=None)
