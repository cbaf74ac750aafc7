"""What a NodePool promises beyond single nodes: limits and minValues."""

from __future__ import annotations

from collections.abc import Iterable

from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.places import pool_use
from nodesmith_cli.audit.pools import CAPACITY_TYPE, Machine, Pool, allows, capacity_of
from nodesmith_cli.audit.reading import ZONE, Amounts, shown, today
from nodesmith_cli.audit.violations import Kind


def check_limits(result: Outcome) -> None:
    """See that no limit is overshot by what is bought, whichever types the nodes become."""
    buying = {purchase.pool.name for purchase in result.purchases.values()}
    for name in sorted(buying):
        pool = result.pools[name]
        for resource, amount in sorted(use_of_limits(result, pool).items()):
            if amount > pool.limits[resource]:
                most = shown(resource, pool.limits[resource])
                result.report(
                    Kind.LIMIT, name, f"its nodes may come to {shown(resource, amount)}, its limit is {most}"
                )


def use_of_limits(result: Outcome, pool: Pool) -> Amounts:
    """Sum what a NodePool's nodes take of its limits, each to be bought as the largest of its types."""
    there = pool_use(result.places.values(), pool.name)
    used = {name: there.get(name, 0) for name in pool.limits}
    for bought in result.purchases.values():
        if bought.pool.name == pool.name:
            for name in used:
                used[name] += max((capacity_of(m.type, name) for m in bought.machines), default=0)
    return used


def check_min_values(result: Outcome) -> None:
    """See that each node keeps the choice that its NodePool's minValues ask for."""
    for node in result.plan.nodes:
        bought = result.purchases.get(node.name)
        for requirement in bought.pool.requirements if bought else ():
            wanted, key = int(requirement.get("minValues") or 0), today(requirement["key"])
            if bought and wanted:
                found = {value for each in bought.machines for value in _values(bought.pool, each, key)}
                if len(found) < wanted:
                    message = f"minValues of {key} is {wanted}, its instanceTypes have {len(found)}"
                    result.report(Kind.MIN_VALUES, node.name, message)


def _values(pool: Pool, machine: Machine, key: str) -> Iterable[str]:
    """Give the values of a label that buying this type leaves possible."""
    if key == CAPACITY_TYPE:
        return {o.capacity_type for o in machine.type.offerings if allows(pool, key, o.capacity_type)}
    if key == ZONE:
        return {o.zone for o in machine.type.offerings if allows(pool, key, o.zone)}
    return [machine.labels[key]] if key in machine.labels else machine.open.get(key, ())
