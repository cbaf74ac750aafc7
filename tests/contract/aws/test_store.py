"""The contract of the Store port, for the ledger in memory and the one in DynamoDB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto.dynamodb.responses import DynamoHandler

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.errors import Conflict, Transient
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.kubernetes.provisioningrequests import Gang
from nodesmith.model.ledger.learned import Backoff, Boot, DrainTime, Offered, RegistrationHealth, Risk
from nodesmith.model.ledger.ledger import Departure, Handover, Ledger, Pause
from nodesmith.model.ledger.moves import Move, MoveKind, Stage
from nodesmith.model.ledger.region import MOST_CALLS
from nodesmith.model.nodeclasses.status import (
    NodeClassStatus,
)
from nodesmith.ports import Store
from nodesmith_local.aws.locking import in_turns
from tests import builders
from tests.aws.account import strict_aws
from tests.awscalls.acting import ActingClient, Role
from tests.fakes.store import FakeStore
from tests.fakes.table import FakeTable
from tests.formats.values import (
    FULL_CLAIM,
    FULL_CLUSTER,
    FULL_GANG,
    FULL_HEALTH,
    FULL_MOVE,
    FULL_STATUS,
    NOW,
    POOL,
)

TABLE = "nodesmith"  # the name in the roles' policies
PENDING = builders.claim("default-a", phase=Phase.PENDING)
OTHER = builders.claim("default-b", phase=Phase.PENDING)


@pytest.fixture
def dynamodb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of an empty table that is like the deployed one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled")
    with strict_aws(), in_turns(DynamoHandler):
        client = boto3.client("dynamodb", region_name="us-east-1")
        client.create_table(
            TableName=TABLE,
            KeySchema=[
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        yield client


@pytest.fixture(params=["memory", "table", "dynamodb"])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty ledger."""
    if request.param == "memory":
        return FakeStore()
    if request.param == "table":
        return DynamoStore(FakeTable(), TABLE, "test", lambda: NOW)
    client = ActingClient(request.getfixturevalue("dynamodb"), Role("lifecycle", "test", "us-east-1"))
    return DynamoStore(client, TABLE, "test", lambda: NOW)


@pytest.fixture
def made(dynamodb: Any) -> Callable[[str], DynamoStore]:
    """Return a function that returns the DynamoDB store of a cluster, all in one table."""
    return lambda cluster: DynamoStore(dynamodb, TABLE, cluster, lambda: NOW)


def names(ledger: Ledger) -> list[str]:
    return [claim.name for claim in ledger.claims]


def test_a_new_ledger_is_empty_and_has_version_zero(store: Store) -> None:
    assert store.load() == Ledger()


def test_the_first_commit_creates_version_one_with_its_claims(store: Store) -> None:
    store.commit(0, [OTHER, PENDING], "d1")
    ledger = store.load()
    assert (ledger.version, names(ledger)) == (1, ["default-a", "default-b"])
    assert {claim.revision for claim in ledger.claims} == {1}


def test_the_first_commit_succeeds_if_only_the_cluster_details_exist(store: Store) -> None:
    store.save_cluster(FULL_CLUSTER)
    store.commit(0, [PENDING], "d1")
    ledger = store.load()
    assert (ledger.version, ledger.cluster) == (1, FULL_CLUSTER)


def test_writing_the_cluster_details_does_not_change_the_version(store: Store) -> None:
    store.commit(0, [], "d1")
    store.save_cluster(FULL_CLUSTER)
    assert store.load().version == 1
    store.commit(1, [PENDING], "d2")
    assert store.load().version == 2


@pytest.mark.parametrize("version", [0, 2, 7])
def test_a_commit_on_another_version_conflicts_and_writes_nothing(store: Store, version: int) -> None:
    store.commit(0, [], "d1")
    with pytest.raises(Conflict):
        store.commit(version, [PENDING], "d2")
    assert (store.load().version, names(store.load())) == (1, [])


def test_a_commit_on_a_future_version_conflicts_on_an_empty_ledger(store: Store) -> None:
    with pytest.raises(Conflict):
        store.commit(1, [PENDING], "d1")
    assert store.load() == Ledger()


