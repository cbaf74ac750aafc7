"""Plans with the objective LeastNodes, and with surcharges: number, price and bounds, for any cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.snapshot import Snapshot
from tests.property.observation.clusters import clusters, made_from
from tests.samples import sampled


def planned(seen: Snapshot, **annotations: str) -> Plan:
    keyed = {f"nodesmith.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return decide(
        made_from(replace(seen, nodepools=tuple(_annotated(each, keyed) for each in seen.nodepools)))
    )


def _annotated(manifest: Any, annotations: dict[str, str]) -> dict[str, Any]:
    about = {**manifest["metadata"], "annotations": annotations}
    return {**manifest, "metadata": about}


@settings(max_examples=sampled(4, whole=40))
@given(seen=clusters())
def test_no_fewer_nodes_are_bought_than_the_bound_and_none_is_worth_less_than_its_bound(
    seen: Snapshot,
) -> None:
    plain, few = planned(seen), planned(seen, objective="LeastNodes")
    left = [sum(len(group.pods) for group in plan.unplaced) for plan in (plain, few)]

    assert few.fewest <= len(few.nodes)
    assert few.bound_hourly_usd <= few.price_hourly_usd + 1e-9
    assert left[1] <= left[0]
    if left[0] == left[1] and not plain.placed and not few.placed:
        assert few.fewest <= len(plain.nodes), "the bound holds for every plan for these pods"


@settings(max_examples=sampled(4, whole=40))
@given(seen=clusters(), surcharge=st.sampled_from(["0.01", "0.5", "20"]))
def test_price_and_surcharges_are_above_their_bound_and_each_node_costs_one(
    seen: Snapshot, surcharge: str
) -> None:
    plan = planned(seen, node_surcharge_hourly=surcharge)

    assert plan.cost_bound_hourly_usd <= plan.price_hourly_usd + plan.surcharge_hourly_usd + 1e-9
    assert plan.bound_hourly_usd <= plan.price_hourly_usd + 1e-9
    assert [node.surcharge_hourly_usd for node in plan.nodes] == [float(surcharge)] * len(plan.nodes)
