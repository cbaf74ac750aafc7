"""EC2 has no capacity for the cheapest offering."""

from __future__ import annotations

import pytest

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from nodesmith.model.ec2.launches import OfferingKey
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import deployment, nodeclass, nodepool

pytestmark = pytest.mark.slow  # tests/integration/resilience/test_crash_safety.py has the same stories


def bought(system: System) -> set[OfferingKey]:
    """Return the offerings of the nodes."""
    every = (node["metadata"]["labels"] for node in system.nodes())
    return {OfferingKey(labels[CAPACITY_TYPE], labels[INSTANCE_TYPE], labels[ZONE]) for labels in every}


def test_another_pool_replaces_an_empty_cheapest_pool_at_once_and_the_empty_one_is_remembered(
    start: Start,
) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool(), deployment("first", 3))
    system.until_running(3)
    system.until_settled()
    cheapest = bought(system)
    assert {pool.capacity_type for pool in cheapest} == {SPOT}

    for pool in cheapest:
        system.aws.pools.exhaust(f"{pool.capacity_type}:{pool.instance_type}:{pool.zone}")
    fleets = system.aws.seam.calls["CreateFleet"]
    system.apply(deployment("second", 3))
    system.until_running(6)
    system.until_settled()

    assert bought(system) > cheapest
    known_empty = set(system.ledger().unavailable)
    assert known_empty & cheapest
    refused = system.aws.seam.calls["CreateFleet"] - fleets
    assert refused <= 2, "the same request tries the fleet's other pools"

    system.apply(deployment("third", 3, cpu="3500m"))  # more than any node has left
    system.until_running(9)
    system.until_settled()
    latest = max(system.ledger().claims, key=lambda claim: claim.created_at)
    asked = set(system.asked_for(latest))
    assert asked
    assert asked.isdisjoint(known_empty), "a pool known to be empty is not requested"