def test_an_existing_claim_conflicts_and_other_claims_of_the_commit_are_not_written(store: Store) -> None:
    store.commit(0, [PENDING], "d1")
    with pytest.raises(Conflict):
        store.commit(1, [OTHER, PENDING], "d2")
    assert (store.load().version, names(store.load())) == (1, ["default-a"])


def test_only_one_of_two_commits_on_the_same_version_succeeds(store: Store) -> None:
    read_by_a, read_by_b = store.load().version, store.load().version
    store.commit(read_by_b, [OTHER], "b")
    with pytest.raises(Conflict):
        store.commit(read_by_a, [PENDING], "a")
    assert names(store.load()) == ["default-b"]


def test_ninety_claims_can_be_committed_at_once(store: Store) -> None:
    store.commit(0, [replace(PENDING, name=f"default-{n:02d}") for n in range(90)], "d1")
    assert len(store.load().claims) == 90


def test_a_saved_claim_has_the_next_revision(store: Store) -> None:
    store.commit(0, [PENDING], "d1")
    (claim,) = store.load().claims
    saved = store.save(replace(claim, phase=Phase.LAUNCHED, instance_id="i-1"))
    assert saved.revision == 2
    assert store.load().claims == (saved,)
    assert store.load().version == 1


def test_saving_a_claim_on_an_outdated_revision_conflicts(store: Store) -> None:
    store.commit(0, [PENDING], "d1")
    (claim,) = store.load().claims
    store.save(replace(claim, message="first"))
    with pytest.raises(Conflict):
        store.save(replace(claim, message="second"))
    assert store.load().claims[0].message == "first"


def test_saving_a_forgotten_claim_conflicts_and_does_not_restore_it(store: Store) -> None:
    store.commit(0, [PENDING], "d1")
    (claim,) = store.load().claims
    store.forget(claim)
    with pytest.raises(Conflict):
        store.save(claim)
    assert store.load().claims == ()


def test_forgetting_a_claim_on_an_outdated_revision_conflicts_and_keeps_it(store: Store) -> None:
    store.commit(0, [PENDING], "d1")
    (claim,) = store.load().claims
    store.save(claim)
    with pytest.raises(Conflict):
        store.forget(claim)
    assert names(store.load()) == ["default-a"]


def test_forgetting_a_claim_is_idempotent(store: Store) -> None:
    store.commit(0, [PENDING], "d1")
    (claim,) = store.load().claims
    store.forget(claim)
    store.forget(claim)
    assert store.load().claims == ()


def test_forgetting_a_terminated_claim_leaves_a_departure(store: Store) -> None:
    store.commit(0, [replace(FULL_CLAIM, terminating_at=NOW), PENDING], "d1")
    for claim in store.load().claims:
        store.forget(claim)
    kept = FULL_CLAIM.attempts, FULL_CLAIM.served
    moments = NOW, FULL_CLAIM.bought_at, FULL_CLAIM.initialized_at
    cause, use, again = FULL_CLAIM.cause, FULL_CLAIM.use, FULL_CLAIM.removals_before
    departure = Departure(FULL_CLAIM.name, FULL_CLAIM.nodepool, *moments, *kept, cause, use, again)
    assert store.load().departures == (departure,)


@pytest.mark.parametrize("is_fake", [True, False], ids=["memory", "dynamodb"])
@pytest.mark.parametrize(("attempt", "hours"), [(1, 1), (2, 26)])
def test_departures_expire_by_the_clock_of_the_store(
    request: pytest.FixtureRequest, attempt: int, hours: int, *, is_fake: bool
) -> None:
    times = [NOW]
    store: Store = (
        FakeStore(wall_clock=lambda: times[0])
        if is_fake
        else DynamoStore(request.getfixturevalue("dynamodb"), TABLE, "test", lambda: times[0])
    )
    made = replace(FULL_CLAIM, terminating_at=NOW, attempts=FrozenMap({"a-b": attempt}))
    store.commit(0, [made], "d1")
    (claim,) = store.load().claims
    store.forget(claim)
    times[0] = NOW + timedelta(hours=hours)
    assert len(store.load().departures) == 1
    times[0] += timedelta(seconds=1)
    assert store.load().departures == ()


