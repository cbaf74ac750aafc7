"""Two clusters in one account: the table's own indexes tell whose an instance is, from launch until it is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import boto3
import pytest

from nodesmith.adapters.routes import DynamoRoutes, SqsPost
from nodesmith.adapters.store import DynamoStore
from nodesmith.controllers.letters import Letter
from nodesmith.controllers.routing import Routing, route
from nodesmith.errors import Rejected
from nodesmith.model.events import PassedEvent, parse_message
from nodesmith.model.labels import RESERVATION_ID
from nodesmith.model.nodeclaims import NodeClaim, Phase
from nodesmith_cli.local.deployment import TABLE_NAME, Deployment, deploy
from tests import builders
from tests.account import strict_aws
from tests.awscalls.acting import Role, acting
from tests.builders import NOW

REGION = "us-east-1"
CLUSTERS = ("shop", "a-cluster-with-a-name-as-long-as-the-name-of-a-session-may-ever-b")
FIRST, SECOND, OTHER = (f"i-{number:017x}" for number in range(3))
BLOCK = "cr-0123456789abcdef0"


class Account:
    """An account that is deployed to."""

    def __init__(self) -> None:
        self.client: Any = partial(boto3.client, region_name=REGION)
        self.deployment: Deployment = deploy(self.client, REGION)
        routing = acting(self.client, Role("routing", "", REGION))
        self.routes = DynamoRoutes(routing("dynamodb"), TABLE_NAME)
        self.post = SqsPost(routing("sqs"), self.deployment.queues_url)

    def store(self, cluster: str) -> DynamoStore:
        provisioning = acting(self.client, Role("provisioning", cluster, REGION))
        return DynamoStore(provisioning("dynamodb"), TABLE_NAME, cluster, lambda: NOW)

    def launched(self, cluster: str, instance: str, **fields: Any) -> NodeClaim:
        """Commit a claim and give it its instance, as provisioning does."""
        store, claim = self.store(cluster), builders.claim(f"default-{instance}", phase=Phase.PENDING)
        store.commit(store.load().version, [claim], "d-1")
        assert self.routes.of_instance(instance) == frozenset()
        return store.save(replace(claim, revision=1, phase=Phase.LAUNCHED, instance_id=instance, **fields))

    def waiting(self) -> list[tuple[str, str]]:
        """Give the events that wait for interruption, each after its cluster."""
        url = self.deployment.queue_urls["interruption"]
        answer = self.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        read = [parse_message(message["Body"]) for message in answer.get("Messages", ())]
        return sorted((each.cluster, each.event) for each in read if isinstance(each, PassedEvent))


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled")
    with strict_aws():
        yield Account()


def test_an_instance_is_its_clusters_from_its_launch_until_its_claim_is_forgotten(account: Account) -> None:
    claim = account.launched(CLUSTERS[0], FIRST)
    assert account.routes.of_instance(FIRST) == {CLUSTERS[0]}
    account.store(CLUSTERS[0]).forget(claim)
    assert account.routes.of_instance(FIRST) == frozenset()


def test_a_reservation_is_all_clusters_that_have_instances_in_it(account: Account) -> None:
    inside = {**builders.claim().labels, RESERVATION_ID: BLOCK}
    for cluster, instance in zip(CLUSTERS, (FIRST, SECOND), strict=True):
        account.launched(cluster, instance, labels=inside)
    account.launched(CLUSTERS[0], OTHER)
    assert account.routes.of_reservation(BLOCK) == set(CLUSTERS)
    assert account.routes.of_reservation("cr-0fedcba9876543210") == frozenset()


def test_each_of_two_clusters_hears_of_its_own_instances_and_nobody_of_others(account: Account) -> None:
    account.launched(CLUSTERS[0], FIRST)
    account.launched(CLUSTERS[1], SECOND)
    mine, theirs, nobodys = map(builders.spot_warning, (FIRST, SECOND, OTHER))
    letters = [Letter(f"m-{n}", body, builders.ACCOUNT) for n, body in enumerate((mine, theirs, nobodys))]
    report = route(Routing(account.routes, account.post, lambda: NOW), letters)
    assert (report.failed, report.rejected) == ([], [])
    assert report.counts == {"NoticesRouted": 2, "NoticesOfOthers": 1}
    assert account.waiting() == sorted([(CLUSTERS[0], mine), (CLUSTERS[1], theirs)])


def test_more_letters_than_sqs_takes_at_once_all_arrive(account: Account) -> None:
    assert account.post.deliver(CLUSTERS[0], [f"{number:02}" for number in range(13)]) == []
    arrived = account.waiting() + account.waiting()
    assert sorted(arrived) == [(CLUSTERS[0], f"{number:02}") for number in range(13)]


def test_a_queue_that_is_not_there_is_named(account: Account) -> None:
    account.client("sqs").delete_queue(QueueUrl=account.deployment.queue_urls["interruption"])
    with pytest.raises(Rejected, match="nodesmith-interruption does not exist"):
        account.post.deliver("shop", ["anything"])
