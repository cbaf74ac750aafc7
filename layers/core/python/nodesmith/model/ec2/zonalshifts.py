"""Zonal shifts of Amazon Application Recovery Controller: zones that a cluster has shifted its traffic away from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.apimachinery.times import format_time, parse_time

SHIFTED = "ZoneShifted"
"""The condition of NodePools that can reach a zone which the cluster is shifted away from."""
AUTOSHIFT = "autoshift"
UNTOLD_END = timedelta(hours=1)
"""How long a shift without a stated end holds after it was last read: autoshifts end when AWS ends them."""


@dataclass(frozen=True, slots=True, order=True)
class ZonalShift:
    """One zone that a cluster is shifted away from. `zone` is its name in this account, `zone_id` its id.

    `until` is when it ends by itself. `kind` is what started it, in words. An `ended` shift is kept until its end is
    `announced`, as its beginning was.
    """

    zone: str
    zone_id: str
    until: datetime
    kind: str
    ended: bool = False
    announced: bool = False

    def holds(self, now: datetime) -> bool:
        """Return whether the zone is shifted away."""
        return not self.ended and now < self.until

    def __str__(self) -> str:
        id_ = f" ({self.zone_id})" if self.zone_id else ""
        end = "AWS ends it" if self.kind == AUTOSHIFT else f"{format_time(self.until)} at the latest"
        return f"zone {self.zone}{id_} is shifted away from by {_ARTICLES.get(self.kind, 'a')} {self.kind} until {end}"


_ARTICLES = {AUTOSHIFT: "an"}


def reconciled(
    recorded: Iterable[ZonalShift], read: Iterable[ZonalShift] | None, now: datetime
) -> tuple[ZonalShift, ...]:
    """Return the shifts to keep, by zone: those read now, and those that have ended and are not announced yet.

    `read` is None if the shifts could not be read: then those known hold until their end. The end of a shift that has
    no stated one is moved only when half of its time is over, so that a shift is not written with each reading.
    """
    before = {shift.zone: shift for shift in recorded}
    current = before if read is None else {shift.zone: shift for shift in read if shift.until > now}
    shifts: list[ZonalShift] = []
    for zone in sorted(before.keys() | current.keys()):
        old, new = before.get(zone), current.get(zone)
        if new is not None and new.holds(now):
            shifts.append(new if old is None or old.ended else _continued(old, new, now))
        elif old is not None and (old.ended or old.announced):
            shifts.append(old if old.ended else replace(old, ended=True, announced=False))
    return tuple(shifts)


def _continued(old: ZonalShift, new: ZonalShift, now: datetime) -> ZonalShift:
    if old.kind == new.kind == AUTOSHIFT and old.until - now > UNTOLD_END / 2:
        return old
    return replace(new, announced=old.announced)


def shifts_to_keep(shifts: Iterable[ZonalShift]) -> tuple[ZonalShift, ...]:
    """Return the shifts to keep once all of them are announced."""
    return tuple(replace(shift, announced=True) for shift in shifts if not shift.ended)


def next_end(shifts: Iterable[ZonalShift], now: datetime) -> datetime | None:
    """Return when the first shift ends by itself, None if none holds."""
    return min((shift.until for shift in shifts if shift.holds(now)), default=None)


def shown_shifts(nodepools: Iterable[Mapping[str, Any]], now: datetime) -> tuple[ZonalShift, ...]:
    """Return the zonal shifts that the conditions of NodePools show."""
    conditions = (c for pool in nodepools for c in (pool.get("status") or {}).get("conditions") or ())
    messages = (c.get("message") for c in conditions if (c.get("type"), c.get("status")) == (SHIFTED, "True"))
    matches = {part for message in messages for part in _SHOWN.findall(str(message or ""))}
    return tuple(
        sorted(
            ZonalShift(zone, id_, parse_time(end) if end else now + UNTOLD_END, kind, announced=True)
            for zone, id_, kind, end in matches
        )
    )


_SHOWN = re.compile(
    r"zone (\S+)(?: \((\S+)\))? is shifted away from by an? ([\w ]+) until (?:AWS ends it|(\S+) at the latest)"
)


def shift_item(shift: ZonalShift) -> list[Any]:
    """Write a shift as JSON data."""
    return [shift.zone, shift.zone_id, shift.until.isoformat(), shift.kind, shift.ended, shift.announced]


def read_shift(item: list[Any]) -> ZonalShift:
    """Read what `shift_item` wrote. Additions of later versions are ignored."""
    zone, zone_id, until, kind, ended, announced, *_ = item
    return ZonalShift(zone, zone_id, datetime.fromisoformat(until), kind, bool(ended), bool(announced))


def shifted_zone_ids(resource: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids of the zones that a managed resource is shifted away from.

    `resource` is what GetManagedResource and ListManagedResources describe. A zone counts if its weight is 0, or if a
    shift away from it is applied: ARC may not state both at the same time.
    """
    weightless = {id_ for id_, weight in (resource.get("appliedWeights") or {}).items() if not weight}
    stated = (*(resource.get("zonalShifts") or ()), *(resource.get("autoshifts") or ()))
    return frozenset(weightless | {shift["awayFrom"] for shift in stated if _is_applied(shift)})


def shifts_of(resource: Mapping[str, Any], zones: Mapping[str, str], now: datetime) -> tuple[ZonalShift, ...]:
    """Return the shifts in effect. `zones` are names of zones by id; a zone without a name is left out."""
    started = {shift["awayFrom"]: shift for shift in resource.get("zonalShifts") or () if _is_applied(shift)}
    shifts: list[ZonalShift] = []
    for id_ in shifted_zone_ids(resource) & zones.keys():
        shift = started.get(id_, {})
        until = shift.get("expiryTime") or now + UNTOLD_END
        shifts.append(ZonalShift(zones[id_], id_, until, _kind(shift)))
    return tuple(sorted(shifts))


def _is_applied(shift: Mapping[str, Any]) -> bool:
    return bool(shift.get("appliedStatus") == "APPLIED")


def _kind(shift: Mapping[str, Any]) -> str:
    if not shift:
        return AUTOSHIFT
    kinds = {"PRACTICE_RUN": "practice run", "FIS_EXPERIMENT": "experiment"}
    return kinds.get(shift.get("shiftType", ""), "zonal shift")


def cluster_of(arn: str) -> str:
    """Return the name of the EKS cluster that an ARN names, empty for anything else."""
    match = _CLUSTER.fullmatch(arn)
    return match[1] if match else ""


_CLUSTER = re.compile(r"arn:[\w-]+:eks:[\w-]+:\d{12}:cluster/([0-9A-Za-z][0-9A-Za-z_-]{0,99})", re.ASCII)
