"""A Node belongs to a claim only under the name that EC2 gave the instance, regardless of its provider id."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from tests.smallworld.world import BOOT, World, node_manifest, pod_manifest

OFFERED = parse_resources({"cpu": "2", "memory": "4Gi", "pods": "29"})


def with_impostor() -> tuple[World, str]:
    """Return a world in which a Node of another name has an instance's provider id before the real Node exists."""
    world = World({"web-0": pod_manifest("web-0")})
    world.boots = lambda _: False
    world.observe()
    while not world.cloud.instances:
        world.step()
    (instance,) = world.cloud.instances.values()
    impostor = node_manifest("impostor", instance.provider_id, OFFERED, world.now)
    impostor["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    world.cluster.nodes["impostor"] = impostor
    world.live(BOOT + timedelta(seconds=30))
    return world, instance.id


def claim_of(world: World) -> NodeClaim:
    (claim,) = world.store.claims.values()
    return claim


def test_an_impostor_is_not_registered_and_the_claim_names_it() -> None:
    world, instance = with_impostor()
    claim = claim_of(world)
    assert (claim.phase, claim.reason) == (Phase.LAUNCHED, "NodeNameMismatch")
    assert "Node impostor has the providerID" in claim.message
    assert f"node-{instance}" in claim.message
    assert "karpenter.sh/registered" not in world.cluster.nodes["impostor"]["metadata"]["labels"]
    assert "NodeNameMismatch" in [event.reason for event in world.cluster.events]


def test_the_real_node_is_registered_despite_an_impostor() -> None:
    world, instance = with_impostor()
    world.boots = lambda _: True
    world.settle()
    claim = claim_of(world)
    assert (claim.phase, claim.node_name) == (Phase.INITIALIZED, f"node-{instance}")
    assert "karpenter.sh/registered" not in world.cluster.nodes["impostor"]["metadata"]["labels"]


def test_an_impostor_that_appears_later_changes_nothing() -> None:
    world, _ = with_impostor()
    del world.cluster.nodes["impostor"]
    world.boots = lambda _: True
    world.settle()
    claim = claim_of(world)
    world.cluster.nodes["impostor"] = node_manifest("impostor", claim.provider_id, OFFERED, world.now)
    world.live(timedelta(minutes=3))
    assert claim_of(world).phase is Phase.INITIALIZED
    assert claim_of(world).reason == ""
    assert "karpenter.sh/registered" not in world.cluster.nodes["impostor"]["metadata"]["labels"]


def test_if_ec2_returns_no_name_only_the_provider_id_counts() -> None:
    world, instance = with_impostor()
    world.cloud.instances[instance] = replace(world.cloud.instances[instance], private_dns_name="")
    (name,) = world.store.claims
    world.store.claims[name] = replace(world.store.claims[name], private_dns_name="")
    world.live(timedelta(minutes=2))
    assert claim_of(world).node_name == "impostor"


def test_a_claim_without_an_instance_is_terminated_even_if_an_impostor_has_its_provider_id() -> None:
    world, instance = with_impostor()
    gone = claim_of(world)
    world.lose(instance, "terminated")
    world.cloud.instances.pop(instance)
    world.boots = lambda _: True
    world.settle()
    assert gone.name not in world.store.claims
    assert claim_of(world).phase is Phase.INITIALIZED


@pytest.mark.parametrize(
    ("private_dns_name", "node", "joins"),
    [
        ("ip-10-0-0-4.ec2.internal", "ip-10-0-0-4.ec2.internal", True),
        ("ip-10-0-0-4.eu-west-1.compute.internal", "ip-10-0-0-4.eu-west-1.compute.internal", True),
        ("IP-10-0-0-4.corp.example", "ip-10-0-0-4.corp.example", True),
        ("i-0123456789abcdef0.ec2.internal", "i-0123456789abcdef0.ec2.internal", True),
        ("ip-10-0-0-4.ec2.internal", "i-0123456789abcdef0", True),
        ("ip-10-0-0-4.ec2.internal", "i-0123456789abcdef0.ec2.internal", True),
        ("", "my-own-name", True),
        ("ip-10-0-0-4.ec2.internal", "ip-10-0-0-5.ec2.internal", False),
        ("ip-10-0-0-4.ec2.internal", "ip-10-0-0-4", False),
        ("ip-10-0-0-4.ec2.internal", "i-0123456789abcdef01.ec2.internal", False),
    ],
)
def test_expected_names_are_those_under_which_eks_lets_kubelets_join(
    private_dns_name: str, node: str, joins: bool
) -> None:
    world, _ = with_impostor()
    own = replace(claim_of(world), instance_id="i-0123456789abcdef0", private_dns_name=private_dns_name)
    assert own.may_be_named(node) is joins
