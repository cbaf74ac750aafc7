"""What an operator decides once for all scheduling: what wishes and flexibility may cost, and default spreads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nodesmith.model.apimachinery.labels import HOSTNAME, ZONE, normalised
from nodesmith.model.apimachinery.spelling import did_you_mean

_FIELDS = ("maxSkew", "topologyKey", "whenUnsatisfiable")
_WHEN = ("DoNotSchedule", "ScheduleAnyway")


class PreferencePolicy(StrEnum):
    """What pods' preferences mean when nodes are bought: Karpenter's PREFERENCE_POLICY."""

    RESPECT = "Respect"
    """rules, given up one by one when a pod cannot be placed"""
    IGNORE = "Ignore"
    """nothing that may cost anything"""


class MinValuesPolicy(StrEnum):
    """What becomes of a node that cannot have its NodePool's minValues: Karpenter's MIN_VALUES_POLICY."""

    STRICT = "Strict"
    """it is not bought"""
    BEST_EFFORT = "BestEffort"
    """it is bought with as many values as there are"""


@dataclass(frozen=True, slots=True)
class DefaultSpread:
    """One default constraint; `hard` is DoNotSchedule."""

    topology_key: str
    max_skew: int
    hard: bool


SYSTEM_SPREADS = (DefaultSpread(HOSTNAME, 3, hard=False), DefaultSpread(ZONE, 5, hard=False))
"""What kube-scheduler does unless it is configured: defaultingType System."""


def parse_default_spreads(text: str) -> tuple[DefaultSpread, ...]:
    """Read `List` (none), `System` (kube-scheduler's own), or JSON: a list of constraints or who holds one.

    The list may stand alone, as `defaultConstraints`, or as Karpenter's `podTopologySpread.defaultConstraints`. Raises
    ValueError, saying what was found and what would be right.
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
    """Return the one field that a map may have; a map of the level below is let through."""
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
