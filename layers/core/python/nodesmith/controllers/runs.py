"""What the runs of all concerns share: ports, reports, hints to themselves, Events, and concurrent work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from random import randrange
from typing import Protocol, TypeAlias, TypeVar

from nodesmith.errors import Conflict, Failures, Rejected, Transient
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.commands import Command, Release, SingleEnding
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.ports import Blobs, Cloud, Cluster, Hints, Store


@dataclass(slots=True)
class Report:
    """The result of a run for one cluster.

    `rejected` lists errors in the input that no retry fixes. `retries_soon` requests another run within seconds,
    because part of the work failed. `due` is the earliest moment at which the concern must look again even if nothing
    changes; None if time alone changes nothing.
    """

    counts: Counter[str] = field(default_factory=Counter)
    rejected: list[str] = field(default_factory=list)
    retries_soon: bool = False
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class ClusterPorts:
    """The ledger, EC2, the API server, objects, queues, clock and metrics of one cluster."""

    cluster_name: str
    store: Store
    cloud: Cloud
    cluster: Cluster
    blobs: Blobs
    hints: Hints
    clock: Callable[[], datetime]
    metrics: Metrics = field(default_factory=Metrics, kw_only=True)


# Lambda does not stop chains of hints that a concern sends to itself (`RecursiveLoop: Allow`), so they are bounded
# here.
AHEAD = timedelta(seconds=90)
"""How soon the next look must be due for a concern to request it now. For later ones, a tick comes first.

A cluster that does not change gets that tick only if the concern reports the moment as due (`tick_for`).
"""

_TICK = timedelta(minutes=1)


def wait_until(due: datetime | None, now: datetime) -> timedelta | None:
    """Return the wait until the look at `due`; None if there is none, or if a tick comes in time to request it."""
    return due - now if due is not None and due - now <= AHEAD else None


def tick_for(due: datetime | None, now: datetime) -> datetime | None:
    """Return when a tick must come for a look at `due`: early enough for the concern to request that exact moment."""
    return None if due is None else max(now, due - _TICK)


@dataclass(slots=True)
class SelfHints:
    """The due times of the hints that this process has sent to one concern; kept from run to run.

    A hint is sent only if no pending hint is due as soon. Each message that arrives therefore causes at most one more,
    and there are never more pending hints than different waits: a chain of hints does not branch.
    """

    pending: list[datetime] = field(default_factory=list)

    def send(self, hints: Hints, concern: Concern, hint: Hint, wait: timedelta, now: datetime) -> None:
        """Wake the concern after `wait`, rounded up to whole seconds, at least one. Raises Transient."""
        seconds = max(1, ceil(wait.total_seconds()))
        due = now + timedelta(seconds=seconds)
        self.pending = [moment for moment in self.pending if moment > now]
        if any(moment <= due for moment in self.pending):
            return
        hints.send(concern, hint, seconds)
        self.pending.append(due)


EventDeduplication: TypeAlias = MutableMapping[ObjectEvent, datetime]
"""Published Events, each with the time until which it must not be repeated. Kept from run to run.

Losing it does no harm: publishing an Event again only updates its time.
"""


def publish_new(
    cluster: Cluster,
    events: Iterable[ObjectEvent],
    published: EventDeduplication,
    now: datetime,
    again_after: timedelta,
    most: int | None = None,
) -> int:
    """Publish the Events that are new, at most `most`, and return how many. Each is suppressed for `again_after`.

    Raises Transient; nothing is suppressed then.
    """
    new = unpublished(events, published, now)[:most]
    if new:
        cluster.publish(new)
        published.update(dict.fromkeys(new, now + again_after))
    return len(new)


def unpublished(
    events: Iterable[ObjectEvent], published: EventDeduplication, now: datetime
) -> list[ObjectEvent]:
    """Return the Events that are new, each once."""
    for event in [event for event, until in published.items() if until <= now]:
        del published[event]
    return [event for event in dict.fromkeys(events) if event not in published]


Item = TypeVar("Item")
Result = TypeVar("Result")
Step = TypeVar("Step", bound=SingleEnding | Release | Command)


class Spread(Protocol):
    """Apply a function to each item and return the results in order, as `map` or an executor's `map` does."""

    def __call__(self, work: Callable[[Item], Result], items: Iterable[Item], /) -> Iterable[Result]: ...


def in_turn(work: Callable[[Item], Result], items: Iterable[Item], /) -> Iterable[Result]:
    """Process the items one after the other."""
    return map(work, items)


def from_anywhere(spread: Spread, drawn: Callable[[int], int] = randrange) -> Spread:
    """Return a `Spread` that begins at a random item, so that two runs over the same items share the work.

    `drawn` returns a random number below its argument.
    """

    def rotated(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterable[Result]:
        every = list(items)
        first = drawn(len(every)) if every else 0
        results = list(spread(work, [*every[first:], *every[:first]]))
        wrapped = len(every) - first
        return [*results[wrapped:], *results[:wrapped]]

    return rotated


def each(
    spread: Spread,
    steps: Sequence[Step],
    work: Callable[[Step], Result],
    done: Counter[str],
    failures: Failures,
) -> Mapping[str, Result | Conflict | Transient | Rejected]:
    """Carry out one step for each claim; return the results by claim name, which may be exceptions.

    Successful steps are counted in `done` by their type, conflicts as "Conflict". Other errors are added to `failures`.
    """

    def attempt(step: Step) -> Result | Conflict | Transient | Rejected:
        try:
            return work(step)
        except (Conflict, Transient, Rejected) as error:
            return error

    results = list(spread(attempt, steps))
    for step, result in zip(steps, results, strict=True):
        match result:
            case Conflict():
                done["Conflict"] += 1
            case Transient() | Rejected() as error:
                failures.add(error, f"NodeClaim {step.claim.name}")
            case _:
                done[type(step).__name__] += 1
    return {step.claim.name: result for step, result in zip(steps, results, strict=True)}


def failed(results: Mapping[str, object]) -> set[str]:
    """Return the names of the claims whose step failed, so that later steps must wait."""
    return {name for name, result in results.items() if isinstance(result, Transient | Rejected)}
