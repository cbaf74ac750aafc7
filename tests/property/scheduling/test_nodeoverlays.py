"""NodeOverlays that change nothing, or all prices alike, change no plan, for any cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_FAMILY, ZONE
from nodesmith.model.snapshot import Snapshot
from tests.builders import ZONES, expression
from tests.objects.nodeoverlays import overlay
from tests.property.observation.clusters import FAMILIES, clusters, made_from
from tests.samples import sampled


def planned(seen: Snapshot, *overlays: dict[str, Any]) -> Plan:
    return decide(made_from(replace(seen, nodeoverlays=overlays)))


def bought(plan: Plan) -> list[tuple[Any, ...]]:
    """Return what is bought for whom, without prices."""
    return [
        (
            node.claim.nodepool,
            node.claim.capacity_type,
            node.claim.nominated,
            [(o.instance_type, o.zone) for o in node.request.overrides],
        )
        for node in plan.nodes
    ]


_REQUIREMENTS = st.lists(
    st.sampled_from(
        [
            expression(INSTANCE_FAMILY, "In", *FAMILIES[:2]),
            expression(INSTANCE_FAMILY, "NotIn", FAMILIES[0]),
            expression(ZONE, "In", ZONES[0]),
            expression(CAPACITY_TYPE, "In", "spot"),
            expression("example.com/team", "Exists"),
        ]
    ),
    max_size=2,
)
_SPECS = st.fixed_dictionaries(
    {"requirements": _REQUIREMENTS},
    optional={
        "priceAdjustment": st.sampled_from(["+10%", "-50%", "+0.05", "-100%", "odd"]),
        "capacity": st.sampled_from([{"example.com/device": "2"}, {"cpu": "1"}]),
        "weight": st.integers(1, 3),
    },
)


@settings(max_examples=sampled(4, whole=40))
@given(seen=clusters(), factor=st.sampled_from([25, 50, 100, 300]))
def test_a_plan_stays_the_same_if_all_prices_are_multiplied(seen: Snapshot, factor: int) -> None:
    plain, dearer = planned(seen), planned(seen, overlay(priceAdjustment=f"+{factor}%"))
    times = 1 + factor / 100

    assert bought(dearer) == bought(plain)
    assert [node.claim.price_hourly_usd for node in dearer.nodes] == [
        node.claim.price_hourly_usd for node in plain.nodes
    ], "AWS charges the same"
    assert dearer.price_hourly_usd == pytest.approx(plain.price_hourly_usd * times)
    assert dearer.bound_hourly_usd == pytest.approx(plain.bound_hourly_usd * times)


@settings(max_examples=sampled(4, whole=40))
@given(seen=clusters(), specs=st.lists(_SPECS, max_size=4))
def test_a_plan_with_any_overlays_is_above_its_bound_and_charges_list_prices(
    seen: Snapshot, specs: list[dict[str, Any]]
) -> None:
    plan = planned(seen, *(overlay(f"o{number}", **spec) for number, spec in enumerate(specs)))

    assert plan.bound_hourly_usd <= plan.price_hourly_usd + 1e-9
    for node in plan.nodes:
        assert node.claim.price_hourly_usd == node.request.cheapest.paid_hourly_usd > 0
        assert node.price_hourly_usd == min(o.price_hourly_usd for o in node.request.overrides)


@settings(max_examples=sampled(3, whole=20))
@given(seen=clusters())
def test_overlays_without_a_matching_type_change_no_plan(seen: Snapshot) -> None:
    nothing = [expression(INSTANCE_FAMILY, "In", "none-such")]
    idle = overlay("a", nothing, price="1"), overlay("b", nothing, capacity={"example.com/device": "1"})

    assert planned(seen, *idle) == planned(seen)
