"""A policy that permits certain instance types only: launches find them beyond the cheapest sixty offerings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nodesmith.adapters.ec2.fleetanswers import FleetError, unfulfilled
from nodesmith.controllers.provisioning import provision
from nodesmith.model.ec2.launches import LaunchOutcome, LaunchRequest
from tests import builders
from tests.fakes.cloud import FakeCloud
from tests.smallworld.world import World, pod_manifest

WHY = "You are not authorized: with an explicit deny in a service control policy"


@dataclass(slots=True)
class Governed(FakeCloud):
    """An EC2 that permits the instance types of one family."""

    family: str = ""
    asked: set[str] = field(default_factory=set)

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        found: list[LaunchOutcome] = []
        for request in requests:
            self.asked.add(request.call)
            permitted = tuple(o for o in request.overrides if o.instance_type.startswith(f"{self.family}."))
            if permitted:
                found += FakeCloud.launch(self, [replace(request, overrides=permitted)], repeated=repeated)
                continue
            pools = map(request.pool, request.overrides)
            found.append(
                unfulfilled(request, [FleetError("UnauthorizedOperation", WHY, pool) for pool in pools])
            )
        return found


def bought(family: str) -> tuple[Governed, World]:
    world = World({"web": pod_manifest("web", cpu="6")})
    world.sold = builders.catalog()
    world.observe()
    cloud = Governed(world.cloud.cluster, clock=world.clock, family=family)
    provision(replace(world.provisioning(), cloud=cloud))
    return cloud, world


def test_a_pod_gets_a_node_of_the_only_family_that_a_policy_permits() -> None:
    cloud, world = bought("m6in")
    (instance,) = cloud.alive()
    assert instance.instance_type == "m6in.2xlarge"
    assert len(cloud.asked) > 1
    assert world.store.nodepool_backoffs == {}


def test_if_a_policy_permits_nothing_the_nodepool_waits_after_some_calls_and_says_why() -> None:
    cloud, world = bought("none")
    assert cloud.alive() == []
    assert len(cloud.asked) <= 12
    backoff = world.store.nodepool_backoffs["default"]
    assert backoff.reason == f"Unauthorized: UnauthorizedOperation: {WHY}"
