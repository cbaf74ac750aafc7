"""The check of minValues: each node must keep enough choice for EC2 among the machines that could host its pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nodesmith_cli.audit.machines import CAPACITY_TYPE, Machine, capacity_of, machine
from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.purchases import Purchase, purchase
from nodesmith_cli.audit.reading.fields import ZONE, Amounts, today
from nodesmith_cli.audit.reading.plans import PlannedNode
from nodesmith_cli.audit.reading.pods import Pod, finds_port_taken, needs_of
from nodesmith_cli.audit.reading.pools import Pool, allows
from nodesmith_cli.audit.violations import Kind

_ACCELERATORS = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/gaudi")


class _AdmittingMachine(NamedTuple):
    """A machine that admits some pods, with its DaemonSet pods and the resources left for others."""

    machine: Machine
    daemons: Sequence[Pod]
    room: Amounts

    def holds(self, pods: Sequence[Pod], needs: Amounts) -> bool:
        """Return whether the pods fit, by resources and host ports."""
        has_room = all(amount <= self.room.get(name, 0) for name, amount in needs.items())
        return has_room and not finds_port_taken(pods, self.daemons)


class AdmittingMachines:
    """A cache of the machines that admit pods, by NodePool and node constraints."""

    def __init__(self, result: Outcome) -> None:
        self._result = result
        self._suited: dict[tuple[str, frozenset[str]], list[_AdmittingMachine]] = {}

    def machines(self, pool: Pool, pods: Sequence[Pod]) -> Iterator[Machine]:
        """Yield the machines that could host all these pods on one node, regardless of other nodes."""
        needs = needs_of(pods)
        return (suited.machine for suited in self._suitable(pool, pods) if suited.holds(pods, needs))

    def _suitable(self, pool: Pool, pods: Sequence[Pod]) -> list[_AdmittingMachine]:
        placings = {pod.placing: pod for pod in pods}
        key = (pool.name, frozenset(placings))
        if key not in self._suited:
            daemons = self._result.cluster.daemons
            purchases = (purchase(pool, [m], placings.values(), {}, daemons) for m in _machines(pool))
            self._suited[key] = [
                _suited(candidate, candidate_purchase.daemons[candidate.type.name])
                for candidate_purchase in purchases
                for candidate in candidate_purchase.machines
                if not candidate_purchase.misfits
            ]
        return self._suited[key]


def _machines(pool: Pool) -> Iterator[Machine]:
    for choice in pool.types.values():
        for zone, capacity_type in sorted({(o.zone, o.capacity_type) for o in choice.offerings}):
            offer = machine(pool, choice.name, zone, capacity_type)
            if isinstance(offer, Machine):
                yield offer


def _suited(machine: Machine, daemons: Sequence[Pod]) -> _AdmittingMachine:
    requests = needs_of(daemons)
    room = {name: amount - requests.get(name, 0) for name, amount in machine.type.allocatable.items()}
    return _AdmittingMachine(machine, daemons, room)


def check_min_values(result: Outcome, suiting: AdmittingMachines, *, strict: bool) -> None:
    """Check that each node keeps the choice that minValues require, or as much as exists unless `strict`.

    The plan lists the types offered in the node's zone. Types that are only offered in other zones count as well.
    """
    for node in result.plan.nodes:
        bought, place = result.purchases.get(node.name), result.places.get(node.name)
        for requirement in bought.pool.requirements if bought else ():
            minimum, key = int(requirement.get("minValues") or 0), today(requirement["key"])
            if not bought or not place or not minimum:
                continue
            values = _values(bought.pool, bought.machines, key)
            if len(values) < minimum:
                suited = list(_usual(bought, suiting.machines(bought.pool, place.pods), place.pods))
                alike = [m for m in suited if m.labels[CAPACITY_TYPE] == node.capacity_type]
                values |= _values(bought.pool, (m for m in alike if not _is_sold(m, node)), key)
                if not strict:
                    in_zone = (m for m in alike if m.labels[ZONE] == node.zone)
                    minimum = min(minimum, len(_values(bought.pool, in_zone, key)))
            if len(values) < minimum:
                message = (
                    f"minValues requires {minimum} values of {key}, but its instanceTypes have {len(values)}"
                )
                result.report(Kind.MIN_VALUES, node.name, message)


def _is_sold(machine: Machine, node: PlannedNode) -> bool:
    """Return whether a type is offered in the node's own zone."""
    place = node.zone, node.capacity_type
    return any((o.zone, o.capacity_type) == place and o.available for o in machine.type.offerings)


def _usual(bought: Purchase, machines: Iterable[Machine], pods: Sequence[Pod]) -> Iterator[Machine]:
    """Yield machines, except bare metal, unrequested accelerators, and those that use more of a limit than the node."""
    needs = needs_of(pods)
    most = {
        name: max((capacity_of(m.type, name) for m in bought.machines), default=0)
        for name in bought.pool.limits
    }
    for candidate in machines:
        devices = (name for name in _ACCELERATORS if candidate.type.capacity.get(name))
        plain = "metal" not in candidate.type.name and all(name in needs for name in devices)
        if plain and all(capacity_of(candidate.type, name) <= amount for name, amount in most.items()):
            yield candidate


def _values(pool: Pool, machines: Iterable[Machine], key: str) -> set[str]:
    """Return the possible values of a label on these machines."""
    return {value for candidate in machines for value in _possible(pool, candidate, key)}


def _possible(pool: Pool, machine: Machine, key: str) -> Iterable[str]:
    if key == CAPACITY_TYPE:
        return {o.capacity_type for o in machine.type.offerings if allows(pool, key, o.capacity_type)}
    if key == ZONE:
        return {o.zone for o in machine.type.offerings if allows(pool, key, o.zone)}
    return [machine.labels[key]] if key in machine.labels else machine.open.get(key, ())
