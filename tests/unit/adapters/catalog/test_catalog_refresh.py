from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from nodesmith.adapters.catalog.catalogs import decode, encode
from nodesmith.controllers.region.catalog import CatalogUpdate, merge, refresh_catalog
from nodesmith.errors import Rejected, Transient
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts, ListPrices, Offering, sold_as
from tests.fakes.catalogs import FakeCatalogs

T = TypeVar("T")
THEN, NOW = datetime(2026, 8, 1, tzinfo=UTC), datetime(2026, 8, 2, tzinfo=UTC)
M5 = InstanceFacts("m5.large", "amd64", 2, 8192, ("on-demand", "spot"), 3, 10)
C7G = InstanceFacts("c7g.large", "arm64", 2, 4096, ("on-demand", "spot"), 3, 10)
NO_PRICES = ListPrices({})


def known(*offerings: Offering) -> Catalog:
    return Catalog.of("us-east-1", THEN, {M5.name: M5}, {M5.name: offerings})


ON_DEMAND_A = Offering("us-east-1a", "on-demand", 0.096, zone_id="use1-az6")
SPOT_A = Offering("us-east-1a", "spot", 0.04, zone_id="use1-az6")
GUESS_A = replace(SPOT_A, price_hourly_usd=0.0336, estimated=True)
BEFORE = known(ON_DEMAND_A, SPOT_A)


def offered_after(
    catalog_update: CatalogUpdate, before: Catalog = BEFORE, prices: ListPrices = NO_PRICES
) -> set[Offering]:
    return set(merge(before, catalog_update, prices, NOW).offerings.get(M5.name, ()))


def test_no_news_leave_everything_as_it_was() -> None:
    assert merge(BEFORE, CatalogUpdate(), NO_PRICES, NOW) == BEFORE


def test_todays_prices_replace_known_ones_and_are_no_estimates() -> None:
    catalog_update = CatalogUpdate(on_demand={"m5.large": 0.1}, spot={("m5.large", "us-east-1a"): 0.05})
    assert offered_after(catalog_update, known(replace(ON_DEMAND_A, estimated=True), GUESS_A)) == {
        replace(ON_DEMAND_A, price_hourly_usd=0.1),
        replace(SPOT_A, price_hourly_usd=0.05),
    }


def test_a_price_that_is_missing_today_stays() -> None:
    catalog_update = CatalogUpdate(on_demand={"t3.large": 0.1}, spot={("t3.large", "us-east-1a"): 0.05})
    assert offered_after(catalog_update) == {ON_DEMAND_A, SPOT_A}


def test_a_spot_estimate_ends_with_the_first_spot_prices() -> None:
    catalog_update = CatalogUpdate(spot={("t3.large", "us-east-1a"): 0.05})
    assert offered_after(catalog_update, known(ON_DEMAND_A, GUESS_A)) == {ON_DEMAND_A}


def test_spot_prices_that_could_not_be_learned_do_not_bring_back_an_estimate() -> None:
    assert offered_after(CatalogUpdate(on_demand={"m5.large": 0.1}), known(ON_DEMAND_A)) == {
        replace(ON_DEMAND_A, price_hourly_usd=0.1)
    }
    zones = CatalogUpdate(offered={"m5.large": frozenset({"us-east-1a", "us-east-1b"})})
    assert {(o.zone, o.capacity_type) for o in offered_after(zones)} == {
        ("us-east-1a", "on-demand"),
        ("us-east-1a", "spot"),
        ("us-east-1b", "on-demand"),
    }


def test_the_regions_price_stands_in_for_that_of_a_local_zone_as_an_estimate() -> None:
    sold = frozenset({"us-east-1a", "us-east-1-bos-1a", "us-east-1-wl1-bos-wlz-1"})
    offered = offered_after(CatalogUpdate(on_demand={"m5.large": 0.1}, offered={"m5.large": sold}))
    on_demand = {o.zone: (o.price_hourly_usd, o.estimated) for o in offered if o.capacity_type == "on-demand"}
    assert on_demand == {
        "us-east-1a": (0.1, False),
        "us-east-1-bos-1a": (0.1, True),
        "us-east-1-wl1-bos-wlz-1": (0.1, True),
    }
    assert {o.zone for o in offered if o.capacity_type == "spot"} == {"us-east-1a"}