def test_a_pause_keeps_its_end_and_the_last_handover_counts(store: Store) -> None:
    store.pause(Pause(NOW, "adopted", NOW + timedelta(hours=1)))
    assert store.load().paused == Pause(NOW, "adopted", NOW + timedelta(hours=1))
    for word in (Handover(NOW), Handover(NOW, to_karpenter=True), Handover(NOW, True, True)):
        store.hand_over(word)
        assert store.load().handover == word


def test_disruption_can_be_paused_and_resumed(store: Store) -> None:
    assert store.load().paused is None
    store.pause(Pause(NOW, "a release"))
    store.pause(Pause(NOW, "another release"))
    assert store.load().paused == Pause(NOW, "another release")
    for _ in range(2):
        store.pause(None)
    assert store.load() == Ledger()


def test_a_move_with_every_field_set_is_read_back_equal(store: Store) -> None:
    assert [f.name for f in fields(Move) if not getattr(FULL_MOVE, f.name)] == []
    assert store.save_move(replace(FULL_MOVE, revision=0)) == FULL_MOVE
    assert store.load() == Ledger(moves=(FULL_MOVE,))


def test_a_saved_move_has_the_next_revision(store: Store) -> None:
    saved = store.save_move(store.save_move(replace(FULL_MOVE, revision=0)).at(Stage.ENDING, NOW))
    assert (saved.stage, saved.revision) == (Stage.ENDING, 2)
    assert store.load().moves == (saved,)


@pytest.mark.parametrize("revision", [0, 2])
def test_saving_a_move_on_an_outdated_revision_conflicts(store: Store, revision: int) -> None:
    move = store.save_move(replace(FULL_MOVE, revision=0))
    late = replace(move, message="late", revision=revision)
    for write in (
        store.save_move,
        store.forget_move,
        lambda m: store.commit(0, [PENDING], "d1", m),
    ):
        with pytest.raises(Conflict):
            write(late)
    assert store.load() == Ledger(moves=(move,)), "neither the version nor a claim is written"


def test_a_commit_updates_a_move_with_its_replacements(store: Store) -> None:
    store.commit(0, [], "d1", replace(FULL_MOVE, stage=Stage.PROPOSED, replacements=(), revision=0))
    (proposed,) = store.load().moves
    store.commit(1, [PENDING], "d2", proposed.at(Stage.REPLACING, NOW, replacements=(PENDING.name,)))
    ledger = store.load()
    assert (ledger.version, names(ledger)) == (2, ["default-a"])
    assert [(m.stage, m.replacements, m.revision) for m in ledger.moves] == [
        (Stage.REPLACING, ("default-a",), 2)
    ]


def test_a_gang_with_every_field_set_is_read_back_equal(store: Store) -> None:
    assert [f.name for f in fields(Gang) if not getattr(FULL_GANG, f.name)] == []
    assert store.save_gang(replace(FULL_GANG, revision=0)) == FULL_GANG
    assert store.load() == Ledger(gangs=(FULL_GANG,))
    store.forget_gang(FULL_GANG)
    assert store.load() == Ledger()


def test_a_commit_writes_a_gang_with_its_claims_or_neither(store: Store) -> None:
    store.commit(0, [PENDING], "d1", gang=replace(FULL_GANG, revision=0))
    ledger = store.load()
    assert (ledger.version, names(ledger), ledger.gangs) == (1, ["default-a"], (FULL_GANG,))
    for late, version in ((replace(FULL_GANG, message="late"), 0), (replace(FULL_GANG, revision=0), 1)):
        with pytest.raises(Conflict):
            store.commit(version, [OTHER], "d2", gang=late)
    assert store.load() == ledger


