"""Zones are rebalanced if a NodePool enables it, and then no other move unbalances them again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.proposals import Proposal, Proposals
from nodesmith.decisions.disruption.search.search import look_again, propose
from nodesmith.decisions.provisioning import Inputs
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from nodesmith.model.karpenter.disruption import REBALANCE_ZONES
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.ledger.moves import Move, MoveKind, Reason, Stage
from nodesmith.model.policies import PreferencePolicy
from tests.benchmarks.disruption.fleets import launched
from tests.builders import NOW, ZONES, expression, shape
from tests.objects.fleets import Worker, begun, fleet, pool, running, worker
from tests.samples import sampled
from tests.smallworld.moved import after

A, B, C = ZONES
WIDELY = {"topologyKey": ZONE, "maxSkew": 1, "labelSelector": {"matchLabels": {"app": "web"}}}
HELD = {"karpenter.sh/do-not-disrupt": "true"}


def spread(when: str = "ScheduleAnyway", cpu: str = "1", **constraint: Any) -> Shape:
    constraint = {**WIDELY, "whenUnsatisfiable": when, **constraint}
    return shape(cpu, "2Gi", topologySpreadConstraints=[constraint])


def asked(value: str = "On", **disruption: Any) -> dict[str, Any]:
    """Return a NodePool of one instance type, so that moving pods saves nothing."""
    only = [expression(INSTANCE_TYPE, "In", "m5.xlarge"), expression(CAPACITY_TYPE, "In", "on-demand")]
    manifest = pool(requirements=only, **disruption)
    manifest["metadata"]["annotations"] = {REBALANCE_ZONES: value}
    return manifest


def uneven(of: Shape | None = None, nodepool: Mapping[str, Any] | None = None, **node: Any) -> Inputs:
    """Return six pods on two nodes of one zone, and nodes with some free capacity that stay in the two other zones."""
    workers = [worker("a1", **node), worker("a2", **node)]
    workers += [worker("b", zone=B, annotations=HELD), worker("c", zone=C, annotations=HELD)]
    pods = running(of or spread(), {"a1": 3, "a2": 3})
    return fleet(workers, pods, pools=[nodepool or asked()])


def unbalanced(found: Proposals) -> list[Proposal]:
    return [p for p in found.proposals if p.reason is Reason.UNBALANCED]


def by_zone(inputs: Inputs, app: str = "web") -> list[int]:
    """Return the number of an app's pods in each zone, in descending order."""
    zones = {node.name: node.labels[ZONE] for node in inputs.snapshot.nodes}
    counted = Counter(zones[p.node] for p in inputs.snapshot.pods if p.shape.labels.get("app") == app)
    return sorted((counted[zone] for zone in ZONES), reverse=True)


def until_done(inputs: Inputs, most: int = 12) -> tuple[Inputs, list[Proposal]]:
    """Carry out all proposals, in passes two hours apart, until a pass finds none."""
    done: list[Proposal] = []
    for number in range(most):
        found = propose(inputs).proposals
        if not found:
            return inputs, done
        done += found
        now = inputs.now + timedelta(hours=2)
        inputs = after(replace(inputs, now=now), found, launched, now, f"pass-{number}")
    raise AssertionError(f"something is still found after {most} passes")


@pytest.mark.parametrize("when", ["ScheduleAnyway", "DoNotSchedule"])
def test_pods_that_crowd_in_one_zone_are_spread_if_the_nodepool_enables_it(when: str) -> None:
    inputs, done = until_done(uneven(spread(when)))
    assert by_zone(inputs) == [2, 2, 2]
    assert {move.reason for move in done} == {Reason.UNBALANCED}
    assert "spreads them over zones" in done[0].message


def test_no_pods_are_rebalanced_unless_the_nodepool_enables_it() -> None:
    silent = asked()
    del silent["metadata"]["annotations"]
    for nodepool in (asked("Off"), silent):
        assert not unbalanced(propose(uneven(nodepool=nodepool)))


def test_one_node_of_each_workload_is_rebalanced_at_a_time() -> None:
    assert [p.sources for p in unbalanced(propose(uneven()))] == [("claim-a1",)]
    inputs = uneven()
    api = shape(
        "1",
        "2Gi",
        app="api",
        topologySpreadConstraints=[
            {
                **WIDELY,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "api"}},
            }
        ],
    )
    pods = (*inputs.snapshot.pods[:3], *running(api, {"a2": 3}))
    both = replace(inputs, snapshot=replace(inputs.snapshot, pods=pods))
    assert len(unbalanced(propose(both))) == 2


def test_pods_without_a_spread_stay_together() -> None:
    assert not unbalanced(propose(uneven(shape("1", "2Gi"))))


def test_pods_within_max_skew_are_not_rebalanced() -> None:
    assert not unbalanced(propose(uneven(spread(maxSkew=6))))
    assert unbalanced(propose(uneven(spread(maxSkew=5))))


