"""Amazon Application Recovery Controller's zonal shifts, which moto lacks: registered clusters and their shifts.

`with ZonalShifts(now).answering(): …` adds the service to moto, both to its server and to `mock_aws`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

from moto import backend_index, backends
from moto.core import DEFAULT_ACCOUNT_ID

_SERVICE = "arczonalshift"
_HOST = re.compile(r"https?://arc-zonal-shift\.(.+)\.amazonaws\.com")
_PATH = "/managedresources"
Answer = tuple[int, Mapping[str, str], str]
MANUAL, PRACTICE_RUN = "ZONAL_SHIFT", "PRACTICE_RUN"


@dataclass(slots=True)
class _Resource:
    """A registered cluster. `shifts` are shifts by zone id, with their kind and end; None for an autoshift."""

    arn: str
    shifts: dict[str, tuple[str, datetime | None]] = field(default_factory=dict)


class ZonalShifts:
    """The clusters that are registered in a region, and the zones that they are shifted away from."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._resources: dict[str, _Resource] = {}
        self.refuses = ""
        """The error code with which all calls are answered, if any."""

    def register(self, cluster: str, region: str) -> None:
        """Register a cluster, as EKS does when its zonal shift configuration is enabled."""
        arn = f"arn:aws:eks:{region}:{DEFAULT_ACCOUNT_ID}:cluster/{cluster}"
        self._resources.setdefault(cluster, _Resource(arn))

    def start(self, cluster: str, zone_id: str, lasting: timedelta, kind: str = MANUAL) -> None:
        """Shift a registered cluster away from a zone."""
        self._resources[cluster].shifts[zone_id] = kind, self._now() + lasting

    def start_autoshift(self, cluster: str, zone_id: str) -> None:
        """Shift a registered cluster away from a zone until `end`."""
        self._resources[cluster].shifts[zone_id] = "", None

    def end(self, cluster: str, zone_id: str) -> None:
        """End a shift before its time."""
        del self._resources[cluster].shifts[zone_id]

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let moto answer the service's calls during the block."""
        get_backend = backends.get_backend

        def answer(request: Any, url: str, headers: Any) -> Answer:
            del headers
            return self._answer(str(getattr(request, "path", "") or url))

        named = SimpleNamespace(
            urls={rf"https?://arc-zonal-shift\.(.+)\.amazonaws\.com{_PATH}(/.+)?$": answer},
            flask_paths={_PATH: answer, f"{_PATH}/<path:resource>": answer},
        )

        def with_ours(name: Any) -> Any:
            return {"global": named} if name == _SERVICE else get_backend(name)

        entry = (_SERVICE, _HOST)
        with ExitStack() as stack:
            stack.enter_context(patch.object(backends, "get_backend", with_ours))
            backend_index.backend_url_patterns.append(entry)
            stack.callback(backend_index.backend_url_patterns.remove, entry)
            yield

    def _answer(self, path: str) -> Answer:
        if self.refuses:
            return _refusal(403, self.refuses, "Failed on demand.")
        named = unquote(path.partition(f"{_PATH}/")[2])
        if not named:
            items = [{**self._described(each), "availabilityZones": []} for each in self._resources.values()]
            return 200, {}, json.dumps({"items": items})
        found = next((each for each in self._resources.values() if each.arn == named), None)
        if found is None:
            return _refusal(404, "ResourceNotFoundException", f"{named} is not a managed resource")
        return 200, {}, json.dumps(self._described(found))

    def _described(self, resource: _Resource) -> dict[str, Any]:
        now = self._now()
        live = {id_: each for id_, each in resource.shifts.items() if each[1] is None or each[1] > now}
        started = {"startTime": now.timestamp(), "appliedStatus": "APPLIED"}
        return {
            "arn": resource.arn,
            "name": resource.arn.rpartition("/")[2],
            "appliedWeights": dict.fromkeys(live, 0.0),
            "zonalShifts": [
                {
                    **started,
                    "awayFrom": id_,
                    "expiryTime": until.timestamp(),
                    "shiftType": kind,
                    "zonalShiftId": "00000000-0000-0000-0000-000000000000",
                    "resourceIdentifier": resource.arn,
                    "comment": "",
                }
                for id_, (kind, until) in live.items()
                if until is not None
            ],
            "autoshifts": [{**started, "awayFrom": id_} for id_, (_, until) in live.items() if until is None],
        }


def _refusal(status: int, code: str, message: str) -> Answer:
    return status, {"x-amzn-ErrorType": code}, json.dumps({"message": message})