@pytest.mark.parametrize("revision", [0, 2])
def test_saving_a_gang_on_an_outdated_revision_conflicts(store: Store, revision: int) -> None:
    gang = store.save_gang(replace(FULL_GANG, revision=0))
    for write in (store.save_gang, store.forget_gang):
        with pytest.raises(Conflict):
            write(replace(gang, message="late", revision=revision))
    assert store.load() == Ledger(gangs=(gang,))


def test_a_commit_on_another_version_does_not_change_its_move(store: Store) -> None:
    move = store.save_move(replace(FULL_MOVE, revision=0))
    with pytest.raises(Conflict):
        store.commit(3, [PENDING], "d1", move.at(Stage.ENDING, NOW))
    assert store.load() == Ledger(moves=(move,))


def test_forgetting_a_move_is_idempotent(store: Store) -> None:
    move = store.save_move(replace(FULL_MOVE, revision=0))
    store.forget_move(move)
    store.forget_move(move)
    assert store.load() == Ledger()
    with pytest.raises(Conflict):
        store.save_move(move)


def test_a_claim_with_every_field_set_is_read_back_equal(store: Store) -> None:
    unset = [f.name for f in fields(NodeClaim) if not getattr(FULL_CLAIM, f.name)]
    assert unset == []
    store.commit(0, [FULL_CLAIM], "d1")
    assert store.load().claims == (FULL_CLAIM,)


def test_a_claim_with_only_required_fields_is_read_back_equal(store: Store) -> None:
    bare = NodeClaim("n", "default", NodeClassRef("default"), NOW, Phase.PENDING, NOW, revision=1)
    store.commit(0, [bare], "d1")
    assert store.load().claims == (bare,)


def test_a_nodeclass_status_is_read_back_equal_and_replaced_completely(store: Store) -> None:
    store.save_nodeclass(FULL_STATUS)
    read = store.load().nodeclasses
    assert (read, hash(read["default"])) == ({"default": FULL_STATUS}, hash(FULL_STATUS))
    bare = NodeClassStatus("default", 8, "other", NOW)
    store.save_nodeclass(bare)
    assert store.load().nodeclasses == {"default": bare}


def test_forgetting_an_ec2nodeclass_keeps_the_others(store: Store) -> None:
    store.save_nodeclass(FULL_STATUS)
    store.save_nodeclass(replace(FULL_STATUS, name="gpu"))
    store.forget_nodeclass("default")
    store.forget_nodeclass("never-seen")
    assert set(store.load().nodeclasses) == {"gpu"}


def test_the_cluster_details_are_read_back_equal(store: Store) -> None:
    store.save_cluster(FULL_CLUSTER)
    assert store.load().cluster == FULL_CLUSTER


def test_back_offs_of_offerings_are_read_back_equal_and_can_be_cleared(store: Store) -> None:
    backoff = Backoff(NOW + timedelta(minutes=3), 2, "InsufficientInstanceCapacity")
    other = replace(POOL, zone="us-east-1b")
    store.save_unavailable({POOL: backoff, other: backoff})
    assert store.load().unavailable == {POOL: backoff, other: backoff}
    store.clear_unavailable([POOL, replace(POOL, zone="us-east-1f")])
    assert store.load().unavailable == {other: backoff}


def test_interruption_risks_are_read_back_equal_and_can_be_replaced(store: Store) -> None:
    risk, other = Risk(1.25, NOW), replace(POOL, zone="us-east-1b")
    store.save_risks({POOL: Risk(0.5, NOW), other: risk})
    store.save_risks({POOL: risk})
    assert store.load().risks == {POOL: risk, other: risk}


def test_drain_times_are_read_back_equal_and_can_be_replaced(store: Store) -> None:
    store.save_drain_time("default", DrainTime(12.5, NOW))
    store.save_drain_time("default", DrainTime(30.0, NOW))
    assert store.load().drain_times == {"default": DrainTime(30.0, NOW)}


def documents(dynamodb: Any) -> list[dict[str, Any]]:
    """Return the items of the ledger except `META`."""
    return [item for item in dynamodb.scan(TableName=TABLE)["Items"] if item["sk"]["S"] != "META"]