def test_a_known_price_of_the_region_is_preferred_to_its_stand_in_for_a_local_zone() -> None:
    local = Offering("us-east-1-bos-1a", "on-demand", 0.096, estimated=True)
    assert ON_DEMAND_A in offered_after(CatalogUpdate(), known(local, ON_DEMAND_A, SPOT_A))


def test_a_spot_estimate_follows_the_on_demand_price_while_there_is_nothing_better() -> None:
    catalog_update = CatalogUpdate(on_demand={"m5.large": 0.2})
    offered = offered_after(catalog_update, known(ON_DEMAND_A, GUESS_A))
    assert replace(GUESS_A, price_hourly_usd=0.07) in offered


def test_a_zone_that_no_longer_offers_the_type_is_left_out() -> None:
    assert offered_after(CatalogUpdate(offered={"m5.large": frozenset()})) == set()


def test_a_new_zone_gets_the_types_on_demand_price_and_its_own_spot_price_and_id() -> None:
    catalog_update = CatalogUpdate(
        offered={"m5.large": frozenset({"us-east-1a", "us-east-1b"})},
        zones={"us-east-1b": "use1-az1"},
        spot={("m5.large", "us-east-1b"): 0.03},
    )
    assert offered_after(catalog_update) == {
        ON_DEMAND_A,
        SPOT_A,
        Offering("us-east-1b", "on-demand", 0.096, zone_id="use1-az1"),
        Offering("us-east-1b", "spot", 0.03, zone_id="use1-az1"),
    }


def test_a_new_type_without_any_price_is_known_and_not_offered() -> None:
    catalog_update = CatalogUpdate(
        facts={M5.name: M5, C7G.name: C7G}, offered={C7G.name: frozenset({"us-east-1a"})}, spot={}
    )
    after = merge(BEFORE, catalog_update, NO_PRICES, NOW)
    assert set(after.facts) == {"m5.large", "c7g.large"}
    assert "c7g.large" not in after.offerings


def test_a_new_type_is_priced_by_the_list_until_aws_tells() -> None:
    catalog_update = CatalogUpdate(facts={C7G.name: C7G}, offered={C7G.name: frozenset({"us-east-1a"})})
    after = merge(BEFORE, catalog_update, ListPrices({"c7g.large": 0.1}, estimated=True), NOW)
    assert {(o.capacity_type, o.price_hourly_usd, o.estimated) for o in after.offerings["c7g.large"]} == {
        ("on-demand", 0.1, True),
        ("spot", 0.035, True),
    }


def test_a_type_that_ec2_no_longer_describes_is_gone() -> None:
    after = merge(BEFORE, CatalogUpdate(facts={C7G.name: C7G}), NO_PRICES, NOW)
    assert (set(after.facts), dict(after.offerings)) == ({"c7g.large"}, {})


@dataclass
class FakeMarket:
    failing: Mapping[str, Exception] = field(default_factory=dict)
    on_demand: Mapping[str, float] = field(default_factory=lambda: {"m5.large": 0.1})
    products: Mapping[str, float] = field(
        default_factory=lambda: {
            "linux": 0.12,
            "windows": 0.19,
            "dedicated": 0.11,
            "dedicated-windows": 0.2,
        }
    )

    def facts(self) -> Mapping[str, InstanceFacts]:
        return self._answer("facts", {M5.name: M5})

    def zones(self) -> Mapping[str, str]:
        return self._answer("zones", {"us-east-1a": "use1-az6"})

    def offered(self) -> Mapping[str, frozenset[str]]:
        return self._answer("offered", {M5.name: frozenset({"us-east-1a"})})

    def on_demand_prices(self) -> Mapping[str, float]:
        return self._answer("on_demand", self.on_demand)

    def prices_of(self, sold: str, places: Iterable[str]) -> Mapping[str, Mapping[str, float]]:
        return self._answer(sold, {place: {M5.name: self.products[sold]} for place in places})

    def spot_prices(self, now: datetime, *, windows: bool = False) -> Mapping[tuple[str, str], float]:
        assert now == NOW
        return self._answer("spot", {(M5.name, "us-east-1a"): 0.14 if windows else 0.05})

    def _answer(self, call: str, answer: T) -> T:
        if call in self.failing:
            raise self.failing[call]
        return answer


CALLS = ("facts", "zones", "offered", "on_demand", "spot", "windows", "dedicated", "dedicated-windows")
ALL_FAIL = dict.fromkeys(CALLS, Transient("busy"))


