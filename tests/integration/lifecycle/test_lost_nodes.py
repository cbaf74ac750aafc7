"""Nodes that are gone although their instances run: deleted by force, or with the whole cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from nodesmith.decisions.garbagecollection import Inventory, garbage, next_change
from nodesmith.decisions.termination.beginning import LOST, lost_long, still_lost, without_node
from nodesmith.errors import Transient
from nodesmith.model.commands import EndClaim
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.builders import NOW
from tests.fakes.cloud import Call
from tests.smallworld.world import World, pod_manifest

MINUTE = timedelta(minutes=1)


@pytest.fixture
def world() -> World:
    """A world with one node for three pods, whose instances of now never join again."""
    made = World({f"web-{number}": pod_manifest(f"web-{number}") for number in range(3)})
    made.settle()
    old = {instance.id for instance in made.cloud.alive()}
    made.boots = lambda instance: instance.id not in old
    return made


def living(world: World) -> set[str]:
    return {instance.id for instance in world.cloud.alive()}


def test_the_instance_of_a_node_that_was_deleted_by_force_ends_after_half_an_hour(world: World) -> None:
    (old,) = living(world)
    world.cluster.nodes.clear()
    world.live(LOST - 3 * MINUTE)
    assert old in living(world)
    world.live(10 * MINUTE)
    assert old not in living(world)
    assert world.violations() == []


def test_the_instances_of_a_cluster_that_is_created_again_under_its_name_end(world: World) -> None:
    (old,) = living(world)
    world.cluster.nodes.clear()
    world.cluster.nodeclaims.clear()
    for name in list(world.cluster.pods):
        del world.cluster.pods[name]
    world.live(LOST + 10 * MINUTE)
    assert old not in living(world)
    assert len(living(world)) == 1
    assert world.violations() == []


def test_an_instance_stays_while_the_api_server_shows_its_node_or_does_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,) = living(world)
    shown = dict(world.cluster.nodes)
    observe, asked = world.observe, 0

    def blind() -> None:
        world.cluster.nodes.clear()
        observe()
        world.cluster.nodes.update(shown)

    def away(call: Call) -> None:
        nonlocal asked
        if call.method == "has_node":
            asked += 1
            raise Transient("503: the API server is away")

    monkeypatch.setattr(world, "observe", blind)  # a forwarder that misses a Node
    before: Callable[[Call], None] = world.cluster.raise_before
    world.live(LOST + 5 * MINUTE)
    assert old in living(world)
    world.cluster.raise_before = away
    world.live(5 * MINUTE)
    assert old in living(world)
    assert asked
    world.cluster.raise_before = before


@pytest.mark.parametrize("phase", Phase)
def test_only_claims_that_have_joined_can_lose_their_node(phase: Phase) -> None:
    claim = builders.claim(phase=phase, node_name="node-1", provider_id="aws:///a/i-1", instance_id="i-1")
    ledger = builders.ledger(claims=(claim,))
    expected = [claim] if phase in (Phase.REGISTERED, Phase.INITIALIZED) else []
    assert without_node(builders.snapshot(), ledger) == expected
    restored = builders.snapshot(nodes=(builders.node("node-1", provider_id=""),))
    assert without_node(restored, ledger) == []
    renamed = builders.snapshot(nodes=(builders.node("other", provider_id="aws:///a/i-1"),))
    named = replace(claim, private_dns_name="node-1")
    assert without_node(renamed, builders.ledger(claims=(named,))) == [], "pods may run there"
    successor = builders.snapshot(nodes=(builders.node("node-1", provider_id="aws:///a/i-2"),))
    assert without_node(successor, ledger) == expected


def test_the_time_without_a_node_begins_again_when_the_node_returns() -> None:
    claim = builders.claim(
        phase=Phase.INITIALIZED, node_name="node-1", provider_id="aws:///a/i-1", instance_id="i-1"
    )
    ledger, gone = builders.ledger(claims=(claim,)), builders.snapshot()
    there = builders.snapshot(nodes=(builders.node("node-1", provider_id="aws:///a/i-1"),))
    since = still_lost({}, gone, ledger, NOW)
    assert lost_long(ledger, since, NOW + LOST - MINUTE) == []
    assert lost_long(ledger, since, NOW + LOST) == [claim]
    since = still_lost(since, there, ledger, NOW + MINUTE)
    since = still_lost(since, gone, ledger, NOW + 2 * MINUTE)
    assert lost_long(ledger, since, NOW + LOST) == []


def test_collection_looks_again_at_once_and_ends_only_claims_whose_instance_lives() -> None:
    claim = builders.claim(
        phase=Phase.INITIALIZED, node_name="node-1", provider_id="aws:///a/i-1", instance_id="i-1"
    )
    ledger = builders.ledger(claims=(claim,))
    inventory = Inventory(builders.snapshot(), (), {}, ledger, ["i-1"], {}, NOW, [claim.name])
    assert next_change(inventory) == NOW
    (end,) = garbage(inventory)[0]
    assert isinstance(end, EndClaim)
    assert (end.claim.phase, end.claim.cause) == (Phase.TERMINATING, "NodeNotFound")
    assert garbage(Inventory(builders.snapshot(), (), {}, ledger, [], {}, NOW, [claim.name]))[0] == []
