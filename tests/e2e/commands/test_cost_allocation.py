"""An hour passes, and is booked: each node by the second, nodes of other software too, with the owners of its pods."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from nodesmith.adapters.s3 import S3Blobs
from nodesmith.model.costs.allocations import (
    HOUR,
    HOURS,
    Allocation,
    allocations_key,
    cost_of,
    hour_of,
    nano_usd,
    read_rows,
)
from tests.e2e.conftest import Start
from tests.e2e.systems.region import REGION
from tests.e2e.systems.system import CLUSTER, HURRIED, nodesmith
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement

# tests/integration/controllers/test_booking.py books hours of the same controller.
pytestmark = pytest.mark.slow
ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")


def test_an_hour_is_booked_with_what_each_node_cost_and_whose_pods_it_ran(start: Start) -> None:
    begins = hour_of(datetime.now(UTC)) + HOUR - timedelta(minutes=15)
    system = start(speed=HURRIED, begins=begins)
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ON_DEMAND]))
    system.until_nodepools_ready()
    system.apply(deployment("web", 2))
    system.until_running(2)
    system.until_settled()
    claims = system.ledger().claims
    hour = hour_of(min(claim.launched_at for claim in claims if claim.launched_at is not None))

    bucket = system.deployed.outputs["BucketName"]
    blobs, key = (
        S3Blobs(system.aws.client("s3"), bucket),
        allocations_key(HOURS, CLUSTER, f"{hour:%Y-%m-%d/%H}"),
    )
    system.until("the hour is booked", lambda: blobs.get(key) is not None, seconds=300)
    rows, faults = read_rows(blobs.get(key) or b"", key, Allocation.from_row)
    own = [row for row in rows if row.manager == "nodesmith"]
    expected = {
        claim.instance_id: cost_of(nano_usd(claim.price_hourly_usd), hour + HOUR - claim.launched_at)
        for claim in claims
        if claim.launched_at is not None
    }
    assert faults == []
    assert {id_: sum(row.nano_usd for row in own if row.instance_id == id_) for id_ in expected} == expected
    assert {row.owner.workload for row in own if row.pods} >= {"Deployment/web"}
    (theirs,) = {(row.nodepool, row.instance_type) for row in rows if row.manager == "node-group"}
    assert theirs == ("system", "t3.medium")

    where = ("--bucket", bucket, "--region", REGION, "--month", f"{hour:%Y-%m}")
    ran = nodesmith(system.aws, "ledger", CLUSTER, *where, "--by", "manager", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    groups = {each["name"]: each["nano_usd"] for each in json.loads(ran.stdout)["groups"]}
    assert groups["nodesmith"] == sum(expected.values())
    assert groups["node-group"] > 0
    csv = nodesmith(system.aws, "ledger", CLUSTER, *where, "-o", "csv", "--to", "bucket")
    assert csv.stdout == f"written to s3://{bucket}/allocations/exports/{CLUSTER}/{hour:%Y-%m}.csv\n"
