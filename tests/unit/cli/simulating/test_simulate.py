"""Simulated clusters: what happens to pods and nodes, what it costs, and what changes make of it."""

from __future__ import annotations

import csv
import io
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from math import fsum
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Inputs
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.karpenter.bufferannotations import WARM_CAPACITY
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.policies import PreferencePolicy
from nodesmith_cli.simulator.simulating.changes import RequestedChanges, changed
from nodesmith_cli.simulator.simulating.page import page
from nodesmith_cli.simulator.simulating.report import as_csv, report
from nodesmith_local.simulation.sides import simulate
from nodesmith_local.simulation.simulation import Simulation
from nodesmith_local.simulation.trace import Chances, Slot, Trace
from tests import builders
from tests.builders import expression
from tests.objects.capacitybuffers import TEMPLATE, capacitybuffer
from tests.objects.fleets import fleet, pool, worker
from tests.processes.plancommand import written
from tests.unit.decisions.provisioning.capacity.test_capacitybuffers import template

NOW, MINUTE, HOUR = builders.NOW, timedelta(minutes=1), timedelta(hours=1)
ON_DEMAND = [
    expression("karpenter.sh/capacity-type", "In", "on-demand"),
    expression("node.kubernetes.io/instance-type", "In", "m5.large"),
]
SPOT = [
    expression("karpenter.sh/capacity-type", "In", "spot"),
    expression("node.kubernetes.io/instance-type", "In", "m5.large"),
]
OWN_HOST = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
BOOT = 30.0


def web(cpu: str = "1500m", owner: str = "ReplicaSet/web", **fields: Any) -> Shape:
    return replace(builders.shape(cpu, "1Gi", app="web"), owner=owner, **fields)


def apart(**terms: Any) -> Shape:
    """Return pods with anti-affinity."""
    shape = builders.shape("250m", "1Gi", app="web", affinity={"podAntiAffinity": terms})
    return replace(shape, owner="ReplicaSet/web")


def slot(
    shape: Shape, number: int = 1, at: timedelta = HOUR, ends: timedelta | None = None, **more: Any
) -> Slot:
    ended = None if ends is None else (NOW + ends, NOW + ends)
    return Slot(f"default/p-{number}", "default/ReplicaSet/web", shape, NOW + at, ended, **more)


def trace(slots: Sequence[Slot], inputs: Inputs | None = None, hours: float = 6) -> Trace:
    given = inputs or fleet([], pools=[pool(after="1m", requirements=ON_DEMAND)])
    return Trace(given, tuple(slots), NOW, NOW + timedelta(hours=hours), (BOOT,))


def lived(of: Trace, seed: int = 0, **chances: Any) -> dict[str, Any]:
    return Simulation(of, seed, Chances(**{"interruptions_monthly": 0.0, **chances})).run()


def test_a_pod_waits_until_its_node_has_booted_and_costs_the_node() -> None:
    outcome = lived(trace([slot(web())]))
    assert outcome["pendingSeconds"] == pytest.approx(BOOT + 1)
    assert outcome["nodeHours"] == pytest.approx(5, abs=0.01)
    assert outcome["usd"] == pytest.approx(0.096 * 5, rel=0.01)
    assert outcome["nodepools"]["default"]["usd"] == outcome["usd"]


def test_a_preference_keeps_no_pod_from_a_node_with_free_capacity() -> None:
    preferred = {"weight": 100, "podAffinityTerm": OWN_HOST}
    shape = apart(preferredDuringSchedulingIgnoredDuringExecution=[preferred])
    outcome = lived(trace([slot(shape), slot(shape, 2, at=2 * HOUR)]))
    assert outcome["nodesLaunched"] == 1
    assert outcome["evictions"] == 0


def test_a_pod_that_must_run_elsewhere_gets_a_node_of_its_own() -> None:
    alone = apart(requiredDuringSchedulingIgnoredDuringExecution=[OWN_HOST])
    outcome = lived(trace([slot(alone), slot(alone, 2, at=2 * HOUR)]))
    assert outcome["nodesLaunched"] == 2
    assert outcome["evictions"] == 0


