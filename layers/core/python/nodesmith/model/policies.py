"""Policies for all scheduling: the handling of preferences and minValues, and default topology spread constraints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nodesmith.model.apimachinery.labels import HOSTNAME, ZONE, normalised
from nodesmith.model.apimachinery.problems import did_you_mean

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
