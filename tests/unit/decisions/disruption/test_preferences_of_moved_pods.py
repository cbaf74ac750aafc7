"""Preferences of pods keep no node: they choose between plans for moved pods that cost the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Any

import pytest

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.search import look_again, propose
from nodesmith.decisions.provisioning import Inputs, decide
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from nodesmith.model.karpenter.disruption import REBALANCE_ZONES
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.ledger.moves import Reason
from tests.benchmarks.disruption.fleets import launched
from tests.builders import (
    NOW,
    ZONES,
    expression,
    node_affinity,
    pods,
    shape,
    spread,
)
from tests.objects.fleets import Worker, begun, changed, fleet, pool, running, worker
from tests.smallworld.moved import after

NAMES = ("a", "b", "c")
LARGE = ("c6a.2xlarge", "7900m", "14Gi")


def one_size(*kinds: str, rebalances: bool = False, **disruption: Any) -> dict[str, Any]:
    wanted = [
        expression(INSTANCE_TYPE, "In", *(kinds or LARGE[:1])),
        expression(CAPACITY_TYPE, "In", "on-demand"),
    ]
    manifest = pool(requirements=wanted, **disruption)
    if rebalances:
        manifest["metadata"]["annotations"] = {REBALANCE_ZONES: "On"}
    return manifest


def thirds(kind: str = LARGE[0], cpu: str = LARGE[1], memory: str = LARGE[2]) -> list[Worker]:
    """Return a node in each of three zones."""
    return [worker(n, kind, cpu=cpu, memory=memory, zone=z) for n, z in zip(NAMES, ZONES, strict=True)]


def spread_out(counts: Sequence[int], of: Shape, *kinds: str, **asked: Any) -> Inputs:
    """Return these numbers of pods on three nodes in three zones."""
    return fleet(
        thirds(), running(of, dict(zip(NAMES, counts, strict=True))), pools=[one_size(*kinds, **asked)]
    )


def web(*, hard: bool = False, key: str = ZONE, **spec: Any) -> Shape:
    return shape("1", "1Gi", topologySpreadConstraints=spread(key, hard=hard), **spec)


def preferring(kind: str, key: str, **match: str) -> dict[str, Any]:
    """Return the spec field of a preferred pod affinity or anti-affinity to pods with these labels."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": match or {"app": "web"}}}
    return {
        kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    }


def attracted_by_nodes(*terms: Mapping[str, Any]) -> dict[str, Any]:
    preferred = [{"weight": 100, "preference": {"matchExpressions": [term]}} for term in terms]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


PREFERENCES = {
    "a spread over zones": web(),
    "a spread over nodes": web(key=HOSTNAME),
    "apart from each other": shape("1", "1Gi", affinity=preferring("podAntiAffinity", ZONE)),
    "each on its own node": shape("1", "1Gi", affinity=preferring("podAntiAffinity", HOSTNAME)),
    "together in a zone": shape("1", "1Gi", affinity=preferring("podAffinity", ZONE)),
    "together on a node": shape("1", "1Gi", affinity=preferring("podAffinity", HOSTNAME)),
    "another zone": shape("1", "1Gi", affinity=attracted_by_nodes(expression(ZONE, "In", ZONES[2]))),
    "dearer nodes": shape(
        "1", "1Gi", affinity=attracted_by_nodes(expression(INSTANCE_TYPE, "In", "m6a.2xlarge"))
    ),
}


def by_zone(inputs: Inputs) -> list[int]:
    """Return the number of pods in each zone with nodes, most first."""
    zones = {node.name: node.labels[ZONE] for node in inputs.snapshot.nodes}
    counted = Counter(zones[pod.node] for pod in inputs.snapshot.pods)
    return sorted((counted[zone] for zone in set(zones.values())), reverse=True)


def done(inputs: Inputs) -> tuple[Inputs, list[Proposal]]:
    """Carry out the moves found until there are none."""
    found: list[Proposal] = []
    for number in range(6):
        moves = propose(inputs).proposals
        if not moves:
            return inputs, found
        found += moves
        inputs = after(inputs, moves, launched, inputs.now, f"pass-{number}")
    raise AssertionError(found)


