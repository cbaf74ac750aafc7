"""Policies for all scheduling: preferences, minValues, default topology spread constraints, and limits of a cluster."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from nodesmith.model.apimachinery.labels import HOSTNAME, ZONE, normalised
from nodesmith.model.apimachinery.problems import did_you_mean, shown
from nodesmith.model.apimachinery.quantities import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    NODES,
    PODS,
    QuantityError,
    parse_amount,
    parse_quantity,
)

_FIELDS = ("maxSkew", "topologyKey", "whenUnsatisfiable")
_WHEN = ("DoNotSchedule", "ScheduleAnyway")


class PreferencePolicy(StrEnum):
    """How pods' preferences affect which nodes are bought: Karpenter's PREFERENCE_POLICY."""

    RESPECT = "Respect"
    """as requirements, which are relaxed one by one if a pod cannot be placed"""
    IGNORE = "Ignore"
    """not at all, so that preferences cost nothing"""


class MinValuesPolicy(StrEnum):
    """What happens to a node that cannot meet its NodePool's minValues: Karpenter's MIN_VALUES_POLICY."""

    STRICT = "Strict"
    """it is not bought"""
    BEST_EFFORT = "BestEffort"
    """it is bought with as many values as there are"""


@dataclass(frozen=True, slots=True)
class DefaultSpread:
    """One default topology spread constraint. `hard` means DoNotSchedule."""

    topology_key: str
    max_skew: int
    hard: bool


SYSTEM_SPREADS = (DefaultSpread(HOSTNAME, 3, hard=False), DefaultSpread(ZONE, 5, hard=False))
"""kube-scheduler's default without configuration: defaultingType System."""


def parse_default_spreads(text: str) -> tuple[DefaultSpread, ...]:
    """Read `List` (none), `System` (kube-scheduler's own), or JSON with a list of constraints.

    The JSON is the list alone, or a map with the list as `defaultConstraints` or as Karpenter's
    `podTopologySpread.defaultConstraints`. Raises ValueError with what was found and what would be right.
    """
    if text in ("List", "System"):
        return SYSTEM_SPREADS if text == "System" else ()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be List, System or JSON with defaultConstraints ({error})") from None
    for name in ("podTopologySpread", "defaultConstraints"):
        if isinstance(given, Mapping):
            given = _only(given, name)
    if not isinstance(given, list):
        raise ValueError("defaultConstraints must be a list")
    read = tuple(_constraint(item) for item in given)
    if len({(spread.topology_key, spread.hard) for spread in read}) < len(read):
        raise ValueError("defaultConstraints must not name a topologyKey twice with one whenUnsatisfiable")
    return read


def _only(given: Mapping[str, Any], name: str) -> object:
    """Return the value of the only field that a map may have. A map without the outer level is returned unchanged."""
    if name == "podTopologySpread" and name not in given:
        return given
    unknown = sorted(map(str, given.keys() - {name}))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}{did_you_mean(unknown[0], (name,))}")
    return given.get(name)


def _constraint(item: object) -> DefaultSpread:
    if not isinstance(item, Mapping):
        raise ValueError(f"a constraint must be a map of {', '.join(_FIELDS)}, found {item!r}")
    unknown = sorted(map(str, item.keys() - set(_FIELDS)))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}: a default constraint has only {', '.join(_FIELDS)}")
    skew, key, when = (item.get(name) for name in _FIELDS)
    if type(skew) is not int or skew < 1:
        raise ValueError(f"maxSkew is {skew!r}: must be a whole number, 1 or more")
    if not isinstance(key, str) or not key:
        raise ValueError(f"topologyKey is {key!r}: must be a label of nodes, such as {ZONE}")
    if when not in _WHEN:
        raise ValueError(f"whenUnsatisfiable is {when!r}: must be {' or '.join(_WHEN)}")
    return DefaultSpread(normalised(key), skew, when == "DoNotSchedule")


NODE_SURCHARGE = "nodesmith.dev/node-surcharge-hourly"
"""On a NodePool: what each of its nodes costs an hour beyond its instance. On a DaemonSet: each node with its pod."""
_HIGHEST_SURCHARGE = 10_000.0


def read_surcharge(text: str) -> float:
    """Return a surcharge in USD an hour. Raises ValueError with what would be right."""
    try:
        surcharge = float(text)
    except ValueError:
        surcharge = math.nan
    if 0 <= surcharge <= _HIGHEST_SURCHARGE:
        return surcharge
    amount = _WITH_CURRENCY.fullmatch(text.strip())
    is_marked = _WITH_COMMA.fullmatch(text) or (amount and (amount[1] or amount[3]))
    hint = f", {_right_usd(text[:40].strip())}" if is_marked else ""
    most = f"{_HIGHEST_SURCHARGE:.0f}"
    raise ValueError(f"must be USD per node and hour, 0 to {most}, such as 0.05{hint}; treated as 0")


