"""The contract of the Cluster port, for the fake and for the adapter on an API server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.kubernetes.nodes import NodePatch
from tests import builders
from tests.contract.worlds import EARLY, REF, World, a_claim, a_node, a_pod, there
from tests.objects.manifests import nodepool, owned_by

UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
SLOW = {"key": "slow", "effect": "NoSchedule", "value": "yes"}


def condition(kind: str, status: str, reason: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": ""}


def a_pool() -> dict[str, Any]:
    return nodepool(requirements=())


def taints_of(world: World, name: str = "n1") -> list[tuple[str, str]]:
    """Return a node's taints except the one that a real API server adds to every new node."""
    taints = there(world, "Node", name)["spec"].get("taints") or ()
    return sorted((t["key"], t["effect"]) for t in taints if t["key"] != "node.kubernetes.io/not-ready")


def test_a_claim_is_created_with_its_status(world: World) -> None:
    world.cluster.apply_nodeclaim(
        a_claim(providerID="aws:///a/i-1", conditions=[condition("Launched", "True")])
    )
    claim = there(world, "NodeClaim", "default-abc")
    assert claim["metadata"]["labels"] == {"karpenter.sh/nodepool": "default"}
    assert claim["metadata"]["uid"]
    assert claim["spec"]["nodeClassRef"] == REF
    assert claim["status"]["providerID"] == "aws:///a/i-1"
    assert claim["status"]["conditions"][0]["lastTransitionTime"] == "2026-11-21T08:00:00Z"


def test_a_claim_applied_twice_is_the_same_claim(world: World) -> None:
    world.cluster.apply_nodeclaim(a_claim(conditions=[condition("Launched", "True")]))
    first = there(world, "NodeClaim", "default-abc")
    world.clock.time += timedelta(minutes=1)
    world.cluster.apply_nodeclaim(a_claim(conditions=[condition("Launched", "True")]))
    assert there(world, "NodeClaim", "default-abc") == first


def test_applying_a_claim_again_updates_labels_and_status_and_keeps_other_fields(world: World) -> None:
    world.cluster.apply_nodeclaim(a_claim(conditions=[condition("Launched", "Unknown", "LaunchFailed")]))
    world.clock.time += timedelta(minutes=1)
    again = a_claim(
        conditions=[condition("Launched", "True"), condition("Registered", "Unknown", "NodeNotFound")]
    )
    again["metadata"]["labels"] = {"topology.kubernetes.io/zone": "us-east-1a"}
    world.cluster.apply_nodeclaim(again)
    claim = there(world, "NodeClaim", "default-abc")
    assert claim["metadata"]["labels"] == {
        "karpenter.sh/nodepool": "default",
        "topology.kubernetes.io/zone": "us-east-1a",
    }
    assert {c["type"]: (c["status"], c["lastTransitionTime"]) for c in claim["status"]["conditions"]} == {
        "Launched": ("True", "2026-11-21T08:01:00Z"),
        "Registered": ("Unknown", "2026-11-21T08:01:00Z"),
    }


def test_a_claims_last_pod_event_time_survives_later_writes(world: World) -> None:
    ready = condition("Launched", "True")
    world.cluster.apply_nodeclaim(a_claim(conditions=[ready]))
    for moment in ("2026-11-21T08:00:00Z", "2026-11-21T08:05:00Z"):
        world.cluster.merge_status("NodeClaim", "default-abc", {"lastPodEventTime": moment})
    world.cluster.apply_nodeclaim(a_claim(conditions=[condition("Registered", "True")]))
    status = there(world, "NodeClaim", "default-abc")["status"]
    assert status["lastPodEventTime"] == "2026-11-21T08:05:00Z"
    assert [c["type"] for c in status["conditions"]] == ["Launched", "Registered"]


def test_deleting_a_claim_is_idempotent(world: World) -> None:
    world.cluster.apply_nodeclaim(a_claim())
    world.cluster.delete_nodeclaim("default-abc")
    assert world.find("NodeClaim", "default-abc") is None
    world.cluster.delete_nodeclaim("default-abc")


def test_without_create_a_claim_is_updated_only_if_it_exists(world: World) -> None:
    world.cluster.apply_nodeclaim(a_claim(), create=False)
    assert world.find("NodeClaim", "default-abc") is None
    world.cluster.apply_nodeclaim(a_claim())
    world.cluster.apply_nodeclaim(a_claim(conditions=[condition("Launched", "True")]), create=False)
    claim = there(world, "NodeClaim", "default-abc")
    assert [each["type"] for each in claim["status"]["conditions"]] == ["Launched"]


