"""A zone is shifted away from in the middle of a scale-up, and comes back."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from nodesmith.model.apimachinery.labels import ZONE
from tests.e2e.conftest import Start
from tests.e2e.systems.region import REGION
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import deployment, nodeclass, nodepool, zone_spread

pytestmark = pytest.mark.slow
SHIFTED = f"{REGION}a"


def zone_id(system: System, name: str) -> str:
    zones = system.aws.client("ec2").describe_availability_zones()["AvailabilityZones"]
    return str(next(zone["ZoneId"] for zone in zones if zone["ZoneName"] == name))


def announce(system: System, kind: str, id_: str) -> None:
    """Send the event of an autoshift, and cordon the zone's nodes, as EKS does."""
    detail = json.dumps({"version": "0.0.1", "data": "", "metadata": {"awayFrom": id_, "notes": ""}})
    entry = {"Source": "aws.arc-zonal-shift", "DetailType": kind, "Detail": detail, "Resources": []}
    system.aws.client("events").put_events(Entries=[entry])
    cordon = "cordon" if kind == "Autoshift In Progress" else "uncordon"
    system.kubectl(cordon, "-l", f"{ZONE}={SHIFTED}")


def test_no_node_is_launched_in_a_shifted_zone_and_all_pods_run_elsewhere(start: Start) -> None:
    system = start()
    spread = zone_spread("web", "ScheduleAnyway")
    pool = nodepool(
        requirements=[{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}]
    )
    system.apply(nodeclass(CLUSTER), pool, deployment("web", 3, topologySpreadConstraints=spread))
    system.until_running(3)
    system.until_settled()
    shifts, id_ = system.aws.strict.shifts, zone_id(system, SHIFTED)
    shifts.register(CLUSTER, REGION)

    system.apply(deployment("web", 9, topologySpreadConstraints=spread))
    shifts.start_autoshift(CLUSTER, id_)
    announce(system, "Autoshift In Progress", id_)
    system.until("readiness knows the shift", lambda: SHIFTED in system.ledger().shifted(system.clock.now()))
    known_at = system.clock.now() + timedelta(seconds=3)  # a decision in progress may still launch
    system.until_running(9)
    system.until_settled()
    before = {claim.name for claim in system.ledger().claims}
    system.apply(deployment("web", 18, topologySpreadConstraints=spread))
    system.until_running(18)
    system.until_settled()
    claims = system.ledger().claims
    late = [claim for claim in claims if claim.name not in before or claim.created_at > known_at]
    assert late
    assert all(claim.zone != SHIFTED for claim in late)
    assert all(key.zone != SHIFTED for claim in late for key in system.asked_for(claim))
    told_of = {(each["type"], each["involvedObject"]["kind"]) for each in system.events("ZonalShiftActive")}
    assert told_of == {("Warning", "NodePool")}
    reported = system.nodesmith("status")
    assert f"zone {SHIFTED} ({id_}) is shifted away from by an autoshift" in reported.stdout, (
        reported.stdout + reported.stderr
    )

    shifts.end(CLUSTER, id_)
    announce(system, "Autoshift Completed", id_)
    system.until("the end of the shift is known", lambda: not system.ledger().zonal_shifts, seconds=150)
    system.until("an Event says so", lambda: bool(system.events("ZonalShiftCleared")))
    needed = deployment("there", 1, nodeSelector={ZONE: SHIFTED}, cpu="1")
    system.apply(needed)
    system.until_running(19)
