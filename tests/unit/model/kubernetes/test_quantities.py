from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodesmith.model.apimachinery.quantities import (
    QuantityError,
    Resources,
    cpu_milli,
    format_bytes,
    format_cpu,
    parse_quantity,
    whole_units,
)

INT64 = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("+1", 1),
        ("-1", -1),
        ("1.", 1),
        (".5", Fraction(1, 2)),
        ("1.25", Fraction(5, 4)),
        ("1n", Fraction(1, 10**9)),
        ("1u", Fraction(1, 10**6)),
        ("1m", Fraction(1, 1000)),
        ("1k", 10**3),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Ki", 2**10),
        ("1Mi", 2**20),
        ("1Gi", 2**30),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1.5Gi", 3 * 2**29),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12E-2", Fraction(12, 100)),
        ("1e+2", 100),
    ],
)
def test_every_suffix_and_exponent_is_read_as_in_kubernetes(text: str, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 Gi",
        " 1",
        "1\n",
        "Gi",
        "1gi",
        "1K",
        "1KI",
        "1e",
        "1e3.5",
        "--1",
        "1,5",
        "٣",
        "0x10",
        "1GiB",
    ],
)
def test_quantities_that_kubernetes_refuses_are_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("1gb", "did you mean '1G'?"),
        ("1GB", "did you mean '1G'?"),
        ("512mb", "did you mean '512M'?"),
        ("2GiB", "did you mean '2Gi'?"),
        ("1.5 Gi", "did you mean '1.5Gi'?"),
        ("1K", "write a number with an optional suffix such as m, k, M, G, Ki, Mi, Gi"),
        ("plenty", "write a number with an optional suffix such as m, k, M, G, Ki, Mi, Gi"),
    ],
)
def test_a_common_misspelling_gets_a_suggestion(text: str, remedy: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert caught.value.remedy == remedy
    assert str(caught.value) == f"{text!r} is not a quantity, {remedy}"


@pytest.mark.parametrize("value", [None, True, [], {}, object()])
def test_a_value_that_is_neither_text_nor_number_is_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        whole_units(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_are_refused(value: float) -> None:
    with pytest.raises(QuantityError):
        whole_units(value)


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        ("1.5", 1500),
        ("100m", 100),
        ("1n", 1),
        ("0.1m", 1),
        ("1001u", 2),
        (2, 2000),
        (0.25, 250),
        ("-0.1m", -1),
    ],
)
def test_cpu_is_rounded_away_from_zero_to_whole_milli_cores(value: object, milli: int) -> None:
    assert cpu_milli(value) == milli


@pytest.mark.parametrize(("value", "units"), [("0.5", 1), ("-0.5", -1), ("1500m", 2), ("1e-9", 1), (7, 7)])
def test_amounts_are_rounded_away_from_zero_to_whole_units(value: object, units: int) -> None:
    assert whole_units(value) == units


@pytest.mark.parametrize(
    ("value", "units"),
    [
        ("10E", INT64),
        ("-10E", -INT64),
        pytest.param(10**5000, INT64, id="an integer of 5,000 digits"),
        ("1e300", INT64),
    ],
)
def test_amounts_are_capped_at_int64(value: object, units: int) -> None:
    assert whole_units(value) == units


def test_a_text_of_a_million_characters_is_refused_at_once() -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity("1" * 1_000_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (1000, "1000"), (1024, "1Ki"), (2**31, "2Gi"), (3 * 2**29, "1536Mi"), (-1024, "-1Ki")],
)
def test_bytes_are_written_with_the_largest_suffix_that_divides_them(amount: int, text: str) -> None:
    assert format_bytes(amount) == text


@given(st.integers(-(2**62), 2**62))
def test_formatted_bytes_are_read_back_unchanged(amount: int) -> None:
    assert whole_units(format_bytes(amount)) == amount


@given(st.integers(-(2**53), 2**53))
def test_formatted_cpu_is_read_back_unchanged(milli: int) -> None:
    assert cpu_milli(format_cpu(milli)) == milli


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    with suppress(QuantityError):
        assert abs(whole_units(text)) <= INT64


@given(
    st.dictionaries(st.sampled_from(("cpu", "memory", "pods")), st.integers(-3, 9)),
    st.dictionaries(st.sampled_from(("cpu", "memory")), st.integers(-20, 40)),
    st.integers(-1, 12),
)
def test_requests_fit_as_often_as_their_multiples_fit(
    asked: dict[str, int], available: dict[str, int], most: int
) -> None:
    requests, room = Resources(asked), Resources(available)

    times = requests.times_in(room, most)

    fitting = [n for n in range(1, most + 1) if requests.fits_in(room) and requests.times(n).fits_in(room)]
    assert times == max(fitting, default=0)
