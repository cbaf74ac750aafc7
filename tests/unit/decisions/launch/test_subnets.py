"""Which subnet nodes use: free addresses, planned and pending nodes, and subnets that are full."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from nodesmith.controllers.provisioning import provision
from nodesmith.decisions.launch import Templates, launch_plan, usable
from nodesmith.decisions.provisioning.decide import decide
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ec2.launches import LaunchOutcome, LaunchRequest, NoCapacity, SubnetShortfall
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.status import NodeClassStatus, Subnet
from tests import builders
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NODECLASS, NOW, options, status
from tests.smallworld.world import World, pod_manifest

TWO = (
    Subnet("subnet-1", "us-east-1a", free_ips=300),
    Subnet("subnet-2", "us-east-1a", free_ips=280),
    Subnet("subnet-b", "us-east-1b", free_ips=250),
)


def with_subnets(*subnets: Subnet) -> NodeClassStatus:
    return status(subnets=subnets)


def test_nodes_of_one_decision_use_all_subnets_of_a_zone() -> None:
    known, found = Templates(), Counter[str]()
    for number in range(16):
        claim = replace(CLAIM, name=f"default-{number}")
        offered = options(["m5.large"], zones=["us-east-1a"])
        request, _ = launch_plan(claim, offered, NODECLASS, with_subnets(*TWO), CLUSTER, known)
        found[request.overrides[0].subnet_id] += 1
    assert found == {"subnet-1": 8, "subnet-2": 8}, "an m5.large has room for 29 pods"


def test_nodes_planned_alike_stay_in_a_subnet_until_it_is_full() -> None:
    small = [*builders.EXPRESS, builders.expression("node.kubernetes.io/instance-type", "In", "m5.large")]
    subnets = (Subnet("subnet-1", "us-east-1a", free_ips=90), Subnet("subnet-2", "us-east-1a", free_ips=60))
    pods = builders.pods(builders.shape(cpu="1500m"), 5)
    inputs = builders.inputs(
        snapshot=builders.snapshot(pods=pods, nodepools=(builders.nodepool_manifest(requirements=small),)),
        ledger=builders.ledger(nodeclasses={"default": builders.nodeclass_status(subnets=subnets)}),
    )
    rows = [node.request.overrides[0].subnet_id for node in decide(inputs).nodes]
    assert rows == ["subnet-1", "subnet-1", "subnet-1", "subnet-2", "subnet-2"]


def test_a_subnet_in_back_off_is_left_out_until_the_back_off_ends() -> None:
    held = Ledger(subnet_backoffs={"subnet-1": Backoff(NOW + timedelta(minutes=5), 1, "full")})
    assert [s.id for s in usable(with_subnets(*TWO), held, NOW).subnets] == ["subnet-2", "subnet-b"]
    later = NOW + timedelta(minutes=5)
    assert usable(with_subnets(*TWO), held, later) == with_subnets(*TWO)


def test_addresses_of_nodes_launched_since_the_resolution_count_as_taken() -> None:
    resolved = with_subnets(*TWO)
    moment = resolved.resolved_at + timedelta(seconds=1)
    room = Resources({"pods": 29})
    launched = replace(CLAIM, phase=Phase.LAUNCHED, launched_at=moment, subnet_id="subnet-1", capacity=room)
    pending_request, _ = launch_plan(CLAIM, options(["m5.large"]), NODECLASS, resolved, CLUSTER)
    pending = replace(CLAIM, name="default-p", launch=pending_request.to_item(), capacity=room)
    before = replace(launched, name="default-o", launched_at=resolved.resolved_at)
    left = usable(resolved, Ledger(claims=(launched, pending, before)), NOW).subnets
    assert {s.id: s.free_ips for s in left} == {
        "subnet-1": 300 - 29 - 29,
        "subnet-2": 280,
        "subnet-b": 250 - 29,
    }


def test_a_full_subnet_is_not_used_while_another_of_its_zone_has_addresses() -> None:
    world = World({"web": pod_manifest("web")})
    known = world.store.nodeclasses["default"]
    second = tuple(replace(s, id=f"{s.id}-2", free_ips=100) for s in known.subnets)
    world.store.nodeclasses["default"] = replace(known, subnets=(*known.subnets, *second))
    asked: list[set[str]] = []

    def full(request: LaunchRequest) -> LaunchOutcome:
        asked.append({row.subnet_id for row in request.overrides})
        code = "InsufficientFreeAddressesInSubnet"
        return NoCapacity(
            request.claim, (), subnets=tuple(SubnetShortfall(s, code) for s in sorted(asked[0]))
        )

    world.cloud.script = [full]
    world.observe()
    outcome = provision(world.provisioning())
    (claim,) = (world.store.claims[name] for name in outcome.launched)
    assert asked[0] <= {subnet.id for subnet in known.subnets}, (
        "subnets with the most free addresses come first"
    )
    assert claim.subnet_id.endswith("-2")
    assert world.store.unavailable == {}
    assert set(world.store.subnet_backoffs) == asked[0]
    (given_up,) = (world.store.claims[name] for name in outcome.given_up)
    assert "no free address in subnet-" in given_up.message