def test_a_refresh_writes_what_aws_says_and_reports_what_it_learned() -> None:
    catalogs = FakeCatalogs(BEFORE)
    report = refresh_catalog(FakeMarket(), catalogs, NO_PRICES, NOW)
    assert catalogs.stored is not None
    assert {o.price_hourly_usd for o in catalogs.stored.offerings["m5.large"]} == {0.1, 0.05}
    assert (report.written, report.types, report.offerings, report.estimated_prices) == (True, 1, 2, 0)
    assert report.learned == {
        "instance types": 1,
        "zones": 1,
        "types offered": 1,
        "on-demand prices": 1,
        "spot prices": 1,
        "spot prices of Windows": 1,
        "prices of other products": 3,
    }


def test_a_refresh_that_learns_nothing_new_writes_nothing() -> None:
    catalogs = FakeCatalogs(BEFORE)
    refresh_catalog(FakeMarket(), catalogs, NO_PRICES, NOW)
    report = refresh_catalog(FakeMarket(), catalogs, NO_PRICES, NOW)
    assert (report.written, catalogs.writes) == (False, 1)


@pytest.mark.parametrize("call", list(ALL_FAIL))
def test_a_call_that_fails_keeps_its_part_and_is_raised_after_the_rest_is_written(call: str) -> None:
    catalogs = FakeCatalogs(BEFORE)
    with pytest.raises(Transient, match="busy"):
        refresh_catalog(FakeMarket({call: Transient("busy")}), catalogs, NO_PRICES, NOW)
    assert catalogs.writes == 1
    assert catalogs.stored is not None
    prices = {o.capacity_type: o.price_hourly_usd for o in catalogs.stored.offerings["m5.large"]}
    assert prices == {
        "on-demand": 0.096 if call == "on_demand" else 0.1,
        "spot": 0.04 if call == "spot" else 0.05,
    }


def test_when_all_calls_fail_the_stored_catalogue_is_not_touched() -> None:
    catalogs = FakeCatalogs(BEFORE)
    with pytest.raises(
        Transient, match="not written: 1 types, 2 offerings, 0 at estimated prices; busy; busy"
    ):
        refresh_catalog(FakeMarket(ALL_FAIL), catalogs, NO_PRICES, NOW)
    assert catalogs.writes == 0


def test_a_call_that_is_refused_for_good_is_rejected_after_the_rest_is_written() -> None:
    catalogs = FakeCatalogs(BEFORE)
    with pytest.raises(Rejected, match="pricing:GetProducts"):
        refresh_catalog(
            FakeMarket({"on_demand": Rejected("not allowed: pricing:GetProducts")}), catalogs, NO_PRICES, NOW
        )
    assert catalogs.writes == 1


def test_without_a_price_list_the_known_on_demand_prices_stay() -> None:
    catalogs = FakeCatalogs(BEFORE)
    report = refresh_catalog(FakeMarket(on_demand={}), catalogs, NO_PRICES, NOW)
    assert catalogs.stored is not None
    assert ON_DEMAND_A in catalogs.stored.offerings["m5.large"]
    assert report.learned["on-demand prices"] == 0


def test_a_damaged_catalogue_is_made_anew() -> None:
    catalogs = FakeCatalogs(None)
    report = refresh_catalog(FakeMarket(), catalogs, NO_PRICES, NOW)
    assert (report.written, report.offerings) == (True, 2)


def prices_as(sold: str, catalog: Catalog) -> dict[tuple[str, str], tuple[float, bool]]:
    """Return prices, to four decimals, and whether they are estimates, by zone and capacity type."""
    offered = sold_as(catalog, M5.name, sold)
    assert {o.dedicated for o in offered} <= {"dedicated" in sold}
    return {(o.zone, o.capacity_type): (round(o.price_hourly_usd, 4), o.estimated) for o in offered}


OD_A, SPOT_IN_A = ("us-east-1a", "on-demand"), ("us-east-1a", "spot")


def test_windows_and_dedicated_hardware_have_their_own_prices() -> None:
    catalogs = FakeCatalogs(BEFORE)
    refresh_catalog(FakeMarket(), catalogs, NO_PRICES, NOW)
    assert catalogs.stored is not None
    assert prices_as("windows", catalogs.stored) == {OD_A: (0.19, False), SPOT_IN_A: (0.14, False)}
    assert prices_as("dedicated", catalogs.stored) == {OD_A: (0.11, False), SPOT_IN_A: (0.055, True)}
    assert prices_as("dedicated-windows", catalogs.stored) == {
        OD_A: (0.2, False),
        SPOT_IN_A: (0.1474, True),
    }
    assert prices_as("linux", catalogs.stored) == {OD_A: (0.1, False), SPOT_IN_A: (0.05, False)}