def saved(moves: Sequence[Proposal]) -> float:
    """Return what moves save together, USD an hour."""
    return fsum(move.saving_hourly_usd for move in moves)


@pytest.mark.parametrize("counts", [(4, 3, 3), (6, 2, 2), (2, 4, 4), (5, 4, 1)])
def test_three_half_empty_nodes_in_three_zones_become_two_although_a_spread_prefers_three(
    counts: tuple[int, int, int],
) -> None:
    inputs, moves = done(spread_out(counts, web()))
    assert [(len(m.sources), len(m.replacements)) for m in moves] == [(1, 0)]
    most, least = by_zone(inputs)
    assert most - least <= max(1, max(counts) - min(counts))


def test_free_capacity_is_filled_as_the_spread_prefers() -> None:
    inputs, _ = done(spread_out((4, 3, 3), web()))
    assert by_zone(inputs) == [5, 5]


def test_pods_go_against_a_preferred_spread_where_capacity_leaves_no_choice() -> None:
    full = running(shape("1", "1Gi", app="other"), {"b": 4})
    held = changed(thirds()[1], annotations={"karpenter.sh/do-not-disrupt": "true"})
    workers = [thirds()[0], held, thirds()[2]]
    inputs = fleet(workers, [*running(web(), {"a": 3, "b": 3, "c": 2}), *full], pools=[one_size()])
    _, (move,) = done(inputs)
    assert not move.replacements


@pytest.mark.parametrize("preference", PREFERENCES)
@pytest.mark.parametrize(
    "kinds", [LARGE[:1], ("c6a.2xlarge", "c6a.xlarge", "m6a.2xlarge")], ids=["one", "more"]
)
def test_no_preference_raises_the_cost_of_a_fleet(preference: str, kinds: tuple[str, ...]) -> None:
    plain = spread_out((4, 3, 3), shape("1", "1Gi"), *kinds)
    preferred = spread_out((4, 3, 3), PREFERENCES[preference], *kinds)
    without, found = done(plain)[1], done(preferred)[1]
    assert saved(found) == pytest.approx(saved(without), abs=1e-6)


def test_each_replacement_goes_to_the_zone_with_the_fewest_pods() -> None:
    """Seven pods need two nodes of four cores; the cheapest plan leaves their zones open."""
    workers = thirds("c6a.4xlarge", "15900m", "30Gi")
    inputs = fleet(
        workers, running(web(), {"a": 3, "b": 2, "c": 1}), pools=[one_size("c6a.4xlarge", "c6a.xlarge")]
    )
    _, moves = done(inputs)
    zones = [{o.zone for o in node.request.overrides} for move in moves for node in move.replacements]
    assert len(zones) == 2
    assert all(len(each) == 1 for each in zones)
    assert len({zone for each in zones for zone in each}) == 2


def test_replacements_of_drifted_nodes_stay_in_the_zones_that_their_pods_prefer() -> None:
    inputs = fleet(thirds(), running(web(), {"a": 4, "b": 4, "c": 4}), pools=[one_size("m6a.2xlarge")])
    moves = propose(inputs).proposals
    assert {move.reason for move in moves} == {Reason.DRIFTED}
    zones = [{o.zone for o in node.request.overrides} for move in moves for node in move.replacements]
    assert sorted(map(sorted, zones)) == [[zone] for zone in ZONES]


def test_a_second_look_finds_the_same_move() -> None:
    inputs = spread_out((4, 3, 3), web())
    (first,) = propose(inputs).proposals
    move, inputs = begun(inputs, first)
    again = look_again([move], inputs)["m1"]
    assert isinstance(again, Proposal), again
    assert again.destinations == first.destinations


def test_required_rules_still_keep_nodes() -> None:
    assert not propose(spread_out((4, 3, 3), web(hard=True))).proposals


