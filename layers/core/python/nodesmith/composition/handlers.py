"""Handlers: process events with hints, which may be for several clusters.

Clusters are served one after another. If a cluster's run fails, it is retried for that cluster alone, first after a few
seconds. The handler schedules the retry itself, because Lambda would wait a minute before it runs a failed function
again, and gives up after two retries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodesmith.composition.parts import ClusterParts, Parts, collect_seldom
from nodesmith.composition.telemetry import Telemetry
from nodesmith.controllers.runs import Report
from nodesmith.errors import Rejected, RetryScheduled, Transient
from nodesmith.model.functions import DelayedInvocation, Hint, hints_of, hints_payload, retry_seconds
from nodesmith.registration import Registration
from nodesmith.settings import ALIAS, CANARY_ALIAS, function_name, function_vpc

Event = Mapping[str, Any]
Handler = Callable[[Event, object], Mapping[str, Any] | None]
Run = Callable[[], Report]
"""One run for one cluster. Raises Rejected, or any other error to be retried."""
MOST_CLUSTERS = 32
"""maximum number of clusters whose parts a process keeps, those served most recently"""


class Clusters:
    """The clusters that this process served recently, each with its parts and the run that `compose` makes of them."""

    def __init__(self, parts: Parts, compose: Callable[[ClusterParts], Run]) -> None:
        self._parts, self._compose = parts, compose
        self._served: OrderedDict[str, tuple[ClusterParts, Run]] = OrderedDict()

    def of(self, cluster: str) -> tuple[ClusterParts, Run]:
        """Return a cluster's parts and run, new ones if its registration has changed. Raises Rejected, Transient."""
        registration = self._parts.registrations.get(cluster)
        self._refuse_elsewhere(registration)
        composed = self._served.get(cluster)
        if composed is None or composed[0].registration != registration:
            cluster_parts = ClusterParts(self._parts, registration)
            composed = cluster_parts, self._compose(cluster_parts)
            self._served[cluster] = composed
        self._served.move_to_end(cluster)
        if len(self._served) > MOST_CLUSTERS:
            self._served.popitem(last=False)
        return composed

    def _refuse_elsewhere(self, registration: Registration) -> None:
        """Raise Rejected if, by a changed registration, another function reaches the cluster's API server."""
        own_vpc, concern = self._parts.settings.vpc_name, self._parts.concern
        vpc = function_vpc(concern, registration.reached_from)
        if own_vpc != vpc:
            name = function_name(concern, vpc)
            raise Rejected(f"cluster {registration.cluster}: {name} serves it, by its registration")


@dataclass(slots=True)
class _Outcome:
    """The outcome of an event: the hints to retry, and the errors of failed runs."""

    to_retry: list[Hint] = field(default_factory=list)
    errors: list[tuple[Telemetry, Exception]] = field(default_factory=list)


def concern_handler(parts: Parts, compose: Callable[[ClusterParts], Run]) -> Handler:
    """Return the handler of a concern, which runs once for all of a cluster's hints in an event."""
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
    """Return an event's hints, one for each cluster. A message that cannot be read is logged and dropped."""
    hints, faults = hints_of(event)
    for fault in faults:
        parts.telemetry.rejected(fault)
    by_cluster: dict[str, Hint] = {}
    for hint in hints:
        hint_of_cluster = by_cluster.setdefault(hint.cluster, hint)
        by_cluster[hint.cluster] = replace(
            hint_of_cluster, attempt=max(hint_of_cluster.attempt, hint.attempt)
        )
    return list(by_cluster.values())


def _handed_over(parts: Parts, clusters: Clusters, hint: Hint) -> bool:
    """Pass a hint on if a release on trial serves the cluster. Return False if this release serves it.

    The concern counts as failing until the release on trial records a successful run, because that release may not even
    start. If it cannot be invoked, this release serves the cluster.
    """
    try:
        if parts.alias != ALIAS or not parts.registrations.is_canary(hint.cluster):
            return False
        cluster_parts, _ = clusters.of(hint.cluster)
        payload = hints_payload([hint])
        parts.invocations.invoke(parts.concern, parts.settings.vpc_name, payload, CANARY_ALIAS)
    except (Rejected, Transient):
        return False  # a wrong registration is reported when the cluster is served
    cluster_parts.health.ran(False, {})
    return True


def _serve(parts: Parts, clusters: Clusters, hint: Hint, outcome: _Outcome) -> None:
    """Run once for a cluster, and add the hint to `outcome` if it must be retried."""
    telemetry, cluster_parts, due = parts.telemetry.of(hint.cluster), None, None
    succeeded = False
    try:
        cluster_parts, run = clusters.of(hint.cluster)
        telemetry = cluster_parts.telemetry
        with cluster_parts.metrics_written():
            report = run()
        for reason in report.rejected:
            telemetry.rejected(reason)
        if report.retries_soon:
            outcome.to_retry.append(hint)
        succeeded, due = True, report.due
    except Rejected as error:
        telemetry.rejected(str(error))
    except RetryScheduled as error:
        telemetry.failed(error)
    except Exception as error:  # noqa: BLE001 - retried, or raised, once the other clusters are served
        outcome.errors.append((telemetry, error))
        outcome.to_retry.append(hint)
    finally:
        if cluster_parts is not None:
            cluster_parts.health.ran(succeeded, telemetry.take_symptoms(), due)


def _try_again(parts: Parts, outcome: _Outcome) -> None:
    """Schedule retries of what failed. Raises the first error if a hint has no attempts left.

    Lambda then retries the function twice, and puts the event into the dead-letter queue.
    """
    for telemetry, error in outcome.errors:
        telemetry.failed(error)
    given_up: list[Hint] = []
    for hint in outcome.to_retry:
        seconds = retry_seconds(hint.attempt)
        if seconds is None:
            given_up.append(hint)
            continue
        later = hints_payload([replace(hint, attempt=hint.attempt + 1)])
        parts.delayed.put(DelayedInvocation(parts.concern, parts.settings.vpc_name, later), seconds)
    if given_up:
        clusters = ", ".join(hint.cluster for hint in given_up)
        raise (
            outcome.errors[0][1]
            if outcome.errors
            else Transient(f"a part of the work fails in every run for {clusters}")
        )


def _record(parts: Parts) -> None:
    """Record the problems of messages that belong to no cluster."""
    symptoms = parts.telemetry.take_symptoms()
    if symptoms:
        parts.health.ran(False, symptoms)
