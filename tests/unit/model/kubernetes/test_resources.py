import pytest

from nodesmith.model.apimachinery.quantities import (
    NOTHING,
    QuantityError,
    Resources,
    format_resources,
    parse_resources,
    total,
)


def test_a_resource_that_is_not_listed_is_zero() -> None:
    assert Resources({"cpu": 5}).of("memory") == 0
    assert NOTHING.cpu_milli == NOTHING.memory_bytes == NOTHING.pods == 0


def test_a_zero_counts_as_absent_in_equality_and_hash() -> None:
    assert Resources({"cpu": 0}) == NOTHING
    assert hash(Resources({"cpu": 0, "pods": 1})) == hash(Resources({"pods": 1}))
    assert Resources({"cpu": 1}) != Resources({"cpu": 2})


def test_sums_and_differences_are_calculated_by_name() -> None:
    a, b = Resources({"cpu": 3, "pods": 1}), Resources({"cpu": 1, "memory": 8})
    assert a + b == Resources({"cpu": 4, "pods": 1, "memory": 8})
    assert a - b == Resources({"cpu": 2, "pods": 1, "memory": -8})
    assert a.times(3) == a + a + a == total([a, a, a])
    assert a.at_least(b) == Resources({"cpu": 3, "pods": 1, "memory": 8})


@pytest.mark.parametrize(
    ("asked", "room", "fits"),
    [
        ({"cpu": 2}, {"cpu": 2}, True),
        ({"cpu": 3}, {"cpu": 2}, False),
        ({"example.com/gpu": 1}, {"cpu": 2}, False),
        ({"example.com/gpu": 0}, {}, True),
        ({"cpu": -1}, {"cpu": 2}, False),
        ({}, {"cpu": -2}, True),
        ({"cpu": 1}, {"cpu": -2}, False),
    ],
)
def test_a_list_fits_if_every_amount_is_available(
    asked: dict[str, int], room: dict[str, int], fits: bool
) -> None:
    assert Resources(asked).fits_in(Resources(room)) is fits


def test_a_resource_list_is_read_in_milli_cores_bytes_and_counts() -> None:
    written = {"cpu": "1.5", "memory": "2Gi", "ephemeral-storage": "1G", "pods": 10, "nvidia.com/gpu": "1"}
    assert dict(parse_resources(written)) == {
        "cpu": 1500,
        "memory": 2**31,
        "ephemeral-storage": 10**9,
        "pods": 10,
        "nvidia.com/gpu": 1,
    }
    assert parse_resources(None) == NOTHING


def test_a_bad_quantity_in_a_list_is_refused() -> None:
    with pytest.raises(QuantityError, match="did you mean '1G'"):
        parse_resources({"memory": "1gb"})


def test_a_list_is_written_in_kubernetes_format() -> None:
    resources = Resources({"pods": 58, "memory": 2**31, "cpu": 1930, "hugepages-2Mi": 2**21})
    assert format_resources(resources) == {
        "cpu": "1930m",
        "hugepages-2Mi": "2Mi",
        "memory": "2Gi",
        "pods": "58",
    }
    assert parse_resources(format_resources(resources)) == resources