def test_where_zones_are_rebalanced_a_spread_over_them_keeps_its_nodes() -> None:
    assert not propose(spread_out((4, 3, 3), web(), rebalances=True)).proposals


def test_where_zones_are_rebalanced_nodes_still_become_smaller_ones_in_each_zone() -> None:
    small = spread_out((3, 3, 3), web(), "c6a.2xlarge", "c6a.xlarge", rebalances=True)
    inputs, moves = done(small)
    assert by_zone(inputs) == [3, 3, 3]
    assert saved(moves) == pytest.approx(1.5 * 0.306, rel=0.01)


def test_where_zones_are_rebalanced_other_preferences_keep_no_node() -> None:
    inputs = spread_out((4, 3, 3), PREFERENCES["each on its own node"], rebalances=True)
    assert [(len(m.sources), len(m.replacements)) for m in done(inputs)[1]] == [(1, 0)]


def ending(inputs: Inputs, name: str = "c") -> Inputs:
    """Return the inputs as one of the claims ends."""
    claims = tuple(
        claim.terminating(Reason.UNDERUTILIZED, "its pods have room elsewhere", NOW)
        if claim.name == f"claim-{name}"
        else claim
        for claim in inputs.ledger.claims
    )
    return replace(inputs, ledger=replace(inputs.ledger, claims=claims))


@pytest.mark.parametrize("preference", PREFERENCES)
def test_nothing_is_bought_for_pods_of_an_ending_node_while_others_have_capacity(preference: str) -> None:
    plan = decide(ending(spread_out((4, 3, 3), PREFERENCES[preference])))
    assert plan.nodes == ()
    assert sum(map(len, (plan.placed or {}).values())) == 3


def test_pods_of_an_ending_node_go_to_capacity_where_their_spread_prefers() -> None:
    plan = decide(ending(spread_out((4, 3, 3), web())))
    assert {name: len(keys) for name, keys in (plan.placed or {}).items()} == {"a": 1, "b": 2}


def test_nodes_for_pods_of_an_ending_node_are_bought_where_their_spread_prefers() -> None:
    plan = decide(ending(spread_out((7, 7, 7), web())))
    assert [{o.zone for o in node.request.overrides} for node in plan.nodes] == [{ZONES[2]}]


def test_nodes_for_pods_of_an_ending_node_cost_no_more_for_a_preference() -> None:
    crowded = ending(spread_out((7, 7, 7), PREFERENCES["each on its own node"]))
    assert len(decide(crowded).nodes) == 1


def test_a_node_is_bought_for_the_preference_of_pending_pods() -> None:
    inputs = spread_out((4, 4, 0), web())
    waiting = replace(
        inputs.snapshot, pods=(*inputs.snapshot.pods[:8], *pods(web(), 2)), nodes=inputs.snapshot.nodes[:2]
    )
    claims = inputs.ledger.claims[:2]
    plan = decide(replace(inputs, snapshot=waiting, ledger=replace(inputs.ledger, claims=claims)))
    assert [{o.zone for o in node.request.overrides} for node in plan.nodes] == [{ZONES[2]}]


def test_pending_pods_get_their_preference_beside_pods_of_an_ending_node() -> None:
    inputs = ending(spread_out((6, 6, 1), web()))
    fresh = [replace(pod, key=f"default/new-{n}") for n, pod in enumerate(pods(web(), 6))]
    both = replace(inputs, snapshot=replace(inputs.snapshot, pods=(*inputs.snapshot.pods, *fresh)))
    plan = decide(both)
    assert [{o.zone for o in node.request.overrides} for node in plan.nodes] == [{ZONES[2]}]


def test_required_node_affinity_is_not_a_preference() -> None:
    pinned = shape("1", "1Gi", affinity=node_affinity([expression(ZONE, "In", ZONES[2])]))
    assert not propose(spread_out((0, 0, 3), pinned)).proposals or all(
        move.reason is Reason.EMPTY for move in propose(spread_out((0, 0, 3), pinned)).proposals
    )
