"""The contract of the notices ports, for DynamoDB and for the fake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import boto3
import pytest

from nodesmith.adapters.dynamodb.regionitems import NOTICES_KEPT, DynamoNotices, DynamoRegionNotices
from nodesmith.errors import Rejected
from nodesmith.keys import notices_partition_key
from nodesmith.model.ec2.notices import KeptEvent, read_event
from nodesmith.regionports import Notices, RegionNotices
from nodesmith_local.functions.deployment import TABLE_NAME, deploy
from tests import builders
from tests.aws.account import strict_aws
from tests.awscalls.acting import Role, acting
from tests.builders import ACCOUNT, NOW
from tests.fakes.notices import FakeNotices

REGION, OWN, OTHER = "us-east-1", "shop", "bank"


@dataclass(frozen=True, slots=True)
class Subject:
    """The writer of notices, and the reader of those of the cluster `OWN`."""

    region: RegionNotices
    own: Notices

    def keep(self, id_: str, event: str = "{}", cluster: str = OWN) -> None:
        self.region.keep(cluster, id_, event, ACCOUNT)

    def ids(self) -> list[str]:
        return [kept.id for kept in self.own.pending()]


def deployed() -> Any:
    client: Any = partial(boto3.client, region_name=REGION)
    deploy(client, REGION)
    return client


@pytest.fixture(params=["DynamoDB", "fake"])
def subject(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Subject]:
    if request.param == "fake":
        fake = FakeNotices(OWN)
        yield Subject(fake, fake)
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled")
    with strict_aws():
        client = deployed()
        routing = acting(client, Role("routing", "", REGION))("dynamodb")
        interruption = acting(client, Role("interruption", OWN, REGION))("dynamodb")
        yield Subject(
            DynamoRegionNotices(routing, TABLE_NAME, lambda: NOW),
            DynamoNotices(interruption, TABLE_NAME, OWN),
        )


def test_a_notice_is_read_unchanged_until_it_is_done(subject: Subject) -> None:
    event = builders.spot_warning("i-0123456789abcdef0")
    subject.keep("one", event)
    assert list(subject.own.pending()) == [KeptEvent("one", event, ACCOUNT)]
    subject.own.done(["one"])
    assert subject.ids() == []


def test_an_event_that_is_delivered_twice_is_one_notice(subject: Subject) -> None:
    for id_ in ("one", "one", "two"):
        subject.keep(id_)
    assert subject.ids() == ["one", "two"]


def test_a_cluster_reads_only_its_own_notices(subject: Subject) -> None:
    subject.keep("theirs", cluster=OTHER)
    subject.keep("ours")
    assert subject.ids() == ["ours"]


def test_more_notices_than_fit_into_one_call_are_read_and_deleted(subject: Subject) -> None:
    ids = [f"{number:03}" for number in range(60)]
    for id_ in ids:
        subject.keep(id_)
    assert subject.ids() == ids
    subject.own.done(ids[:-1])
    assert subject.ids() == ids[-1:]


def test_deleting_no_or_missing_notices_is_ignored(subject: Subject) -> None:
    subject.own.done([])
    subject.own.done(["gone"])
    assert subject.ids() == []


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled")
    with strict_aws():
        yield deployed()("dynamodb")


def test_an_unhandled_notice_expires_after_four_hours(client: Any) -> None:
    DynamoRegionNotices(client, TABLE_NAME, lambda: NOW).keep(OWN, "one", "{}", ACCOUNT)
    (item,) = client.scan(TableName=TABLE_NAME)["Items"]
    assert timedelta(hours=4) == NOTICES_KEPT
    assert item["ttl"] == {"N": str(int((NOW + NOTICES_KEPT).timestamp()))}


@pytest.mark.parametrize("document", [None, "no JSON", "[1, 2]", '{"event": 7, "account": []}', "[" * 9000])
def test_an_item_without_an_event_is_rejected_and_can_be_deleted(client: Any, document: str | None) -> None:
    notices = DynamoNotices(client, TABLE_NAME, OWN)
    event = builders.spot_warning("i-0123456789abcdef0")
    DynamoRegionNotices(client, TABLE_NAME, lambda: NOW).keep(OWN, "sound", event, ACCOUNT)
    item = {"pk": {"S": notices_partition_key(OWN)}, "sk": {"S": "broken"}}
    client.put_item(TableName=TABLE_NAME, Item=item | ({"doc": {"S": document}} if document else {}))
    broken, sound = notices.pending()
    with pytest.raises(Rejected):
        read_event(broken.event, broken.account, NOW)
    assert read_event(sound.event, sound.account, NOW)
    notices.done([broken.id])
    assert [kept.id for kept in notices.pending()] == ["sound"]
