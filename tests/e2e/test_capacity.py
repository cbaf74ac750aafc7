"""EC2 has nothing to give where it is cheapest."""

from __future__ import annotations

from nodesmith.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from tests.e2e.conftest import Start
from tests.e2e.manifests import deployment, nodeclass, nodepool
from tests.e2e.system import CLUSTER, System


def bought(system: System) -> set[tuple[str, str, str]]:
    keys = (CAPACITY_TYPE, INSTANCE_TYPE, ZONE)
    return {
        (labels[keys[0]], labels[keys[1]], labels[keys[2]])
        for labels in (node["metadata"]["labels"] for node in system.nodes())
    }


def test_where_the_cheapest_pool_is_empty_another_is_chosen_at_once_and_that_is_remembered(
    start: Start,
) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool(), deployment("first", 3))
    system.until_running(3)
    system.until_settled()
    cheapest = bought(system)
    assert {capacity for capacity, _, _ in cheapest} == {SPOT}

    for capacity, instance_type, zone in cheapest:
        system.aws.pools.exhaust(f"{capacity}:{instance_type}:{zone}")
    fleets = system.aws.seam.calls["CreateFleet"]
    system.apply(deployment("second", 3))
    system.until_running(6)
    system.until_settled()

    assert bought(system) > cheapest
    known_empty = {
        (pool.capacity_type, pool.instance_type, pool.zone) for pool in system.ledger().unavailable
    }
    assert known_empty & cheapest
    refused = system.aws.seam.calls["CreateFleet"] - fleets
    assert refused <= 2, "the fleet's other pools are tried in the same request"

    system.apply(deployment("third", 3))
    system.until_running(9)
    assert system.asked_of_fleets()[-1].isdisjoint(known_empty), (
        "an empty pool is not asked again while it is known"
    )
