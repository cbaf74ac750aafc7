"""A ledger that has not been written to is not read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.ledger.ledger import Pause
from nodesmith.model.nodeclasses.status import NodeClassStatus
from nodesmith.ports import Store
from nodesmith_local.functions.deployment import TABLE_NAME, deploy
from tests import builders
from tests.aws.account import REGION, client, strict_aws

MINUTE = timedelta(minutes=1)
CLAIM = builders.claim("default-a", phase=Phase.PENDING)


class Table:
    """A table with one ledger and a clock that stands still until it is moved. `whole` counts complete reads."""

    def __init__(self, dynamodb: Any) -> None:
        self.now, self.whole = datetime(2026, 11, 25, 12, tzinfo=UTC), 0
        self._dynamodb = dynamodb
        dynamodb.meta.events.register("provide-client-params.dynamodb.Query", self._count)

    def _count(self, params: dict[str, Any], **_: object) -> None:
        self.whole += params["KeyConditionExpression"] == "pk = :pk"

    def store(self) -> DynamoStore:
        """Return the store of another process."""
        return DynamoStore(self._dynamodb, TABLE_NAME, "east", lambda: self.now)


@pytest.fixture
def table() -> Iterator[Table]:
    with strict_aws():
        deploy(client, REGION)
        made = Table(client("dynamodb"))
        made.store().commit(0, [CLAIM], "first")
        made.whole = 0
        yield made


def test_a_ledger_that_has_not_changed_recently_is_read_once(table: Table) -> None:
    store = table.store()
    table.now += 6 * MINUTE
    read = store.load()
    table.now += 5 * MINUTE
    assert store.load() == read
    assert [claim.name for claim in read.claims] == [CLAIM.name]
    assert table.whole == 1


def test_a_ledger_that_has_changed_recently_is_read_each_time(table: Table) -> None:
    store = table.store()
    for _ in range(4):
        store.load()
        table.now += MINUTE
    assert table.whole == 4


def test_a_ledger_is_read_again_after_a_quarter_of_an_hour_regardless_of_its_mark(table: Table) -> None:
    store = table.store()
    table.now += 6 * MINUTE
    store.load()
    table.now += 15 * MINUTE
    store.load()
    assert table.whole == 2


WRITES: dict[str, Callable[[Store], object]] = {
    "a commit": lambda store: store.commit(1, [builders.claim("default-b", phase=Phase.PENDING)], "next"),
    "progress": lambda store: store.save(replace(CLAIM, revision=1, phase=Phase.LAUNCHED)),
    "an end": lambda store: store.forget(replace(CLAIM, revision=1)),
    "a pause": lambda store: store.pause(Pause(datetime(2026, 11, 25, 12, 7, tzinfo=UTC), "release week")),
    "a resolution": lambda store: store.save_nodeclass(status("content")),
    "contents": lambda store: store.save_contents({"NodePool/default": "content"}),
}


def status(content: str) -> NodeClassStatus:
    return replace(builders.nodeclass_status(), content=content)


@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize("by_itself", [True, False])
def test_the_next_read_sees_every_write(what: str, by_itself: bool, table: Table) -> None:
    store = table.store()
    table.now += 6 * MINUTE
    before = store.load()
    table.now += MINUTE
    WRITES[what](store if by_itself else table.store())
    after = store.load()
    assert after != before
    assert after == table.store().load()


def test_a_write_without_its_own_mark_is_seen_by_a_read_soon_after(table: Table) -> None:
    """A process marks the ledger once per half minute, so its second write follows a mark that others have seen."""
    store, other = table.store(), table.store()
    table.now += 6 * MINUTE
    other.save_contents({"NodePool/default": "one"})
    store.load()
    table.now += timedelta(seconds=20)
    other.save_contents({"NodePool/default": "two"})
    assert store.load().contents == {"NodePool/default": "two"}


def test_after_an_unchanged_resolution_only_nodeclasses_are_read_again(table: Table) -> None:
    store, readiness = table.store(), table.store()
    readiness.save_nodeclass(status("content"))
    table.now += 6 * MINUTE
    (known,) = readiness.load().nodeclasses.values()
    store.load()
    again = replace(known, resolved_at=table.now)
    readiness.save_nodeclass(again)
    assert store.load().nodeclasses == readiness.load().nodeclasses == {again.name: again}
    assert table.whole == 2
