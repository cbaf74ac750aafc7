"""Reading a cluster's ledger item by item from DynamoDB's responses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any

from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.zonalshifts import ZonalShift, read_shift
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger import moves
from nodesmith.model.ledger.backoffs import Backoff
from nodesmith.model.ledger.draintimes import DrainTime
from nodesmith.model.ledger.items import (
    read_backoff,
    read_cluster,
    read_drain_time,
    read_health,
    read_nodeclass,
    read_risk,
)
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, MoveKind
from nodesmith.model.ledger.nodeclaimitems import from_item
from nodesmith.model.ledger.pauses import Departure, Pause, read_departure, read_pause
from nodesmith.model.ledger.registrationhealth import RegistrationHealth
from nodesmith.model.ledger.risks import Risk
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus

Attributes = dict[str, Any]


def read_plainly(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    """Parse a Query response as plain JSON.

    For strings and numbers, botocore's parser returns the same but takes five times as long: with 5,000 claims, most of
    a tick.
    """
    if response_dict["status_code"] != HTTPStatus.OK:
        return
    with suppress(ValueError):  # botocore reports what is not JSON
        customized_response_dict.update(json.loads(response_dict["body"]))
        response_dict["body"] = b"{}"


class Found:
    """A partition that is being read.

    `known` holds the claims of the last read with their text, `texts` those of this read. Expired departures are
    omitted, because DynamoDB's TTL removes them with a delay.
    """

    def __init__(self, version: int, known: Mapping[str, tuple[str, NodeClaim]], now: datetime) -> None:
        self._version, self._known, self._now = version, known, now
        self.texts: dict[str, tuple[str, NodeClaim]] = {}
        self._cluster: ClusterInfo | None = None
        self._claims: list[NodeClaim] = []
        self._moves: list[Move] = []
        self._nodeclasses: dict[str, NodeClassStatus] = {}
        self._unavailable: dict[OfferingKey, Backoff] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._health: dict[str, RegistrationHealth] = {}
        self._paused: Pause | None = None
        self._departures: list[Departure] = []
        self._risks: dict[OfferingKey, Risk] = {}
        self._drain_times: dict[str, DrainTime] = {}
        self._move_backoffs: dict[MoveKind, Backoff] = {}
        self._subnets: dict[str, Backoff] = {}
        self._contents: dict[str, str] = {}
        self._shifts: tuple[ZonalShift, ...] = ()

    def take_all(self, items: Iterable[Attributes]) -> None:
        """Read several items."""
        for item in items:
            self.take(item)

    def take(self, item: Attributes) -> None:  # noqa: C901 (a case for each kind)
        """Read one item."""
        kind, _, name = item["sk"]["S"].partition("#")
        if kind == "CLAIM":
            self._claims.append(self._claim(name, item["doc"]["S"], int(item["revision"]["N"])))
            return
        document: Any = json.loads(item["doc"]["S"]) if "doc" in item else None
        match kind:  # a newer version may have written other kinds, which are ignored
            case "META":
                self._cluster = read_cluster(document) if document else None
            case "MOVE":
                self._moves.append(replace(moves.from_item(document), revision=int(item["revision"]["N"])))
            case "NODECLASS":
                self._nodeclasses[name] = read_nodeclass(document)
            case "OFFERING" | "GROUPOFFERING":
                self._unavailable[OfferingKey(*name.split("#")[:4])] = read_backoff(document)
            case "RISK":
                self._risks[OfferingKey(*name.split("#"))] = read_risk(document)
            case "DRAIN":
                self._drain_times[name] = read_drain_time(document)
            case "BACKOFF":
                self._backoffs[name] = read_backoff(document)
            case "MOVEBACKOFF":
                self._move_backoffs[MoveKind(*name.split("#"))] = read_backoff(document)
            case "SUBNET":
                self._subnets[name] = read_backoff(document)
            case "SHIFTS":
                self._shifts = tuple(map(read_shift, document))
            case "PAUSE":
                self._paused = read_pause(document)
            case "DEPARTURE":
                self._departures.append(read_departure(document))
            case "CONTENT":
                self._contents[name] = document
            case "HEALTH":
                self._health[name] = replace(read_health(document), revision=int(item["revision"]["N"]))

    def _claim(self, name: str, text: str, revision: int) -> NodeClaim:
        known = self._known.get(name)
        claim = known[1] if known and known[0] == text else from_item(json.loads(text))
        if claim.revision != revision:
            claim = replace(claim, revision=revision)
        self.texts[name] = text, claim
        return claim

    def ledger(self) -> Ledger:
        """Return the ledger that was read."""
        claims = tuple(sorted(self._claims, key=lambda c: c.name))
        lately = [each for each in self._departures if self._now <= each.kept_until]
        return Ledger(
            self._version,
            claims,
            self._nodeclasses,
            self._cluster,
            self._unavailable,
            self._backoffs,
            self._health,
            moves=tuple(sorted(self._moves, key=lambda m: m.id)),
            paused=self._paused,
            departures=tuple(sorted(lately, key=lambda d: d.claim)),
            risks=self._risks,
            drain_times=self._drain_times,
            move_backoffs=self._move_backoffs,
            subnet_backoffs=self._subnets,
            contents=self._contents,
            zonal_shifts=self._shifts,
        )


def read_moment(item: Attributes, name: str) -> datetime | None:
    """Return a time that an item holds as text, or None if it is missing or invalid."""
    try:
        return parse_time(item[name]["S"])
    except (KeyError, TypeError, ValueError):
        return None
