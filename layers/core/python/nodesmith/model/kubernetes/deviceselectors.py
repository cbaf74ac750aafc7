"""The CEL expressions by which DeviceClasses and ResourceClaims select devices, evaluated within bounds.

The part of CEL that such expressions use: values, operators, the macros over lists and maps, strings, optionals, and
Kubernetes' quantities and semantic versions. Everything else is an error that names what is not known. An expression
is written by anyone who may create a ResourceClaim, so its steps and its patterns are bounded. Values may contain the
same list many times, so nothing walks through them without counting.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from nodesmith.model.apimachinery.quantities import QuantityError, parse_quantity
from nodesmith.model.kubernetes.selectorsyntax import Node, SelectorError, in_range, matches, parsed, steps_of

_MOST_STEPS, _LARGEST = 20_000, 10_000
_CHARACTERS_OF_STEP = 8
_ITEMS_OF_STEP = 16
_SHOWN = 64
_TOO_MANY = "it takes too many steps"


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A semantic version, in its order: a prerelease comes before its release."""

    numbers: tuple[int, int, int]
    is_release: bool = True
    prerelease: tuple[tuple[bool, int, str], ...] = ()


_SEMVER = re.compile(
    r"(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})(?:-([0-9A-Za-z.-]{1,64}))?(?:\+[0-9A-Za-z.-]{1,64})?",
    re.ASCII,
)


def parse_version(text: str) -> Version:
    """Return a semantic version 2.0.0. Raises SelectorError."""
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise SelectorError(f"{text[:64]!r} is not a semantic version such as 1.2.3")
    parts = match[4].split(".") if match[4] else []
    order = tuple((not p.isdigit(), int(p) if p.isdigit() else 0, p) for p in parts)
    return Version((int(match[1]), int(match[2]), int(match[3])), not parts, order)


class Domains(dict[str, Any]):
    """Attributes or capacity by domain. A domain that a device does not have is empty, not an error."""

    def __missing__(self, key: str) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class _Optional:
    value: Any = None
    is_there: bool = False


class Steps:
    """How many steps evaluations may still take together. Reading an expression counts, too."""

    __slots__ = ("left",)

    def __init__(self, left: int = _MOST_STEPS) -> None:
        self.left = left


def selects(expression: str, device: Mapping[str, Any], steps: Steps | None = None) -> bool:
    """Return whether an expression selects a device, which has `driver`, `attributes` and `capacity` by domain.

    Raises SelectorError if it cannot be read, fails for this device (as for an attribute that it lacks), takes too many
    steps or is no condition. With `steps`, it takes of these.
    """
    steps = steps or Steps()
    steps.left -= len(expression) // _CHARACTERS_OF_STEP
    if steps.left < 0:
        raise SelectorError(_TOO_MANY)
    run = _Run({"device": device}, min(_MOST_STEPS, steps.left))
    try:
        result = run.value(parsed(expression))
    except RecursionError:
        raise SelectorError("it is nested too deeply") from None
    finally:
        steps.left -= run.taken
    if result is not True and result is not False:
        raise SelectorError("its result is neither true nor false")
    return result


_ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_MACROS = frozenset({"all", "exists", "exists_one", "filter", "map"})


