"""Two clusters in one account: indexes map instances to clusters, and each cluster reads its own notices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import boto3
import pytest

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.dynamodb.regionitems import DynamoNotices, DynamoRegionNotices, DynamoRoutes
from nodesmith.controllers.region.routing import Routing, route
from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith_local.functions.deployment import TABLE_NAME, Deployment, deploy
from tests import builders
from tests.aws.account import strict_aws
from tests.awscalls.acting import Role, acting
from tests.builders import NOW
from tests.fakes.hints import FakeHints
from tests.fakes.routes import FakeRoutes

REGION = "us-east-1"
CLUSTERS = ("shop", "a-cluster-with-a-name-as-long-as-the-name-of-a-session-may-ever-b")
FIRST, SECOND, OTHER = (f"i-{number:017x}" for number in range(3))
BLOCK = "cr-0123456789abcdef0"


class Account:
    """An account with a deployment."""

    def __init__(self) -> None:
        self.client: Any = partial(boto3.client, region_name=REGION)
        self.deployment: Deployment = deploy(self.client, REGION)
        routing = acting(self.client, Role("routing", "", REGION))
        self.routes = DynamoRoutes(routing("dynamodb"), TABLE_NAME)
        self.region_notices = DynamoRegionNotices(routing("dynamodb"), TABLE_NAME, lambda: NOW)

    def store(self, cluster: str) -> DynamoStore:
        provisioning = acting(self.client, Role("provisioning", cluster, REGION))
        return DynamoStore(provisioning("dynamodb"), TABLE_NAME, cluster, lambda: NOW)

    def launched(self, cluster: str, instance: str, **fields: Any) -> NodeClaim:
        """Commit a claim and save its instance, as provisioning does."""
        store, claim = self.store(cluster), builders.claim(f"default-{instance}", phase=Phase.PENDING)
        store.commit(store.load().version, [claim], "d-1")
        assert self.routes.of_instance(instance) == frozenset()
        return store.save(replace(claim, revision=1, phase=Phase.LAUNCHED, instance_id=instance, **fields))

    def notices(self, cluster: str) -> DynamoNotices:
        interruption = acting(self.client, Role("interruption", cluster, REGION))
        return DynamoNotices(interruption("dynamodb"), TABLE_NAME, cluster)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled")
    with strict_aws():
        yield Account()


def test_an_instance_belongs_to_its_cluster_from_launch_until_its_claim_is_forgotten(
    account: Account,
) -> None:
    claim = account.launched(CLUSTERS[0], FIRST)
    assert account.routes.of_instance(FIRST) == {CLUSTERS[0]}
    account.store(CLUSTERS[0]).forget(claim)
    assert account.routes.of_instance(FIRST) == frozenset()


def test_a_reservation_belongs_to_all_clusters_with_instances_in_it(account: Account) -> None:
    inside = {**builders.claim().labels, RESERVATION_ID: BLOCK}
    for cluster, instance in zip(CLUSTERS, (FIRST, SECOND), strict=True):
        account.launched(cluster, instance, labels=inside)
    account.launched(CLUSTERS[0], OTHER)
    assert account.routes.of_reservation(BLOCK) == set(CLUSTERS)
    assert account.routes.of_reservation("cr-0fedcba9876543210") == frozenset()


def test_each_cluster_gets_only_the_notices_of_its_own_instances(
    account: Account,
) -> None:
    account.launched(CLUSTERS[0], FIRST)
    account.launched(CLUSTERS[1], SECOND)
    mine, theirs, nobodys = map(builders.spot_warning, (FIRST, SECOND, OTHER))
    hints, nothing_marked = FakeHints(), FakeRoutes(tuple, tuple)
    routing = Routing(account.routes, account.region_notices, nothing_marked, hints, lambda: NOW)
    for event in (mine, theirs, nobodys):
        route(routing, event, builders.ACCOUNT)
    for cluster, event in zip(CLUSTERS, (mine, theirs), strict=True):
        (kept,) = account.notices(cluster).pending()
        assert (kept.event, kept.account) == (event, builders.ACCOUNT)
    assert hints.concerns() == [Concern.INTERRUPTION] * 4
