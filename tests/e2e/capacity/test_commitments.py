"""Unused Savings Plans are used before spot, by deployed functions, and their nodes stay where they are."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.adapters.aws.commitments import AwsCommitments
from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.dynamodb.regionitems import DynamoCommitments
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.controllers.region.commitments import read_commitments_of
from nodesmith.model.costs.commitmentsettings import CommitmentSettings
from tests.e2e.conftest import Start
from tests.e2e.systems.region import REGION
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement

# Its parts are covered by tests/unit/decisions/provisioning/offerings/test_commitments.py and
# tests/contract/aws/test_commitments.py.
pytestmark = pytest.mark.slow
PRICE = 0.192  # of m5.xlarge on demand


def read_commitments(system: System) -> None:
    """Do what the catalog function does every hour; it does not run here, because it would ask AWS's price list."""
    outputs, client = system.deployed.outputs, system.aws.client
    reading = read_commitments_of(
        AwsCommitments(REGION, client),
        None,
        CommitmentSettings(),
        DynamoCommitments(client("dynamodb"), outputs["TableName"]),
        S3Blobs(client("s3"), outputs["BucketName"]),
        embedded_catalog(REGION),
        system.clock.now(),
    )
    assert reading.book.faults == ()


def used(store: DynamoCommitments) -> float:
    """Return how much the cluster has reported that it uses."""
    reported = store.load().reported.get(CLUSTER)
    return sum(reported.usage.values()) if reported else 0


def test_a_savings_plan_is_filled_before_spot_and_its_nodes_stay(start: Start) -> None:
    system = start(options={"commitments": True})
    ends, rate = system.clock.now() + timedelta(days=20), PRICE * 0.6
    bought = system.aws.strict.commitments
    bought.buy_plan("sp-m5", 2.2 * rate, {"m5.xlarge": rate}, REGION, ends, family="m5")
    read_commitments(system)
    sizes = requirement("node.kubernetes.io/instance-type", "m5.xlarge", "m5a.xlarge")
    pool = nodepool(requirements=[sizes, requirement("karpenter.sh/capacity-type", "spot", "on-demand")])
    pool["spec"]["disruption"] = {"consolidateAfter": "5s", "consolidationPolicy": "WhenEmptyOrUnderutilized"}
    system.apply(nodeclass(CLUSTER), pool, deployment("web", 4, cpu="3"))
    system.until_running(4)
    system.until_settled()
    bought_as = sorted((claim.capacity_type, claim.instance_type) for claim in system.ledger().claims)
    assert bought_as.count(("on-demand", "m5.xlarge")) == 2
    assert [kind for kind, _ in bought_as].count("spot") == 2

    store = DynamoCommitments(system.aws.client("dynamodb"), system.deployed.outputs["TableName"])
    system.until("the use is reported", lambda: used(store) == 2)
    reported = system.nodesmith("status")
    assert "91% used" in reported.stdout, reported.stdout + reported.stderr
    assert "sp-m5 ends at" in reported.stdout
    assert sorted((c.capacity_type, c.instance_type) for c in system.ledger().claims) == bought_as, (
        "nothing moved"
    )
