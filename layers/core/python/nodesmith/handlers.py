"""Handlers: how a batch of messages, which may be of several clusters, is worked off and answered.

Clusters are served one after another. What fails for one comes back for that one alone.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodesmith.controllers.letters import Letter, Report
from nodesmith.errors import Rejected
from nodesmith.model.events import Hint, PassedEvent, parse_message
from nodesmith.parts import ClusterParts, Parts, collect_seldom
from nodesmith.telemetry import Telemetry

Event = Mapping[str, Any]
Record = Mapping[str, Any]
Handler = Callable[[Event, object], Mapping[str, Any] | None]
"""What it gives names the messages of a batch that are to come again; None is none of them."""
Run = Callable[[Sequence[Letter]], Report]
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


def looking(parts: Parts, compose: Callable[[ClusterParts], Callable[[], object]]) -> Handler:
    """Give the handler of a concern whose messages all say the same: look. One run answers all of a cluster's."""

    def composed(own: ClusterParts) -> Run:
        look = compose(own)

        def run(letters: Sequence[Letter]) -> Report:
            del letters
            look()
            return Report()

        return run

    return noticing(parts, composed)


def noticing(parts: Parts, compose: Callable[[ClusterParts], Run]) -> Handler:
    """Give the handler of a concern whose messages may hold events. What a report names as failed comes back alone."""
    collect_seldom()
    clusters = Clusters(parts, compose)

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


def passing_on(parts: Parts, run: Run) -> Handler:
    """Give the handler of events that EventBridge has sent, whosever they are.

    A tick that only keeps the function warm brings no message.
    """
    collect_seldom()

    def handle(event: Event, context: object) -> Mapping[str, Any]:
        parts.context = context
        records = event.get("Records", ())
        with parts.redelivery.if_failed(records):
            report = run([Letter(r["messageId"], r["body"], _account(r)) for r in records])
        failed = set(report.failed)
        parts.redelivery.soon([record for record in records if record["messageId"] in failed])
        for why in report.rejected:
            parts.telemetry.rejected(why)
        parts.telemetry.ran(report.counts)
        parts.health.ran(True, parts.telemetry.take_symptoms())
        return {"batchItemFailures": [{"itemIdentifier": letter} for letter in report.failed]}

    return handle


def _by_cluster(parts: Parts, records: Sequence[Record]) -> Mapping[str, list[tuple[Record, Letter]]]:
    """Sort messages by the cluster that they name; one that cannot be read is told of and dropped."""
    found: dict[str, list[tuple[Record, Letter]]] = defaultdict(list)
    for record in records:
        try:
            message = parse_message(record["body"])
        except Rejected as error:
            parts.telemetry.rejected(str(error))
            continue
        match message:
            case Hint():
                event = ""
            case PassedEvent():
                event = message.event
        found[message.cluster].append((record, Letter(record["messageId"], event, _account(record))))
    return found


def _serve(
    parts: Parts,
    clusters: Clusters,
    cluster: str,
    batch: Sequence[tuple[Record, Letter]],
    outcome: _Outcome,
) -> None:
    """Run once for a cluster, and note what is to come again."""
    telemetry, own = parts.telemetry.of(cluster), None
    succeeded = False
    try:
        own, run = clusters.of(cluster)
        telemetry = own.telemetry
        with own.metrics_written():
            report = run([letter for _, letter in batch])
        for why in report.rejected:
            telemetry.rejected(why)
        failed = set(report.failed)
        outcome.failed += [record for record, letter in batch if letter.id in failed]
        succeeded = True
        outcome.served += 1
    except Rejected as error:
        telemetry.rejected(str(error))
        outcome.served += 1
    except Exception as error:  # noqa: BLE001 - raised or told of once the other clusters are served
        outcome.errors.append((telemetry, error))
        outcome.failed += [record for record, _ in batch]
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