def test_a_risk_expires_when_it_becomes_negligible(dynamodb: Any, made: Callable[[str], DynamoStore]) -> None:
    risk = Risk(1.0, NOW)
    made("test").save_risks({POOL: risk})
    (item,) = documents(dynamodb)
    assert int(item["ttl"]["N"]) == int(risk.forgotten_at.timestamp())


def test_more_back_offs_than_fit_into_one_call_are_written_and_cleared(store: Store) -> None:
    backoffs = {
        replace(POOL, instance_type=f"m5.{n}xlarge"): Backoff(NOW, n + 1, "InsufficientInstanceCapacity")
        for n in range(61)
    }
    store.save_unavailable(backoffs)
    assert store.load().unavailable == backoffs
    store.clear_unavailable(list(backoffs))
    assert store.load().unavailable == {}


def test_a_nodepools_back_off_is_read_back_equal_and_can_be_cleared(store: Store) -> None:
    backoff = Backoff(NOW + timedelta(minutes=6), 2, "Unauthorized: You may not")
    store.save_nodepool_backoff("default", backoff)
    assert store.load().nodepool_backoffs == {"default": backoff}
    store.save_nodepool_backoff("default", None)
    store.save_nodepool_backoff("never-seen", None)
    assert store.load().nodepool_backoffs == {}


def test_content_hashes_are_read_back_equal_and_can_be_forgotten_singly(store: Store) -> None:
    written = {"NodePool/default": "a" * 64, "NodePool/other": "b" * 64, "NodeClaim/mine": "c" * 64}
    store.save_contents(written)
    store.save_contents({"NodePool/other": "d" * 64})
    store.forget_contents(["NodeClaim/mine", "NodePool/never-seen"])
    assert store.load().contents == {"NodePool/default": "a" * 64, "NodePool/other": "d" * 64}


def test_back_offs_of_subnets_are_read_back_equal(store: Store) -> None:
    backoff = Backoff(NOW + timedelta(minutes=5), 1, "InsufficientFreeAddressesInSubnet")
    store.save_subnet_backoffs({"subnet-1": backoff, "subnet-2": backoff})
    later = replace(backoff, until=NOW + timedelta(minutes=9))
    store.save_subnet_backoffs({"subnet-2": later})
    assert store.load().subnet_backoffs == {"subnet-1": backoff, "subnet-2": later}
    assert store.load().unavailable == {}


def test_a_back_off_of_moves_is_read_back_equal_and_can_be_cleared(store: Store) -> None:
    kind, other = MoveKind("default", "Drifted"), MoveKind("default", "Underutilized")
    backoff = Backoff(NOW + timedelta(minutes=6), 2, "NodeClaim default-a is not to be had")
    store.save_move_backoff(kind, backoff)
    store.save_move_backoff(other, replace(backoff, failures=1))
    assert store.load().move_backoffs == {kind: backoff, other: replace(backoff, failures=1)}
    store.save_move_backoff(other, None)
    store.save_move_backoff(MoveKind("never-seen", "Drifted"), None)
    assert store.load().move_backoffs == {kind: backoff}
    assert store.load().nodepool_backoffs == {}


def test_a_small_ledger_is_read_by_two_queries(dynamodb: Any, made: Callable[[str], Store]) -> None:
    """One for the version, one for each MiB. A run for a quiet cluster makes no other call."""
    store, calls = made("test"), list[str]()
    store.commit(0, [PENDING], "d1")
    dynamodb.meta.events.register("before-call.dynamodb", lambda model, **_: calls.append(model.name))
    store.load()
    assert calls == ["Query", "Query"]


def test_a_nodepools_registration_health_is_read_back_with_the_next_revision_and_can_be_forgotten(
    store: Store,
) -> None:
    store.save_health("default", FULL_HEALTH)
    assert store.load().health == {"default": replace(FULL_HEALTH, revision=1)}
    store.save_health("default", RegistrationHealth("other", revision=1))
    assert store.load().health == {"default": RegistrationHealth("other", revision=2)}
    store.forget_health("default")
    store.forget_health("never-seen")
    assert store.load().health == {}


