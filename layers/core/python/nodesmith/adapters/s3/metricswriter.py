"""A function's metrics, added to the object by which they reach the forwarder.

Each concern has an object of its own, and of its runs few go on at once: each adds what it has to what is there, on
the condition that nobody else has meanwhile. Processes come and go; what is in the object stays, so counters only grow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.metrics.metrics import Metrics, Recorded
from nodesmith.model.metrics.metricsobject import MOST_SERIES, MetricsObject
from nodesmith.model.metrics.series import SOON
from nodesmith.ports.blobs import NONE_THERE, VersionedBlobs

TRIES = 4
"""At one write: so often may another run of the concern have been first"""
LOOK_AGAIN = timedelta(minutes=2)
"""What a gauge shows is compared with what the object held so lately: another process may have written since."""


@dataclass(frozen=True, slots=True)
class _Known:
    tag: str
    content: MetricsObject
    at: datetime


class MetricsWriter:
    """Writes what `metrics` takes in to one object. `writer` names this process.

    What could not be written waits for the next time, and so does what may wait: several runs share a write.
    """

    def __init__(
        self, blobs: VersionedBlobs, key: str, metrics: Metrics, clock: Callable[[], datetime], writer: str
    ) -> None:
        self._blobs, self._key, self._metrics, self._clock, self._writer = blobs, key, metrics, clock, writer
        self._known: _Known | None = None
        self._waiting = Recorded()
        """What the next write adds; once it was tried, exactly this, until it is known what has become of it"""
        self._is_tried = False
        self._is_left = False
        """that a write was due and has not come to its end"""
        self._number = 1
        self._tried_at: datetime | None = None

    def write(self) -> None:
        """Write what is due. Raises Transient, or Rejected where the bucket is missing: then the next time."""
        now = self._clock()
        if not self._is_due(now):
            return
        self._tried_at = now
        if not self._is_tried:
            self._waiting.add(self._metrics.take())
        if self._is_tried or self._is_news(now):
            self._add(now)
        self._waiting, self._is_tried, self._is_left = Recorded(), False, False

    def _is_due(self, now: datetime) -> bool:
        """Return whether to write: what is left of a write that failed is tried again soon, but not with each run."""
        patience = SOON if self._is_left else self._metrics.patience
        if patience is None:
            return False
        is_due = self._tried_at is None or now - self._tried_at >= patience
        self._is_left = self._is_left or is_due
        return is_due

    def _is_news(self, now: datetime) -> bool:
        """Leave out gauges that show what the object says already; tell whether anything is left."""
        known = self._known
        if known is None or (self._waiting.gauges and now - known.at >= LOOK_AGAIN):
            known = self._read(now)
        said = known.content.recorded.gauges
        new = {n: g for n, g in self._waiting.gauges.items() if n not in said or said[n].series != g.series}
        self._waiting.gauges = new
        return bool(self._waiting.counters or self._waiting.histograms or new)

    def _add(self, now: datetime) -> None:
        for _ in range(TRIES):
            known = self._known or self._read(now)
            if known.content.writers.get(self._writer, 0) >= self._number:
                break  # the write whose answer was lost had come through
            content = _with(known.content, self._waiting, self._writer, self._number)
            self._known, self._is_tried = None, True
            try:
                tag = self._blobs.replace(self._key, content.to_bytes(), known.tag)
            except Conflict:
                continue
            self._known = _Known(tag, content, now)
            break
        else:
            raise Transient(f"{self._key}: others wrote it {TRIES} times meanwhile")
        self._number += 1

    def _read(self, now: datetime) -> _Known:
        known = self._known
        version = self._blobs.read(self._key, known.tag if known else NONE_THERE)
        if version.data is None and version.tag and known is not None:
            self._known = replace(known, at=now)
        else:
            self._known = _Known(version.tag, _content(version.data), now)
        return self._known


def _content(data: bytes | None) -> MetricsObject:
    """Return what an object holds; nothing where it cannot be read: its counters begin anew."""
    if data is None:
        return MetricsObject()
    try:
        return MetricsObject.from_bytes(data)
    except Rejected:
        return MetricsObject()


def _with(content: MetricsObject, news: Recorded, writer: str, number: int) -> MetricsObject:
    """Return the content with what is new; of too many series (each NodePool has some) all but these begin anew."""
    sum_ = content.recorded.copy()
    sum_.add(news)
    if sum_.size > MOST_SERIES:
        sum_ = news.copy()
    return MetricsObject(sum_, content.noted(writer, number))
