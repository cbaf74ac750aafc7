"""NodeClaims that users make: launched, registered, initialized and ended like ours; refusals are said on them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.nodeclaims import Phase
from nodesmith.model.times import format_time
from tests import builders, crashes
from tests.crashes import Story
from tests.world import World, pod_manifest

Manifest = dict[str, Any]


def nodeclaim(name: str = "mine", *, labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": format_time(builders.NOW),
            "labels": labels or {},
        },
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [builders.expression("karpenter.sh/capacity-type", "In", "on-demand")],
            "resources": {"requests": {"cpu": "3", "memory": "6Gi"}},
            **spec,
        },
    }


def world_with(*manifests: Manifest) -> World:
    world = World({})
    world.cluster.nodeclaims.update({m["metadata"]["name"]: m for m in manifests})
    return world


def conditions(world: World, name: str = "mine") -> dict[str, tuple[str, str]]:
    status = world.cluster.nodeclaims[name].get("status") or {}
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions") or ()}


def test_what_a_user_asks_for_is_bought_at_the_lowest_price_and_becomes_a_ready_node() -> None:
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


def test_one_that_names_a_nodepool_belongs_to_it() -> None:
    world = world_with(nodeclaim(labels={"karpenter.sh/nodepool": "default"}))
    world.settle()
    (claim,) = world.store.claims.values()
    assert (claim.nodepool, claim.nodepool_uid) == ("default", "uid-default")
    (node,) = world.cluster.nodes.values()
    assert node["metadata"]["labels"]["karpenter.sh/nodepool"] == "default"


def test_pods_use_the_room_of_a_users_node_before_anything_is_bought_for_them() -> None:
    world = World({"web-0": pod_manifest("web-0")})
    world.cluster.nodeclaims["mine"] = nodeclaim()
    world.settle()
    assert len(world.cloud.instances) == 1
    assert world.violations() == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"resources": {"requests": {"cpu": "4000"}}}, "offers all that it requests"),
        (
            {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "none"}},
            "EC2NodeClass 'none' is missing",
        ),
        (
            {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "Thing", "name": "default"}},
            "only EC2NodeClass.karpenter.k8s.aws",
        ),
        ({"requirements": [builders.expression("kubernetes.io/arch", "In", "vax")]}, ""),
        ({"requirements": [builders.expression("kubernetes.io/arch", "Is", "amd64")]}, "operator"),
    ],
)
def test_what_cannot_be_launched_says_why_on_the_object_and_disturbs_nobody(
    change: dict[str, Any], says: str
) -> None:
    world = world_with(nodeclaim("good"), nodeclaim("bad", **change))
    world.settle(patience=timedelta(minutes=5))
    assert set(world.store.claims) == {"good"}
    assert conditions(world, "bad")["Launched"] == ("Unknown", "LaunchFailed")
    (told,) = (c for c in world.cluster.nodeclaims["bad"]["status"]["conditions"] if c["type"] == "Launched")
    assert told["message"]
    assert says in told["message"]
    assert world.runs < 60, "nobody wakes anybody for it"


def test_what_was_refused_is_launched_once_it_can_be() -> None:
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "late"}
    world = world_with(nodeclaim(nodeClassRef=ref))
    world.settle(patience=timedelta(minutes=3))
    assert world.store.claims == {}
    world.cluster.nodeclasses["late"] = builders.nodeclass_manifest("late")
    world.settle()
    assert conditions(world)["Ready"] == ("True", "Ready")


def test_without_capacity_the_object_goes_and_is_not_tried_again_from_an_old_snapshot() -> None:
    world = world_with(nodeclaim())
    world.cloud.stock = {"*": 0}
    world.settle(patience=timedelta(minutes=5))
    assert world.cluster.nodeclaims == {}
    assert world.store.claims == {}
    assert sum(call.method == "launch" for call in world.cloud.calls) == 1


def test_an_object_of_somebody_elses_with_an_instance_is_left_alone() -> None:
    theirs = {**nodeclaim("theirs"), "status": {"providerID": "aws:///us-east-1a/i-theirs"}}
    leaving = nodeclaim("leaving")
    leaving["metadata"]["deletionTimestamp"] = format_time(builders.NOW)
    world = world_with(theirs, leaving)
    world.settle(patience=timedelta(minutes=3))
    assert world.cloud.instances == {}


def test_one_deleted_before_it_is_ready_leaves_nothing() -> None:
    for wait in (5, 20, 40):
        world = world_with(nodeclaim())
        world.settle(patience=timedelta(seconds=wait))
        world.cluster.delete("NodeClaim", "mine")
        world.settle(patience=timedelta(minutes=10))
        assert world.cloud.alive() == [], wait
        assert world.store.claims == {}, wait
        assert world.cluster.nodeclaims == {}, wait


def test_one_deleted_when_it_is_ready_ends_like_any_node() -> None:
    world = world_with(nodeclaim())
    world.settle()
    world.cluster.delete("NodeClaim", "mine")
    world.settle(patience=timedelta(minutes=10))
    assert (world.cloud.alive(), world.store.claims, world.cluster.nodes) == ([], {}, {})


def asked(world: World) -> None:
    world.cluster.nodeclaims["mine"] = nodeclaim()


def test_a_crash_at_any_call_buys_neither_nothing_nor_twice() -> None:
    story = Story("a NodeClaim made by hand", {"web-0": {}}, prepare=asked)
    told = list(crashes.crashes(story, crashes.SAMPLE))
    assert len(told) > crashes.SAMPLE
    assert {tuple(fatal): found for fatal, found in told if found} == {}