@pytest.mark.parametrize("revision", [0, 2])
def test_concurrent_writes_of_a_nodepools_registration_health_conflict(store: Store, revision: int) -> None:
    store.save_health("default", FULL_HEALTH)
    with pytest.raises(Conflict):
        store.save_health("default", RegistrationHealth("late", revision=revision))
    assert store.load().health["default"].basis == FULL_HEALTH.basis


OFFERED = Offered(7_900_000_000, {"hash": Resources({"cpu": 1930, "memory": 7_300_000_000})})


def test_observed_node_capacity_is_read_back_equal_and_replaced_completely(store: Store) -> None:
    boot = Boot("m5.large", "ami-1")
    assert store.learned() == {}
    store.learn({boot: OFFERED, Boot("m5.large", "ami-2"): Offered(1)})
    store.learn({boot: replace(OFFERED, allocatable={})})
    assert store.learned() == {boot: Offered(7_900_000_000), Boot("m5.large", "ami-2"): Offered(1)}
    assert store.load() == Ledger(), "it is not part of a cluster's ledger"


def test_all_clusters_of_a_table_share_observed_capacity_which_expires_after_half_a_year(
    dynamodb: Any, made: Callable[[str], DynamoStore]
) -> None:
    made("test").learn({Boot("m5.large", "ami-1"): OFFERED})
    assert made("other").learned() == {Boot("m5.large", "ami-1"): OFFERED}
    (item,) = documents(dynamodb)
    assert item["pk"] == {"S": "LEARNED#us-east-1"}
    left = datetime.fromtimestamp(int(item["ttl"]["N"]), UTC) - NOW
    assert timedelta(days=179) < left < timedelta(days=181)


def test_back_offs_expire_from_the_table_a_day_after_they_end(
    dynamodb: Any, made: Callable[[str], Store]
) -> None:
    made("test").save_unavailable({POOL: Backoff(NOW, 1)})
    made("test").save_nodepool_backoff("default", Backoff(NOW, 1))
    items = documents(dynamodb)
    assert [i["ttl"] for i in items] == [{"N": str(int((NOW + timedelta(days=1)).timestamp()))}] * 2


def test_claims_and_nodeclass_statuses_never_expire(dynamodb: Any, made: Callable[[str], Store]) -> None:
    store = made("test")
    store.commit(0, [PENDING], "d1")
    store.save_nodeclass(FULL_STATUS)
    store.save_cluster(FULL_CLUSTER)
    assert all("ttl" not in item for item in dynamodb.scan(TableName=TABLE)["Items"])


def test_two_clusters_in_one_table_do_not_see_each_other(made: Callable[[str], Store]) -> None:
    ours, theirs = made("test"), made("test2")
    ours.commit(0, [PENDING], "d1")
    ours.save_unavailable({POOL: Backoff(NOW, 1)})
    ours.save_nodeclass(FULL_STATUS)
    assert theirs.load() == Ledger()
    theirs.commit(0, [PENDING], "d1")
    theirs.forget(theirs.load().claims[0])
    assert names(ours.load()) == ["default-a"]


def test_items_of_unknown_kinds_from_a_newer_version_are_ignored(
    dynamodb: Any, made: Callable[[str], Store]
) -> None:
    store = made("test")
    store.commit(0, [PENDING], "d1")
    before = store.load()
    for sk in ("COMMAND#x", "TEAPOT", "METADATA#1"):
        item = {"pk": {"S": "CLUSTER#test"}, "sk": {"S": sk}, "doc": {"S": "{}"}}
        dynamodb.put_item(TableName=TABLE, Item=item)
    assert store.load() == before


def test_a_claim_from_a_newer_version_loses_only_unknown_fields(
    dynamodb: Any, made: Callable[[str], Store]
) -> None:
    store = made("test")
    store.commit(0, [PENDING], "d1")
    before = store.load()
    key = {"pk": {"S": "CLUSTER#test"}, "sk": {"S": "CLAIM#default-a"}}
    item = dynamodb.get_item(TableName=TABLE, Key=key)["Item"]
    item["doc"] = {"S": json.dumps({**json.loads(item["doc"]["S"]), "mood": "sunny"})}
    dynamodb.put_item(TableName=TABLE, Item=item)
    assert store.load() == before