USD_PER_HOUR = "nodesmith.dev/usd-per-hour"
"""The sum of nodes' hourly prices, as a resource that limits may name. Its unit is a millionth of a US dollar."""
MICRO = 1_000_000
USD_PER_MONTH = "nodesmith.dev/usd-per-month"
"""What nodes cost in a calendar month (UTC). Its unit is what a millionth of a US dollar an hour costs in a second."""
MONTHLY = MICRO * 3600
"""One US dollar in the unit of `USD_PER_MONTH`."""
LAUNCHES_PER_HOUR = "nodesmith.dev/launches-per-hour"
"""How many nodes are requested within an hour."""
LIMIT_PARAMETERS = "/nodesmith/limits"
"""The path of SSM parameters with a SpendingLimit each, named by the end of the parameter's name."""
MOST_LAUNCHES = 1_000_000
"""The largest limit of launches an hour."""
LAUNCHES_OF_CLUSTER = 500
"""How many nodes a cluster may request within an hour, unless its registration says otherwise."""
LIMITED = (NODES, CPU, MEMORY, EPHEMERAL_STORAGE, PODS, USD_PER_HOUR)
"""What limits over sets of nodes may name, besides huge pages and extended resources."""
_OF_CLUSTERS = (*LIMITED, USD_PER_MONTH)
_OWN_DOMAIN = "nodesmith.dev/"
_MOST_USD = 1_000_000_000
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?", re.ASCII)
_WITH_COMMA = re.compile(r"([0-9]+),([0-9]+)", re.ASCII)
_WITH_CURRENCY = re.compile(r"([^\d\s.,-]*)\s*([0-9]+(?:\.[0-9]+)?)\s*([^\d\s.,-]*)")
_DOLLARS = frozenset({"", "$", "usd", "us$", "dollar", "dollars"})


def is_limited(name: str) -> bool:
    """Return whether a limit may have this name."""
    if name.startswith(_OWN_DOMAIN):
        return name in LIMITED
    return name in LIMITED or "/" in name or name.startswith("hugepages-")


def read_usd_of_month(text: str) -> int:
    """Return an amount of US dollars in the unit of `USD_PER_MONTH`. Raises ValueError with what would be right."""
    return read_usd(text) * (MONTHLY // MICRO)


def read_usd(text: str) -> int:
    """Return an amount of US dollars in millionths. Raises ValueError with what would be right."""
    if _NUMBER.fullmatch(text) and float(text) <= _MOST_USD:
        return math.floor(Fraction(text) * MICRO)
    raise ValueError(f"must be a number of US dollars, {_right_usd(text[:40].strip())}")


def _right_usd(text: str) -> str:
    comma, amount = _WITH_COMMA.fullmatch(text), _WITH_CURRENCY.fullmatch(text)
    if comma:
        return f"with a point: did you mean '{comma[1]}.{comma[2]}'?"
    if amount and {amount[1].lower(), amount[3].lower()} <= _DOLLARS:
        return f"without a currency: did you mean '{amount[2]}'?"
    if amount:
        currency = amount[1] or amount[3]
        return f"without a currency: convert {amount[2]} {currency} into US dollars"
    return f"such as 5 or 12.50, at most {_MOST_USD}"


def micro_usd_of(value: object) -> int:
    """Return a quantity of US dollars in millionths, rounded down. Raises QuantityError."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise QuantityError(shown(value), "write text such as '5.25'")
    return math.floor(parse_quantity(value if isinstance(value, str) else repr(value)) * MICRO)


def micro_usd(price_hourly_usd: float) -> int:
    """Return a price in millionths of a US dollar, rounded up, so that sums are never too low."""
    return math.ceil(round(price_hourly_usd * MICRO, 3))


_IN_DOLLARS = {USD_PER_HOUR: read_usd, USD_PER_MONTH: read_usd_of_month}
_ENTRY = re.compile(r"\s*([^=\s]+)\s*=\s*(.*?)\s*")


def parse_cluster_limits(text: str) -> tuple[tuple[str, int], ...]:
    """Read the limits of a cluster, such as `nodes=200,cpu=4000,memory=16Ti,nvidia.com/gpu=8`.

    Amounts are in the unit of each resource, sorted by name. Raises ValueError with what would be right.
    """
    found: dict[str, int] = {}
    for part in filter(str.strip, text.split(",")):
        entry = _ENTRY.fullmatch(part)
        if entry is None:
            raise ValueError(f"{part.strip()!r} must be a resource and its limit, such as nodes=200")
        name, value = entry.groups()
        if not is_limited(name) and name != USD_PER_MONTH:
            known = ", ".join(_OF_CLUSTERS)
            hint = did_you_mean(name, _OF_CLUSTERS) or f", use {known}, or another name with a domain"
            raise ValueError(f"{name!r} is not a resource{hint}")
        found[name] = _IN_DOLLARS[name](value) if name in _IN_DOLLARS else parse_amount(name, value)
        if found[name] < 0:
            raise ValueError(f"{name}={value} must not be negative")
    return tuple(sorted(found.items()))