def test_a_new_node_is_bought_in_an_empty_zone_without_capacity() -> None:
    alone = fleet([worker("a1")], running(spread(cpu="900m"), {"a1": 3}), pools=[asked()])
    (one,) = unbalanced(propose(alone))
    zones = {o.zone for node in one.replacements for o in node.request.overrides}
    assert len(zones) > 1
    assert one.saving_hourly_usd < 0, "balance has no price limit"


def test_rebalancing_counts_for_the_budget_of_underutilized_nodes() -> None:
    closed = asked(budgets=[{"nodes": "0", "reasons": ["Underutilized"]}, {"nodes": "100%"}])
    found = propose(uneven(nodepool=closed))
    assert not unbalanced(found)
    assert found.blocked["claim-a1"].rule == "Budget"


@pytest.mark.parametrize("minutes", [59, 60])
def test_a_node_is_rebalanced_only_after_its_pods_have_been_quiet_for_an_hour(minutes: int) -> None:
    found = propose(uneven(last_pod_event_at=NOW - timedelta(minutes=minutes)))
    assert bool(unbalanced(found)) is (minutes == 60)


def test_validation_returns_the_same_move_or_rejects_it_if_the_pods_are_balanced_by_now() -> None:
    inputs = uneven()
    first = unbalanced(propose(inputs))[0]
    move, inputs = begun(inputs, first)
    again = look_again([move], inputs)["m1"]
    assert isinstance(again, Proposal)
    assert again.destinations == first.destinations
    seen = inputs.snapshot
    left = tuple(pod for pod in seen.pods if pod.node not in {"a1", "a2"} or pod.key.endswith("-0000"))
    evened = replace(inputs, snapshot=replace(seen, pods=left[:1]))
    assert "not be spread over zones more evenly" in str(look_again([move], evened)["m1"])


def test_pods_of_a_group_are_not_rebalanced_while_others_of_it_are_in_transit() -> None:
    inputs = uneven()
    moving = Move("m0", Reason.DRIFTED, ("claim-a2",), Stage.REPLACING, NOW, NOW)
    assert not unbalanced(propose(replace(inputs, ledger=replace(inputs.ledger, moves=(moving,)))))


def test_unavailable_replacements_are_not_requested_again_at_once() -> None:
    inputs = uneven()
    waits = {MoveKind("default", "Unbalanced"): Backoff(NOW + timedelta(minutes=3), 1, "no capacity")}
    assert not unbalanced(propose(replace(inputs, ledger=replace(inputs.ledger, move_backoffs=waits))))


def halves(value: str) -> Inputs:
    """Return one pod in each zone, each alone on a large node: one node would hold all three."""
    workers = [worker(f"n{n}", zone=zone) for n, zone in enumerate(ZONES)]
    inputs = fleet(workers, running(spread(), {"n0": 1, "n1": 1, "n2": 1}), pools=[asked(value)])
    return replace(inputs, settings=replace(inputs.settings, preference_policy=PreferencePolicy.IGNORE))


def test_consolidation_crowds_no_zone_if_zone_rebalancing_is_enabled() -> None:
    """Preferences place no pod here: only zone rebalancing keeps these pods apart."""
    assert by_zone(until_done(halves("Off"))[0]) == [3, 0, 0]
    assert by_zone(until_done(halves("On"))[0]) == [1, 1, 1]


def crowd(seed: int) -> Inputs:
    """Return random nodes in three zones, with pods of two apps on them, some with a spread and some without."""
    dice = random.Random(seed)  # noqa: S311
    shapes = [spread(), spread("DoNotSchedule", "500m"), shape("700m", "1Gi", app="db")]
    workers: list[Worker] = []
    pods: list[Pod] = []
    for number in range(dice.randint(2, 6)):
        name, zone = f"n{number}", dice.choice((A, A, B, C))
        workers.append(worker(name, zone=zone))
        for one in shapes:
            pods += [
                replace(p, key=f"{p.key}-{shapes.index(one)}")
                for p in running(one, {name: dice.randint(0, 1)})
            ]
    return fleet(workers, pods, pools=[asked()])


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(sampled(3, whole=12)))
def test_rebalancing_and_consolidation_together_reach_a_stable_state(seed: int) -> None:
    inputs, _ = until_done(crowd(seed))
    assert not propose(inputs).proposals


@pytest.mark.parametrize(
    ("value", "disruption", "reported"),
    [
        ("on", {}, "must be Off or On, did you mean 'On'?; treated as Off"),
        ("yes", {}, "must be Off or On; treated as Off"),
        (
            "On",
            {"policy": "WhenEmpty"},
            "has no effect with spec.disruption.consolidationPolicy 'WhenEmpty'",
        ),
        ("On", {"after": "Never"}, "has no effect with spec.disruption.consolidateAfter 'Never'"),
    ],
)
def test_a_useless_or_invalid_rebalancing_setting_is_reported(
    value: str, disruption: Mapping[str, Any], reported: str
) -> None:
    found = parse_nodepool(asked(value, **disruption))
    (problem,) = found.problems
    assert f"metadata.annotations[{REBALANCE_ZONES}]" in str(problem)
    assert reported in str(problem)
    assert not problem.fatal
