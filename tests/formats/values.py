"""What functions persist and send, one value of each kind with as much set as can be."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import Effect, Taint
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.ec2.launches import FleetShare, LaunchRequest, OfferingKey, Override
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.karpenter.disruption import Budget
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase, Transition
from nodesmith.model.kubernetes.provisioningrequests import Gang, GangStage
from nodesmith.model.ledger.learned import Backoff, Boot, DrainTime, Ending, Offered, RegistrationHealth, Risk
from nodesmith.model.ledger.ledger import Departure, Handover, Ledger, Pause, departure_of
from nodesmith.model.ledger.moves import Move, MoveKind, Reason, Stage
from nodesmith.model.ledger.region import Spending
from nodesmith.model.ledger.spending import Launches
from nodesmith.model.nodeclasses.status import (
    CapacityReservation,
    ClusterInfo,
    Image,
    NodeClassStatus,
    PlacementGroup,
    SecurityGroup,
    StatusCondition,
    Subnet,
)

NOW = datetime(2026, 11, 21, 8, 30, 15, 250000, tzinfo=UTC)
POOL = OfferingKey("spot", "m5.large", "us-east-1a")
FULL_CLAIM = NodeClaim(
    name="default-full",
    nodepool="default",
    nodeclass=NodeClassRef("default"),
    created_at=NOW,
    phase=Phase.INITIALIZED,
    phase_since=NOW + timedelta(minutes=3),
    nodepool_uid="0d3c",
    provisioner="legacy",
    nodepool_hash="123",
    nodeclass_hash="456",
    requirements=Requirements.of(
        requirement("kubernetes.io/arch", "In", ["amd64"]),
        requirement("karpenter.k8s.aws/instance-cpu", "Gt", ["3"]),
        requirement("example.com/team", "NotIn", ["red", "blue"]),
        requirement("example.com/any", "Exists"),
        requirement("example.com/none", "DoesNotExist"),
    ),
    labels=FrozenMap({"team": "web", "empty": ""}),
    annotations=FrozenMap({"note": "größer – als"}),
    taints=(Taint("dedicated", Effect.NO_SCHEDULE, "web"), Taint("plain", Effect.NO_EXECUTE)),
    startup_taints=(Taint("node.cilium.io/agent-not-ready", Effect.NO_EXECUTE, "true"),),
    requests=parse_resources({"cpu": "3500m", "memory": "7Gi", "pods": "3", "nvidia.com/gpu": "1"}),
    expire_after="720h",
    termination_grace_period="48h",
    budgets=(Budget("5", ("Drifted",), "0 9 * * 1-5", 3600), Budget()),
    launch=FrozenMap(
        {"capacityType": "spot", "overrides": [["t", "m5.large", "us-east-1a", "subnet-1", 0.096]]}
    ),
    instance_id="i-0123456789abcdef0",
    provider_id="aws:///us-east-1a/i-0123456789abcdef0",
    instance_type="m5.large",
    zone="us-east-1a",
    capacity_type="spot",
    image_id="ami-1",
    subnet_id="subnet-1",
    security_groups=("sg-1",),
    price_hourly_usd=0.0336,
    private_dns_name="ip-10-0-0-1.ec2.internal",
    node_name="ip-10-0-0-1.ec2.internal",
    capacity=parse_resources({"cpu": "2", "memory": "8Gi"}),
    allocatable=parse_resources({"cpu": "1930m", "memory": "7Gi"}),
    nominated=("default/web-1", "default/web-2"),
    attempts=FrozenMap({"a1b2c3d4-e5f6a7b8": 3, "a1b2c3d4-00000000": 1}),
    use="Used",
    removals_before=1,
    served=("a1b2c3d4-e5f6a7b8",),
    launched_at=NOW + timedelta(seconds=3),
    registered_at=NOW + timedelta(seconds=40),
    initialized_at=NOW + timedelta(seconds=60),
    held_until=NOW + timedelta(seconds=340),
    terminating_at=NOW + timedelta(minutes=9),
    replaced_by=("default-y",),
    cause="Deleted",
    deadline=NOW + timedelta(hours=1),
    drained_at=NOW + timedelta(minutes=10),
    detached_at=NOW + timedelta(minutes=11),
    terminated_at=NOW + timedelta(minutes=12),
    instance_gone_at=NOW + timedelta(minutes=13),
    history=(
        Transition(Phase.LAUNCHED, NOW + timedelta(seconds=3)),
        Transition(Phase.STOPPED, NOW + timedelta(minutes=1), "Stopped: instance i-1 is stopped"),
        Transition(Phase.TERMINATING, NOW + timedelta(minutes=9), "Deleted: Node a was deleted"),
    ),
    reason="NodeNotReady",
    message="Node ip-10-0-0-1 is not Ready",
    drift="AMIDrift",
    drift_detail="its image is ami-1, a new node's ami-2",
    drifted_at=NOW,
    decision="20261121T083015Z-abc",
    origin="ByHand",
    buffer="default/room",
    images=("web:1",),
    stopped_price_hourly_usd=0.002,
    stopped_at=NOW + timedelta(minutes=1),
    started_at=NOW + timedelta(minutes=1),
    inconsistency="the Node shows less",
    revision=1,
)
FULL_STATUS = NodeClassStatus(
    "default",
    7,
    "hash",
    NOW,
    (Subnet("subnet-1", "us-east-1a", "use1-az1", 4000), Subnet("subnet-2", "us-east-1b")),
    (SecurityGroup("sg-1", "nodes"), SecurityGroup("sg-2")),
    (Image("ami-1", "al2023", Requirements.of(requirement("kubernetes.io/arch", "In", ["arm64"])), True),),
    "profile",
    (StatusCondition("SubnetsReady", "False", "SubnetsNotFound", "none matches", NOW),),
    content="e" * 64,
    past=FrozenMap({"1234": FrozenMap({"userData": "0badcafe", "certificateAuthority": "deadbeef"})}),
)
FULL_HEALTH = RegistrationHealth(
    "uid/1 default/7 ami-1",
    NOW,
    (Ending("default-a", True), Ending("default-b", False)),
    "RegistrationTimeout",
    "no Node has registered",
    Backoff(NOW, 2, "RegistrationTimeout"),
    {POOL: Backoff(NOW, 1, "RegistrationTimeout")},
)
FULL_CLUSTER = ClusterInfo("test", "https://api.test", "Q0E=", "fd00::/108", "1.34", "ipv6", "fd00::a")

FULL_MOVE = Move(
    id="20261121T083015Z-abc-0",
    reason=Reason.UNDERUTILIZED,
    sources=("default-a", "default-b"),
    stage=Stage.REPLACING,
    stage_since=NOW + timedelta(seconds=20),
    proposed_at=NOW,
    replacements=("default-c",),
    saving_hourly_usd=0.0336,
    eviction_cost=7.5,
    message="two nodes are cheaper as one",
    revision=1,
)

RESERVATION = CapacityReservation(
    "cr-1", "m5.large", "us-east-1a", 3, "capacity-block", "open", "123456789012", True, True, NOW
)
GROUP = PlacementGroup("pg-1", "training", "partition", 3, (("us-east-1a", 2),), "host")
RESERVED_STATUS = replace(
    FULL_STATUS, name="reserved", capacity_reservations=(RESERVATION,), placement_group=GROUP
)
LAUNCHING = replace(
    FULL_CLAIM,
    name="default-launching",
    phase=Phase.PENDING,
    launch=FrozenMap(
        LaunchRequest(
            "default-launching",
            "spot",
            (Override("nodesmith-1", "m5.large", "us-east-1a", "subnet-1", 0.0336),),
            {"Name": "default-launching"},
            "default",
            FleetShare("fleet-1", 0, 2),
            "pg-1",
        ).to_item()
    ),
)


FULL_GANG = Gang(
    id="uid-job",
    request="default/job",
    stage=GangStage.PROVISIONED,
    stage_since=NOW,
    created_at=NOW,
    sets=(parse_resources({"cpu": "3", "memory": "1Gi", "pods": "1"}),),
    claims=("default-launching",),
    places={"default-launching": (2,), "node-a": (1,)},
    purchases=2,
    bought_at=NOW,
    failures=1,
    retry_at=NOW,
    booked_until=NOW,
    reason="CapacityIsProvisioned",
    message="there is room",
    revision=1,
)


def _departure() -> Departure:
    found = departure_of(GONE)
    assert found is not None
    return found


GONE = replace(FULL_CLAIM, name="default-gone")
LEDGER = Ledger(
    version=2,
    claims=(FULL_CLAIM, LAUNCHING),
    nodeclasses={"default": FULL_STATUS, "reserved": RESERVED_STATUS},
    cluster=FULL_CLUSTER,
    unavailable={
        POOL: Backoff(NOW, 2, "InsufficientInstanceCapacity"),
        replace(POOL, group="pg-1"): Backoff(NOW, 1, "InsufficientInstanceCapacity"),
    },
    zonal_shifts=(ZonalShift("us-east-1a", "use1-az1", NOW, "practice run", True, True),),
    nodepool_backoffs={"default": Backoff(NOW, 1, "LaunchFailed")},
    health={"default": replace(FULL_HEALTH, revision=1)},
    learned={Boot("m5.large", "ami-1"): Offered(8_000_000_000, {"abc": parse_resources({"cpu": "1930m"})})},
    moves=(FULL_MOVE,),
    gangs=(FULL_GANG,),
    spending=Spending(Launches().noted(1, NOW)),
    paused=Pause(NOW, "the audit goes on", NOW),
    handover=Handover(NOW, to_karpenter=True, is_settled=True),
    departures=(_departure(),),
    risks={POOL: Risk(0.5, NOW)},
    drain_times={"default": DrainTime(12.5, NOW)},
    move_backoffs={MoveKind("default", Reason.DRIFTED): Backoff(NOW, 3, "nothing is left")},
    subnet_backoffs={"subnet-1": Backoff(NOW, 1, "InsufficientFreeAddressesInSubnet")},
    contents={"NodePool/default": "f" * 64},
)
