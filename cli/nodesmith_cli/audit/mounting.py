"""Volumes of the plan's pods: within reach of their nodes, not more than those attach, and claims in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.places import Place
from nodesmith_cli.audit.pods import Pod
from nodesmith_cli.audit.purchases import Purchase
from nodesmith_cli.audit.reading import ZONE
from nodesmith_cli.audit.violations import Kind

_ATTACHABLE = "attachable-volumes-csi-"


def check_volumes(result: Outcome) -> None:
    """See that every pod's volumes can be reached and attached where the plan has it."""
    mounted: dict[str, list[tuple[Pod, Place]]] = {}
    for pod, place in result.placed():
        for claim in result.cluster.volumes.claims(pod):
            why = result.cluster.volumes.refusal(claim, place.labels, place.node_name)
            if why:
                result.report(Kind.VOLUME, pod.key, f"on {place.name}: {why}")
            mounted.setdefault(claim.key, []).append((pod, place))
    _check_shared(result, mounted)
    for place in result.places.values():
        if any(pod.spec.get("volumes") for pod in place.pods):
            _check_attachments(result, place)


def _check_shared(result: Outcome, mounted: Mapping[str, list[tuple[Pod, Place]]]) -> None:
    """The first of several pods that mount an unbound claim fixes the zone of its volume for the others."""
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
                Kind.VOLUME, pod.key, f"claim {key} is ReadWriteOncePod, and another pod mounts it too"
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
        most = _least(bought, driver) if bought else limits.get(driver)
        if most is not None and len(handles) > most:
            message = f"{len(handles)} volumes of {driver} are to be attached, {most} can be"
            result.report(Kind.ATTACH_LIMIT, place.name, message)


def _least(bought: Purchase, driver: str) -> int | None:
    """Give the fewest volumes that a node may attach, whichever of its types it becomes; None where none says."""
    told: Iterable[int] = [
        machine.type.allocatable[_ATTACHABLE + driver]
        for machine in bought.machines
        if _ATTACHABLE + driver in machine.type.allocatable
    ]
    return min(told, default=None)
