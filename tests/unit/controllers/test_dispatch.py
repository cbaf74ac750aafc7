from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from nodesmith.adapters.aws.messaging import LambdaTicks
from nodesmith.composition.regionruntime import scheduled_at
from nodesmith.controllers.region.dispatch import Dispatch, send_ticks
from nodesmith.errors import NodesmithError, Rejected, Transient
from nodesmith.model.functions import (
    TALKING,
    TICK_MINUTES,
    Concern,
    Finding,
    Heartbeat,
    Marks,
    Record,
    hints_of,
)
from nodesmith.regionports import Ticks
from nodesmith.registration import Registration
from nodesmith.settings import function_name

if TYPE_CHECKING:
    from nodesmith.adapters.aws.messaging import LambdaInvocations

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
CLUSTERS = [Registration(name, "vpc-01234567", ("nodes",)) for name in ("east", "west")]


class Registered:
    def __init__(self, clusters: Sequence[Registration], error: NodesmithError | None, **faults: str) -> None:
        self.clusters, self.error, self.faults = clusters, error, faults

    def get(self, cluster: str) -> Registration:
        return next(each for each in self.clusters if each.cluster == cluster)

    def all(self) -> tuple[Sequence[Registration], Mapping[str, str]]:
        if self.error is not None:
            raise self.error
        return self.clusters, self.faults


class Sent:
    def __init__(self, *away: Concern) -> None:
        self.away = away
        self.ticks: list[tuple[Concern, list[str]]] = []
        self.woken: list[Concern] = []

    def send(self, concern: Concern, clusters: Sequence[Registration]) -> None:
        if concern in self.away:
            raise Transient("Lambda is away")
        self.ticks.append((concern, [each.cluster for each in clusters]))

    def wake(self, concern: Concern) -> None:
        if concern in self.away:
            raise Transient("Lambda is away")
        self.woken.append(concern)


class Marked:
    """Marks of clusters, all of which have just changed except those in `quiet`."""

    def __init__(self, *quiet: str, error: NodesmithError | None = None) -> None:
        self.quiet, self.error = quiet, error

    def of(self, clusters: Collection[str]) -> Mapping[str, Marks]:
        if self.error is not None:
            raise self.error
        return {name: self._of(name) for name in clusters}

    def _of(self, name: str) -> Marks:
        changed = NOON - timedelta(hours=1 if name in self.quiet else 0)
        return Marks(Heartbeat(NOON, changed), changed)


class Recorded:
    """Records of clusters in which only `due` is due. Those of the clusters in `broken` cannot be read."""

    def __init__(self, *due: Concern, broken: Mapping[str, NodesmithError] | None = None) -> None:
        self.due, self.broken = due, broken or {}

    def of(self, cluster: str) -> list[Record]:
        if cluster in self.broken:
            raise self.broken[cluster]
        return [
            Record(cluster, concern, NOON, due=NOON if concern in self.due else None)
            for concern in TICK_MINUTES
        ]

    def state(self) -> tuple[Mapping[str, datetime], frozenset[Finding]]:
        raise NotImplementedError

    def keep(self, *_: object) -> None:
        raise NotImplementedError


OTHERS = TICK_MINUTES.keys() - {Concern.OBSERVATION}
"""All concerns except the one that has nothing to do while the forwarder is alive."""


def dispatching(
    ticks: Ticks,
    clusters: Sequence[Registration] = CLUSTERS,
    marks: Marked | None = None,
    records: Recorded | None = None,
    error: NodesmithError | None = None,
    **faults: str,
) -> Dispatch:
    registered = Registered(clusters, error, **faults)
    return Dispatch(
        registered, marks or Marked(), records or Recorded(), ticks, lambda _: timedelta(seconds=90)
    )


def test_every_readable_cluster_is_ticked_and_the_others_are_reported() -> None:
    sent = Sent()

    report = send_ticks(dispatching(sent, broken="no JSON"), NOON)

    assert {concern: woken for concern, woken in sent.ticks if concern in OTHERS} == {
        concern: ["east", "west"] for concern in OTHERS
    }
    assert report.faults == {"broken": "no JSON"}
    assert (report.counts["ClustersServed"], report.counts["ClustersQuiet"]) == (2, 0)


def test_only_due_concerns_of_an_unchanged_cluster_are_ticked() -> None:
    sent = Sent()

    report = send_ticks(dispatching(sent, CLUSTERS, Marked("west"), Recorded(Concern.REPAIR)), NOON)

    woken = dict(sent.ticks)
    assert woken[Concern.REPAIR] == ["east", "west"]
    assert woken[Concern.LIFECYCLE] == ["east"]
    assert report.counts["ClustersQuiet"] == 1


