"""Amazon Application Recovery Controller's zonal shifts, which moto lacks: registered clusters and their shifts.

Clients read managed resources, and start and cancel shifts. Tests start autoshifts and practice runs.

`with ZonalShifts(now).answering(): …` adds the service to moto, both to its server and to `mock_aws`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import unquote

from moto.core import DEFAULT_ACCOUNT_ID

from nodesmith_local.aws.services import Answer, serving

_SERVICE = "arczonalshift"
_HOST = re.compile(r"https?://arc-zonal-shift\.(.+)\.amazonaws\.com")
_PATH, _SHIFTS = "/managedresources", "/zonalshifts"
_UNITS = {"m": "minutes", "h": "hours"}
_LONGEST = timedelta(days=3)
_ID = "00000000-0000-0000-0000-{:012}"
MANUAL = "ZONAL_SHIFT"


@dataclass(slots=True)
class _Resource:
    """A registered cluster. `shifts` are shifts by zone id."""

    arn: str
    shifts: dict[str, _Shift] = field(default_factory=dict)


class _Shift(NamedTuple):
    """A shift. `until` is None for an autoshift."""

    kind: str
    until: datetime | None
    id: str = ""


class ZonalShifts:
    """The clusters that are registered in a region, and the zones that they are shifted away from."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._resources: dict[str, _Resource] = {}
        self._ids = count(1)
        self.refuses = ""
        """The error code with which all calls are answered, if any."""

    def register(self, cluster: str, region: str) -> None:
        """Register a cluster, as EKS does when its zonal shift configuration is enabled."""
        arn = f"arn:aws:eks:{region}:{DEFAULT_ACCOUNT_ID}:cluster/{cluster}"
        self._resources.setdefault(cluster, _Resource(arn))

    def start(self, cluster: str, zone_id: str, lasting: timedelta, kind: str = MANUAL) -> None:
        """Shift a registered cluster away from a zone."""
        shift = _Shift(kind, self._now() + lasting, _ID.format(next(self._ids)))
        self._resources[cluster].shifts[zone_id] = shift

    def start_autoshift(self, cluster: str, zone_id: str) -> None:
        """Shift a registered cluster away from a zone until `end`."""
        self._resources[cluster].shifts[zone_id] = _Shift("", None)

    def end(self, cluster: str, zone_id: str) -> None:
        """End a shift before its time."""
        del self._resources[cluster].shifts[zone_id]

    def answering(self) -> AbstractContextManager[None]:
        """Let moto answer the service's calls during the block."""
        paths = (_PATH, _SHIFTS)
        urls = (rf"https?://arc-zonal-shift\.(.+)\.amazonaws\.com{path}(/.+)?$" for path in paths)
        routes = (route for path in paths for route in (path, f"{path}/<path:named>"))
        return serving(_SERVICE, _HOST, urls, routes, self._answer)

    def _answer(self, method: str, path: str, body: bytes) -> Answer:
        if self.refuses:
            return _refusal(403, self.refuses, "Failed on demand.")
        if _SHIFTS in path:
            return self._started(json.loads(body or b"{}")) if method == "POST" else self._cancelled(path)
        arn = unquote(path.partition(f"{_PATH}/")[2])
        if not arn:
            items = [
                {**self._described(resource), "availabilityZones": []}
                for resource in self._resources.values()
            ]
            return 200, {}, json.dumps({"items": items})
        managed = next((resource for resource in self._resources.values() if resource.arn == arn), None)
        if managed is None:
            return _refusal(404, "ResourceNotFoundException", f"{arn} is not a managed resource")
        return 200, {}, json.dumps(self._described(managed))

    def _started(self, parameters: Mapping[str, Any]) -> Answer:
        """Answer StartZonalShift. As in ARC, a resource has one shift that somebody started."""
        clusters_by_arn = {resource.arn: name for name, resource in self._resources.items()}
        cluster = clusters_by_arn.get(str(parameters["resourceIdentifier"]))
        if cluster is None:
            return _refusal(
                404,
                "ResourceNotFoundException",
                f"{parameters['resourceIdentifier']} is not a managed resource",
            )
        lasting = _lasting(str(parameters["expiresIn"]))
        if lasting is None:
            return _refusal(400, "ValidationException", f"expiresIn {parameters['expiresIn']}: up to 72h")
        if any(shift.kind == MANUAL for shift in self._live(self._resources[cluster]).values()):
            return _refusal(409, "ConflictException", f"{cluster} has an active zonal shift")
        zone_id = str(parameters["awayFrom"])
        self.start(cluster, zone_id, lasting)
        shift = self._resources[cluster].shifts[zone_id]
        return (
            201,
            {},
            json.dumps(self._shown(self._resources[cluster], zone_id, shift) | {"status": "ACTIVE"}),
        )

    def _cancelled(self, path: str) -> Answer:
        """Answer CancelZonalShift."""
        shift_id = path.rpartition("/")[2]
        for resource in self._resources.values():
            for zone_id, shift in resource.shifts.items():
                if shift.id == shift_id:
                    del resource.shifts[zone_id]
                    return 200, {}, json.dumps(self._shown(resource, zone_id, shift) | {"status": "CANCELED"})
        return _refusal(404, "ResourceNotFoundException", f"{shift_id} is not an active zonal shift")

    def _live(self, resource: _Resource) -> dict[str, _Shift]:
        now = self._now()
        return {
            id_: shift for id_, shift in resource.shifts.items() if shift.until is None or shift.until > now
        }

    def _shown(self, resource: _Resource, zone_id: str, shift: _Shift) -> dict[str, Any]:
        return {
            "awayFrom": zone_id,
            "startTime": self._now().timestamp(),
            "expiryTime": shift.until.timestamp() if shift.until else None,
            "zonalShiftId": shift.id,
            "resourceIdentifier": resource.arn,
            "comment": "",
        }

    def _described(self, resource: _Resource) -> dict[str, Any]:
        live, applied = self._live(resource), {"appliedStatus": "APPLIED"}
        return {
            "arn": resource.arn,
            "name": resource.arn.rpartition("/")[2],
            "appliedWeights": dict.fromkeys(live, 0.0),
            "zonalShifts": [
                {**self._shown(resource, id_, shift), **applied, "shiftType": shift.kind}
                for id_, shift in live.items()
                if shift.until is not None
            ],
            "autoshifts": [
                {**applied, "startTime": self._now().timestamp(), "awayFrom": id_}
                for id_, shift in live.items()
                if shift.until is None
            ],
        }


def _lasting(text: str) -> timedelta | None:
    """Return how long a shift lasts by its `expiresIn`, such as 90m or 2h; None if ARC refuses it."""
    number, unit = text[:-1], _UNITS.get(text[-1:])
    if not unit or not number.isdecimal():
        return None
    lasting = timedelta(**{unit: int(number)})
    return lasting if timedelta(0) < lasting <= _LONGEST else None


def _refusal(status: int, code: str, message: str) -> Answer:
    return status, {"x-amzn-ErrorType": code}, json.dumps({"message": message})
