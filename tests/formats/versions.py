"""Formats of other versions: documents with fields unknown to the current version, or without its newest fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

LATER = "addedLater"
"""The name of fields that only a later version knows."""
_UNKNOWN: Any = {"since": "the next version", "steps": [1, 2]}
EACH = "[]"
ANY = "*"


@dataclass(frozen=True, slots=True)
class Layout:
    """The structure of a JSON document, from which another version's document can be derived.

    Paths are names joined by `/`, with `[]` for each element of a list and `*` for each name of a map. An object has
    fields unless its path is in `maps`, where names are data; with `records`, only objects at these paths have fields.
    A list at a path in `rows` is a positional record. `lately` are fields that the previous version did not write.
    """

    maps: frozenset[str] = frozenset()
    rows: frozenset[str] = frozenset()
    lately: frozenset[str] = frozenset()
    records: frozenset[str] | None = None

    def below(self, path: str) -> Layout:
        """Return the layout of a document that contains this one at a path."""
        parts = (frozenset(f"{path}/{each}" for each in one) for one in (self.maps, self.rows, self.lately))
        return Layout(*parts)

    def __or__(self, other: Layout) -> Layout:
        """Return the layout of a document that combines both."""
        return Layout(self.maps | other.maps, self.rows | other.rows, self.lately | other.lately)


def _layout(maps: str = "", rows: str = "", lately: str = "", records: str | None = None) -> Layout:
    known = None if records is None else frozenset({"", *records.split()})
    return Layout(frozenset(maps.split()), frozenset(rows.split()), frozenset(lately.split()), known)


CLAIM = _layout(
    "labels annotations requests capacity allocatable attempts launch/tags",
    "history/[] true_history/[] launch/overrides/[] launch/fleet",
    "private_dns_name security_groups attempts served held_until replaced_by "
    "instance_gone_at inconsistency drifted_at provisioner launch/group "
    "buffer images stopped_price_hourly_usd stopped_at started_at true_phase true_history",
)
NODECLASS = _layout(
    "past past/*",
    rows="subnets/[] security_groups/[] images/[] conditions/[] placement_group/instances/[]",
    lately="capacity_reservations placement_group past",
)
REGISTRATION_HEALTH = _layout(rows="endings/[] offerings/[]")
OFFERED = _layout("allocatable allocatable/*")
DEPARTURE = _layout("attempts", lately="boughtAt initializedAt attempts served")
CLUSTER = _layout(lately="ip_family dns_ip")
GANG = _layout("places sets/[]")
LEDGER_KINDS: Mapping[str, Layout] = {
    "CLAIM": CLAIM,
    "NODECLASS": NODECLASS,
    "HEALTH": REGISTRATION_HEALTH,
    "DEPARTURE": DEPARTURE,
    "META": CLUSTER,
    "SHIFTS": _layout(rows="[]"),
    "GANG": GANG,
    "UNBOOKED": CLAIM,
}
"""The layouts by the kind with which a sort key in the ledger begins; other kinds have only fields."""
ALLOCATIONS = _layout("[]/labels")
BOOKED = _layout("prices", "prices/*")
HEALTH_STATE = _layout("since", "findings/[]")
HEALTH_RECORD = _layout("symptoms", lately="due symptoms")
SNAPSHOT = _layout(
    lately="podEvents attachLimits volumeattachments provisioningrequests pods/[]/started pods/[]/startups",
    records="pods/[] pods/[]/shape pods/[]/shape/spec nodes/[] nodes/[]/spec nodes/[]/status daemonsets/[] "
    "poddisruptionbudgets/[] volumeattachments/[] provisioningrequests/[] provisioningrequests/[]/spec",
)
DELTA = _layout(
    "podEvents sections",
    records="pods/[] pods/[]/shape pods/[]/shape/spec nodes/put/[] nodes/put/[]/spec nodes/put/[]/status "
    "poddisruptionbudgets/put/[]",
)
CATALOG = _layout("offerings", "zones/[] types/[] types/[]/[]/[] offerings/*/[]")
METRICS = _layout(
    "counters histograms gauges counters/*/[]/[] histograms/*/[]/[] gauges/*/series/[]/[]",
    "writers/[] counters/*/[] histograms/*/[] histograms/*/[]/[] gauges/*/series/[]",
)
ON_SALE = _layout("types", "types/* types/*/[]/[]")
UNPLACED = _layout("refused withoutTypes unschedulable", lately="unschedulable tried")
REGISTRATION = _layout(lately="reachedFrom settings")
TRIAL = _layout(lately="release ended")
EVENT = _layout(lately="messages/[]/attempt")
DELAYED = _layout(lately="payload/messages/[]/attempt")


def _decision() -> Layout:
    ledger = CLAIM.below("claims/[]") | NODECLASS.below("nodeclasses/[]") | CLUSTER.below("cluster")
    ledger |= REGISTRATION_HEALTH.below("health/*") | OFFERED.below("learned/[]/[]")
    ledger |= DEPARTURE.below("departures/[]") | GANG.below("gangs/[]")
    ledger |= _layout(
        "nodepool_backoffs health drain_times contents subnet_backoffs",
        "unavailable/[] risks/[] move_backoffs/[] learned/[] zonal_shifts/[]",
        "subnet_backoffs move_backoffs contents zonal_shifts gangs",
    )
    own = _layout("plan/placed plan/waiting plan/obstacles durationsMs", lately="inputs/tried")
    return ledger.below("inputs/ledger") | own


DECISION = _decision()


@dataclass(frozen=True, slots=True)
class Version:
    """How a version writes, and how it sees what others have written."""

    name: str
    written: Callable[[Any, Layout], Any]
    seen: Callable[[Any, Layout], Any]
    beside: Mapping[str, Any]
    """Attributes that it writes next to an item's document."""