def test_a_node_is_registered_with_labels_annotations_and_taints(world: World) -> None:
    world.put("Node", a_node("n1", UNREGISTERED, SLOW))
    patch = NodePatch(
        labels={"karpenter.sh/registered": "true"},
        annotations={"karpenter.sh/nodepool-hash": "1"},
        add_taints=(Taint("dedicated", "NoSchedule", "db"),),
        remove_taints=(Taint("karpenter.sh/unregistered", "NoExecute"),),
    )
    assert world.cluster.register_node("n1", patch)
    node = there(world, "Node", "n1")
    assert node["metadata"]["labels"] == {"kubernetes.io/os": "linux", "karpenter.sh/registered": "true"}
    assert node["metadata"]["annotations"]["karpenter.sh/nodepool-hash"] == "1"
    assert taints_of(world) == [("dedicated", "NoSchedule"), ("slow", "NoSchedule")]


def test_registering_a_node_sets_its_nodeclaim_as_owner_if_that_exists(world: World) -> None:
    world.put("Node", a_node("n1"))
    patch = NodePatch({"a": "b"}, owner="default-abc")
    assert world.cluster.register_node("n1", patch)
    assert "ownerReferences" not in there(world, "Node", "n1")["metadata"]
    world.cluster.apply_nodeclaim(a_claim())
    assert world.cluster.register_node("n1", patch)
    (owner,) = there(world, "Node", "n1")["metadata"]["ownerReferences"]
    uid = there(world, "NodeClaim", "default-abc")["metadata"]["uid"]
    assert owner == owned_by("NodeClaim", "default-abc", uid)
    before = there(world, "Node", "n1")
    assert world.cluster.register_node("n1", patch)
    assert there(world, "Node", "n1") == before


def test_a_node_registered_twice_is_the_same_node(world: World) -> None:
    world.put("Node", a_node("n1", SLOW))
    patch = NodePatch(
        {"a": "b"},
        {},
        add_taints=(Taint("slow", "NoSchedule", "no"), Taint("t", "NoExecute")),
    )
    assert world.cluster.register_node("n1", patch)
    first = there(world, "Node", "n1")
    assert world.cluster.register_node("n1", patch)
    assert there(world, "Node", "n1") == first
    assert SLOW in first["spec"]["taints"], "a taint of the same key and effect keeps its value"


def test_a_nodes_last_taint_can_be_removed(world: World) -> None:
    world.put("Node", a_node("n1", UNREGISTERED))
    world.cluster.register_node(
        "n1", NodePatch({}, {}, remove_taints=(Taint("karpenter.sh/unregistered", "NoExecute"),))
    )
    assert taints_of(world) == []


def test_a_node_exists_only_for_its_own_instance(world: World) -> None:
    own = "aws:///us-east-1a/i-1"
    world.put("Node", {**a_node("n1"), "spec": {"providerID": own}})
    assert world.cluster.has_node("n1", own)
    assert not world.cluster.has_node("n1", "aws:///us-east-1a/i-2")
    assert not world.cluster.has_node("n2", own)


def test_a_node_of_another_instance_with_the_same_name_is_not_changed(world: World) -> None:
    mine, other = "aws:///us-east-1a/i-1", "aws:///us-east-1a/i-2"
    world.put("Node", {**a_node("n1"), "spec": {"providerID": other}})
    world.put("Node", a_node("n2"))
    before = there(world, "Node", "n1")
    assert not world.cluster.register_node("n1", NodePatch({"a": "b"}, provider_id=mine))
    assert not world.cluster.register_node("n2", NodePatch({"a": "b"}, provider_id=mine))
    assert there(world, "Node", "n1") == before
    assert world.cluster.register_node("n1", NodePatch({"a": "b"}, provider_id=other))


def test_a_node_restored_without_a_provider_id_gets_it_back_and_keeps_it(
    world: World,
) -> None:
    mine, other = "aws:///us-east-1a/i-1", "aws:///us-east-1a/i-2"
    node = a_node("n1")
    registered = {**node["metadata"].get("labels", {}), "karpenter.sh/registered": "true"}
    world.put("Node", {**node, "metadata": {**node["metadata"], "labels": registered}})
    assert world.cluster.register_node("n1", NodePatch({"a": "b"}, provider_id=mine))
    assert there(world, "Node", "n1")["spec"]["providerID"] == mine
    assert not world.cluster.register_node("n1", NodePatch({"c": "d"}, provider_id=other))


def test_registering_a_missing_node_returns_false(world: World) -> None:
    assert not world.cluster.register_node("n1", NodePatch({}, {}))


