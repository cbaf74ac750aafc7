"""What a NodePool could sell for some pods: the machines that suit and hold them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodesmith_cli.audit.machines import Machine, machine
from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.pods import Pod, needs_of
from nodesmith_cli.audit.pools import Pool
from nodesmith_cli.audit.purchases import purchase
from nodesmith_cli.audit.reading import Amounts


class Suiting:
    """Remembers which machines of a NodePool suit which pods, and what room their DaemonSets leave."""

    def __init__(self, result: Outcome) -> None:
        self._result = result
        self._suited: dict[tuple[str, frozenset[str]], list[tuple[Machine, Amounts]]] = {}

    def machines(self, pool: Pool, pods: Sequence[Pod]) -> Iterator[Machine]:
        """Give those that could be a node for all these pods, if nothing but this node counted."""
        needs = needs_of(pods)
        for suited, room in self._suitable(pool, pods):
            if all(amount <= room.get(name, 0) for name, amount in needs.items()):
                yield suited

    def _suitable(self, pool: Pool, pods: Sequence[Pod]) -> list[tuple[Machine, Amounts]]:
        placings = {pod.placing: pod for pod in pods}
        key = (pool.name, frozenset(placings))
        if key not in self._suited:
            daemons = self._result.cluster.daemons
            tried = (purchase(pool, [m], placings.values(), {}, daemons) for m in _machines(pool))
            self._suited[key] = [
                (found, _room(found, needs_of(each.daemons[found.type.name])))
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


def _room(machine: Machine, daemons: Amounts) -> Amounts:
    return {name: amount - daemons.get(name, 0) for name, amount in machine.type.allocatable.items()}
