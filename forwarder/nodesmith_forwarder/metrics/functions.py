"""The functions' counts and measurements, read from the objects that hold them whenever metrics are requested."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Lock, Thread

from nodesmith.errors import NodesmithError, Rejected
from nodesmith.keys import metrics_key
from nodesmith.model.functions import MEASURED, Concern
from nodesmith.model.metrics.metrics import SERIES, Labels, Recorded, labelled
from nodesmith.model.metrics.objects import MetricsObject
from nodesmith.ports import NONE_THERE, VersionedBlobs
from nodesmith_forwarder.clock import Clock
from nodesmith_forwarder.metrics.exposition import Family, written
from nodesmith_forwarder.metrics.offerings import OfferingMetrics

LOG = logging.getLogger(__name__)
LARGEST_BYTES = 2**20
OFTEN, SELDOM = timedelta(seconds=30), timedelta(minutes=2)
LOOKED_AT_OFTEN = frozenset({Concern.PROVISIONING, Concern.DISRUPTION, Concern.TERMINATION})
"""Every read costs money; the other concerns seldom have news."""
PATIENCE_SECONDS = 1.0
"""How long an answer waits for S3; later results appear in the next answer."""
_FROM_THE_BEGINNING: Mapping[str, Mapping[Labels, float]] = {
    "voluntary_disruption_consolidation_timeouts_total": {
        labelled(consolidation_type=kind): 0 for kind in ("multi", "single")
    },
}
"""Counters that exist before anything is counted, as in Karpenter."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An object as it was last read. If it is missing or unreadable, the previous content stays."""

    looked_at: datetime
    tag: str = NONE_THERE
    recorded: Recorded = field(default_factory=Recorded)
    fault: str = ""


class FunctionMetrics:
    """The metrics of a cluster's functions. Thread-safe."""

    def __init__(self, blobs: VersionedBlobs, cluster: str, clock: Clock) -> None:
        self._blobs, self._cluster, self._clock = blobs, cluster, clock
        self._kept: dict[Concern, _Kept] = {}
        self._offerings = OfferingMetrics(blobs, cluster)
        self._offered_at: datetime | None = None
        self._offerings_fault = ""
        self._lock = Lock()
        self._reading: Thread | None = None

    def text(self) -> bytes:
        """Return all series as text, including those of offerings; read new ones if that is due."""
        families = self.families()
        return written(families) + self._offerings.text

    def families(self) -> list[Family]:
        """Return all series except those of offerings, as last read; read new ones if that is due."""
        with self._lock:
            if not (self._reading and self._reading.is_alive()) and (
                self._due() or self._are_offerings_due()
            ):
                self._reading = Thread(target=self._read_all, name="metrics", daemon=True)
                self._reading.start()
            reading = self._reading
        if reading is not None:
            reading.join(PATIENCE_SECONDS)
        return list(_families(self._sum()))

    def _sum(self) -> Recorded:
        sum_ = Recorded()
        for concern in MEASURED:
            kept = self._kept.get(concern)
            if kept is not None:
                sum_.add(kept.recorded)
        return sum_

    def _due(self) -> list[Concern]:
        now = self._clock.now()
        return [concern for concern in MEASURED if self._is_due(concern, now)]

    def _is_due(self, concern: Concern, now: datetime) -> bool:
        kept = self._kept.get(concern)
        return kept is None or now - kept.looked_at >= (OFTEN if concern in LOOKED_AT_OFTEN else SELDOM)

    def _read_all(self) -> None:
        for concern in self._due():
            before = self._kept.get(concern) or _Kept(self._clock.now())
            kept = self._read(concern, replace(before, looked_at=self._clock.now()))
            self._kept[concern] = kept
            if kept.fault and not before.fault:
                LOG.warning("metrics of %s: %s", concern, kept.fault)

        if self._are_offerings_due():
            self._offered_at = self._clock.now()
            self._read_offerings()

    def _are_offerings_due(self) -> bool:
        return self._offered_at is None or self._clock.now() - self._offered_at >= SELDOM

    def _read_offerings(self) -> None:
        fault = ""
        try:
            self._offerings.read()
        except NodesmithError as error:
            fault = str(error)
        if fault and not self._offerings_fault:
            LOG.warning("metrics of offerings: %s", fault)
        self._offerings_fault = fault

    def _read(self, concern: Concern, kept: _Kept) -> _Kept:
        try:
            found = self._blobs.read(metrics_key(self._cluster, concern), kept.tag, LARGEST_BYTES)
        except NodesmithError as error:
            return replace(kept, fault=str(error))
        if found.data is None:
            return replace(kept, fault="")
        try:
            return replace(
                kept, tag=found.tag, recorded=MetricsObject.from_bytes(found.data).recorded, fault=""
            )
        except Rejected as error:
            return replace(kept, tag=found.tag, fault=str(error))


def _families(recorded: Recorded) -> list[Family]:
    found = []
    for name, series in SERIES.items():
        match series.kind:
            case "counter":
                counts = {**_FROM_THE_BEGINNING.get(name, {}), **recorded.counters.get(name, {})}
                found.append(Family(name, "counter", series.help, counts))
            case "histogram":
                found.append(Family(name, "histogram", series.help, recorded.histograms.get(name, {})))
            case "gauge":
                gauge = recorded.gauges.get(name)
                found.append(Family(name, "gauge", series.help, gauge.series if gauge else {}))
    return found
