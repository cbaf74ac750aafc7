"""What cost allocation reads and writes at AWS: versions of objects, ended nodes and moves; and their fakes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.s3 import S3Blobs, S3History
from nodesmith.keys import snapshot_key
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith_local.functions.deployment import TABLE_NAME, bucket_name, deploy
from tests import builders
from tests.aws.account import REGION, client, strict_aws
from tests.awscalls.acting import Role, acting
from tests.fakes.store import FakeStore

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
KEY = snapshot_key("east")
BUCKET = bucket_name(REGION)
ROLE = Role("garbagecollection", "east", REGION)
CLAIM = builders.claim(
    "default-a",
    phase=Phase.TERMINATED,
    instance_id="i-1",
    price_hourly_usd=0.1,
    launched_at=NOW - timedelta(hours=1),
    terminated_at=NOW,
)
MOVE = Move("m-1", Reason.EMPTY, ("default-a",), Stage.PROPOSED, NOW, NOW, saving_hourly_usd=0.1)


@pytest.fixture(params=["fake", "dynamodb"])
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "fake":
        yield FakeStore(wall_clock=lambda: NOW)
        return
    with strict_aws():
        deploy(client, REGION)
        yield DynamoStore(acting(client, ROLE)("dynamodb"), TABLE_NAME, "east", lambda: NOW)


def committed(store: Any, claim: NodeClaim = CLAIM) -> NodeClaim:
    store.commit(store.load().version, [claim], "d-1")
    (found,) = store.load().claims
    return found  # type: ignore[no-any-return]


def test_a_forgotten_claim_is_kept_until_it_is_booked(store: Any) -> None:
    store.forget(committed(store))
    assert store.load().claims == ()
    ((kept,), moves) = store.unbooked.all()
    assert (kept.name, kept.instance_id, kept.price_hourly_usd) == ("default-a", "i-1", 0.1)
    assert (kept.launched_at, kept.terminated_at, moves) == (CLAIM.launched_at, NOW, [])
    store.unbooked.booked(["default-a", "default-unknown"], [])
    assert store.unbooked.all() == ([], [])


def test_a_claim_that_never_had_an_instance_is_not_kept(store: Any) -> None:
    store.forget(committed(store, builders.claim("default-b", phase=Phase.PENDING)))
    assert store.unbooked.all() == ([], [])


def test_a_claim_that_is_forgotten_without_a_known_end_ended_then(store: Any) -> None:
    claim = builders.claim("default-a", phase=Phase.GIVEN_UP, instance_id="i-1", launched_at=NOW)
    store.forget(committed(store, claim))
    assert store.unbooked.all()[0][0].instance_gone_at == NOW


def test_a_move_whose_sources_end_is_kept_and_an_abandoned_one_is_not(store: Any) -> None:
    for stage in (Stage.ENDING, Stage.ABANDONED):
        move = store.save_move(MOVE)
        store.forget_move(store.save_move(move.at(stage, NOW)))
        kept = store.unbooked.all()[1]
        assert [each.id for each in kept] == ([] if stage is Stage.ABANDONED else ["m-1"])
        store.unbooked.booked([], ["m-1"])
    assert store.unbooked.all() == ([], [])


def test_booking_does_not_mark_the_ledger_as_changed() -> None:
    with strict_aws():
        deploy(client, REGION)
        dynamodb = acting(client, ROLE)("dynamodb")
        times = iter([NOW + timedelta(minutes=n) for n in range(100)])
        store = DynamoStore(dynamodb, TABLE_NAME, "east", lambda: next(times))
        store.forget(committed(store))
        before = _changed()
        store.unbooked.booked(["default-a"], [])
        assert _changed() == before


def _changed() -> Any:
    key = {"pk": {"S": "CLUSTER#east"}, "sk": {"S": "META"}}
    return client("dynamodb").get_item(TableName=TABLE_NAME, Key=key)["Item"]["changed"]


def _with_paths(service: str) -> Any:
    """Return a client that names the bucket in the path, as all clients of a served AWS do."""
    return boto3.client(service, region_name=REGION, config=Config(s3={"addressing_style": "path"}))


@pytest.fixture
def s3() -> Iterator[Any]:
    with strict_aws():
        deploy(client, REGION)
        client("s3").put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield acting(_with_paths, ROLE)("s3")


def test_the_versions_in_force_since_a_time_are_listed_oldest_first(s3: Any) -> None:
    blobs, history = S3Blobs(client("s3"), BUCKET), S3History(s3, BUCKET)
    for n in range(3):
        blobs.put(KEY, str(n).encode())
    blobs.put(f"{KEY}.other", b"other")
    versions = history.written(KEY, NOW - timedelta(days=10_000))
    assert [history.old_version(KEY, id_) for _, id_ in versions] == [b"0", b"1", b"2"]
    assert versions == sorted(versions, key=lambda version: version[0])
    newest = history.written(KEY, datetime.now(UTC) + timedelta(minutes=1))
    assert [history.old_version(KEY, id_) for _, id_ in newest] == [b"2"]


def test_a_missing_object_has_no_versions_and_a_deleted_version_is_none(s3: Any) -> None:
    history = S3History(s3, BUCKET)
    assert history.written(KEY, NOW) == []
    S3Blobs(client("s3"), BUCKET).put(KEY, b"1")
    ((_, id_),) = history.written(KEY, NOW)
    client("s3").delete_object(Bucket=BUCKET, Key=KEY, VersionId=id_)
    assert history.old_version(KEY, id_) is None


def test_a_bucket_without_versions_has_the_current_one() -> None:
    with strict_aws():
        deploy(client, REGION)
        S3Blobs(client("s3"), BUCKET).put(KEY, b"1")
        history = S3History(acting(_with_paths, ROLE)("s3"), BUCKET)
        ((_, id_),) = history.written(KEY, NOW)
        assert history.old_version(KEY, id_) == b"1"
