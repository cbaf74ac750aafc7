"""The checks of each place against its pods: labels, taints, resources and host ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodesmith_cli.audit.devices import DEVICES
from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.places import Place
from nodesmith_cli.audit.pods import Pod, needs_of, port_clashes
from nodesmith_cli.audit.purchases import Purchase
from nodesmith_cli.audit.reading import plus, shown
from nodesmith_cli.audit.selectors import refusals
from nodesmith_cli.audit.violations import Kind


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
    _check_ports(result, place, {d.key: d for each in bought.daemons.values() for d in each}.values())


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
        there = machine.type.capacity.of(DEVICES)
        if claimed > there:
            message = f"its pods claim {claimed} devices, and {there} are declared for {machine.type.name}"
            result.report(Kind.RESOURCES, place.name, message)


def _check_misfits(result: Outcome, place: Place, bought: Purchase) -> None:
    holders: dict[str, list[str]] = {}
    for pod in place.pods:
        holders.setdefault(pod.placing, []).append(pod.key)
    for misfit in bought.misfits:
        for subject in holders.get(misfit.placing, ()) if misfit.placing else (place.name,):
            result.report(misfit.kind, subject, f"on {place.name} as {misfit.type_name}: {misfit.why}")


def _check_labels(result: Outcome, place: Place) -> None:
    for pod in place.pods:
        for kind, why in refusals(pod.spec, place.labels, place.taints, place.node_name):
            result.report(kind, pod.key, f"on {place.name}: {why}")


def _lacking(
    added: Mapping[str, int], resident: Mapping[str, int], room: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Return requested and offered amounts of exceeded resources, ignoring those that no added pod requests."""
    return {
        name: (amount + resident.get(name, 0), room.get(name, 0))
        for name, amount in sorted(added.items())
        if amount < 0 or (amount > 0 and amount + resident.get(name, 0) > room.get(name, 0))
    }


def _report_lack(result: Outcome, place: Place, lack: Mapping[str, tuple[int, int]], what: str) -> None:
    for name, (asked, offered) in lack.items():
        message = f"its pods request {shown(name, asked)}, but{what} it offers {shown(name, offered)}"
        result.report(Kind.RESOURCES, place.name, message)


def _check_ports(result: Outcome, place: Place, resident: Iterable[Pod]) -> None:
    """Check that no pod of the plan uses a host port of another pod on its node."""
    added = {pod.key for pod in place.pods}
    for protocol, number, first, second in port_clashes([*resident, *place.pods]):
        if second in added:
            result.report(
                Kind.HOST_PORT, second, f"uses {protocol} port {number} on {place.name}, like {first}"
            )