def test_conditions_of_a_nodepool_keep_their_transition_time_while_their_status_is_unchanged(
    world: World,
) -> None:
    world.put("NodePool", a_pool())
    world.cluster.merge_status(
        "NodePool", "default", {"conditions": [condition("Ready", "False", "NodeClassNotReady")]}
    )
    world.clock.time += timedelta(minutes=5)
    world.cluster.merge_status(
        "NodePool", "default", {"conditions": [condition("Ready", "False", "NodeClassNotFound")]}
    )
    (ready,) = there(world, "NodePool", "default")["status"]["conditions"]
    assert (ready["reason"], ready["lastTransitionTime"]) == ("NodeClassNotFound", "2026-11-21T08:00:00Z")
    world.cluster.merge_status("NodePool", "default", {"conditions": [condition("Ready", "True")]})
    (ready,) = there(world, "NodePool", "default")["status"]["conditions"]
    assert ready["lastTransitionTime"] == "2026-11-21T08:05:00Z"


def test_conditions_of_other_writers_are_kept(world: World) -> None:
    foreign = {**condition("NodeRegistrationHealthy", "True", "Fine"), "lastTransitionTime": EARLY}
    world.put("NodePool", {**a_pool(), "status": {"conditions": [foreign]}})
    world.cluster.merge_status("NodePool", "default", {"conditions": [condition("Ready", "True")]})
    conditions = there(world, "NodePool", "default")["status"]["conditions"]
    assert [c["type"] for c in conditions] == ["NodeRegistrationHealthy", "Ready"]
    assert conditions[0]["lastTransitionTime"] == EARLY


def test_a_condition_that_is_shown_only_while_true_is_removed(world: World) -> None:
    world.cluster.apply_nodeclaim(a_claim())
    held = [condition("Consolidatable", "True"), condition("ConsistentStateFound", "True")]
    world.cluster.merge_status("NodeClaim", "default-abc", {"conditions": held})
    assert types_of(world) >= {"Consolidatable", "ConsistentStateFound"}
    over = {"conditions": [condition("Consolidatable", "False")]}
    for _ in range(2):
        world.cluster.merge_status("NodeClaim", "default-abc", over)
    assert types_of(world) == {"ConsistentStateFound"}


def types_of(world: World) -> set[str]:
    return {each["type"] for each in there(world, "NodeClaim", "default-abc")["status"]["conditions"]}


def test_a_nodepools_resources_are_replaced_as_a_whole(world: World) -> None:
    world.put("NodePool", a_pool())
    world.cluster.merge_status("NodePool", "default", {"resources": {"cpu": "4", "nodes": "1"}})
    world.cluster.merge_status("NodePool", "default", {"resources": {"nodes": "0"}})
    assert there(world, "NodePool", "default")["status"]["resources"] == {"nodes": "0"}


def test_a_status_for_a_missing_object_is_ignored(world: World) -> None:
    world.cluster.merge_status("NodeClaim", "nobody", {"lastPodEventTime": EARLY})
    assert world.find("NodeClaim", "nobody") is None
    world.cluster.merge_status("NodePool", "nobody", {"conditions": []})
    world.cluster.merge_status("EC2NodeClass", "nobody", {"conditions": []})


def test_a_nodeclass_status_shows_the_resolved_resources(world: World) -> None:
    spec = {
        "role": "r",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"id": "subnet-0123456789abcdef0"}],
        "securityGroupSelectorTerms": [{"id": "sg-0123456789abcdef0"}],
    }
    manifest = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": spec,
    }
    world.put("EC2NodeClass", manifest)
    subnets = [{"id": "subnet-1", "zone": "us-east-1a"}]
    world.cluster.merge_status(
        "EC2NodeClass", "default", {"subnets": subnets, "conditions": [condition("Ready", "True")]}
    )
    status = there(world, "EC2NodeClass", "default")["status"]
    assert status["subnets"] == subnets
    assert status["conditions"][0]["status"] == "True"


def test_annotations_are_merged_and_ignored_for_a_missing_object(world: World) -> None:
    pool = a_pool()
    pool["metadata"]["annotations"] = {"example.com/owner": "web", "karpenter.sh/nodepool-hash": "old"}
    world.put("NodePool", pool)
    for name in ("default", "nobody"):
        world.cluster.annotate("NodePool", name, {"karpenter.sh/nodepool-hash": "new"})
    assert there(world, "NodePool", "default")["metadata"]["annotations"] == {
        "example.com/owner": "web",
        "karpenter.sh/nodepool-hash": "new",
    }
    assert world.find("NodePool", "nobody") is None


