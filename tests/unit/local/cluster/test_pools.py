"""Deliberately empty pools of capacity."""

from __future__ import annotations

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.errors import Rejected
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith_local.aws.instances.pools import PoolPattern, Pools, parse_pattern

SPOT_M5 = OfferingKey("spot", "m5.large", "us-east-1a")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("m5.large", PoolPattern("m5.large", instance_type="m5.large")),
        ("us-east-1a", PoolPattern("us-east-1a", zone="us-east-1a")),
        ("spot", PoolPattern("spot", capacity_type="spot")),
        ("c*", PoolPattern("c*", instance_type="c*")),
        ("*", PoolPattern("*", instance_type="*")),
        ("m5.large:us-east-1a", PoolPattern("m5.large:us-east-1a", "*", "m5.large", "us-east-1a")),
        ("spot:c*:us-east-1*", PoolPattern("spot:c*:us-east-1*", "spot", "c*", "us-east-1*")),
        (
            "on-demand:us-gov-west-1b",
            PoolPattern("on-demand:us-gov-west-1b", "on-demand", "*", "us-gov-west-1b"),
        ),
        ("u7i-6tb.112xlarge", PoolPattern("u7i-6tb.112xlarge", instance_type="u7i-6tb.112xlarge")),
        ("m7i-flex.*", PoolPattern("m7i-flex.*", instance_type="m7i-flex.*")),
    ],
)
def test_a_pattern_is_read_by_what_its_parts_look_like(text: str, parsed: PoolPattern) -> None:
    assert parse_pattern(text) == parsed


@pytest.mark.parametrize("text", ["", "m5.large:c5.large", "m5.large:", "spot:spot", "us-east-1a:us-east-1b"])
def test_an_invalid_pattern_is_quoted_with_the_grammar(text: str) -> None:
    with pytest.raises(Rejected, match=r"write \[spot\|on-demand:\]\[TYPE:\]\[ZONE\]"):
        parse_pattern(text)


@pytest.mark.parametrize("text", ["m5.large", "us-east-1a", "spot", "m*", "spot:m5.*:us-east-1?"])
def test_a_pool_that_a_pattern_matches_is_empty(text: str) -> None:
    assert not Pools([text]).has(SPOT_M5)


@pytest.mark.parametrize(
    "text", ["m5.xlarge", "us-east-1b", "on-demand:m5.large", "c*", "spot:m5.large:us-east-1b"]
)
def test_a_pool_that_no_pattern_matches_has_capacity(text: str) -> None:
    assert Pools([text]).has(SPOT_M5)


def test_a_pattern_that_matches_no_offering_of_the_region_is_refused() -> None:
    catalog = embedded_catalog("us-east-1")
    Pools(["m5.large:us-east-1a"], catalog)
    for text in ("m5.lareg", "us-west-2a", "spot:mac2.metal"):
        with pytest.raises(Rejected, match="no offering in us-east-1 matches it"):
            Pools([text], catalog)