def test_a_pod_that_other_pods_keep_away_gets_a_node_of_its_own() -> None:
    keeper = builders.shape(
        "250m",
        "1Gi",
        app="keeper",
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [OWN_HOST]}},
    )
    keeping = slot(replace(keeper, owner="ReplicaSet/keeper"))
    outcome = lived(trace([keeping, slot(web("250m"), 2, at=2 * HOUR)]))
    assert outcome["nodesLaunched"] == 2
    assert outcome["evictions"] == 0


def test_a_node_without_pods_ends_and_costs_nothing_any_more() -> None:
    outcome = lived(trace([slot(web(), ends=2 * HOUR)]))
    assert 1.0 < outcome["nodeHours"] < 1.3
    assert outcome["evictions"] == 0


def test_a_pod_that_fits_on_a_node_waits_a_second() -> None:
    outcome = lived(trace([slot(web("200m")), slot(web("200m"), 2, 2 * HOUR)]))
    assert outcome["nodesLaunched"] == 1
    assert outcome["pendingSeconds"] == pytest.approx(BOOT + 2)


def test_pods_of_jobs_run_as_long_as_they_did_and_start_over_after_an_eviction() -> None:
    job = slot(web(owner="Job/etl"), runs=90 * MINUTE)
    calm = lived(trace([job]))
    spot = fleet([], pools=[pool(after="1m", requirements=SPOT)])
    shaken = lived(trace([job], spot), interruptions_monthly=3000.0)
    assert 1.5 < calm["nodeHours"] < 1.8
    assert shaken["interruptions"] > 0
    assert shaken["evictions"] > 0
    assert shaken["nodeHours"] > calm["nodeHours"]


def test_interrupted_nodes_are_replaced_before_their_pods_are_evicted() -> None:
    spot = fleet([], pools=[pool(after="1m", requirements=SPOT)])
    outcome = lived(trace([slot(web())], spot), interruptions_monthly=200.0)
    assert outcome["interruptions"] >= 1
    assert outcome["evictionsByCause"] == {"SpotInterrupted": outcome["evictions"]}
    assert outcome["pendingSeconds"] < 2 * BOOT * (outcome["interruptions"] + 1)
    assert outcome["podsWithoutNode"] == 0


def test_pods_move_to_fewer_nodes_once_others_have_gone() -> None:
    slots = [slot(web("900m"), n, ends=2 * HOUR if n % 2 else None) for n in range(8)]
    outcome = lived(trace(slots), search_every=MINUTE)
    assert outcome["evictionsByCause"].keys() == {"Underutilized"}
    stay = lived(
        trace(slots, fleet([], pools=[pool(after="1m", policy="WhenEmpty", requirements=ON_DEMAND)]))
    )
    assert stay["evictions"] == 0
    assert outcome["usd"] < stay["usd"]


def test_a_budget_that_allows_nothing_keeps_pods_where_they_are() -> None:
    selector = parse_selector({"matchLabels": {"app": "web"}})
    budget = PodDisruptionBudget("default/web", selector, 0, 0, 0, 0, False, "", "0")
    inputs = fleet([], pools=[pool(after="1m", requirements=ON_DEMAND)])
    guarded = replace(inputs, snapshot=replace(inputs.snapshot, budgets=(budget,)))
    slots = [slot(web("900m"), n, ends=2 * HOUR if n % 2 else None) for n in range(8)]
    assert lived(trace(slots, guarded), search_every=MINUTE)["evictions"] == 0


def test_nodes_that_are_there_at_the_beginning_serve_and_are_paid_for() -> None:
    inputs = fleet([worker("a", "m5.xlarge")], pools=[pool(policy="WhenEmpty", after="Never")])
    outcome = lived(trace([slot(web(), at=timedelta(0), node="a")], inputs, hours=3))
    assert outcome["usd"] == pytest.approx(0.192 * 3)
    assert outcome["pendingSeconds"] == 0
    assert outcome["nodesLaunched"] == 0


def test_pods_that_no_nodepool_accepts_wait_and_are_reported() -> None:
    outcome = lived(trace([slot(web("900"))]))
    assert outcome["podsWithoutNode"] == 1
    assert outcome["pendingSeconds"] == pytest.approx(5 * 3600)
    assert len(outcome["reasons"]) == 1