@pytest.mark.parametrize("error", [Transient("DynamoDB is away"), Rejected("AccessDenied")])
def test_if_marks_cannot_be_read_everything_is_ticked_and_the_error_reported(error: NodesmithError) -> None:
    sent = Sent()
    run = dispatching(sent, CLUSTERS, Marked("east", "west", error=error))

    reported = says(run)

    assert dict(sent.ticks) == {concern: ["east", "west"] for concern in TICK_MINUTES}
    assert str(error) in reported


@pytest.mark.parametrize("error", [Transient("DynamoDB is away"), Rejected("AccessDenied")])
def test_a_cluster_with_unreadable_records_is_ticked_as_if_it_had_changed(
    error: NodesmithError,
) -> None:
    sent = Sent()
    run = dispatching(sent, CLUSTERS, Marked("east", "west"), Recorded(broken={"west": error}))

    reported = says(run)

    assert dict(sent.ticks) == {concern: ["west"] for concern in TICK_MINUTES}
    assert str(error) in reported


def says(run: Dispatch) -> str:
    """Run dispatch and return the errors that it reports."""
    try:
        return "; ".join(send_ticks(run, NOON).rejected)
    except Transient as error:
        return str(error)


def test_a_failing_invocation_does_not_stop_other_ticks() -> None:
    sent = Sent(Concern.PROVISIONING)

    with pytest.raises(Transient, match="Lambda is away"):
        send_ticks(dispatching(sent), NOON)

    assert {concern for concern, _ in sent.ticks} == OTHERS - {Concern.PROVISIONING}


class Deployed:
    """Functions outside VPCs, which record their invocations."""

    def __init__(self) -> None:
        self.hinted: dict[Concern, set[str]] = {concern: set() for concern in TICK_MINUTES}

    def invoke(self, concern: Concern, vpc: str, payload: Mapping[str, Any]) -> None:
        if vpc:
            raise Rejected(f"the function {function_name(concern, vpc)} does not exist")
        if concern == Concern.ROUTING:
            return
        self.hinted[concern] |= {hint.cluster for hint in hints_of(payload)[0]}


def test_a_cluster_in_an_undeployed_vpc_does_not_stop_other_ticks() -> None:
    deployed = Deployed()
    lost = Registration("lost", "vpc-01234567", ("nodes",), reached_from="nowhere")
    ticks = LambdaTicks(cast("LambdaInvocations", deployed))

    report = send_ticks(dispatching(ticks, [lost, *CLUSTERS], Marked(error=Rejected("none"))), NOON)

    for concern, reported in deployed.hinted.items():
        assert reported - {"lost"} == {"east", "west"}
        assert ("lost" in reported) is (concern not in TALKING)
    _, *missing = report.rejected
    assert len(missing) == len(TALKING)
    assert all("-nowhere-" in why and "does not exist" in why for why in missing)


def test_in_a_region_without_clusters_only_routing_is_invoked() -> None:
    sent = Sent()

    send_ticks(dispatching(sent, [], Marked(error=Transient("nobody asks"))), NOON)

    assert (sent.ticks, sent.woken) == ([], [Concern.ROUTING])


def test_routing_is_invoked_even_if_registrations_cannot_be_listed() -> None:
    sent = Sent()

    with pytest.raises(Transient, match="SSM is away"):
        send_ticks(dispatching(sent, error=Transient("SSM is away")), NOON)

    assert sent.woken == [Concern.ROUTING]


def test_if_routing_cannot_be_invoked_clusters_are_ticked_and_the_error_reported() -> None:
    sent = Sent(Concern.ROUTING)

    assert says(dispatching(sent)) == "Lambda is away"

    assert {concern for concern, _ in sent.ticks} == OTHERS


def test_the_scheduled_minute_counts_even_if_the_function_runs_late() -> None:
    assert scheduled_at({"at": "2026-11-25T12:00:00Z"}) == NOON


@pytest.mark.parametrize("event", [{}, {"at": "<aws.scheduler.scheduled-time>"}, {"at": 7}])
def test_a_manual_invocation_uses_the_clock(event: dict[str, object]) -> None:
    assert abs(scheduled_at(event) - datetime.now(UTC)) < timedelta(minutes=1)


def test_every_concern_that_uses_an_api_server_is_ticked() -> None:
    assert set(TALKING) <= TICK_MINUTES.keys()
