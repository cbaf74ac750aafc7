from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodesmith.adapters.catalog.catalogs import decode, embedded_catalog, encode
from nodesmith.errors import Rejected
from nodesmith.model.ec2.catalog import (
    WINDOWS,
    Accelerator,
    Catalog,
    InstanceFacts,
    NeuronDevice,
    Offering,
    ProductPrices,
    sold_as,
)

WHOLE = encode(embedded_catalog("ap-east-1"))
words = st.text("abcXYZ 0123456789-.", min_size=1, max_size=12)
counts = st.integers(0, 2**31)
accelerators = st.lists(st.builds(Accelerator, words, words, counts, counts), max_size=2).map(tuple)
neurons = st.lists(st.builds(NeuronDevice, words, counts, counts), max_size=2).map(tuple)
facts = st.builds(
    InstanceFacts,
    name=words,
    arch=st.sampled_from(["amd64", "arm64"]),
    vcpus=counts,
    memory_mib=counts,
    capacity_types=st.lists(st.sampled_from(["on-demand", "spot"]), unique=True).map(tuple),
    interfaces=counts,
    ipv4_per_interface=counts,
    clock_mhz=st.none() | counts,
    gpus=accelerators,
    inference_accelerators=accelerators,
    neuron_devices=neurons,
)
offerings = st.builds(
    Offering,
    zone=st.sampled_from("abcdef"),
    capacity_type=st.sampled_from(["on-demand", "spot", "reserved"]),
    price_hourly_usd=st.floats(1e-6, 1e6),
    estimated=st.booleans(),
    zone_id=st.just(""),
    available=st.booleans(),
)
offered = st.lists(offerings, max_size=8, unique_by=lambda o: (o.zone, o.capacity_type)).map(tuple)


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    types = draw(st.dictionaries(words, st.tuples(facts, offered), max_size=4))
    made_at = datetime.fromtimestamp(draw(st.integers(0, 2**31)), UTC)
    return Catalog.of(
        draw(words),
        made_at,
        {one.name: one for one, _ in types.values()},
        {one.name: sold for one, sold in types.values()},
        draw(st.sampled_from(["USD", "CNY"])),
    )


@given(catalogs())
def test_a_decoded_catalogue_equals_the_encoded_one(catalog: Catalog) -> None:
    back = decode(encode(catalog))
    assert (back.region, back.ref, back.made_at, back.currency) == (
        catalog.region,
        catalog.ref,
        catalog.made_at,
        catalog.currency,
    )
    assert back.facts == catalog.facts
    assert {n: set(sold) for n, sold in back.offerings.items()} == {
        n: set(sold) for n, sold in catalog.offerings.items()
    }
    assert Catalog.of(back.region, back.made_at, back.facts, back.offerings, back.currency) == catalog


@given(catalogs())
def test_equal_catalogues_have_equal_bytes(catalog: Catalog) -> None:
    assert encode(catalog) == encode(decode(encode(catalog)))


@given(st.integers(0, 10_000))
def test_a_truncated_catalogue_is_rejected(length: int) -> None:
    with pytest.raises(Rejected, match="catalogue"):
        decode(WHOLE[: length % len(WHOLE)])


@pytest.mark.parametrize("price", [0.0, -0.1, float("nan"), float("inf")])
def test_a_stored_offering_without_a_possible_price_is_left_out(price: float) -> None:
    known = embedded_catalog("ap-east-1")
    wrong = replace(known.offerings["m5.large"][0], price_hourly_usd=price)
    stored = encode(replace(known, offerings={**known.offerings, "m5.large": (wrong,)}))
    back = decode(stored)
    assert back.offerings["m5.large"] == ()
    assert set(back.offerings["m5.xlarge"]) == set(known.offerings["m5.xlarge"])


def test_a_product_without_a_possible_price_is_not_sold() -> None:
    known = embedded_catalog("ap-east-1")
    prices = {WINDOWS: ProductPrices(on_demand={"ap-east-1": {"m5.large": -1.0, "m5.xlarge": 2.0}})}
    back = decode(encode(replace(known, prices=prices)))
    found = {name: sold_as(back, name, WINDOWS) for name in ("m5.large", "m5.xlarge")}
    on_demand = {name: [o for o in sold if o.capacity_type == "on-demand"] for name, sold in found.items()}
    assert not on_demand["m5.large"]
    assert {o.price_hourly_usd for o in on_demand["m5.xlarge"]} == {2.0}
