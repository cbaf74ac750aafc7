"""Settings of an operator for a whole cluster: preferences, minValues, default spreads, and limits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
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
from nodesmith.model.nodeclasses.status import ClusterInfo

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
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be List, System or JSON with defaultConstraints ({error})") from None
    for name in ("podTopologySpread", "defaultConstraints"):
        if isinstance(value, Mapping):
            value = _only(value, name)
    if not isinstance(value, list):
        raise ValueError("defaultConstraints must be a list")
    read = tuple(_constraint(item) for item in value)
    if len({(spread.topology_key, spread.hard) for spread in read}) < len(read):
        raise ValueError("defaultConstraints must not name a topologyKey twice with one whenUnsatisfiable")
    return read


def _only(value: Mapping[str, Any], name: str) -> object:
    """Return the value of the only field that a map may have. A map without the outer level is returned unchanged."""
    if name == "podTopologySpread" and name not in value:
        return value
    unknown = sorted(map(str, value.keys() - {name}))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}{did_you_mean(unknown[0], (name,))}")
    return value.get(name)


def _constraint(item: object) -> DefaultSpread:
    if not isinstance(item, Mapping):
        raise ValueError(f"a constraint must be a map of {', '.join(_FIELDS)}, found {item!r}")
    unknown = sorted(map(str, item.keys() - set(_FIELDS)))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}: a default constraint has only {', '.join(_FIELDS)}")
    skew, key, policy = (item.get(name) for name in _FIELDS)
    if type(skew) is not int or skew < 1:
        raise ValueError(f"maxSkew is {skew!r}: must be a whole number, 1 or more")
    if not isinstance(key, str) or not key:
        raise ValueError(f"topologyKey is {key!r}: must be a label of nodes, such as {ZONE}")
    if policy not in _WHEN:
        raise ValueError(f"whenUnsatisfiable is {policy!r}: must be {' or '.join(_WHEN)}")
    return DefaultSpread(normalised(key), skew, policy == "DoNotSchedule")


NODE_SURCHARGE = "nodesmith.dev/node-surcharge-hourly"
"""On a NodePool: what each of its nodes costs an hour beyond its instance. On a DaemonSet: each node with its pod."""
_HIGHEST_SURCHARGE = 10_000.0


RESET_LAUNCHES = "nodesmith.dev/reset-launches"
"""On a NodePool: a time. Once it changes, nodes that were bought in vain before do not count any more."""
_LONGEST_TIME = 64
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def read_reset(text: str) -> str:
    """Return the value of RESET_LAUNCHES. Raises ValueError with what would be right."""
    if len(text) < _LONGEST_TIME and _TIME.fullmatch(text):
        return text
    raise ValueError("must be a time such as 2026-11-27T10:00:00Z; nothing is reset")


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
    highest = f"{_HIGHEST_SURCHARGE:.0f}"
    raise ValueError(f"must be USD per node and hour, 0 to {highest}, such as 0.05{hint}; treated as 0")


USD_PER_HOUR = "nodesmith.dev/usd-per-hour"
"""The sum of nodes' hourly prices, as a resource that limits may name. Its unit is a millionth of a US dollar."""
MICRO = 1_000_000
USD_PER_MONTH = "nodesmith.dev/usd-per-month"
"""What nodes cost in a calendar month (UTC). Its unit is a millionth of a US dollar an hour, paid for one second."""
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
    if amount and not (amount[1] or amount[3]):
        amount = None  # too large, or with too many digits
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
    limits: dict[str, int] = {}
    for part in filter(str.strip, text.split(",")):
        entry = _ENTRY.fullmatch(part)
        if entry is None:
            raise ValueError(f"{part.strip()!r} must be a resource and its limit, such as nodes=200")
        name, value = entry.groups()
        if not is_limited(name) and name != USD_PER_MONTH:
            names = ", ".join(_OF_CLUSTERS)
            hint = did_you_mean(name, _OF_CLUSTERS) or f", use {names}, or another name with a domain"
            raise ValueError(f"{name!r} is not a resource{hint}")
        if name in limits:
            raise ValueError(f"{name!r} is given twice: write one limit for it")
        limits[name] = _IN_DOLLARS[name](value) if name in _IN_DOLLARS else parse_amount(name, value)
        if limits[name] < 0:
            raise ValueError(f"{name}={value} must not be negative")
    return tuple(sorted(limits.items()))


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of an operator for a whole cluster."""

    vm_memory_overhead_percent: float = 0.075
    """the hypervisor's share of memory, as a fraction: 0.075 means 7.5 %"""
    reserved_enis: int = 0
    """network interfaces that the VPC CNI does not use for pods (custom networking)"""
    prefix_delegation: bool = False
    """True if the VPC CNI assigns /28 prefixes on Nitro instances"""
    preference_policy: PreferencePolicy = PreferencePolicy.RESPECT
    min_values_policy: MinValuesPolicy = MinValuesPolicy.STRICT
    fragility_tolerance: float = 0.01
    """how much more a plan may cost so that no node has all pods of a kind, as a fraction"""
    few_nodes_tolerance: float = 0.0
    """how much more a plan may cost because it has fewer nodes, as a fraction"""
    interruption_cost_hours: float = 1.0
    """the assumed cost of one interruption, in hours of the node's price"""
    default_spreads: tuple[DefaultSpread, ...] = ()
    """constraints for pods without a topology spread constraint of their own"""
    windows_prefix_delegation: bool = False
    """True if Windows nodes on Nitro get /28 prefixes for their pods"""
    cluster_limits: tuple[tuple[str, int], ...] = ()
    """limits over all nodes of the cluster: resource and amount in its unit, sorted by name"""
    expendable_priority_cutoff: int | None = None
    """pods of a lower priority neither cause purchases nor keep nodes; None if there are no such pods"""
    ipv6: bool = False
    """True in an IPv6 cluster, whose VPC CNI gives each node an address range of practically any size"""

    ignore_dra_requests: bool = False
    """whether pods that claim devices are left alone"""
    shared_provisioning_classes: bool = True
    """whether ProvisioningRequests of Cluster Autoscaler's classes are served"""
    proactive_pod_limit: int = 5000
    """no pod is planned before it exists while this many are pending or planned"""

    def in_cluster(self, cluster: ClusterInfo | None) -> NodeSettings:
        """Return the settings as they apply in a cluster; unchanged if it is not known."""
        ipv6 = cluster is not None and cluster.ip_family == "ipv6"
        return replace(self, ipv6=True) if ipv6 and not self.ipv6 else self

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> NodeSettings:
        """Read settings that were written with `dataclasses.asdict`.

        Missing settings get their defaults. Unknown names are ignored.
        """
        values = _known_fields(cls, written)
        spreads = written.get("default_spreads", ())
        values["default_spreads"] = tuple(
            DefaultSpread(**_known_fields(DefaultSpread, spread)) for spread in spreads
        )
        limits = written.get("cluster_limits", ())
        values["cluster_limits"] = tuple((str(name), int(amount)) for name, amount in limits)
        for name, policy in (("preference_policy", PreferencePolicy), ("min_values_policy", MinValuesPolicy)):
            if name in values:
                values[name] = policy(values[name])
        return cls(**values)


def _known_fields(kind: type[Any], written: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in written.items() if name in names}
