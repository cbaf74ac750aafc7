"""What a NodePool may buy, and which of its offers are not dominated."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from nodesmith.decisions.scheduling.offerings.options import (
    Pricing,
    PurchaseOption,
    TypeOption,
    TypeOptions,
    cheapest_shares,
    rooms,
    undominated_offers,
)
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from tests.builders import catalog

SPOT = PurchaseOption("us-east-1a", "", "spot", "", dedicated=False)
ON_DEMAND = PurchaseOption("us-east-1b", "", "on-demand", "", dedicated=False)
DIMENSIONS = ("cpu", "memory")


@pytest.fixture(scope="module")
def any_type() -> InstanceType:
    return instance_types(catalog(), NodeConfiguration())[0]


def offer(
    kind: InstanceType,
    name: str,
    room: tuple[int, int],
    price: float,
    purchase_option: PurchaseOption = SPOT,
    *,
    exotic: bool = False,
) -> tuple[TypeOption, Offering]:
    cpu, memory = room
    amounts = Resources({"cpu": cpu, "memory": memory, "pods": 10})
    sold = Offering(purchase_option.zone, purchase_option.capacity_type, price)
    named = replace(kind, name=name, capacity=amounts)
    return TypeOption(named, amounts, Resources({}), (sold,), exotic), sold


def names(
    type_options: TypeOptions, *purchase_options: PurchaseOption, limits: tuple[str, ...] = ()
) -> list[str]:
    found = undominated_offers(
        type_options,
        type_options.names,
        frozenset(purchase_options or type_options.purchase_options),
        DIMENSIONS,
        limits,
    )
    return [each.type_option.type.name for each in found]


def test_an_offer_with_less_capacity_at_a_higher_price_is_dominated(any_type: InstanceType) -> None:
    type_options = TypeOptions(
        [offer(any_type, "good", (2000, 8), 0.1), offer(any_type, "bad", (2000, 4), 0.2)]
    )

    assert names(type_options) == ["good"]


def test_a_more_expensive_offer_with_more_of_some_resource_is_kept(any_type: InstanceType) -> None:
    type_options = TypeOptions(
        [offer(any_type, "small", (2000, 4), 0.1), offer(any_type, "large", (2000, 8), 0.2)]
    )

    assert names(type_options) == ["small", "large"]


def test_only_the_given_purchase_options_count(any_type: InstanceType) -> None:
    type_options = TypeOptions(
        [offer(any_type, "spot", (2000, 8), 0.1), offer(any_type, "sure", (2000, 8), 0.3, ON_DEMAND)]
    )

    assert names(type_options, ON_DEMAND) == ["sure"]
    assert names(type_options, SPOT, ON_DEMAND) == ["spot"]


def test_an_offer_that_takes_less_of_a_limit_is_kept_beside_a_cheaper_one(any_type: InstanceType) -> None:
    type_options = TypeOptions(
        [offer(any_type, "cheap", (4000, 8), 0.1), offer(any_type, "small", (2000, 8), 0.2)]
    )

    assert names(type_options) == ["cheap"]
    assert names(type_options, limits=("cpu",)) == ["cheap", "small"]


def test_exotic_types_do_not_dominate_plain_ones(any_type: InstanceType) -> None:
    type_options = TypeOptions(
        [offer(any_type, "metal", (9000, 9), 0.1, exotic=True), offer(any_type, "plain", (2000, 8), 0.2)]
    )

    assert names(type_options) == ["plain", "metal"]


def test_running_maxima_show_where_the_search_may_start(any_type: InstanceType) -> None:
    type_options = TypeOptions(
        [
            offer(any_type, "a", (1000, 8), 0.1),
            offer(any_type, "b", (4000, 4), 0.2),
            offer(any_type, "c", (2000, 16), 0.3),
        ]
    )

    found, largest = rooms(type_options, DIMENSIONS)

    assert found == [(1000, 8), (4000, 4), (2000, 16)]
    assert largest == [[1000, 4000, 4000], [8, 8, 16]]
    assert rooms(TypeOptions(()), DIMENSIONS) == ([], [])


def test_of_types_with_one_price_per_unit_only_the_largest_is_kept_for_shares(
    any_type: InstanceType,
) -> None:
    sizes = [offer(any_type, f"size-{n}", (n * 1000, n * 4), n * 0.1) for n in range(1, 9)]
    lean = offer(any_type, "lean", (8000, 8), 0.5)

    found = cheapest_shares(
        TypeOptions([*sizes, lean]), frozenset(["lean", *(c.type.name for c, _ in sizes)]), frozenset([SPOT])
    )

    assert [each.type_option.type.name for each in found] == ["lean", "size-8"]


def test_results_are_kept_no_longer_than_the_options_they_come_from(any_type: InstanceType) -> None:
    def kept() -> int:
        gc.collect()
        return [*map(type, gc.get_objects())].count(TypeOptions)

    before = kept()
    for price in range(1, 20):
        options = TypeOptions([offer(any_type, "large", (8000, 8), float(price))])
        assert [names(options), names(options.priced(Pricing.PAID))] == [["large"], ["large"]]
        assert cheapest_shares(options, options.names, frozenset([SPOT]))
        assert rooms(options, DIMENSIONS)[0] == [(8000, 8)]
    assert kept() <= before + 2