def test_a_deleted_nodeclass_loses_only_karpenters_finalizer(world: World) -> None:
    for name, more in (("gone", []), ("held", ["example.com/a"]), ("kept", [])):
        made = builders.nodeclass_manifest(name)
        made["metadata"] = {"name": name, "finalizers": ["karpenter.k8s.aws/termination", *more]}
        world.put("EC2NodeClass", made)
    world.delete("EC2NodeClass", "gone")
    world.delete("EC2NodeClass", "held")
    for name in ("gone", "held", "kept", "nobody"):
        world.cluster.release_nodeclass(name)
    assert world.find("EC2NodeClass", "gone") is None
    assert there(world, "EC2NodeClass", "held")["metadata"]["finalizers"] == ["example.com/a"]
    assert there(world, "EC2NodeClass", "kept")["metadata"]["finalizers"] == ["karpenter.k8s.aws/termination"]


def test_karpenter_counts_as_running_while_its_lease_is_renewed(world: World) -> None:
    assert not world.cluster.karpenter_runs()
    world.renew_karpenters_lease(timedelta(seconds=20))
    assert world.cluster.karpenter_runs()
    world.renew_karpenters_lease(timedelta(minutes=2))
    assert not world.cluster.karpenter_runs()


def test_a_repeated_event_is_one_event(world: World) -> None:
    world.put("NodePool", a_pool())
    for _ in range(2):
        reported = ObjectEvent("NodePool", "default", "NodeClassNotReady", "no subnets", warning=True)
        world.cluster.publish([reported])
    world.cluster.publish([ObjectEvent("NodePool", "default", "Ready", "all is well")])
    assert sorted(world.events()) == [
        ("NodePool", "default", "NodeClassNotReady", "no subnets", True),
        ("NodePool", "default", "Ready", "all is well", False),
    ]


def test_an_event_about_a_missing_object_is_still_published(world: World) -> None:
    reported = ObjectEvent("NodeClaim", "gone", "InsufficientCapacityError", "nothing left", warning=True)
    world.cluster.publish([reported])
    assert len(world.events()) == 1


# nominations


def nominated(world: World, name: str) -> str:
    pod = world.find("Pod", name)
    assert pod is not None
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


def test_pods_are_nominated_for_a_node(world: World) -> None:
    names = [f"web-{number}" for number in range(20)]
    for name in names:
        world.put("Pod", a_pod(name))

    world.cluster.nominate("n1", [f"default/{name}" for name in names])

    assert {nominated(world, name) for name in names} == {"n1"}


def test_an_existing_nomination_is_kept_regardless_of_its_author(world: World) -> None:
    world.put("Pod", a_pod("web-0"))
    world.cluster.nominate("n1", ["default/web-0"])

    world.cluster.nominate("n2", ["default/web-0"])

    assert nominated(world, "web-0") == "n1"


def test_missing_and_bound_pods_are_skipped_and_the_others_nominated(world: World) -> None:
    world.put("Pod", a_pod("bound", nodeName="n0"))
    world.put("Pod", a_pod("web-0"))

    world.cluster.nominate("n1", ["default/gone", "default/bound", "default/web-0"])

    assert (nominated(world, "bound"), nominated(world, "web-0")) == ("", "n1")


def test_only_nominations_for_the_given_node_are_cleared(world: World) -> None:
    for name, node in (("web-0", "n1"), ("web-1", "n2")):
        world.put("Pod", a_pod(name))
        world.cluster.nominate(node, [f"default/{name}"])
    world.put("Pod", a_pod("web-2"))
    world.put("Pod", a_pod("bound", nodeName="n1"))

    world.cluster.clear_nominations(
        "n1", [f"default/{name}" for name in ("web-0", "web-1", "web-2", "bound", "gone")]
    )

    assert [nominated(world, f"web-{number}") for number in range(3)] == ["", "n2", ""]


def test_nodepools_and_nodeclasses_are_read_in_the_form_of_a_snapshot(world: World) -> None:
    world.put("NodePool", a_pool())
    made = builders.nodeclass_manifest()
    world.put("EC2NodeClass", {**made, "metadata": {"name": "default"}})
    read = world.cluster.nodepools_and_nodeclasses()
    stored = {kind: there(world, kind, "default") for kind in ("NodePool", "EC2NodeClass")}
    assert [each["spec"] for each in read.nodepools] == [stored["NodePool"]["spec"]]
    assert [each["spec"] for each in read.nodeclasses] == [stored["EC2NodeClass"]["spec"]]


def test_a_nodeclaim_is_read_by_name_and_a_missing_one_is_none(world: World) -> None:
    world.put("NodeClaim", {part: value for part, value in a_claim().items() if part != "status"})
    read = world.cluster.nodeclaim("default-abc")
    assert read is not None
    assert read["spec"] == there(world, "NodeClaim", "default-abc")["spec"]
    assert world.cluster.nodeclaim("never-made") is None
