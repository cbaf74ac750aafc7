"""Marks of the last change of clusters in DynamoDB: forwarder heartbeats, ledger marks, and reading many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.dynamodb.healthrecords import DynamoHeartbeats, DynamoMarks
from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.functions import Concern, Heartbeat, Marks
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.ledger.ledger import Pause
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus
from nodesmith.ports import Heartbeats
from nodesmith_local.functions.deployment import TABLE_NAME, deploy
from tests import builders
from tests.aws.account import REGION, client, strict_aws
from tests.fakes.heartbeats import FakeHeartbeats

NOW = datetime(2026, 11, 25, 12, 0, 0, 250000, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PENDING = builders.claim("default-a", phase=Phase.PENDING)


@pytest.fixture
def dynamodb() -> Iterator[Any]:
    with strict_aws():
        deploy(client, REGION)
        yield client("dynamodb")


@pytest.fixture(params=["memory", "dynamodb"])
def heartbeats(request: pytest.FixtureRequest) -> Heartbeats:
    if request.param == "memory":
        return FakeHeartbeats()
    return DynamoHeartbeats(request.getfixturevalue("dynamodb"), TABLE_NAME, "east")


def test_last_returns_the_latest_heartbeat(heartbeats: Heartbeats) -> None:
    assert heartbeats.last() is None
    for minute in range(3):
        heartbeats.write_heartbeat(NOW + minute * MINUTE, NOW)
    assert heartbeats.last() == Heartbeat(NOW + 2 * MINUTE, NOW)


@pytest.mark.parametrize("broken", [{"at": {"S": "soon"}}, {"changed": {"N": "7"}}, {"changed": {"S": ""}}])
def test_an_unreadable_heartbeat_counts_as_missing(dynamodb: Any, broken: dict[str, Any]) -> None:
    key = {"pk": {"S": "FORWARDER#east"}, "sk": {"S": "HEARTBEAT"}}
    good = {"at": {"S": "2026-11-25T12:00:00Z"}, "changed": {"S": "2026-11-25T12:00:00Z"}}
    dynamodb.put_item(TableName=TABLE_NAME, Item={**key, **good})
    assert DynamoHeartbeats(dynamodb, TABLE_NAME, "east").last() is not None

    dynamodb.put_item(TableName=TABLE_NAME, Item={**key, **good, **broken})

    assert DynamoHeartbeats(dynamodb, TABLE_NAME, "east").last() is None
    assert DynamoMarks(dynamodb, TABLE_NAME).of(["east"])["east"].heartbeat is None


# Marks of the ledger


class Ledger:
    """A ledger with a clock that stands still until it is moved."""

    def __init__(self, dynamodb: Any) -> None:
        self.now, self.calls = NOW, []
        self.store = DynamoStore(dynamodb, TABLE_NAME, "east", lambda: self.now)
        self.dynamodb: Any = dynamodb
        dynamodb.meta.events.register("before-call", self._note)

    calls: list[str]

    def _note(self, model: Any, **_: object) -> None:
        self.calls.append(model.name)

    def changed(self) -> datetime | None:
        return DynamoMarks(self.dynamodb, TABLE_NAME).of(["east"])["east"].ledger_changed


@pytest.fixture
def ledger(dynamodb: Any) -> Ledger:
    return Ledger(dynamodb)


SECOND = NOW.replace(microsecond=0)
"""The precision of ledger marks."""


def test_a_commit_marks_the_ledger_in_its_transaction(ledger: Ledger) -> None:
    ledger.store.load()
    ledger.calls.clear()
    ledger.store.commit(0, [PENDING], "d1")
    assert ledger.calls == ["TransactWriteItems"]
    assert ledger.changed() == SECOND


def test_a_failed_commit_leaves_no_mark(ledger: Ledger) -> None:
    ledger.store.commit(0, [PENDING], "d1")
    ledger.now += MINUTE
    with pytest.raises(Conflict):
        ledger.store.commit(0, [], "d2")
    assert ledger.changed() == SECOND


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda store: store.pause(Pause(NOW, "by hand")), id="put"),
        pytest.param(lambda store: store.pause(None), id="delete"),
        pytest.param(lambda store: store.forget(PENDING), id="delete with a revision"),
        pytest.param(lambda store: store.save_contents({"NodePool/a": "x"}), id="batch"),
        pytest.param(
            lambda store: store.save_cluster(ClusterInfo("east", "https://east", "", "", "1.34")),
            id="what is known of the cluster",
        ),
    ],
)
def test_every_other_write_is_preceded_by_a_mark(
    ledger: Ledger, write: Callable[[DynamoStore], None]
) -> None:
    write(ledger.store)
    assert ledger.calls[0] == "UpdateItem"
    assert len(ledger.calls) == 2
    assert ledger.changed() == SECOND


def test_a_process_marks_the_ledger_at_most_once_every_half_minute(ledger: Ledger) -> None:
    for _ in range(6):
        ledger.store.pause(None)
        ledger.now += timedelta(seconds=10)
    assert Counter(ledger.calls) == {"DeleteItem": 6, "UpdateItem": 2}
    assert ledger.changed() == SECOND + timedelta(seconds=30)


def test_reads_and_locks_leave_no_mark(ledger: Ledger) -> None:
    ledger.store.load()
    ledger.store.take_lock(Concern.TERMINATION, NOW, NOW + MINUTE)
    ledger.store.release_lock(Concern.TERMINATION, NOW + MINUTE)
    ledger.store.forget_contents([])
    assert ledger.changed() is None


def test_a_resolution_leaves_a_mark_only_if_it_differs_from_the_last(ledger: Ledger) -> None:
    status = NodeClassStatus("default", 1, "hash", NOW)
    ledger.store.save_nodeclass(status)
    assert ledger.changed() == SECOND
    ledger.store.load()

    ledger.now += MINUTE
    ledger.store.save_nodeclass(replace(status, resolved_at=ledger.now))
    assert ledger.changed() == SECOND
    assert ledger.store.load().nodeclasses["default"].resolved_at == ledger.now

    ledger.store.save_nodeclass(replace(status, resolved_at=ledger.now, hash="another"))
    assert ledger.changed() == SECOND + MINUTE


def test_nothing_is_written_to_a_ledger_that_cannot_be_marked(ledger: Ledger) -> None:
    def refuse(**_: object) -> None:
        raise Transient("DynamoDB is away")

    events, call = ledger.dynamodb.meta.events, "before-call.dynamodb.UpdateItem"
    events.register(call, refuse)
    try:
        with pytest.raises(Transient):
            ledger.store.save_contents({"NodePool/a": "x"})
    finally:
        events.unregister(call, refuse)
    assert ledger.store.load().contents == {}


def test_marks_and_versions_do_not_overwrite_each_other(ledger: Ledger) -> None:
    ledger.store.pause(None)
    ledger.store.commit(ledger.store.load().version, [PENDING], "d1")
    ledger.now += MINUTE
    ledger.store.pause(None)
    assert ledger.store.load().version == 1


# Many clusters


def test_marks_of_many_clusters_are_read_in_batches_of_a_hundred_items(dynamodb: Any) -> None:
    clusters = [f"cluster-{n}" for n in range(120)]
    for number, cluster in enumerate(clusters):
        DynamoHeartbeats(dynamodb, TABLE_NAME, cluster).write_heartbeat(NOW + number * MINUTE, NOW)
    ledger = Ledger(dynamodb)

    found = DynamoMarks(dynamodb, TABLE_NAME).of(clusters)

    assert ledger.calls == ["BatchGetItem"] * 3
    assert found == {
        cluster: Marks(Heartbeat(NOW + number * MINUTE, NOW)) for number, cluster in enumerate(clusters)
    }


def test_a_cluster_without_items_has_no_marks(dynamodb: Any) -> None:
    assert DynamoMarks(dynamodb, TABLE_NAME).of(["new"]) == {"new": Marks()}
    assert DynamoMarks(dynamodb, TABLE_NAME).of([]) == {}


class Sluggish:
    """A client that reads one key per call and leaves the others unprocessed."""

    def __init__(self, dynamodb: Any, answers: int) -> None:
        self.dynamodb, self.answers = dynamodb, answers

    def batch_get_item(self, RequestItems: dict[str, Any]) -> dict[str, Any]:  # noqa: N803 boto3's name
        asked = RequestItems[TABLE_NAME]
        self.answers -= 1
        first, left = (asked["Keys"][:1], asked["Keys"][1:]) if self.answers >= 0 else ([], asked["Keys"])
        if not first:
            return {"Responses": {}, "UnprocessedKeys": {TABLE_NAME: asked}}
        answer = self.dynamodb.batch_get_item(RequestItems={TABLE_NAME: {**asked, "Keys": first}})
        return {**answer, "UnprocessedKeys": {TABLE_NAME: {**asked, "Keys": left}} if left else {}}


def test_unprocessed_keys_are_retried_a_limited_number_of_times(dynamodb: Any) -> None:
    for cluster in ("east", "west"):
        DynamoHeartbeats(dynamodb, TABLE_NAME, cluster).write_heartbeat(NOW, NOW)

    found = DynamoMarks(Sluggish(dynamodb, 4), TABLE_NAME).of(["east", "west"])
    assert {cluster: marks.heartbeat for cluster, marks in found.items()} == dict.fromkeys(
        ("east", "west"), Heartbeat(NOW, NOW)
    )

    with pytest.raises(Transient, match="left 4 items unread"):
        DynamoMarks(Sluggish(dynamodb, 0), TABLE_NAME).of(["east", "west"])


def test_a_missing_table_is_reported_without_a_crash(dynamodb: Any) -> None:
    with pytest.raises(Rejected, match="ResourceNotFoundException"):
        DynamoMarks(dynamodb, "another").of(["east"])