def test_prices_that_were_never_read_are_estimates_from_those_of_linux() -> None:
    assert prices_as("windows", BEFORE) == {
        OD_A: (0.188, True),
        SPOT_IN_A: (0.132, True),
    }
    assert prices_as("dedicated", BEFORE) == {
        OD_A: (0.1056, True),
        SPOT_IN_A: (0.044, True),
    }


def test_what_the_price_list_does_not_sell_with_windows_is_not_offered() -> None:
    update = CatalogUpdate(
        on_demand_of={"windows": {"us-east-1": {"c5.large": 0.2}}},
        windows_spot={("c5.large", "us-east-1a"): 0.1},
    )
    assert prices_as("windows", merge(BEFORE, update, NO_PRICES, NOW)) == {}


def test_local_zones_and_wavelength_zones_have_prices_of_their_own() -> None:
    zones = ("us-east-1a", "us-east-1-bos-1a", "us-east-1-wl1-nyc-wlz-1", "us-east-1-chi-2a")
    update = CatalogUpdate(
        offered={M5.name: frozenset(zones)},
        on_demand={M5.name: 0.1},
        on_demand_of={
            "linux": {"us-east-1-bos-1": {M5.name: 0.125}, "us-east-1-wl1-nyc1": {M5.name: 0.13}},
            "windows": {"us-east-1": {M5.name: 0.19}, "us-east-1-bos-1": {M5.name: 0.22}},
        },
    )
    after = merge(BEFORE, update, NO_PRICES, NOW)
    on_demand = {
        zone: price for (zone, kind), price in prices_as("linux", after).items() if kind == "on-demand"
    }
    assert on_demand == {
        "us-east-1a": (0.1, False),
        "us-east-1-bos-1a": (0.125, False),
        "us-east-1-wl1-nyc-wlz-1": (0.13, False),
        "us-east-1-chi-2a": (0.1, True),
    }
    windows = prices_as("windows", after)
    assert windows["us-east-1-bos-1a", "on-demand"] == (0.22, False)
    assert windows["us-east-1-chi-2a", "on-demand"] == (0.19, True)


def test_the_price_list_is_asked_for_every_place_of_the_zones() -> None:
    asked: dict[str, list[str]] = {}

    class Asked(FakeMarket):
        def zones(self) -> Mapping[str, str]:
            return {"us-east-1a": "use1-az6", "us-east-1-bos-1a": "", "us-east-1-wl1-nyc-wlz-1": ""}

        def prices_of(self, sold: str, places: Iterable[str]) -> Mapping[str, Mapping[str, float]]:
            asked[sold] = list(places)
            return {}

    refresh_catalog(Asked(), FakeCatalogs(BEFORE), NO_PRICES, NOW)
    local = ["us-east-1-bos-1", "us-east-1-wl1-nyc1"]
    others = {sold: ["us-east-1", *local] for sold in ("windows", "dedicated", "dedicated-windows")}
    assert asked == {"linux": local, **others}


def test_a_product_that_could_not_be_asked_for_keeps_its_known_prices() -> None:
    catalogs = FakeCatalogs(BEFORE)
    refresh_catalog(FakeMarket(), catalogs, NO_PRICES, NOW)
    with pytest.raises(Transient, match="busy"):
        refresh_catalog(
            FakeMarket({"windows": Transient("busy")}, products={**FakeMarket().products, "dedicated": 0.12}),
            catalogs,
            NO_PRICES,
            NOW,
        )
    assert catalogs.stored is not None
    assert prices_as("windows", catalogs.stored)[OD_A] == (0.19, False)
    assert prices_as("dedicated", catalogs.stored)[OD_A] == (0.12, False)


def test_prices_of_all_products_survive_storage() -> None:
    catalogs = FakeCatalogs(BEFORE)
    refresh_catalog(FakeMarket(), catalogs, NO_PRICES, NOW)
    assert catalogs.stored is not None
    read = decode(encode(catalogs.stored))
    for sold in ("windows", "dedicated", "dedicated-windows"):
        assert prices_as(sold, read) == prices_as(sold, catalogs.stored)
    assert merge(read, CatalogUpdate(), NO_PRICES, NOW).ref == catalogs.stored.ref
