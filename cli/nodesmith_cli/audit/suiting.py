"""The machines of a NodePool that could host a set of pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nodesmith_cli.audit.machines import Machine, machine
from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.pods import Pod, finds_port_taken, needs_of
from nodesmith_cli.audit.pools import Pool
from nodesmith_cli.audit.purchases import purchase
from nodesmith_cli.audit.reading import Amounts


class _Suited(NamedTuple):
    """A machine that admits some pods, with its DaemonSet pods and the resources that these leave."""

    machine: Machine
    daemons: Sequence[Pod]
    room: Amounts

    def holds(self, pods: Sequence[Pod], needs: Amounts) -> bool:
        """Return whether the pods fit, by resources and host ports."""
        has_room = all(amount <= self.room.get(name, 0) for name, amount in needs.items())
        return has_room and not finds_port_taken(pods, self.daemons)


class Suiting:
    """A cache of the machines that admit pods, by NodePool and node constraints."""

    def __init__(self, result: Outcome) -> None:
        self._result = result
        self._suited: dict[tuple[str, frozenset[str]], list[_Suited]] = {}

    def machines(self, pool: Pool, pods: Sequence[Pod]) -> Iterator[Machine]:
        """Yield the machines that could host all these pods on one node, regardless of other nodes."""
        needs = needs_of(pods)
        return (suited.machine for suited in self._suitable(pool, pods) if suited.holds(pods, needs))

    def _suitable(self, pool: Pool, pods: Sequence[Pod]) -> list[_Suited]:
        placings = {pod.placing: pod for pod in pods}
        key = (pool.name, frozenset(placings))
        if key not in self._suited:
            daemons = self._result.cluster.daemons
            tried = (purchase(pool, [m], placings.values(), {}, daemons) for m in _machines(pool))
            self._suited[key] = [
                _suited(found, each.daemons[found.type.name])
                for each in tried
                for found in each.machines
                if not each.misfits
            ]
        return self._suited[key]


def _machines(pool: Pool) -> Iterator[Machine]:
    for found in pool.types.values():
        for zone, capacity_type in sorted({(o.zone, o.capacity_type) for o in found.offerings}):
            made = machine(pool, found.name, zone, capacity_type)
            if isinstance(made, Machine):
                yield made


def _suited(machine: Machine, daemons: Sequence[Pod]) -> _Suited:
    taken = needs_of(daemons)
    room = {name: amount - taken.get(name, 0) for name, amount in machine.type.allocatable.items()}
    return _Suited(machine, daemons, room)
