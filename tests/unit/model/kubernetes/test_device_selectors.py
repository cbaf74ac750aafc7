"""The part of CEL that device selectors use, with Kubernetes' quantities and versions, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.apimachinery.quantities import parse_quantity
from nodesmith.model.kubernetes.deviceselectors import Domains, parse_version, selects
from nodesmith.model.kubernetes.selectorsyntax import SelectorError

D = 'device.attributes["gpu.example.com"]'
M = 'device.capacity["gpu.example.com"].memory'
DEVICE: dict[str, Any] = {
    "driver": "gpu.example.com",
    "attributes": Domains(
        {
            "gpu.example.com": {
                "model": "NVIDIA A100",
                "index": 3,
                "mig": False,
                "v": parse_version("1.2.3"),
            },
            "nic.example.com": {"speed": 400},
        }
    ),
    "capacity": Domains({"gpu.example.com": {"memory": parse_quantity("40Gi")}}),
}


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        f'{D}.model.startsWith("NVIDIA") && {D}["model"].endsWith("A100")',
        f'{D}.model.lowerAscii().contains("a100")',
        f'{D}.model.matches("^NVIDIA [AH]100$")',
        f"{D}.index in [1, 2, 3]",
        f"{D}.index >= 3 ? !{D}.mig : {D}.mig",
        f'{M}.compareTo(quantity("40Gi")) == 0',
        f'{M}.isGreaterThan(quantity("39999Mi")) && {M}.isLessThan(quantity("41Gi"))',
        f'{D}.v.isGreaterThan(semver("1.2.3-rc.1")) && {D}.v.compareTo(semver("1.10.0")) < 0',
        f'isQuantity("1Gi") && !isQuantity("1gb") && isSemver("1.0.0") && {D}.v.major() == 1',
        f"!has({D}.nothing) && has({D}.model)",
        'device.attributes["other"].?model.orValue("none") == "none"',
        f'{D}[?"nothing"].hasValue() == false',
        '"gpu.example.com" in device.attributes',
        'device.attributes.exists(domain, domain.startsWith("nic."))',
        f'cel.bind(gpu, {D}, gpu.index == 3 && gpu.model != "")',
        "[1, 2, 3].filter(n, n > 1).map(n, n * 2) == [4, 6] && size([1]) == 1",
        "[1, 2].exists_one(n, n == 1) && {'a': 1}.all(key, key == 'a')",
        "-7 / 2 == -3 && -7 % 2 == -1 && 0x10 == 16 && 1.5 + 1.5 == 3.0",
        r"'a\'b\u0041' == " + '"a\'bA" && r"\\d" == "' + r'\\d"',
        "false || 1 == 1 // a comment",
        "true || 1 / 0 == 1",
        "1 / 0 == 1 || true",
        "1 != true && 'a' < 'b' && null == null",
    ],
)
def test_a_device_is_selected(expression: str) -> None:
    assert selects(expression, DEVICE)


@pytest.mark.parametrize(
    "expression", ["false", "!true", f"{D}.index == 4", 'device.driver == "other"', "1 == '1'"]
)
def test_a_device_is_not_selected(expression: str) -> None:
    assert not selects(expression, DEVICE)


@pytest.mark.parametrize(
    ("expression", "reported"),
    [
        (f"{D}.nothing == 1", "no such key: 'nothing'"),
        ('device.attributes["other"].model == 1', "no such key: 'model'"),
        ("1 + 1", "neither true nor false"),
        ("pod.name == 'x'", "unknown name 'pod'"),
        ("device.driver.reverse() == ''", "the function 'reverse' with 0 arguments is not known"),
        (f"{D}.model < 3", "a string cannot be compared with a int by <"),
        (f"{M} > 3", "a quantity cannot be compared"),
        ("quantity('1gb').isLessThan(quantity('1Gi'))", "not a quantity"),
        ("device.driver ==", "it ends too early"),
        ("device.driver == 'x", "unexpected"),
        ("9223372036854775807 * 4 > 0", "out of range"),
        ("1 && true", "a int is no condition"),
        ("'a'.matches('(a+)+')", "too complex"),
        ("'a'.matches('a*b*c*')", "repeats more than 2 parts"),
        ("'a'.matches('[')", "matches: "),
        ("(" * 100 + "1" + ")" * 100, "nested deeper"),
        ("true" + " || true" * 2000, "longer than 10240 characters"),
        ("device" + ".driver" * 1000, "nested deeper"),
        ("0" + " + 0" * 1000 + " == 0", "nested deeper"),
        ("!" * 9000 + "true", "nested deeper"),
        ("'" + "a" * 60 + "'.matches('" + "a?" * 40 + "b')", "too complex"),
        ("'" + "a" * 60 + "'.matches('" + "(?:aa|a)" * 30 + "b')", "too complex"),
        ("'" + "a" * 9000 + "'.matches('a*a*b')", "too complex for a text of 9000 characters"),
        (r"'a'.matches('" + r"\\\\*" * 10 + "')", "repeats more than 2 parts"),
        ("'a'.matches('(?i)[" + r"\u0100-\uffff" + "]')", "too complex"),
        (r"'\ud800' == 'a'", r"unknown escape \ud800"),
        ("optional.of(" + "a" * 5000 + ") == 1", "unknown name '" + "a" * 64 + "'"),
    ],
)
def test_what_cannot_be_evaluated_says_why(expression: str, reported: str) -> None:
    with pytest.raises(SelectorError) as caught:
        selects(expression, DEVICE)
    assert reported in str(caught.value)


def test_an_expression_that_takes_too_many_steps_ends() -> None:
    numbers = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    nested = "true"
    for name in "abcdef":
        nested = f"{numbers}.all({name}, {nested})"
    with pytest.raises(SelectorError, match="steps"):
        selects(nested, DEVICE)


def test_a_value_that_grows_too_large_ends_the_evaluation() -> None:
    text = "'" + "x" * 100 + "'"
    doubled = (
        "cel.bind(a, " + text + ", cel.bind(b, a+a+a+a+a+a+a+a+a+a, (b+b+b+b+b+b+b+b+b+b+b).size() > 0))"
    )
    with pytest.raises(SelectorError, match="too large"):
        selects(doubled, DEVICE)


def doubled(levels: int, then: str) -> str:
    """Return an expression with two lists that contain the same list twice, `levels` deep: `a` and `b`."""
    found = then
    for level in reversed(range(levels)):
        for name in "ab":
            inner = f"{name}{level}" if level else "0"
            found = f"cel.bind({name}{level + 1}, [{inner}, {inner}], {found})"
    return found


@pytest.mark.parametrize(
    ("expression", "reported"),
    [
        (doubled(18, "a18 == b18"), "steps"),
        (doubled(18, "optional.of(a18) == optional.of(b18)"), "steps"),
        (doubled(18, "[1][a18] == 1"), "no such key: list"),
        (f"cel.bind(l, '{'a' * 9000}'.split(''), {' || '.join(['1 in l'] * 100)})", "steps"),
        (f"cel.bind(l, '{'a' * 4000}'.split(''), l.map(x, l + l).size() == 0)", "steps"),
        ("[" + "1, " * 60 + "1].all(x, '" + "a" * 60 + "'.matches('.*a.*b'))", "steps"),
    ],
)
def test_work_that_an_expression_does_not_show_counts_as_steps(expression: str, reported: str) -> None:
    with pytest.raises(SelectorError, match=reported):
        selects(expression, DEVICE)


@pytest.mark.parametrize("sign", ["&&", "||"])
def test_long_chains_of_conditions_are_no_deep_nesting(sign: str) -> None:
    chain = f" {sign} ".join(["1 == 1", *["true"] * 1000])
    assert selects(chain, DEVICE)
    assert not selects(f"!({chain})", DEVICE)
    assert selects("1 / 0 == 1 || " * 200 + "true", DEVICE)


def test_lists_are_compared_by_their_items() -> None:
    assert selects("[1, [2, {'a': 3}]] == [1.0, [2, {'a': 3.0}]]", DEVICE)
    assert selects(
        "[1] != [true] && [1] != [1, 2] && {'a': 1} != {'b': 1} && optional.of(1) != optional.none()", DEVICE
    )
