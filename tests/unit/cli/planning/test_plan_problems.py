"""The problems for measuring plans: their inputs match their descriptions, and the reference solvers are correct."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodesmith.decisions.shadow.karpenter import Kind, first_fit
from nodesmith_cli.audit import audit
from tests.benchmarks.packing import markets, workloads
from tests.benchmarks.packing.clusters import existing
from tests.benchmarks.packing.traces import traces
from tests.builders import anti_affinity, spread
from tests.problems.bruteforce import best_plan
from tests.problems.drawing import LARGE, Problem, draw
from tests.problems.lpbound import lp_bound
from tests.problems.planning import planned

ZONE = workloads.ZONE


@pytest.mark.parametrize(
    ("name", "pods", "shapes", "karpenter_hourly_usd"),
    [("cpu050", 375, 15, 353.58), ("cpu100", 789, 25, 766.02), ("default", 1088, 25, 1049.72)],
)
def test_first_fit_comes_to_karpenters_price_on_the_openb_traces(
    name: str, pods: int, shapes: int, karpenter_hourly_usd: float
) -> None:
    trace = next(t for t in traces() if t.name == name)
    asks = [(cpu, memory * 2**20, 1) for cpu, memory, count in trace.asks for _ in range(count)]

    bought = first_fit(asks, markets.kinds(markets.on_demand_cmr()))

    assert (trace.pods, len(trace.asks)) == (pods, shapes)
    assert sum(node.kind.price for node in bought) == pytest.approx(karpenter_hourly_usd, rel=0.005)


def test_first_fit_leaves_out_what_fits_nothing_and_prices_nodes_last() -> None:
    kinds = [Kind("small", (2, 2), 1.0), Kind("large", (4, 4), 3.0)]
    assert [node.kind.name for node in first_fit([(1, 1), (1, 1), (1, 1), (9, 9)], kinds)] == ["large"]


def test_the_lp_bound_mixes_types_and_never_exceeds_what_a_plan_costs() -> None:
    kinds = [Kind("small", (2, 2), 1.0), Kind("large", (4, 4), 1.9)]
    assert lp_bound([((1, 1), 8)], kinds) == pytest.approx(3.8, rel=1e-3)
    assert lp_bound([((3, 1), 2)], kinds) == pytest.approx(3.8, rel=1e-3)


def test_the_diverse_recipe_has_five_kinds_of_pods_a_fifth_each() -> None:
    specs = [pod["spec"] for pod in workloads.diverse(103)]
    over = [
        s["topologySpreadConstraints"][0]["topologyKey"] for s in specs if "topologySpreadConstraints" in s
    ]
    kept = [next(iter(s["affinity"])) for s in specs if "affinity" in s]
    assert {key: over.count(key) for key in over} == {ZONE: 20, workloads.HOSTNAME: 20}
    assert {kind: kept.count(kind) for kind in kept} == {"podAffinity": 20, "podAntiAffinity": 20}


def test_hundreds_of_diverse_pods_get_places_that_their_rules_allow_near_the_bound() -> None:
    manifests = [markets.anything_fake(), *workloads.diverse(400, seed=2)]
    made = planned(manifests, markets.fake_types())

    assert not made.unplaced
    assert audit(manifests, markets.fake_types(), made.plan) == []
    assert made.bound_hourly_usd <= made.price_hourly_usd <= 1.12 * made.bound_hourly_usd


def test_diverse_pods_get_small_burstable_nodes_rather_than_few_large_ones() -> None:
    """Where a small node has as much cpu as one of four times its price, the number of nodes is worth little."""
    made = planned([markets.anything_fake(), *workloads.diverse(400, seed=4)], markets.embedded())

    assert not made.unplaced
    assert made.price_hourly_usd <= 1.05 * 1.93907  # of a plan that is packed item by item


def test_recipes_give_what_they_promise() -> None:
    requests = [str(pod["spec"]["containers"][0]["resources"]["requests"]) for pod in workloads.distinct()]
    kinds = [m["kind"] for m in existing(30, 300, 20, 6)]
    bound = [m for m in existing(30, 300, 20, 6) if m["kind"] == "Pod" and "nodeName" in m["spec"]]
    batches = workloads.small_batches(50)
    assert len(set(requests)) == len(requests) == 5000
    assert (kinds.count("Node"), kinds.count("Pod"), len(bound)) == (30, 320, 300)
    assert all(1 <= len(b) <= 6 and 1 <= sum(n for _, _, n in b) <= 50 for b in batches)
    assert len(markets.fake_types().facts) == 400


def test_a_number_names_a_problem_for_good() -> None:
    assert draw(7, LARGE).manifests == draw(7, LARGE).manifests
    assert draw(7, LARGE).manifests != draw(8, LARGE).manifests


def _problem(*pods: workloads.Manifest) -> Problem:
    """Return a problem with types of 1 and 4 cpu, in three zones, at 0.1 and 0.3 USD an hour, and these pods."""
    kinds = [
        markets.fake_type(cpu, price, ("test-zone-1", "test-zone-2", "test-zone-3"))
        for cpu, price in ((1, 0.1), (4, 0.3))
    ]
    return replace(draw(0), types=tuple(kinds), manifests=(markets.anything_fake(), *pods))


def _web(count: int, cpu_milli: int, **spec: object) -> list[workloads.Manifest]:
    return [workloads.pod(f"web-{n}", cpu_milli, 64, {"app": "web"}, **spec) for n in range(count)]


@pytest.mark.parametrize(
    ("pods", "price_hourly_usd"),
    [
        (_web(1, 500), 0.1),
        (_web(2, 400), 0.1),
        (_web(3, 800), 0.3),
        (_web(2, 100, affinity=anti_affinity()), 0.2),
        (_web(4, 100, topologySpreadConstraints=spread(hard=True)), 0.3),
        (_web(2, 100, topologySpreadConstraints=spread(hard=True)), 0.2),
        (_web(4, 100, affinity=anti_affinity(key=ZONE)), None),
        (_web(1, 5000), None),
    ],
    ids=[
        "one",
        "two fit one",
        "three on a large",
        "apart",
        "over zones",
        "two zones",
        "a zone short",
        "too large",
    ],
)
def test_brute_force_finds_the_cheapest_plan(
    pods: list[workloads.Manifest], price_hourly_usd: float | None
) -> None:
    best = best_plan(_problem(*pods))
    assert (best and best.price_hourly_usd) == (price_hourly_usd and pytest.approx(price_hourly_usd))