def test_known_returns_the_existing_ones_of_many_claims(store: Store) -> None:
    there = [replace(PENDING, name=f"default-{n:03d}") for n in range(120)]
    store.commit(0, there[:60], "d1")
    store.commit(1, there[60:], "d2")
    store.forget(replace(there[7], revision=1))
    asked = {*(claim.name for claim in there), *(f"other-{n}" for n in range(120))}
    assert set(store.existing_claims(asked)) == {claim.name for claim in there} - {"default-007"}
    assert not store.existing_claims(set())


def test_claims_that_dynamodb_left_unprocessed_are_requested_again(
    dynamodb: Any, made: Callable[[str], Store]
) -> None:
    store, asked = made("test"), []
    store.commit(0, [PENDING, OTHER], "d1")

    def leave_one(parsed: dict[str, Any], **_: Any) -> None:
        asked.append(1)
        if len(asked) == 1:
            answered = parsed["Responses"][TABLE].pop()
            parsed["UnprocessedKeys"] = {
                TABLE: {"Keys": [{"pk": {"S": "CLUSTER#test"}, "sk": answered["sk"]}], "ConsistentRead": True}
            }

    dynamodb.meta.events.register("after-call.dynamodb.BatchGetItem", leave_one)
    assert set(store.existing_claims({"default-a", "default-b"})) == {"default-a", "default-b"}
    assert len(asked) == 2


def big_claims(count: int) -> list[NodeClaim]:
    """Return claims of 40 kB each."""
    return [replace(PENDING, name=f"default-{n:03d}", message="x" * 40_000) for n in range(count)]


def test_a_ledger_of_more_than_one_page_is_read_completely(
    dynamodb: Any, made: Callable[[str], Store]
) -> None:
    store, pages = made("test"), []
    dynamodb.meta.events.register("after-call.dynamodb.Query", lambda **_: pages.append(1))
    store.commit(0, big_claims(60), "d1")
    assert len(store.load().claims) == 60
    assert len(pages) > 2


def test_a_commit_between_two_pages_of_a_read_cannot_be_overlooked(
    dynamodb: Any, made: Callable[[str], Store]
) -> None:
    slow, quick = made("test"), made("test")
    slow.commit(0, big_claims(60), "d1")
    seen: list[int] = []

    def commit_meanwhile(**_: Any) -> None:
        seen.append(1)
        if len(seen) == 3:
            quick.commit(1, [replace(PENDING, name="default-000a")], "d2")

    dynamodb.meta.events.register("before-call.dynamodb.Query", commit_meanwhile)
    ledger = slow.load()
    assert quick.load().version == 2
    assert "default-000a" not in names(ledger)
    with pytest.raises(Conflict):
        slow.commit(ledger.version, [OTHER], "d3")


@pytest.mark.parametrize(
    ("call", "write"),
    [
        ("TransactWriteItems", lambda s: s.commit(0, [PENDING], "d1")),
        ("PutItem", lambda s: s.save(PENDING)),
        ("PutItem", lambda s: s.save_nodeclass(FULL_STATUS)),
        ("DeleteItem", lambda s: s.forget(PENDING)),
        ("PutItem", lambda s: s.save_move(FULL_MOVE)),
        ("DeleteItem", lambda s: s.forget_move(FULL_MOVE)),
        ("PutItem", lambda s: s.save_nodepool_backoff("default", Backoff(NOW, 1))),
        ("PutItem", lambda s: s.save_move_backoff(MoveKind("default", "Drifted"), Backoff(NOW, 1))),
        ("BatchWriteItem", lambda s: s.save_unavailable({POOL: Backoff(NOW, 1)})),
        ("UpdateItem", lambda s: s.save_cluster(FULL_CLUSTER)),
        ("Query", lambda s: s.load()),
        ("BatchGetItem", lambda s: s.existing_claims({"default-a"})),
    ],
)
def test_a_throttled_call_may_succeed_later(
    dynamodb: Any, made: Callable[[str], Store], call: str, write: Callable[[Store], object]
) -> None:
    fail(dynamodb, call, "ThrottlingException")
    with pytest.raises(Transient):
        write(made("test"))


