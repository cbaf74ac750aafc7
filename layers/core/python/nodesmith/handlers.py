"""Handlers: how an event with hints, which may be for several clusters, is worked off.

Clusters are served one after another. What fails for one is tried again for that one alone, after a few seconds at
first. The handler itself asks for that: Lambda would wait a minute before it runs a failed function again, and gives up
after two more runs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodesmith.controllers.runs.report import Report
from nodesmith.errors import PutOff, Rejected, Transient
from nodesmith.model.functions.hints import DelayedInvocation, Hint, hints_of, hints_payload, retry_seconds
from nodesmith.parts import ClusterParts, Parts, collect_seldom
from nodesmith.registration import Registration
from nodesmith.settings import ALIAS, CANARY_ALIAS, function_name, function_vpc
from nodesmith.telemetry import Telemetry

Event = Mapping[str, Any]
Handler = Callable[[Event, object], Mapping[str, Any] | None]
Run = Callable[[], Report]
"""One run for one cluster. Raises Rejected, or what has the run tried again."""
MOST_CLUSTERS = 32
"""whose parts a process keeps: those that it has served last"""


class Clusters:
    """The clusters that this process has lately served, each with its run as `compose` makes it from its parts."""

    def __init__(self, parts: Parts, compose: Callable[[ClusterParts], Run]) -> None:
        self._parts, self._compose = parts, compose
        self._served: OrderedDict[str, tuple[ClusterParts, Run]] = OrderedDict()

    def of(self, cluster: str) -> tuple[ClusterParts, Run]:
        """Return a cluster's parts and run; new ones where its registration has changed. Raises Rejected, Transient."""
        registration = self._parts.registrations.get(cluster)
        self._refuse_elsewhere(registration)
        served = self._served.get(cluster)
        if served is None or served[0].registration != registration:
            own = ClusterParts(self._parts, registration)
            served = own, self._compose(own)
            self._served[cluster] = served
        self._served.move_to_end(cluster)
        if len(self._served) > MOST_CLUSTERS:
            self._served.popitem(last=False)
        return served

    def _refuse_elsewhere(self, registration: Registration) -> None:
        """Leave a cluster to the function that reaches its API server: its registration may just have changed."""
        here, concern = self._parts.settings.vpc_name, self._parts.concern
        there = function_vpc(concern, registration.reached_from)
        if here != there:
            name = function_name(concern, there)
            raise Rejected(f"cluster {registration.cluster}: {name} serves it, by its registration")


@dataclass(slots=True)
class _Outcome:
    """What became of an event: the hints that are to be tried again, and the errors of runs that failed."""

    again: list[Hint] = field(default_factory=list)
    errors: list[tuple[Telemetry, Exception]] = field(default_factory=list)


def looking(parts: Parts, compose: Callable[[ClusterParts], Run]) -> Handler:
    """Return the handler of a concern: one run answers all of a cluster's hints in an event."""
    collect_seldom()
    clusters = Clusters(parts, compose)

    def handle(event: Event, context: object) -> None:
        parts.context = context
        outcome = _Outcome()
        for hint in _by_cluster(parts, event):
            if not _handed_over(parts, clusters, hint):
                _serve(parts, clusters, hint, outcome)
        _record(parts)
        _try_again(parts, outcome)

    return handle


def _by_cluster(parts: Parts, event: Event) -> list[Hint]:
    """Read an event's hints, one for each cluster; a message that cannot be read is told of and dropped."""
    hints, faults = hints_of(event)
    for fault in faults:
        parts.telemetry.rejected(fault)
    found: dict[str, Hint] = {}
    for hint in hints:
        known = found.setdefault(hint.cluster, hint)
        found[hint.cluster] = replace(known, attempt=max(known.attempt, hint.attempt))
    return list(found.values())


def _handed_over(parts: Parts, clusters: Clusters, hint: Hint) -> bool:
    """Hand a cluster's hint to the release on trial that is to serve it. False where this one serves it.

    The concern counts as failing until that release records a run that succeeded: it may not even start. Where it
    cannot be invoked, this release serves the cluster.
    """
    try:
        if parts.alias != ALIAS or not parts.registrations.is_canary(hint.cluster):
            return False
        own, _ = clusters.of(hint.cluster)
        payload = hints_payload([hint])
        parts.invocations.invoke(parts.concern, parts.settings.vpc_name, payload, CANARY_ALIAS)
    except (Rejected, Transient):
        return False  # what is wrong with the registration is told when the cluster is served
    own.health.ran(False, {})
    return True


def _serve(parts: Parts, clusters: Clusters, hint: Hint, outcome: _Outcome) -> None:
    """Run once for a cluster, and note whether that is to be tried again."""
    telemetry, own, due = parts.telemetry.of(hint.cluster), None, None
    succeeded = False
    try:
        own, run = clusters.of(hint.cluster)
        telemetry = own.telemetry
        with own.metrics_written():
            report = run()
        for why in report.rejected:
            telemetry.rejected(why)
        if report.again:
            outcome.again.append(hint)
        succeeded, due = True, report.due
    except Rejected as error:
        telemetry.rejected(str(error))
    except PutOff as error:
        telemetry.failed(error)
    except Exception as error:  # noqa: BLE001 - tried again, or raised, once the other clusters are served
        outcome.errors.append((telemetry, error))
        outcome.again.append(hint)
    finally:
        if own is not None:
            own.health.ran(succeeded, telemetry.take_symptoms(), due)


def _try_again(parts: Parts, outcome: _Outcome) -> None:
    """Have what failed tried again after a while. Raises the first error where a hint has had its attempts.

    Lambda then runs the function twice more, and keeps the event in the queue of dead letters.
    """
    for telemetry, error in outcome.errors:
        telemetry.failed(error)
    given_up: list[Hint] = []
    for hint in outcome.again:
        seconds = retry_seconds(hint.attempt)
        if seconds is None:
            given_up.append(hint)
            continue
        later = hints_payload([replace(hint, attempt=hint.attempt + 1)])
        parts.delayed.put(DelayedInvocation(parts.concern, parts.settings.vpc_name, later), seconds)
    if given_up:
        clusters = ", ".join(hint.cluster for hint in given_up)
        raise outcome.errors[0][1] if outcome.errors else Transient(f"a part fails every time for {clusters}")


def _record(parts: Parts) -> None:
    """Record what was wrong with messages that are no cluster's."""
    symptoms = parts.telemetry.take_symptoms()
    if symptoms:
        parts.health.ran(False, symptoms)
