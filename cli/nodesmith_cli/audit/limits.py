"""The checks across nodes: the limits of NodePools and of capacity reservations."""

from __future__ import annotations

from collections import Counter

from nodesmith_cli.audit.machines import capacity_of
from nodesmith_cli.audit.nodeclasses import RESERVATION_ID
from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.places import pool_use
from nodesmith_cli.audit.pools import Pool
from nodesmith_cli.audit.reading import Amounts, shown
from nodesmith_cli.audit.violations import Kind


def check_limits(result: Outcome) -> None:
    """Check that launched nodes exceed no limit, whichever of their instance types they get."""
    buying = {purchase.pool.name for purchase in result.purchases.values()}
    for name in sorted(buying):
        pool = result.pools[name]
        for resource, amount in sorted(use_of_limits(result, pool).items()):
            if amount > pool.limits[resource]:
                most = shown(resource, pool.limits[resource])
                result.report(
                    Kind.LIMIT, name, f"its nodes may use {shown(resource, amount)}, but its limit is {most}"
                )


def check_reservations(result: Outcome) -> None:
    """Check that no more nodes are launched in a capacity reservation than it has free instances."""
    used = Counter(node.labels.get(RESERVATION_ID, "") for node in result.plan.nodes)
    held = {id_: each for pool in result.pools.values() for id_, each in pool.reservations.items()}
    for id_, count in sorted(used.items()):
        if id_ in held and count > held[id_].free:
            message = f"{count} nodes are launched in it, but only {held[id_].free} of its instances are free"
            result.report(Kind.LIMIT, id_, message)


def use_of_limits(result: Outcome, pool: Pool) -> Amounts:
    """Return what a NodePool's nodes use of its limits, assuming the largest type for each new node."""
    there = pool_use(result.places.values(), pool.name)
    used = {name: there.get(name, 0) for name in pool.limits}
    for bought in result.purchases.values():
        if bought.pool.name == pool.name:
            for name in used:
                used[name] += max((capacity_of(m.type, name) for m in bought.machines), default=0)
    return used