def test_the_parts_of_the_cost_add_up_and_seeds_repeat() -> None:
    slots = [slot(web("300m"), n, MINUTE * 7 * n, MINUTE * (30 + 9 * n)) for n in range(9)]
    one, again, other = (lived(trace(slots, hours=2), seed) for seed in (1, 1, 2))
    assert one == again
    assert one.keys() == other.keys()
    assert fsum(each["usd"] for each in one["nodepools"].values()) == pytest.approx(one["usd"])
    assert fsum(each["usd"] for each in one["workloads"].values()) < one["usd"]
    assert one["pods"] == 9


def test_simulations_in_other_processes_give_the_same() -> None:
    both = {"baseline": trace([slot(web())], hours=2), "change": trace([slot(web("100m"))], hours=2)}
    apart, alone = (simulate(both, (0,), Chances(), jobs) for jobs in (2, 1))
    assert apart == alone
    assert apart["baseline"] != apart["change"]


def test_no_process_outlives_short_simulations() -> None:
    """One that starts only after another has done all of them would find what they share gone, with a traceback."""
    simulate({side: trace([slot(web())], hours=1) for side in ("baseline", "change")}, (0,), Chances(), 2)
    assert multiprocessing.active_children() == []


def test_an_interrupt_ends_simulations_in_other_processes() -> None:
    weeks = {"baseline": trace([slot(web())], hours=7 * 24)}

    def interrupt(share: float) -> None:
        if share:
            raise KeyboardInterrupt

    began = time.process_time()
    simulate(weeks, (0,), Chances(), 1)
    one = time.process_time() - began
    before = getrusage(RUSAGE_CHILDREN).ru_utime
    with pytest.raises(KeyboardInterrupt):
        simulate(weeks, range(100), Chances(), 2, interrupt)
    assert getrusage(RUSAGE_CHILDREN).ru_utime - before < 20 * one, "two processes of 100 simulations started"


# Changes


def applied(**asked: Any) -> Inputs:
    return changed(trace([]).inputs, RequestedChanges(**asked)).inputs


def test_a_changed_nodepool_buys_what_it_allows_then(tmp_path: Path) -> None:
    file = written(tmp_path, "pool.yaml", pool(after="1m", requirements=SPOT))
    inputs = applied(files=(file,))
    outcome = lived(trace([slot(web())], inputs))
    assert outcome["spotHours"] == outcome["nodeHours"] > 0


def test_nodes_of_a_changed_nodepool_drift_and_are_replaced(tmp_path: Path) -> None:
    begun = lived(trace([slot(web(), at=timedelta(0))], hours=1))
    assert begun["evictions"] == 0
    old = worker("a", "m5.large", claim={"nodepool_hash": "1", "nodepool_hash_version": "v3"})
    inputs = fleet([old], pools=[pool(after="1m", requirements=ON_DEMAND)])
    file = written(tmp_path, "pool.yaml", pool(after="1m", requirements=SPOT, labels={"team": "a"}))
    found = changed(inputs, RequestedChanges(files=(file,))).inputs
    outcome = lived(trace([slot(web(), at=timedelta(0), node="a")], found))
    assert outcome["evictionsByCause"] == {"Drifted": 1}
    assert outcome["spotHours"] > 4


def test_nodes_of_a_deleted_nodepool_end_and_others_take_their_pods() -> None:
    inputs = fleet(
        [worker("a", "m5.large")], pools=[pool(requirements=ON_DEMAND), pool("other", requirements=SPOT)]
    )
    found = changed(inputs, RequestedChanges(deleted=("nodepool/default",))).inputs
    outcome = lived(trace([slot(web(), at=timedelta(0), node="a")], found))
    assert outcome["evictions"] == 1
    assert outcome["nodepools"]["other"]["nodeHours"] > 5


def test_prices_are_multiplied_by_capacity_type_or_instance_type() -> None:
    plain = lived(trace([slot(web())]))["usd"]
    for factor in ("on-demand=2", "m5.*=2"):
        assert lived(trace([slot(web())], applied(factors=(factor,))))["usd"] == pytest.approx(2 * plain)


