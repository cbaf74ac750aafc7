"""The forwarder's settings, from the environment, under Karpenter's names where Karpenter has the setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from nodesmith.errors import Rejected
from nodesmith.model.costs.allocations import parse_label_keys
from nodesmith_forwarder.windows import Pace

T = TypeVar("T")
_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>ms|s|m)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_LEVELS = {"debug": "DEBUG", "info": "INFO", "error": "ERROR"}


@dataclass(frozen=True, slots=True)
class ForwarderSettings:
    """The cluster to serve, where to write, how to reach functions, and how long to batch."""

    cluster_name: str
    region: str
    bucket_name: str
    table_name: str
    reached_from: str
    pace: Pace
    health_port: int
    log_level: str
    is_observing: bool = False
    """Whether the cluster is only observed, so that nothing but its shadows is woken."""
    labels_kept: tuple[str, ...] = ()


def read_forwarder_settings(environment: Mapping[str, str]) -> ForwarderSettings:
    """Read the settings. Raises Rejected naming variable, value and what is expected, with all faults at once."""
    reading = _Reading(environment)
    settings = ForwarderSettings(
        cluster_name=reading.text("CLUSTER_NAME", "the EKS cluster that is served"),
        region=reading.text("AWS_REGION", "the region of the cluster"),
        bucket_name=reading.text("BUCKET_NAME", "the S3 bucket of snapshots"),
        table_name=reading.text("TABLE_NAME", "the DynamoDB table of the region"),
        reached_from=environment.get("REACHED_FROM", ""),
        pace=Pace(
            reading.value("BATCH_IDLE_DURATION", "1s", _duration),
            reading.value("BATCH_MAX_DURATION", "10s", _duration),
        ),
        health_port=reading.value("HEALTH_PROBE_PORT", "8081", _port),
        log_level=reading.value("LOG_LEVEL", "info", _level),
        is_observing=reading.value("OBSERVE", "false", _flag),
        labels_kept=reading.value("ALLOCATION_LABELS", "", parse_label_keys),
    )
    if reading.faults:
        raise Rejected("settings: " + "; ".join(reading.faults))
    return settings


class _Reading:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.faults: list[str] = []

    def text(self, name: str, meaning: str) -> str:
        text = self._environment.get(name, "")
        if not text:
            self.faults.append(f"{name} is not set ({meaning})")
        return text

    def value(self, name: str, default: str, read: Callable[[str], T]) -> T:
        text = self._environment.get(name) or default
        try:
            return read(text)
        except ValueError as error:
            self.faults.append(f"{name}={text!r}: {error}")
            return read(default)


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("must be a duration such as 1s, 500ms or 1m")
    return timedelta(seconds=float(match["number"]) * _SECONDS[match["unit"]])


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65_535):
        raise ValueError("must be a port from 1 to 65535")
    return int(text)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _level(text: str) -> str:
    if text not in _LEVELS:
        raise ValueError(f"must be one of {', '.join(_LEVELS)}")
    return _LEVELS[text]
