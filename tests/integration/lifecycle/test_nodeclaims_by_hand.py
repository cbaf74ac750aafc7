"""NodeClaims that users create: they have the same lifecycle as ours, and they show why they are refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.errors import Transient
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import BY_HAND, Phase
from tests import builders
from tests.fakes.cloud import Call
from tests.scenarios import crashes
from tests.scenarios.crashes import Story
from tests.smallworld.world import STEP, World, pod_manifest

Manifest = dict[str, Any]


def nodeclaim(name: str = "mine", *, labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    on_demand = builders.expression("karpenter.sh/capacity-type", "In", "on-demand")
    asked = {"requests": {"cpu": "3", "memory": "6Gi"}}
    made = builders.nodeclaim_manifest([on_demand], name, resources=asked)
    made["metadata"] |= {"creationTimestamp": format_time(builders.NOW), "labels": labels or {}}
    made["spec"] |= spec
    return made


def world_with(*manifests: Manifest) -> World:
    world = World({})
    world.cluster.nodeclaims.update({m["metadata"]["name"]: m for m in manifests})
    return world


def conditions(world: World, name: str = "mine") -> dict[str, tuple[str, str]]:
    status = world.cluster.nodeclaims[name].get("status") or {}
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions") or ()}


def test_a_users_nodeclaim_is_bought_at_the_lowest_price_and_becomes_a_ready_node() -> None:
    world = world_with(nodeclaim(labels={"team": "web"}))
    world.settle()
    (claim,) = world.store.claims.values()
    (instance,) = world.cloud.instances.values()
    assert claim.phase is Phase.INITIALIZED
    assert (claim.name, instance.claim, instance.capacity_type) == ("mine", "mine", "on-demand")
    offered = builders.catalog().offerings
    assert claim.price_hourly_usd == min(
        o.price_hourly_usd
        for name in ("c5.xlarge", "m5.xlarge", "r5.xlarge")
        for o in offered[name]
        if o.capacity_type == "on-demand" and o.zone in builders.ZONES
    )
    assert conditions(world)["Ready"] == ("True", "Ready")
    (node,) = world.cluster.nodes.values()
    assert node["metadata"]["labels"]["team"] == "web"
    assert "karpenter.sh/nodepool" not in node["metadata"]["labels"]


def test_the_spec_of_a_users_object_is_never_written() -> None:
    mine = nodeclaim()
    world = world_with(mine)
    world.settle()
    assert world.cluster.nodeclaims["mine"]["spec"] == mine["spec"]


def test_a_nodeclaim_that_names_a_nodepool_belongs_to_it() -> None:
    world = world_with(nodeclaim(labels={"karpenter.sh/nodepool": "default"}))
    world.settle()
    (claim,) = world.store.claims.values()
    assert (claim.nodepool, claim.nodepool_uid) == ("default", "uid-default")
    (node,) = world.cluster.nodes.values()
    assert node["metadata"]["labels"]["karpenter.sh/nodepool"] == "default"


def test_pods_use_a_users_node_before_another_is_bought() -> None:
    world = World({"web-0": pod_manifest("web-0")})
    world.cluster.nodeclaims["mine"] = nodeclaim()
    world.settle()
    assert len(world.cloud.instances) == 1
    assert world.violations() == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "Thing", "name": "default"}},
            "only EC2NodeClass.karpenter.k8s.aws",
        ),
        ({"requirements": [builders.expression("kubernetes.io/arch", "Is", "amd64")]}, "operator"),
    ],
)
def test_a_nodeclaim_that_cannot_be_launched_shows_the_reason_and_does_not_affect_others(
    change: dict[str, Any], says: str
) -> None:
    world = world_with(nodeclaim("good"), nodeclaim("bad", **change))
    world.settle(patience=timedelta(minutes=5))
    assert set(world.store.claims) == {"good"}
    assert conditions(world, "bad")["Launched"] == ("Unknown", "LaunchFailed")
    (reported,) = (
        c for c in world.cluster.nodeclaims["bad"]["status"]["conditions"] if c["type"] == "Launched"
    )
    assert reported["message"]
    assert says in reported["message"]
    assert world.runs < 60, "it causes no further runs"


@pytest.mark.parametrize(
    "change",
    [
        {"resources": {"requests": {"cpu": "4000"}}},
        {"requirements": [builders.expression("kubernetes.io/arch", "In", "vax")]},
    ],
    ids=["too large", "of no architecture"],
)
def test_a_nodeclaim_that_no_offering_fits_is_deleted_at_once_with_an_event(
    change: dict[str, Any],
) -> None:
    world = world_with(nodeclaim("good"), nodeclaim("bad", **change))
    began = world.now
    while "bad" in world.cluster.nodeclaims:
        world.step()
        assert world.now - began <= timedelta(seconds=20)
    (reported,) = (event for event in world.cluster.events if event.name == "bad")
    assert (reported.kind, reported.reason, reported.warning) == (
        "NodeClaim",
        "InsufficientCapacityError",
        True,
    )
    world.settle()
    assert set(world.store.claims) == {"good"}


def test_a_nodeclaim_recreated_after_nothing_fitted_is_evaluated_again() -> None:
    world = world_with(nodeclaim("bad", resources={"requests": {"cpu": "4000"}}))
    world.run(Concern.READINESS)
    world.run(Concern.PROVISIONING)
    assert "bad" in world.cluster.nodeclaims
    again = nodeclaim("bad")
    again["metadata"]["creationTimestamp"] = format_time(world.now + timedelta(seconds=1))
    world.cluster.nodeclaims["bad"] = again
    world.pass_time()
    world.settle()
    assert conditions(world, "bad")["Ready"] == ("True", "Ready")


def test_a_nodeclaim_that_cannot_be_launched_for_five_minutes_is_deleted() -> None:
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "late"}
    world = world_with(nodeclaim(nodeClassRef=ref))
    world.cluster.nodeclasses["late"] = builders.nodeclass_manifest("late")

    def never(call: Call) -> None:
        if call.method == "resolve":
            raise Transient("EC2 is away")

    world.cloud.raise_before = never
    world.settle(patience=timedelta(minutes=5))
    assert conditions(world)["Launched"] == ("Unknown", "LaunchFailed")
    world.settle(patience=timedelta(minutes=8))
    assert "mine" not in world.cluster.nodeclaims
    assert [event.reason for event in world.cluster.events if event.name == "mine"][-1] == "LaunchTimeout"


def test_a_nodeclaim_waits_for_an_unresolved_nodeclass() -> None:
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "late"}
    world = world_with(nodeclaim(nodeClassRef=ref))
    world.cluster.nodeclasses["late"] = builders.nodeclass_manifest("late")
    began = world.now

    def not_yet(call: Call) -> None:
        if call.method == "resolve" and world.now < began + timedelta(minutes=2):
            raise Transient("EC2 is away")

    world.cloud.raise_before = not_yet
    world.settle(patience=timedelta(minutes=1))
    assert "mine" in world.cluster.nodeclaims
    assert world.store.claims == {}
    world.settle()
    assert conditions(world)["Ready"] == ("True", "Ready")


def test_an_outdated_refusal_is_not_shown_on_a_nodeclaim_launched_since() -> None:
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "late"}
    world = world_with(nodeclaim(nodeClassRef=ref))
    world.cluster.nodeclasses["late"] = builders.nodeclass_manifest("late")
    world.observe()

    def not_yet(call: Call) -> None:
        if call.method == "resolve":
            raise Transient("EC2 is away")

    world.cloud.raise_before, at_once = not_yet, world.cloud.raise_before
    world.run(Concern.READINESS)
    world.run(Concern.PROVISIONING)  # refuses it because its EC2NodeClass is not resolved
    world.cloud.raise_before = at_once
    world.run(Concern.READINESS)
    world.run(Concern.PROVISIONING)
    assert len(world.cloud.instances) == 1
    reported: list[str] = []

    def note(_: Call) -> None:
        reported.append(conditions(world).get("Launched", ("absent",))[0])

    world.cluster.raise_after = note
    world.run(Concern.LIFECYCLE)  # with a snapshot from before the launch
    assert set(reported) == {"True"}


def set_ready(world: World, status: str, **fields: Any) -> None:
    """Set the Ready condition of the NodeClass, as any writer of its status can."""
    condition = {"type": "Ready", "status": status, "reason": "Audit", "message": "not approved", **fields}
    there = world.cluster.nodeclasses["default"]
    others = [c for c in there.get("status", {}).get("conditions", ()) if c["type"] != "Ready"]
    said = {**there.get("status", {}), "conditions": [*others, condition]}
    world.cluster.nodeclasses["default"] = {**there, "status": said}


def until_gone(world: World, name: str = "mine") -> timedelta:
    began = world.now
    while name in world.cluster.nodeclaims and world.now < began + timedelta(minutes=3):
        world.step()
    assert name not in world.cluster.nodeclaims
    return world.now - began


def test_a_nodeclaim_with_a_missing_nodeclass_is_deleted_at_once() -> None:
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "none"}
    world = world_with(nodeclaim(nodeClassRef=ref))
    world.observe()
    assert until_gone(world) <= STEP
    (event,) = (each for each in world.cluster.events if each.name == "mine")
    assert (event.kind, event.reason) == ("NodeClaim", "InsufficientCapacityError")
    assert "EC2NodeClass 'none' does not exist" in event.message
    assert world.cloud.instances == {}


def test_a_nodeclaim_whose_nodeclass_is_being_deleted_is_deleted() -> None:
    world = world_with(nodeclaim())
    leaving = builders.nodeclass_manifest()
    leaving["metadata"] |= {"deletionTimestamp": format_time(builders.NOW), "finalizers": ["example.com/x"]}
    world.cluster.nodeclasses["default"] = leaving
    world.observe()
    assert until_gone(world) <= STEP


def test_a_nodeclaim_whose_nodeclass_status_is_not_ready_is_deleted_regardless_of_the_writer() -> None:
    world = World({})
    world.observe()
    world.run(Concern.READINESS)
    set_ready(world, "False")
    world.cluster.nodeclaims["mine"] = nodeclaim()
    world.observe()
    world.run(Concern.READINESS)  # keeps it
    world.run(Concern.LIFECYCLE)
    assert "mine" not in world.cluster.nodeclaims
    (event,) = (each for each in world.cluster.events if each.name == "mine")
    assert (event.reason, event.message) == (
        "NodeClassNotReady",
        "EC2NodeClass 'default' is not Ready: not approved",
    )
    world.run(Concern.PROVISIONING)
    assert world.cloud.instances == {}


def test_a_nodeclaim_is_kept_if_its_nodeclass_is_newer_than_the_snapshot() -> None:
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "late"}
    world = world_with(nodeclaim(nodeClassRef=ref))
    world.observe()
    world.cluster.nodeclasses["late"] = builders.nodeclass_manifest("late")
    world.run(Concern.LIFECYCLE)
    assert "mine" in world.cluster.nodeclaims


def test_a_nodeclaim_that_another_run_is_launching_is_not_deleted() -> None:
    world = world_with(nodeclaim())
    set_ready(world, "False")
    world.observe()

    def launched_meanwhile(call: Call) -> None:
        if call.method == "nodeclaim":
            world.store.claims["mine"] = builders.claim("mine", origin=BY_HAND)

    world.cluster.raise_before = launched_meanwhile
    world.run(Concern.LIFECYCLE)
    assert "mine" in world.store.claims
    assert "mine" in world.cluster.nodeclaims


def test_pods_get_no_node_of_a_nodeclass_whose_status_is_not_ready() -> None:
    world = World({})
    world.observe()
    world.run(Concern.READINESS)
    set_ready(world, "False")
    world.add("web-0")
    world.settle(patience=timedelta(minutes=8))  # readiness has resolved it again
    assert world.cloud.instances == {}
    pool = world.cluster.nodepools["default"]["status"]["conditions"]
    assert next(c["status"] for c in pool if c["type"] == "NodeClassReady") == "False"
    set_ready(world, "True")
    world.settle()
    assert len(world.cloud.instances) == 1


def test_a_nodeclass_set_to_not_ready_is_evaluated_again_once_it_changes() -> None:
    world = World({"web-0": pod_manifest("web-0")})
    world.cluster.nodeclasses["default"]["metadata"]["generation"] = 1
    world.observe()
    world.run(Concern.READINESS)
    set_ready(world, "False")
    world.settle(patience=timedelta(minutes=3))
    assert world.cloud.instances == {}
    there = world.cluster.nodeclasses["default"]
    there["metadata"]["generation"] = 2
    there["spec"] |= {"tags": {"team": "web"}}
    world.settle()
    assert len(world.cloud.instances) == 1


def test_without_capacity_the_nodeclaim_is_deleted_and_not_retried_from_an_old_snapshot() -> None:
    world = world_with(nodeclaim())
    world.cloud.stock = {"*": 0}
    world.settle(patience=timedelta(minutes=5))
    assert world.cluster.nodeclaims == {}
    assert world.store.claims == {}
    assert sum(call.method == "launch" for call in world.cloud.calls) == 1


def test_a_foreign_nodeclaim_with_an_instance_is_not_changed() -> None:
    theirs = {**nodeclaim("theirs"), "status": {"providerID": "aws:///us-east-1a/i-theirs"}}
    leaving = nodeclaim("leaving")
    leaving["metadata"]["deletionTimestamp"] = format_time(builders.NOW)
    world = world_with(theirs, leaving)
    world.settle(patience=timedelta(minutes=3))
    assert world.cloud.instances == {}


def test_a_nodeclaim_deleted_before_it_is_ready_leaves_nothing_behind() -> None:
    for wait in (5, 20, 40):
        world = world_with(nodeclaim())
        world.settle(patience=timedelta(seconds=wait))
        world.cluster.delete("NodeClaim", "mine")
        world.settle(patience=timedelta(minutes=10))
        assert world.cloud.alive() == [], wait
        assert world.store.claims == {}, wait
        assert world.cluster.nodeclaims == {}, wait


def test_a_ready_nodeclaim_that_is_deleted_is_terminated_like_any_node() -> None:
    world = world_with(nodeclaim())
    world.settle()
    world.cluster.delete("NodeClaim", "mine")
    world.settle(patience=timedelta(minutes=10))
    assert (world.cloud.alive(), world.store.claims, world.cluster.nodes) == ([], {}, {})


def asked(world: World) -> None:
    world.cluster.nodeclaims["mine"] = nodeclaim()


@pytest.mark.exhaustive
def test_with_a_crash_at_any_call_exactly_one_node_is_bought() -> None:
    story = Story("a NodeClaim made by hand", {"web-0": {}}, prepare=asked)
    reported = list(crashes.crashes(story, crashes.SAMPLE))
    assert len(reported) > crashes.SAMPLE + 1
    assert {tuple(fatal): found for fatal, found in reported if found} == {}