class _Run:
    """One evaluation. Each part of the expression that is evaluated is a step."""

    def __init__(self, names: dict[str, Any], steps: int) -> None:
        self._names, self._steps, self._left = names, steps, steps

    @property
    def taken(self) -> int:
        return self._steps - self._left

    def _take(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise SelectorError(_TOO_MANY)

    def value(self, node: Node) -> Any:
        """Evaluate a part of the expression. Raises SelectorError."""
        self._take(1)
        match node:
            case ("value", constant):
                return constant
            case ("name", name):
                if name not in self._names:
                    raise SelectorError(f"unknown name {name[:_SHOWN]!r}")
                return self._names[name]
            case ("list", items):
                return [self.value(item) for item in items]
            case ("map", pairs):
                return {_key(self.value(key)): self.value(value) for key, value in pairs}
            case ("call", name, of, arguments):
                return self._called(name, of, arguments)
        return self._computed(node)

    def _computed(self, node: Node) -> Any:
        match node:
            case ("select", of, name):
                return _picked(self.value(of), name, optional=False)
            case ("pick", of, key, optional):
                return _picked(self.value(of), self.value(key), optional=optional)
            case ("not", of):
                return not _condition(self.value(of))
            case ("minus", of):
                return _arithmetic("-", 0, self.value(of))
            case ("if", condition, yes, no):
                return self.value(yes if _condition(self.value(condition)) else no)
            case ("op", "&&" | "||" as sign, left, right):
                return self._either(left, right, ends=sign == "||")
            case ("op", sign, left, right):
                return self._compared(sign, self.value(left), self.value(right))
        raise SelectorError("it cannot be evaluated")

    def _either(self, left: Node, right: Node, *, ends: bool) -> bool:
        """Evaluate `&&` or `||`: one side that decides is enough, even if the other fails."""
        try:
            if _condition(self.value(left)) is ends:
                return ends
        except SelectorError:
            if self._left >= 0 and _condition(self.value(right)) is ends:
                return ends
            raise
        return _condition(self.value(right))

    def _called(self, name: str, of: Node | None, arguments: Sequence[Node]) -> Any:
        if of is None and name == "has" and len(arguments) == 1 and arguments[0][0] == "select":
            _, holder, field = arguments[0]
            value = self.value(holder)
            return isinstance(value, Mapping) and field in value
        if of == ("name", "cel") and name == "bind" and len(arguments) == 3:
            return self._with(_variable(arguments[0]), self.value(arguments[1]), arguments[2])
        if of is not None and name in _MACROS and len(arguments) == 2:
            return self._over(name, self.value(of), _variable(arguments[0]), arguments[1])
        if of == ("name", "optional") and name in ("of", "none"):
            values = [self.value(argument) for argument in arguments]
            return _Optional(values[0], is_there=True) if values else _Optional()
        values = [self.value(argument) for argument in (*([of] if of is not None else ()), *arguments)]
        function = _FUNCTIONS.get((name, len(values), of is not None))
        if function is None:
            raise SelectorError(
                f"the function {name[:_SHOWN]!r} with {len(arguments)} arguments is not known"
            )
        self._take(sum(map(_items, values)) // _ITEMS_OF_STEP)
        if name == "matches" and isinstance(values[0], str) and isinstance(values[1], str):
            self._take(steps_of(values[0], values[1]))
        try:
            return function(*values)
        except (TypeError, AttributeError, QuantityError) as error:
            raise SelectorError(f"{name}: {error}") from None

    def _compared(self, sign: str, left: Any, right: Any) -> Any:
        if sign in ("==", "!="):
            return self._equal(left, right) is (sign == "==")
        if sign == "in":
            if not isinstance(right, (list, Mapping)):
                raise SelectorError("in needs a list or a map")
            return any(self._equal(left, item) for item in right)
        if sign in _ORDERED:
            alike = type(left) is type(right) and isinstance(left, (str, int, float, bool))
            if not alike and not (_number_like(left) and _number_like(right)):
                raise SelectorError(f"a {_kind(left)} cannot be compared with a {_kind(right)} by {sign}")
            return _ORDERED[sign](left, right)
        self._take((_items(left) + _items(right)) // _ITEMS_OF_STEP)
        return _arithmetic(sign, left, right)

    def _equal(self, left: Any, right: Any) -> bool:
        """Compare two values, item by item; each is a step."""
        self._take(1)
        if _number_like(left) and _number_like(right):
            return bool(left == right)
        match left, right:
            case list(), list():
                return len(left) == len(right) and all(map(self._equal, left, right))
            case Mapping(), Mapping():
                return left.keys() == right.keys() and all(self._equal(left[key], right[key]) for key in left)
            case _Optional(), _Optional():
                return left.is_there == right.is_there and self._equal(left.value, right.value)
        return type(left) is type(right) and bool(left == right)

    def _with(self, name: str, value: Any, node: Node) -> Any:
        outer = self._names
        self._names = {**outer, name: value}
        try:
            return self.value(node)
        finally:
            self._names = outer

    def _over(self, macro: str, values: Any, name: str, node: Node) -> Any:
        if not isinstance(values, (list, Mapping)):
            raise SelectorError(f"{macro} needs a list or a map")
        items = list(values)
        results = [self._with(name, item, node) for item in items]
        if macro == "map":
            return results
        conditions = [_condition(result) for result in results]
        if macro == "filter":
            return [item for item, is_kept in zip(items, conditions, strict=True) if is_kept]
        if macro == "exists_one":
            return sum(conditions) == 1
        return all(conditions) if macro == "all" else any(conditions)


def _variable(node: Node) -> str:
    if node[0] != "name":
        raise SelectorError("a macro needs the name of a variable")
    return str(node[1])


def _condition(value: Any) -> bool:
    if value is not True and value is not False:
        raise SelectorError(f"a {_kind(value)} is no condition")
    return value


def _key(value: Any) -> Any:
    if not isinstance(value, (str, int, bool)):
        raise SelectorError(f"a {_kind(value)} is no key of a map")
    return value


def _kind(value: Any) -> str:
    return {"str": "string", "Fraction": "quantity", "NoneType": "null"}.get(
        type(value).__name__, type(value).__name__.lower()
    )


def _picked(of: Any, key: Any, *, optional: bool) -> Any:
    if isinstance(of, _Optional):
        return _picked(of.value, key, optional=True) if of.is_there else of
    value: Any = None
    exists = False
    if isinstance(of, Mapping):
        _key(key)
        exists = key in of or isinstance(of, Domains)
        value = of[key] if exists else None
    elif isinstance(of, list) and type(key) is int:
        exists = 0 <= key < len(of)
        value = of[key] if exists else None
    if optional:
        return _Optional(value, exists)
    if not exists:
        raise SelectorError(f"no such key: {_key_text(key)}")
    return value


def _key_text(key: Any) -> str:
    """Return a key as errors show it. A list may contain others, and those the same ones again, beyond any memory."""
    return repr(key[:_SHOWN] if isinstance(key, str) else key) if isinstance(key, (str, int)) else _kind(key)


def _number_like(value: Any) -> bool:
    return type(value) in (int, float)


def _items(value: Any) -> int:
    return len(value) if isinstance(value, (str, list)) else 0


def _arithmetic(sign: str, left: Any, right: Any) -> Any:
    if sign == "+" and type(left) is type(right) and isinstance(left, (str, list)):
        if len(left) + len(right) > _LARGEST:
            raise SelectorError("a value grows too large")
        return left + right
    if not (_number_like(left) and _number_like(right)):
        raise SelectorError(f"{sign} is not defined for a {_kind(left)} and a {_kind(right)}")
    if sign in "/%" and not right:
        raise SelectorError("division by zero")
    are_integers = type(left) is int and type(right) is int
    match sign:
        case "+":
            result = left + right
        case "-":
            result = left - right
        case "*":
            result = left * right
        case "/":
            result = _quotient(left, right) if are_integers else left / right
        case _:
            result = left - right * _quotient(left, right)
    return in_range(result) if are_integers else result


def _quotient(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _order(left: Any, right: Any) -> int:
    if type(left) is not type(right) or not isinstance(left, (Fraction, Version)):
        raise SelectorError(f"a {_kind(left)} cannot be compared with a {_kind(right)}")
    return int(left > right) - int(left < right)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise SelectorError(f"a {_kind(value)} has no text")
    return str(value)


def _whole(value: Any) -> int:
    try:
        return in_range(int(value))
    except (ValueError, OverflowError):
        raise SelectorError(f"{str(value)[:64]!r} is no whole number") from None


def _is(read: Callable[[str], object]) -> Callable[[str], bool]:
    def is_one(text: str) -> bool:
        try:
            read(text)
        except (QuantityError, SelectorError):
            return False
        return True

    return is_one


def _or_else(value: Any, other: Any) -> Any:
    if not isinstance(value, _Optional):
        raise SelectorError("orValue needs an optional")
    return value.value if value.is_there else other


def _value(value: Any) -> Any:
    if not isinstance(value, _Optional) or not value.is_there:
        raise SelectorError("the optional has no value")
    return value.value


_FUNCTIONS: Mapping[tuple[str, int, bool], Callable[..., Any]] = {
    ("size", 1, False): len,
    ("size", 1, True): len,
    ("startsWith", 2, True): str.startswith,
    ("endsWith", 2, True): str.endswith,
    ("contains", 2, True): lambda text, part: str.find(text, part) >= 0,
    ("matches", 2, True): matches,
    ("matches", 2, False): matches,
    ("lowerAscii", 1, True): str.lower,
    ("upperAscii", 1, True): str.upper,
    ("trim", 1, True): str.strip,
    ("split", 2, True): lambda text, by: str.split(text, by) if by else list(text),
    ("string", 1, False): _text,
    ("int", 1, False): _whole,
    ("quantity", 1, False): parse_quantity,
    ("isQuantity", 1, False): _is(parse_quantity),
    ("semver", 1, False): parse_version,
    ("isSemver", 1, False): _is(parse_version),
    ("compareTo", 2, True): _order,
    ("isGreaterThan", 2, True): lambda left, right: _order(left, right) > 0,
    ("isLessThan", 2, True): lambda left, right: _order(left, right) < 0,
    ("major", 1, True): lambda version: version.numbers[0],
    ("minor", 1, True): lambda version: version.numbers[1],
    ("patch", 1, True): lambda version: version.numbers[2],
    ("orValue", 2, True): _or_else,
    ("hasValue", 1, True): lambda found: found.is_there,
    ("value", 1, True): _value,
}