@pytest.mark.parametrize(
    ("reason", "error"),
    [("ThrottlingError", Transient), ("TransactionConflict", Conflict)],
    ids=["throttling: it may succeed later", "a collision with another one: a conflict"],
)
def test_a_cancelled_transaction_fails_by_its_reason(
    dynamodb: Any, made: Callable[[str], Store], reason: str, error: type[Exception]
) -> None:
    reasons = [{"Code": reason}, {"Code": "None"}]
    fail(dynamodb, "TransactWriteItems", "TransactionCanceledException", CancellationReasons=reasons)
    with pytest.raises(error):
        made("test").commit(0, [PENDING], "d1")


def fail(client: Any, call: str, code: str, **more: Any) -> None:
    """Make a call of a client return an error."""
    answer = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": 400}, **more}
    http = type("Response", (), {"status_code": 400})()
    client.meta.events.register(f"before-call.dynamodb.{call}", lambda **_: (http, answer))


DRAINS = Concern.TERMINATION


def test_only_one_run_holds_a_lock_and_it_learns_of_others_that_tried(store: Store) -> None:
    until = NOW + timedelta(seconds=10)
    assert store.take_lock(DRAINS, NOW, until)
    assert store.take_lock(Concern.LIFECYCLE, NOW, until), "another lock"
    assert not store.take_lock(DRAINS, NOW + timedelta(seconds=3), NOW + timedelta(seconds=13))
    assert store.release_lock(DRAINS, until), "another run tried"
    assert store.take_lock(DRAINS, NOW + timedelta(seconds=4), NOW + timedelta(seconds=14))
    assert not store.release_lock(DRAINS, NOW + timedelta(seconds=14)), "no run has tried since"
    assert store.load() == Ledger()


def test_an_unreleased_lock_expires_and_cannot_release_the_next_one(store: Store) -> None:
    first, second = NOW + timedelta(seconds=10), NOW + timedelta(seconds=20)
    assert store.take_lock(DRAINS, NOW, first)
    assert not store.take_lock(DRAINS, NOW, first), "even at the same moment"
    assert store.take_lock(DRAINS, first, second)
    assert not store.release_lock(DRAINS, first)
    assert not store.take_lock(DRAINS, first, second), "the lock still holds"
    assert store.release_lock(DRAINS, second)


def test_clusters_take_calls_from_one_budget(made: Callable[[str], Store]) -> None:
    first, second = made("first"), made("second")
    assert first.take_calls(32, NOW) == MOST_CALLS
    assert second.take_calls(32, NOW) == 0
    assert first.take_calls(32, NOW + timedelta(seconds=6)) == 8, "half a bucket is kept for the second"
    assert second.take_calls(5, NOW + timedelta(seconds=6)) == 5


def test_fifty_clusters_that_ask_at_once_never_take_more_than_the_budget_holds(
    made: Callable[[str], Store],
) -> None:
    stores = [made(f"cluster-{number}") for number in range(50)]
    with ThreadPoolExecutor(16) as pool:
        granted = list(pool.map(lambda store: store.take_calls(32, NOW), stores))
    assert 0 < sum(granted) <= MOST_CALLS


def test_an_item_that_dynamodb_refuses_is_transient_so_that_others_are_written(dynamodb: Any) -> None:
    """A DynamoDB item holds 400 KB."""
    store = DynamoStore(dynamodb, TABLE, "east", lambda: NOW)
    store.commit(0, [PENDING, OTHER], "d")
    saved = {claim.name: claim for claim in store.load().claims}
    large = replace(saved[PENDING.name], annotations={"example.com/notes": "x" * 500_000})
    with pytest.raises(Transient, match=r"dynamodb:write: ValidationException: Item size"):
        store.save(large)
    with pytest.raises(Transient, match=r"dynamodb:write: ValidationException: Item size"):
        store.commit(1, [replace(large, name="default-c", revision=0)], "d")
    store.save(saved[OTHER.name])
