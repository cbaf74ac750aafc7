"""The checks of each place against its pods: labels, taints, resources and host ports. Places for unplaced pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.purchases import Purchase
from nodesmith_cli.audit.reading.devices import DEVICES
from nodesmith_cli.audit.reading.fields import Amounts, plus, shown
from nodesmith_cli.audit.reading.places import Place
from nodesmith_cli.audit.reading.pods import Pod, finds_port_taken, needs_of, port_clashes
from nodesmith_cli.audit.reading.selectors import refusals
from nodesmith_cli.audit.topology.antiaffinity import AntiAffinityTerms
from nodesmith_cli.audit.violations import Kind

_OWN_PLACES = ("volumes", "resourceClaims")
_SOCIAL = ("podAffinity", "podAntiAffinity")


def check_places(result: Outcome) -> None:
    """Check that every place with planned pods admits them and has room for them, with any of its instance types."""
    for place in result.places.values():
        bought = result.purchases.get(place.name)
        if bought is not None:
            _check_misfits(result, place, bought)
            _check_machines(result, place, bought)
        elif place.pods and not place.is_new:
            _check_labels(result, place)
            resident = [*place.bound, *place.daemons]
            lack = _lacking(needs_of(place.pods), needs_of(resident), place.room or {})
            _report_lack(result, place, lack, "")
            _check_ports(result, place, resident)


def _check_machines(result: Outcome, place: Place, bought: Purchase) -> None:
    needs = needs_of(place.pods)
    _check_devices(result, place, bought)
    for machine in bought.machines:
        daemons = needs_of(bought.daemons.get(machine.type.name, ()))
        lack = _lacking(plus(needs, daemons), {}, machine.type.allocatable.amounts)
        _report_lack(result, place, lack, f" as {machine.type.name}")
    _check_ports(result, place, {d.key: d for daemon in bought.daemons.values() for d in daemon}.values())


def _check_devices(result: Outcome, place: Place, bought: Purchase) -> None:
    claiming = [pod for pod in place.pods if pod.spec.get("resourceClaims")]
    devices = result.cluster.devices
    claimed = devices.count(claiming)
    if claimed is None:
        for pod in claiming:
            result.report(
                Kind.RESOURCES, pod.key, f"claims devices of {place.name} by a claim that is not known"
            )
        return
    for machine in bought.machines if claimed and not devices.is_published else ():
        declared = machine.type.capacity.of(DEVICES)
        if claimed > declared:
            message = f"its pods claim {claimed} devices, and {declared} are declared for {machine.type.name}"
            result.report(Kind.RESOURCES, place.name, message)


def _check_misfits(result: Outcome, place: Place, bought: Purchase) -> None:
    holders: dict[str, list[str]] = {}
    for pod in place.pods:
        holders.setdefault(pod.placing, []).append(pod.key)
    for misfit in bought.misfits:
        for subject in holders.get(misfit.placing, ()) if misfit.placing else (place.name,):
            result.report(misfit.kind, subject, f"on {place.name} as {misfit.type_name}: {misfit.reason}")


def _check_labels(result: Outcome, place: Place) -> None:
    for pod in place.pods:
        for kind, reason in refusals(pod.spec, place.labels, place.taints, place.node_name):
            result.report(kind, pod.key, f"on {place.name}: {reason}")


def _lacking(
    added: Mapping[str, int], resident: Mapping[str, int], room: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Return requested and offered amounts of exceeded resources, ignoring those that no added pod requests."""
    return {
        name: (amount + resident.get(name, 0), room.get(name, 0))
        for name, amount in sorted(added.items())
        if amount < 0 or (amount > 0 and amount + resident.get(name, 0) > room.get(name, 0))
    }


def _report_lack(result: Outcome, place: Place, lack: Mapping[str, tuple[int, int]], suffix: str) -> None:
    for name, (requested, offered) in lack.items():
        message = f"its pods request {shown(name, requested)}, but{suffix} it offers {shown(name, offered)}"
        result.report(Kind.RESOURCES, place.name, message)


def _check_ports(result: Outcome, place: Place, resident: Iterable[Pod]) -> None:
    """Check that no pod of the plan uses a host port of another pod on its node."""
    added = {pod.key for pod in place.pods}
    for protocol, number, first, second in port_clashes([*resident, *place.pods]):
        if second in added:
            result.report(
                Kind.HOST_PORT, second, f"uses {protocol} port {number} on {place.name}, like {first}"
            )


def check_unplaced(result: Outcome, aversions: AntiAffinityTerms) -> None:
    """Report the unplaced pods that would fit on an existing node after the plan, as a warning.

    Only pods without constraints on other pods, volumes and device claims are checked, since their case is clear.
    """
    rooms = [(place, _free(place)) for place in result.places.values() if not (place.is_new or place.closed)]
    for key in result.plan.unplaced:
        pod = result.cluster.pods.get(key)
        if pod and result.cluster.is_pending(pod) and _is_plain(pod) and not aversions.about(pod):
            name = next((place.name for place, free in rooms if _fits(pod, place, free)), None)
            if name:
                result.report(Kind.COULD_FIT, key, f"is unplaced, but {name} has room for it")


def _free(place: Place) -> Amounts:
    used = needs_of((*place.bound, *place.daemons, *place.pods))
    return {name: amount - used.get(name, 0) for name, amount in (place.room or {}).items()}


def _is_plain(pod: Pod) -> bool:
    affinity = pod.spec.get("affinity") or {}
    held = pod.gated or pod.nominated or pod.fault or any(map(pod.spec.get, _OWN_PLACES))
    return not (held or pod.spec.get("topologySpreadConstraints") or any(map(affinity.get, _SOCIAL)))


def _fits(pod: Pod, place: Place, free: Amounts) -> bool:
    if any(amount < 0 or amount > free.get(name, 0) for name, amount in pod.needs.items()):
        return False
    if refusals(pod.spec, place.labels, place.taints, place.node_name):
        return False
    resident = (*place.bound, *place.daemons, *place.pods)
    return not finds_port_taken([pod], resident)