def test_a_policy_is_a_setting_of_the_registration() -> None:
    assert (
        applied(policies=("PREFERENCE_POLICY=Ignore",)).settings.preference_policy is PreferencePolicy.IGNORE
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"deleted": ("nodepol/default",)}, "did you mean 'nodepool'"),
        ({"deleted": ("nodepool/defualt",)}, "did you mean 'default'"),
        ({"deleted": ("nodepool",)}, "name the object as well, such as nodepool/NAME"),
        ({"factors": ("sopt=1.2",)}, "did you mean 'spot'"),
        ({"factors": ("spot=-1",)}, "expected a name and a positive factor"),
        ({"policies": ("PREFERENCE_POLCY=Ignore",)}, "did you mean 'PREFERENCE_POLICY'"),
        ({"policies": ("PREFERENCE_POLICY=Ignored",)}, "must be Respect or Ignore"),
        ({"prices": "nowhere.json"}, "No such file"),
        ({"files": ("nowhere.yaml",)}, "cannot be applied"),
    ],
)
def test_a_change_that_cannot_be_applied_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(Rejected, match=message):
        applied(**asked)


def test_a_manifest_that_does_not_validate_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    wrong = pool(after="1m")
    wrong["spec"]["disruption"]["consolidationPolicy"] = "WhenEmptyOrUnderutilised"
    with pytest.raises(Rejected, match="WhenEmptyOrUnderutilized"):
        applied(files=(written(tmp_path, "pool.yaml", wrong),))


def test_other_kinds_among_changes_are_reported(tmp_path: Path) -> None:
    namespaced = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    file = written(tmp_path, "pool.yaml", pool(), namespaced)
    assert "ConfigMap is ignored" in changed(trace([]).inputs, RequestedChanges(files=(file,))).notes[0]


def test_a_changed_buffer_without_an_effect_is_reported_with_the_reason(tmp_path: Path) -> None:
    unknown = capacitybuffer(**TEMPLATE, replicas=1)
    warm = capacitybuffer("warm", **TEMPLATE, replicas=1, provisioningStrategy=WARM_CAPACITY)
    notes = changed(
        trace([]).inputs, RequestedChanges(files=(written(tmp_path, "b.yaml", unknown, warm),))
    ).notes
    assert [note.partition(";")[0] for note in notes] == [
        "CapacityBuffer default/room has no effect: there is no PodTemplate 'room' in namespace default",
        "CapacityBuffer default/warm has no effect: stopped instances are not simulated",
    ]
    there = {each.key: each for each in [template()]}
    seen = replace(trace([]).inputs, snapshot=builders.snapshot(podtemplates=there))
    file = written(tmp_path, "known.yaml", unknown)
    assert changed(seen, RequestedChanges(files=(file,))).notes == ()


# The report


def compared(names: Sequence[str] = ("default/ReplicaSet/web",)) -> dict[str, Any]:
    def run(seed: int, usd: float) -> dict[str, Any]:
        about = {"usd": usd, "pendingSeconds": 60.0 * seed, "evictions": seed, "pods": 1}
        outcome = lived(trace([], hours=1)) | about | {"seed": seed}
        return outcome | {"workloads": dict.fromkeys(names, about)}

    runs = {"baseline": [run(0, 10.0), run(1, 12.0)], "change": [run(0, 7.0), run(1, 10.0)]}
    return report(
        trace([]), runs, cluster="shop", source="x", changes=["NodePool/default"], notes=[], recorded=None
    )


def test_differences_are_taken_seed_by_seed() -> None:
    cost = compared()["figures"][0]
    assert cost == {
        "name": "cost",
        "unit": "USD",
        "baseline": 11.0,
        "change": 8.5,
        "difference": -2.5,
        "low": -3.0,
        "high": -2.0,
    }


def test_a_page_names_measures_in_words_and_shows_an_interval_of_several_seeds_only() -> None:
    several = compared(["default"])
    one = {**several, "seeds": 1}
    assert "default: pods pending, s" in page(several)
    assert "pendingSeconds" not in page(several)
    assert "-3.00 to -2.00" in page(several)
    assert "-3.00 to -2.00" not in page(one)
    assert "One seed gives no interval" in page(one)


def test_names_with_markup_or_formulas_are_shown_as_text() -> None:
    found = compared(["<script>alert(1)</script>", "=1+1"])
    shown = page(found)
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    names = {row[1] for row in csv.reader(io.StringIO(as_csv(found)))}
    assert "'=1+1" in names
