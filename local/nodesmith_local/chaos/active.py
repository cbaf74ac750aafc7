"""The faults that are under way in a local system, with how often each was met and when the system had recovered."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodesmith.errors import NodesmithError, Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.times import format_time
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.chaos.faults import HALVES, SKEW, Fault, FaultKind, Lasting, Service

AGAIN_SECONDS = 5.0
"""How often a fault acts that does something by itself, in seconds of the clock."""
_LOOK_SECONDS = 0.5  # real seconds
_DELIVERED_LATER_SECONDS = 60.0
_log = logging.getLogger(__name__)
Act = Callable[[Fault], int]
"""Does something harmful, and returns how often: messages that were sent, instances that were interrupted."""


@dataclass(slots=True)
class Started:
    """A fault that was started, and its state."""

    lasting: Lasting
    ends_at: datetime
    met: int = 0
    """Calls, invocations, reads, messages or instances that it has hit."""
    acted_at: datetime | None = None
    recovered_at: datetime | None = None

    @property
    def fault(self) -> Fault:
        """The fault."""
        return self.lasting.fault

    def described(self, now: datetime, waits_for: str) -> dict[str, Any]:
        """Return the fault as a document. `waits_for` is what the system's recovery waits for."""
        active, recovered = now < self.ends_at, self.recovered_at
        return {
            "name": self.fault.name,
            "kind": self.fault.kind.value,
            "service": self.fault.service.value,
            "functions": sorted(self.fault.callers),
            "share": self.fault.share,
            "startedAt": format_time(self.lasting.since),
            "endsAt": format_time(self.ends_at),
            "state": "active" if active else "recovered" if recovered else "recovering",
            "secondsLeft": max(0.0, round((self.ends_at - now).total_seconds(), 1)),
            "hits": self.met,
            "recoverySeconds": round((recovered - self.ends_at).total_seconds(), 1) if recovered else None,
            "waitsFor": "" if active or recovered else waits_for,
        }