def later(document: Any, layout: Layout, path: str = "") -> Any:
    """Return a document as a later version writes it: every object and row in it has an addition."""
    match document:
        case dict():
            is_map = path in layout.maps or (layout.records is not None and path not in layout.records)
            is_named = path in layout.maps
            grown = {
                name: later(value, layout, _below(path, ANY if is_named else name))
                for name, value in document.items()
            }
            return grown if is_map else {**grown, LATER: _UNKNOWN}
        case list():
            elements = [later(each, layout, _below(path, EACH)) for each in document]
            return [*elements, LATER] if path in layout.rows else elements
        case _:
            return document


def earlier(document: Any, layout: Layout, path: str = "") -> Any:
    """Return a document as the previous version writes and sees it: without the fields that it does not know."""
    match document:
        case dict():
            is_map = path in layout.maps
            below = ((name, _below(path, ANY if is_map else name), value) for name, value in document.items())
            return {
                name: earlier(value, layout, there)
                for name, there, value in below
                if is_map or (there not in layout.lately and name != LATER)
            }
        case list():
            return [earlier(each, layout, _below(path, EACH)) for each in document]
        case _:
            return document


def _below(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _as_it_is(document: Any, _: Layout) -> Any:
    return document


TODAY = Version("today", _as_it_is, _as_it_is, {})
NEXT = Version("next", later, _as_it_is, {LATER: {"M": {"steps": {"N": "2"}}}})
"""Today's code, whose writes contain more than today's code can know."""
BEFORE = Version("before", earlier, earlier, {})
"""Today's code without its newest fields: they are dropped when it reads and when it writes."""


def layout_of(pk: str, sk: str) -> Layout:
    """Return the layout of an item's document."""
    if pk.partition("#")[0] == "HEALTH":
        return HEALTH_STATE if sk == "STATE" else HEALTH_RECORD
    if pk.startswith("LEARNED#"):
        return OFFERED
    return LEDGER_KINDS.get(sk.partition("#")[0], Layout())


@lru_cache(maxsize=4096)
def rewritten(text: str, layout: Layout, change: Callable[[Any, Layout], Any]) -> str:
    """Return the text of a JSON document after a change."""
    if change is _as_it_is:
        return text
    return json.dumps(change(json.loads(text), layout), separators=(",", ":"))
