"""Handlers: how a batch of messages, which may be of several clusters, is worked off and answered.

Clusters are served one after another. What fails for one comes back for that one alone.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodesmith.controllers.report import Report
from nodesmith.errors import Rejected, Transient
from nodesmith.model.events import parse_message
from nodesmith.parts import ClusterParts, Parts, collect_seldom
from nodesmith.telemetry import Telemetry

Event = Mapping[str, Any]
Record = Mapping[str, Any]
Handler = Callable[[Event, object], Mapping[str, Any] | None]
"""What it gives names the messages of a batch that are to come again; None is none of them."""
Run = Callable[[], Report]
"""One run for one cluster. Raises Rejected, or what brings all of the cluster's messages back."""
MOST_CLUSTERS = 32
"""whose parts a process keeps: those that it has served last"""


class Clusters:
    """The clusters that this process has lately served, each with its run as `compose` makes it from its parts."""

    def __init__(self, parts: Parts, compose: Callable[[ClusterParts], Run]) -> None:
        self._parts, self._compose = parts, compose
        self._served: OrderedDict[str, tuple[ClusterParts, Run]] = OrderedDict()

    def of(self, cluster: str) -> tuple[ClusterParts, Run]:
        """Give a cluster's parts and run; new ones where its registration has changed. Raises Rejected, Transient."""
        registration = self._parts.registrations.get(cluster)
        served = self._served.get(cluster)
        if served is None or served[0].registration != registration:
            own = ClusterParts(self._parts, registration)
            served = own, self._compose(own)
            self._served[cluster] = served
        self._served.move_to_end(cluster)
        if len(self._served) > MOST_CLUSTERS:
            self._served.popitem(last=False)
        return served


@dataclass(slots=True)
class _Outcome:
    """What became of a batch: the records to be given again, and the errors of clusters that could not be served."""

    failed: list[Record] = field(default_factory=list)
    errors: list[tuple[Telemetry, Exception]] = field(default_factory=list)
    served: int = 0

    def raise_or_tell(self) -> None:
        """Raise the error where no cluster could be served, so that Lambda counts it; else say what has failed."""
        if self.errors and not self.served:
            raise self.errors[0][1]
        for telemetry, error in self.errors:
            telemetry.failed(error)


def looking(parts: Parts, compose: Callable[[ClusterParts], Callable[[], Report | None]]) -> Handler:
    """Give the handler of a concern whose messages all say the same: look. One run answers all of a cluster's."""
    collect_seldom()

    def composed(own: ClusterParts) -> Run:
        look = compose(own)
        return lambda: look() or Report()

    clusters = Clusters(parts, composed)

    def handle(event: Event, context: object) -> Mapping[str, Any]:
        parts.context = context
        outcome = _Outcome()
        with parts.redelivery.if_failed(event["Records"]):
            for cluster, records in _by_cluster(parts, event["Records"]).items():
                _serve(parts, clusters, cluster, records, outcome)
            _record(parts)
            outcome.raise_or_tell()
        parts.redelivery.soon(outcome.failed)
        return {"batchItemFailures": [{"itemIdentifier": record["messageId"]} for record in outcome.failed]}

    return handle


def routing_events(parts: Parts, route: Callable[[str, str], Report], tick: Callable[[], Report]) -> Handler:
    """Give the handler of events that EventBridge has sent, whosever they are, and of routing's own ticks."""
    collect_seldom()

    def handle(event: Event, context: object) -> Mapping[str, Any]:
        parts.context = context
        records = event.get("Records", ())
        failed: list[Record] = []
        if not records:
            parts.telemetry.ran(tick().counts)
        for record in records:
            try:
                report = route(record["body"], _account(record))
            except Rejected as error:
                parts.telemetry.rejected(str(error))
            except Transient:
                failed.append(record)
            else:
                for why in report.rejected:
                    parts.telemetry.rejected(why)
                parts.telemetry.ran(report.counts)
        parts.redelivery.soon(failed)
        parts.health.ran(True, parts.telemetry.take_symptoms())
        return {"batchItemFailures": [{"itemIdentifier": record["messageId"]} for record in failed]}

    return handle


def _by_cluster(parts: Parts, records: Sequence[Record]) -> Mapping[str, list[Record]]:
    """Sort messages by the cluster that they name; one that cannot be read is told of and dropped."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        try:
            found[parse_message(record["body"]).cluster].append(record)
        except Rejected as error:
            parts.telemetry.rejected(str(error))
    return found


def _serve(
    parts: Parts,
    clusters: Clusters,
    cluster: str,
    batch: Sequence[Record],
    outcome: _Outcome,
) -> None:
    """Run once for a cluster, and note what is to come again."""
    telemetry, own = parts.telemetry.of(cluster), None
    succeeded = False
    try:
        own, run = clusters.of(cluster)
        telemetry = own.telemetry
        with own.metrics_written():
            report = run()
        for why in report.rejected:
            telemetry.rejected(why)
        if report.again:
            outcome.failed += batch
        succeeded = True
        outcome.served += 1
    except Rejected as error:
        telemetry.rejected(str(error))
        outcome.served += 1
    except Exception as error:  # noqa: BLE001 - raised or told of once the other clusters are served
        outcome.errors.append((telemetry, error))
        outcome.failed += batch
    finally:
        if own is not None:
            own.health.ran(succeeded, telemetry.take_symptoms())


def _record(parts: Parts) -> None:
    """Record what was wrong with messages that are no cluster's."""
    symptoms = parts.telemetry.take_symptoms()
    if symptoms:
        parts.health.ran(False, symptoms)


def _account(record: Record) -> str:
    return str(record["eventSourceARN"].split(":")[4])