class ActiveFaults:
    """The faults of a local system, by name. Threads share it.

    `activity` returns what is under way in the clusters, empty if nothing is. `acts` are called every five seconds of
    the clock while a fault of their kind lasts. No thread runs while nothing is active and all has recovered.
    """

    def __init__(
        self,
        clock: LocalClock,
        stopping: threading.Event,
        activity: Callable[[], str] = str,
    ) -> None:
        self._clock, self._stopping, self._activity = clock, stopping, activity
        self.acts: Mapping[FaultKind, Act] = {}
        self._started: dict[str, Started] = {}
        self._lock = threading.Lock()
        self._following: threading.Thread | None = None
        self._waits_for = ""
        """The last activity that was under way after the end of a fault."""
        self._dice = random.Random()  # noqa: S311

    def start(self, faults: Collection[Fault]) -> list[dict[str, Any]]:
        """Start faults and return them as documents. Raises Rejected, and starts none, if one is active already."""
        with self._lock:
            now = self._clock.now()
            for fault in faults:
                running = self._started.get(fault.name)
                if running and now < running.ends_at:
                    raise Rejected(
                        f"{fault.name} is active already: wait for its end, or `nodesmith chaos stop {fault.name}`"
                    )
            for fault in faults:
                lasting = Lasting(fault, now)
                self._started[fault.name] = Started(lasting, lasting.until)
                _log.warning("fault %s begins, for %g seconds", fault.name, fault.seconds)
            if self._following is None:
                self._following = threading.Thread(target=self._follow, name="chaos", daemon=True)
                self._following.start()
        return self._described([fault.name for fault in faults])

    def stop(self, name: str = "") -> list[dict[str, Any]]:
        """End a fault, or all without a name, and return what has ended. Raises Rejected for one that is not active."""
        with self._lock:
            now = self._clock.now()
            active = [fault_name for fault_name, started in self._started.items() if now < started.ends_at]
            if name and name not in active:
                hint = did_you_mean(name, active) or f": there are {', '.join(active)}" if active else ""
                raise Rejected(f"no fault {name!r} is active{hint}")
            ended_names = [name] if name else active
            for fault_name in ended_names:
                self._started[fault_name].ends_at = now
        return self._described(ended_names)

    def status(self) -> list[dict[str, Any]]:
        """Return the faults as documents, in the order in which they were started."""
        with self._lock:
            names = list(self._started)
        return self._described(names)

    def _described(self, names: Iterable[str]) -> list[dict[str, Any]]:
        with self._lock:
            now = self._clock.now()
            return [self._started[name].described(now, self._waits_for) for name in names]

    # What calls meet

    def met(self, service: Service, caller: str, kinds: Collection[FaultKind]) -> list[FaultKind]:
        """Count a call of a service by a function or forwarder, and return which faults of these kinds it meets."""
        if not self._started or not caller:
            return []
        with self._lock:
            hitting = self._hitting(service, caller, kinds)
            met_faults = [started for started in hitting if self._dice.random() < started.fault.share]
            for started in met_faults:
                started.met += 1
            return [started.fault.kind for started in met_faults]

    def _hitting(self, service: Service, caller: str, kinds: Collection[FaultKind]) -> list[Started]:
        """Return the active faults of these kinds that affect a caller's calls of a service; needs the lock."""
        now = self._clock.now()
        return [
            started
            for started in self._started.values()
            if now < started.ends_at
            and started.fault.kind in kinds
            and started.fault.affects(service, caller)
        ]

    def deliveries(self, service: Service, caller: str) -> tuple[float, ...]:
        """Return when a service delivers an event to a function, in seconds from now; (0.0,) without a fault."""
        kinds = self.met(service, caller, _DELIVERIES)
        return _DELIVERIES[kinds[0]] if kinds else (0.0,)

    def skew(self, caller: str) -> timedelta:
        """Return how far a function's clock is ahead."""
        if not self._started or not caller:
            return timedelta()
        with self._lock:
            is_skewed = bool(self._hitting(Service.LAMBDA, caller, (FaultKind.SKEWED,)))
        return (SKEW if caller in HALVES[0] else -SKEW) if is_skewed else timedelta()

    # What happens by itself

    def _follow(self) -> None:
        """Let faults act, and note when the system has recovered from each, until it has recovered from all."""
        while not self._stopping.wait(_LOOK_SECONDS):
            self._act()
            with self._lock:
                now = self._clock.now()
                ended = [
                    started
                    for started in self._started.values()
                    if started.ends_at <= now and started.recovered_at is None
                ]
                if not ended and all(started.recovered_at for started in self._started.values()):
                    self._following = None
                    return
            if ended:
                self._look(ended)

    def _look(self, ended: Iterable[Started]) -> None:
        """Note whether the system has recovered from faults that are over."""
        try:
            waits_for = self._activity()
        except NodesmithError as error:  # what it reads may be unavailable as well
            waits_for = str(error)
        with self._lock:
            self._waits_for = waits_for
            for started in ended:
                if not waits_for:
                    started.recovered_at = self._clock.now()
                    _log.warning("fault %s has ended, and all is well again", started.fault.name)

    def _act(self) -> None:
        with self._lock:
            now = self._clock.now()
            due = [
                started
                for started in self._started.values()
                if started.fault.kind in self.acts
                and now < started.ends_at
                and (started.acted_at is None or now - started.acted_at >= timedelta(seconds=AGAIN_SECONDS))
            ]
            for started in due:
                started.acted_at = now
        for started in due:
            count = self.acts[started.fault.kind](started.fault)
            with self._lock:
                started.met += count


_DELIVERIES: Mapping[FaultKind, tuple[float, ...]] = {
    FaultKind.SLOW: (_DELIVERED_LATER_SECONDS,),
    FaultKind.THROTTLED: (_DELIVERED_LATER_SECONDS,),
    FaultKind.LATE: (0.0, _DELIVERED_LATER_SECONDS),
    FaultKind.ERRORS: (),
    FaultKind.PARTITIONED: (),
}
"""When the events of a failing service arrive: later, twice because it got no answer, or never."""
