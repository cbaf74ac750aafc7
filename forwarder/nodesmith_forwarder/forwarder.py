"""The main loop: collect changes, write a snapshot, then send hints to the concerns."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from threading import Event, Thread
from typing import Protocol

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.decisions.dispatch import QUIET_AFTER
from nodesmith.errors import NodesmithError
from nodesmith.keys import snapshot_base_key, snapshot_key
from nodesmith.model.functions import Concern, Hint
from nodesmith.observation.mirror import WATCHED
from nodesmith.ports import Blobs, Heartbeats, Hints, VersionedBlobs
from nodesmith_forwarder.changes import Changes, Part
from nodesmith_forwarder.clock import Clock, wait_seconds
from nodesmith_forwarder.metrics import FunctionMetrics, exposition_text, gauges
from nodesmith_forwarder.recording import SMALL_BYTES, Recorder
from nodesmith_forwarder.watching import Pauses, Watch
from nodesmith_forwarder.windows import Pace
from nodesmith_forwarder.world import World

LOG = logging.getLogger(__name__)
_LATE = timedelta(seconds=15)
"""How late a heartbeat may be before observation writes snapshots: it waits for half a heartbeat."""
_LOOK_SECONDS = 0.5  # how late, in real seconds, a stop may be noticed
_REASONS = {
    Concern.PROVISIONING: "pods pending: {}",
    Concern.LIFECYCLE: "nodes and NodeClaims changed: {}",
    Concern.TERMINATION: "nodes ending: {}",
    Concern.READINESS: "NodePools and EC2NodeClasses changed: {}",
    Concern.DISRUPTION: "pods left nodes, or may leave them: {}",
}


_ROOM_REASON = "changes that may use the room of CapacityBuffers, or workloads that have grown: {}"


@dataclass(frozen=True, slots=True)
class ReportingIntervals:
    """How often the forwarder reports when nothing has happened.

    Every `heartbeat` it reports that it is alive and that the snapshot is current, and writes what could wait until
    then. While pods stay pending, their hint is sent again every `renewal`, because it may have been lost, and capacity
    may have come back. (The functions' own tick comes every minute anyway. Karpenter checks every ten seconds, but a
    check costs it nothing.)
    """

    heartbeat: timedelta = timedelta(seconds=60)
    renewal: timedelta = timedelta(seconds=30)


class Bucket(Blobs, VersionedBlobs, Protocol):
    """Where the forwarder writes snapshots and reads the functions' metrics."""


