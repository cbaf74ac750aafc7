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
from nodesmith_forwarder.metrics.exposition import Family, exposition_text
from nodesmith_forwarder.metrics.offerings import OfferingMetrics

LOG = logging.getLogger(__name__)
LARGEST_BYTES = 2**20
OFTEN, SELDOM = timedelta(seconds=30), timedelta(minutes=2)
LOOKED_AT_OFTEN = frozenset({Concern.PROVISIONING, Concern.DISRUPTION, Concern.TERMINATION})
"""Every read costs money, and the metrics of the other concerns seldom change."""
PATIENCE_SECONDS = 1.0
"""How long a response waits for S3; later results appear in the next response."""
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
        return exposition_text(families) + self._offerings.text

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
            last_read = self._kept.get(concern)
            if last_read is not None:
                sum_.add(last_read.recorded)
        return sum_

    def _due(self) -> list[Concern]:
        now = self._clock.now()
        return [concern for concern in MEASURED if self._is_due(concern, now)]

    def _is_due(self, concern: Concern, now: datetime) -> bool:
        last_read = self._kept.get(concern)
        return last_read is None or now - last_read.looked_at >= (
            OFTEN if concern in LOOKED_AT_OFTEN else SELDOM
        )

    def _read_all(self) -> None:
        for concern in self._due():
            previous = self._kept.get(concern) or _Kept(self._clock.now())
            current = self._read(concern, replace(previous, looked_at=self._clock.now()))
            self._kept[concern] = current
            if current.fault and not previous.fault:
                LOG.warning("metrics of %s: %s", concern, current.fault)

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

    def _read(self, concern: Concern, previous: _Kept) -> _Kept:
        try:
            blob = self._blobs.read(metrics_key(self._cluster, concern), previous.tag, LARGEST_BYTES)
        except NodesmithError as error:
            return replace(previous, fault=str(error))
        if blob.data is None:
            return replace(previous, fault="")
        try:
            return replace(
                previous, tag=blob.tag, recorded=MetricsObject.from_bytes(blob.data).recorded, fault=""
            )
        except Rejected as error:
            return replace(previous, tag=blob.tag, fault=str(error))


def _families(recorded: Recorded) -> list[Family]:
    families = []
    for name, series in SERIES.items():
        match series.kind:
            case "counter":
                counts = {**_FROM_THE_BEGINNING.get(name, {}), **recorded.counters.get(name, {})}
                families.append(Family(name, "counter", series.help, counts))
            case "histogram":
                families.append(Family(name, "histogram", series.help, recorded.histograms.get(name, {})))
            case "gauge":
                gauge = recorded.gauges.get(name)
                families.append(Family(name, "gauge", series.help, gauge.series if gauge else {}))
    return families