class Forwarder:
    """Reports one cluster's state to its functions, and retries deliveries that the bucket or Lambda refuses."""

    def __init__(
        self,
        cluster: str,
        server: ApiServer,
        blobs: Bucket,
        hints: Hints,
        heartbeats: Heartbeats,
        clock: Clock,
        pace: Pace = Pace(),  # noqa: B008 frozen
        intervals: ReportingIntervals = ReportingIntervals(),
        labels_kept: tuple[str, ...] = (),
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        self._cluster = cluster
        self._blobs = blobs
        self._hints = hints
        self._heartbeats = heartbeats
        self._clock = clock
        self._intervals = intervals
        changes = Changes(labels_kept)
        self._world = World(clock, pace, changes)
        self._recorder = Recorder(cluster, changes, self._world.whole, small_bytes)
        self._functions = FunctionMetrics(blobs, cluster, clock)
        pauses = Pauses(clock)
        self._watches = [Watch(kind, server, self._world, pauses) for kind in WATCHED]
        self._owed: dict[Concern, int] = {}
        self._is_pending = False
        self._failures = 0
        self._retry_at: datetime | None = None
        self._renew_at: datetime | None = None
        self.last_turn = clock.now()
        """When the delivery loop last began a pass."""
        self._is_unwritten = True
        """Whether the bucket lacks something that must be delivered."""
        self._written: tuple[datetime, bytes] | None = None
        """When the snapshot in the bucket was taken, and its digest."""
        self._reported_change: datetime | None = None
        """The time of the snapshot that the last heartbeat reported."""
        self.last_beat: datetime | None = None
        """When a heartbeat last reached the table."""

    def run(self, stop: Event) -> None:
        """Watch and deliver until stopped. Raises RuntimeError if a watch has died, which only a bug can cause.

        The watches' threads are daemons: each ends at the next event of its connection, or with the process.
        """
        threads = [Thread(target=watch.run, args=(stop,), daemon=True) for watch in self._watches]
        for thread in threads:
            thread.start()
        while not stop.is_set():
            self.last_turn = self._clock.now()
            if self._wait():
                self._report()
            if not all(thread.is_alive() for thread in threads) and not stop.is_set():
                raise RuntimeError("a watch has died, its error is in the log above")

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus's format, under Karpenter's names. May be called from any thread."""
        families, observed = self._world.measured()
        return exposition_text([*families, *gauges(observed, self._clock.now())]) + self._functions.text()

    def _wait(self) -> bool:
        """Wait a short time for the next delivery to be due; return True when one is."""
        with self._world.changed:
            seconds = self._seconds_left()
            if seconds > 0:
                self._world.changed.wait(min(self._clock.wall_seconds(seconds), _LOOK_SECONDS))
            return self._seconds_left() <= 0

    def _seconds_left(self) -> float:
        if self._world.missing:
            return _LOOK_SECONDS  # nothing is delivered until all kinds can be seen again
        now = self._clock.now()
        if self._retry_at is not None:
            return (self._retry_at - now).total_seconds()
        heartbeat = now if self.last_beat is None else self.last_beat + self._intervals.heartbeat
        moments = [heartbeat, self._renew_at, self._world.windows.next_due()]
        return (min(moment for moment in moments if moment is not None) - now).total_seconds()

    def _report(self) -> None:
        now, state = self._clock.now(), self._world.take()
        if state is None:
            return
        pending = state.pending
        self._owed.update({topic: count for topic, count in state.closed.items() if topic is not None})
        self._is_pending = bool(pending)
        is_renewal = self._renew_at is not None and self._renew_at <= now
        if pending and (is_renewal or Concern.PROVISIONING in self._owed):
            self._owed[Concern.PROVISIONING] = pending
        elif not pending:
            if not state.may_use_room:
                self._owed.pop(Concern.PROVISIONING, None)
            self._renew_at = None
        self._is_unwritten = self._is_unwritten or bool(state.closed) or self._has_been_away(now)
        if not self._is_unwritten and state.is_touched:
            self._is_unwritten = not self._is_as_written(state.part)
        self._settle(self._deliver(now, state.part), now)

    def _has_been_away(self, now: datetime) -> bool:
        """Return whether observation may have considered the forwarder dead and written its own snapshot."""
        if self._written is None:
            return True
        taken_at, _ = self._written
        return now - max(taken_at, self.last_beat or taken_at) > self._intervals.heartbeat + _LATE

    def _is_as_written(self, part: Part | None) -> bool:
        """Return whether a new snapshot would differ from the one in the bucket only in its time."""
        if self._written is None:
            return False
        taken_at, digest = self._written
        data = self._recorder.rewritten(taken_at, part)
        return data is not None and sha256(data).digest() == digest

    def _deliver(self, now: datetime, part: Part | None) -> NodesmithError | None:
        """Write the snapshot, then send owed hints; what fails stays owed. Hints refer to the written snapshot.

        A heartbeat claims that the snapshot is current, so none is sent while it cannot be written.
        """
        try:
            if self._is_unwritten:
                self._write(now, part)
        except NodesmithError as error:
            return error
        failure = self._send_owed(now)
        try:
            self._send_heartbeat(now)
        except NodesmithError as error:
            failure = error
        return failure

    def _write(self, now: datetime, part: Part | None) -> None:
        """Write the snapshot, after its base if that is new, so that a function that reads a delta finds its base."""
        encoded = self._recorder.encoded(now, part)
        try:
            if encoded.base:
                self._blobs.put(snapshot_base_key(self._cluster, encoded.digest), encoded.base)
            self._blobs.put(snapshot_key(self._cluster), encoded.head)
        except NodesmithError:
            if encoded.base:
                self._recorder.forget()
            raise
        self._written, self._is_unwritten = (now, sha256(encoded.head).digest()), False

    def _send_heartbeat(self, now: datetime) -> None:
        """Write a heartbeat when it is due, and at once if the last one may make a changed cluster look quiet."""
        changed = self._written[0] if self._written else now
        is_overdue = self._reported_change is None or changed - self._reported_change > QUIET_AFTER / 2
        if self.last_beat is None or is_overdue or now - self.last_beat >= self._intervals.heartbeat:
            self._heartbeats.write_heartbeat(now, changed)
            self.last_beat, self._reported_change = now, changed

    def _send_owed(self, now: datetime) -> NodesmithError | None:
        failure = None
        for concern, count in sorted(self._owed.items()):
            is_room = concern is Concern.PROVISIONING and not self._is_pending
            reason = (_ROOM_REASON if is_room else _REASONS[concern]).format(count)
            try:
                self._hints.send(concern, Hint(self._cluster, reason))
            except NodesmithError as error:
                failure = error
                continue
            del self._owed[concern]
            LOG.info("woke %s: %s", concern, reason)
            if concern is Concern.PROVISIONING:
                self._renew_at = now + self._intervals.renewal
        return failure

    def _settle(self, failure: NodesmithError | None, now: datetime) -> None:
        if failure is None:
            self._failures, self._retry_at = 0, None
            return
        self._failures += 1
        seconds = wait_seconds(self._failures, first_seconds=1.0)
        self._retry_at = now + timedelta(seconds=seconds)
        LOG.warning("delivery failed, retrying in %.1f s: %s", seconds, failure)
