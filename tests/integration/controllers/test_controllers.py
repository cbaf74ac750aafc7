"""The controllers of lifecycle, readiness, observation and provisioning, also when single objects fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from nodesmith.controllers.lifecycle import Lifecycle, follow
from nodesmith.controllers.observation import Observation, observe, own_snapshot
from nodesmith.controllers.provisioning import Provisioning, provision
from nodesmith.controllers.readiness import Readiness, make_ready
from nodesmith.controllers.runs import Report, Spread, in_turn
from nodesmith.decisions.packing import Skyline
from nodesmith.decisions.provisioning import Inputs, Rehearsal, unread
from nodesmith.decisions.scheduling.compatibility import matching_types
from nodesmith.decisions.scheduling.offerings import options, templates
from nodesmith.decisions.takeover import QUIET
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.keys import snapshot_key
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.ec2.launches import Deferred, LaunchRequest, OfferingKey
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.functions import INFORMED, Concern, Heartbeat
from nodesmith.model.karpenter.nodeclaims import NOT_REGISTERED, TAGS_DUE, NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.ledger.learned import Backoff, Ending, RegistrationHealth, basis_of
from nodesmith.model.ledger.ledger import Handover
from nodesmith.model.policies import NodeSettings
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_custom, reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from tests import builders
from tests.builders import CLUSTER, NOW
from tests.fakes.blobs import FakeBlobs
from tests.fakes.catalogs import FakeCatalogs
from tests.fakes.cloud import Call
from tests.fakes.outside import ClusterPorts
from tests.smallworld.world import World, catalog, pod_manifest

KEY = snapshot_key(CLUSTER)
OTHERS = encode("another", NOW, Observed())
Manifest = dict[str, Any]


def node_manifest(claim: NodeClaim) -> Manifest:
    """Return a Node of the claim's instance, Ready and not registered."""
    return {
        "metadata": {"name": f"node-{claim.name}", "creationTimestamp": "2026-11-21T11:59:00Z", "labels": {}},
        "spec": {
            "providerID": claim.provider_id,
            "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}],
        },
        "status": {
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "58"},
            "allocatable": {"cpu": "4", "memory": "15Gi", "pods": "58"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


class Scene(ClusterPorts):
    """A cluster with everything that the tests need, and a clock."""

    def hold(self, *claims: NodeClaim) -> None:
        self.store.commit(self.store.version, claims, "d")

    def see(self, pods: Sequence[Any] = ()) -> None:
        """Write a snapshot of the cluster."""
        observed = Observed(
            pods=list(pods),
            nodes=[reduce_node(n) for n in self.cluster.nodes.values()],
            nodepools=[reduce_custom(p) for p in self.cluster.nodepools.values()],
            nodeclasses=[reduce_custom(n) for n in self.cluster.nodeclasses.values()],
            nodeclaims=[reduce_custom(c) for c in self.cluster.nodeclaims.values()],
            provisioners=[reduce_custom(p) for p in self.cluster.provisioners.values()],
            awsnodetemplates=[reduce_custom(t) for t in self.cluster.nodetemplates.values()],
        )
        self.blobs.objects[KEY] = encode(CLUSTER, self.now, observed)

    def followed(self, **settings: Any) -> Report:
        """Return what lifecycle reports about one run."""
        reduced = (reduce_pod(pod) for pod in self.cluster.pods.values())
        self.see([pod for pod in reduced if pod is not None])
        parts = (self.store, self.cloud, self.cluster, self.blobs, self.hints, self.clock)
        return follow(Lifecycle(CLUSTER, *parts, **settings))

    def follow(self, spread: Spread = in_turn) -> dict[str, int]:
        return dict(self.followed(spread=spread).counts)

    def make_ready(self) -> tuple[str, ...]:
        self.see()
        parts = (self.store, self.cloud, self.cluster, self.blobs, self.hints, self.clock)
        return make_ready(Readiness(CLUSTER, *parts)).resolved

    def phases(self) -> dict[str, str]:
        return {claim.name: str(claim.phase) for claim in self.store.claims.values()}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def launched(name: str, **changes: Any) -> NodeClaim:
    known = {"instance_id": f"i-{name}", "private_dns_name": f"node-{name}"}
    return builders.claim(name, launched_at=NOW, created_at=NOW, **{**known, **changes})


def joined(scene: Scene, *names: str) -> None:
    """Create Nodes for launched claims."""
    claims = [launched(name) for name in names]
    scene.hold(*claims)
    for claim in claims:
        scene.cluster.nodes[f"node-{claim.name}"] = node_manifest(claim)


def failing_for(method: str, *about: str) -> Any:
    """Return a hook that lets one call fail for a while."""

    def fail(call: Call) -> None:
        if call.method == method and set(about) <= set(call.about):
            raise Transient(f"{method} of {', '.join(call.about)} timed out", "RequestTimeout")

    return fail


# lifecycle


def test_a_claim_becomes_ready_and_its_object_and_node_show_it(scene: Scene) -> None:
    joined(scene, "a")
    assert scene.follow() == {"Open": 1, "Register": 1}
    node = scene.cluster.nodes["node-a"]
    assert node["metadata"]["labels"]["karpenter.sh/registered"] == "true"
    assert not node["spec"].get("taints")
    assert scene.follow() == {"Open": 1, "Initialize": 1}  # its NodeClaim exists now and can own it
    node = scene.cluster.nodes["node-a"]
    assert node["metadata"]["labels"]["karpenter.sh/initialized"] == "true"
    assert [owner["name"] for owner in node["metadata"]["ownerReferences"]] == ["a"]
    shown = {c["type"]: c["status"] for c in scene.cluster.nodeclaims["a"]["status"]["conditions"]}
    reached = ("Launched", "Registered", "Initialized", "ConsistentStateFound", "Ready")
    assert shown == dict.fromkeys(reached, "True")
    assert list(shown)[-1] == "Ready"
    assert scene.cluster.nodeclaims["a"]["status"]["nodeName"] == "node-a"
    assert scene.follow() == {}


def test_a_node_that_cannot_be_written_does_not_affect_others_and_is_raised_at_the_end(scene: Scene) -> None:
    joined(scene, "a", "b", "c")
    scene.cluster.raise_before = failing_for("register_node", "node-b")
    with pytest.raises(Transient, match="NodeClaim b: register_node of node-b timed out"):
        scene.follow()
    assert scene.phases() == {"a": "Registered", "b": "Launched", "c": "Registered"}


def test_a_node_that_vanishes_during_registration_is_retried(scene: Scene) -> None:
    joined(scene, "a")
    scene.see()
    node = scene.cluster.nodes.pop("node-a")
    parts = (scene.store, scene.cloud, scene.cluster, scene.blobs, scene.hints, scene.clock)
    with pytest.raises(Transient, match="went away while it registered"):
        follow(Lifecycle(CLUSTER, *parts))
    assert scene.phases() == {"a": "Launched"}
    scene.cluster.nodes["node-a"] = node
    assert scene.follow() == {"Open": 1, "Register": 1}


def waiting_pods(scene: Scene, *names: str) -> list[NodeClaim]:
    """Create a Node for each of these launched claims, and a pod that waits for it."""
    claims = [launched(name, nominated=(f"default/pod-{name}",)) for name in names]
    scene.hold(*claims)
    for claim in claims:
        scene.cluster.nodes[f"node-{claim.name}"] = node_manifest(claim)
        scene.cluster.pods[f"default/pod-{claim.name}"] = pod_manifest(f"pod-{claim.name}")
    return claims


def hinted(scene: Scene, why: str) -> list[tuple[Concern, timedelta]]:
    """Return the concerns that got a hint with this reason, each with its delay."""
    return [(m.concern, m.due_at - scene.hints.clock()) for m in scene.hints.sent if m.hint.reason == why]


def test_pods_with_a_new_node_are_checked_again_while_they_are_pending(scene: Scene) -> None:
    waiting_pods(scene, "a")
    scene.follow()
    scene.follow()
    assert scene.phases() == {"a": "Initialized"}
    assert hinted(scene, "claims initialized") == [
        (Concern.PROVISIONING, timedelta(seconds=5)),
        (Concern.PROVISIONING, timedelta(seconds=21)),
    ], "another pod may have taken the room, or kube-scheduler may not use the node"
    assert hinted(scene, "nominations end") == [(Concern.LIFECYCLE, timedelta(seconds=21))]


def test_a_nomination_without_effect_is_cleared_once(scene: Scene) -> None:
    waiting_pods(scene, "a")
    scene.follow()
    scene.follow()
    pod = scene.cluster.pods["default/pod-a"]
    assert (scene.phases(), pod["status"].get("nominatedNodeName")) == ({"a": "Initialized"}, "node-a")

    scene.now += timedelta(seconds=21)

    assert scene.follow() == {"ClearNominations": 1}
    assert "nominatedNodeName" not in pod["status"]
    assert scene.follow() == {}


def test_no_hint_is_sent_for_pods_that_run_or_wait_for_another_node(scene: Scene) -> None:
    waiting_pods(scene, "a")
    scene.follow()
    scene.cluster.pods["default/pod-a"]["spec"]["nodeName"] = "node-a"
    scene.cluster.pods["default/other"] = pod_manifest("other")
    scene.follow()
    assert scene.phases() == {"a": "Initialized"}
    assert hinted(scene, "claims initialized") == []


def test_a_claim_is_checked_again_if_its_node_was_opened_before_and_no_event_will_follow(
    scene: Scene,
) -> None:
    joined(scene, "a")

    def fail(method: str) -> None:
        if method == "save":
            raise Transient("save timed out", "RequestTimeout")

    scene.store.raise_before = fail
    with pytest.raises(Transient, match="save timed out"):
        scene.follow()
    assert hinted(scene, "claims advanced") == [], "an event about its opened Node will follow"
    scene.store.raise_before = lambda _: None
    assert scene.follow() == {"Open": 1, "Register": 1}
    assert hinted(scene, "claims advanced") == [(Concern.LIFECYCLE, timedelta(seconds=5))]


def test_joining_nodes_send_hints_to_readiness_and_provisioning_where_it_matters(scene: Scene) -> None:
    scene.cluster.nodepools["default"] = builders.nodepool_manifest()
    joined(scene, "a", "b")
    scene.follow()
    assert hinted(scene, "registrations ended") == [(Concern.READINESS, timedelta())]
    assert hinted(scene, "nodes join") == [], "no NodePool was backed off"

    scene.hints.sent.clear()
    scene.hold(launched("c"))
    scene.cluster.nodes["node-c"] = node_manifest(launched("c"))
    scene.follow()
    assert len(scene.store.health["default"].endings) == 3
    assert hinted(scene, "registrations ended") == [], "its NodePool already shows that"

    (known,) = scene.store.health.values()
    left_alone = Backoff(NOW, 1, "RegistrationTimeout")
    scene.store.health["default"] = replace(known, backoff=left_alone)
    scene.hold(launched("d"))
    scene.cluster.nodes["node-d"] = node_manifest(launched("d"))
    scene.follow()
    assert hinted(scene, "nodes join") == [(Concern.PROVISIONING, timedelta())]


def test_all_pods_are_nominated_before_the_first_node_is_opened(scene: Scene) -> None:
    waiting_pods(scene, "a", "b")

    assert scene.follow() == {"Nominate": 2, "Open": 2, "Register": 2, "Event": 2}

    assert [c.method for c in scene.cluster.calls][:4] == ["nominate"] * 2 + ["register_node"] * 2
    nominated = {key: pod["status"]["nominatedNodeName"] for key, pod in scene.cluster.pods.items()}
    assert nominated == {"default/pod-a": "node-a", "default/pod-b": "node-b"}


def test_work_on_a_node_waits_for_its_previous_step_and_not_for_other_nodes(scene: Scene) -> None:
    waiting_pods(scene, "a", "b")
    together: list[list[str]] = []

    def spread(work: Callable[[Any], Any], items: Iterable[Any], /) -> list[Any]:
        steps = list(items)
        together.append([type(step).__name__ for step in steps])
        return [work(step) for step in reversed(steps)][::-1]

    assert scene.follow(spread) == {"Nominate": 2, "Open": 2, "Register": 2, "Event": 2}
    assert [each for each in together if each] == [["Nominate"] * 2, ["Open"] * 2, ["Register"] * 2]


def test_a_node_is_registered_even_if_its_pods_can_be_nominated_only_later(scene: Scene) -> None:
    waiting_pods(scene, "a", "b")
    scene.cluster.raise_before = failing_for("nominate", "node-a")

    with pytest.raises(Transient, match="nominate of node-a"):
        scene.follow()

    assert scene.phases() == {"a": "Registered", "b": "Registered"}
    scene.cluster.raise_before = lambda _: None
    # The Events were postponed too, and the NodeClaims that own the Nodes exist only now.
    assert scene.follow() == {"Nominate": 1, "Open": 2, "Initialize": 2, "Event": 2}
    assert scene.cluster.pods["default/pod-a"]["status"]["nominatedNodeName"] == "node-a"


def test_a_node_that_cannot_be_opened_is_not_registered_and_does_not_delay_others(scene: Scene) -> None:
    joined(scene, "a", "b")
    scene.cluster.raise_before = failing_for("register_node", "node-a")

    with pytest.raises(Transient, match="register_node of node-a"):
        scene.follow()

    assert scene.phases() == {"a": "Launched", "b": "Registered"}


def test_a_failed_instance_lookup_delays_only_nodes_with_unknown_names(
    scene: Scene,
) -> None:
    joined(scene, "a")
    unnamed = launched("b", private_dns_name="")
    scene.hold(launched("lost", phase_since=NOW - timedelta(minutes=5)), unnamed)
    scene.cluster.nodes["node-b"] = node_manifest(unnamed)
    scene.cloud.raise_before = failing_for("instances_of")
    with pytest.raises(Transient, match="instances_of"):
        scene.follow()
    assert scene.phases() == {"a": "Registered", "b": "Launched", "lost": "Launched"}


def test_a_claim_that_another_run_has_changed_is_checked_again_soon(scene: Scene) -> None:
    joined(scene, "a")

    def lose(method: str) -> None:
        if method == "save":
            raise Conflict("NodeClaim a has moved on")

    scene.store.raise_before = lose
    report = scene.followed()
    assert (dict(report.counts), report.due) == ({"Open": 1, "Conflict": 1}, NOW)
    assert scene.hints.concerns() == [Concern.LIFECYCLE]
    assert hinted(scene, "claims advanced") == [(Concern.LIFECYCLE, timedelta(seconds=5))]


def test_readiness_counts_nodes_again_when_a_claim_appears_and_when_it_becomes_a_node(scene: Scene) -> None:
    why = "claims launched, initialized, ending or gone"
    scene.hold(launched("a", reason=NOT_REGISTERED[0], message=NOT_REGISTERED[1]))
    scene.follow()
    assert hinted(scene, why) == [(Concern.READINESS, timedelta())], "it has a NodeClaim object now"

    scene.hints.sent.clear()
    scene.cluster.nodes["node-a"] = node_manifest(launched("a"))
    scene.follow()
    assert (scene.phases(), hinted(scene, why)) == ({"a": "Registered"}, [])

    scene.follow()
    assert (scene.phases(), hinted(scene, why)) == ({"a": "Initialized"}, [(Concern.READINESS, timedelta())])


def test_termination_and_provisioning_are_woken_for_a_node_that_expires(scene: Scene) -> None:
    joined(scene, "a")
    scene.follow()
    scene.follow()
    assert scene.followed().due is None, "time alone changes nothing"
    old = replace(scene.store.claims["a"], created_at=NOW - timedelta(days=31), expire_after="720h")
    scene.store.claims["a"] = old
    assert scene.follow() == {"End": 1}
    assert hinted(scene, "claims end") == [(Concern.TERMINATION, timedelta())]
    assert hinted(scene, "claims given up or ended") == [(Concern.PROVISIONING, timedelta())]


@pytest.mark.parametrize(("bought_for", "woken"), [("web", [(Concern.TERMINATION, timedelta())]), ("db", [])])
def test_termination_goes_on_once_the_node_bought_for_the_pods_of_an_ending_one_is_ready(
    scene: Scene, bought_for: str, woken: list[Any]
) -> None:
    scene.cluster.pods["default/web"] = pod_manifest("web", nodeName="node-old")
    ready = launched("old", phase=Phase.INITIALIZED, node_name="node-old")
    scene.hold(ready.terminating("Expired", "the node has reached its expireAfter", NOW))
    scene.hold(launched("new", nominated=(f"default/{bought_for}",)))
    for claim in (launched("old"), launched("new")):
        scene.cluster.nodes[f"node-{claim.name}"] = node_manifest(claim)
    scene.follow()
    scene.follow()
    assert scene.phases()["new"] == "Initialized"
    assert hinted(scene, "replacements are ready") == woken


@pytest.mark.parametrize(
    ("setting", "reasons"), [(False, {"FailedScheduling"}), (True, {"FailedScheduling", "NotTriggerScaleUp"})]
)
def test_pods_get_the_events_of_cluster_autoscaler_if_the_setting_says_so(
    scene: Scene, setting: bool, reasons: set[str]
) -> None:
    world = World({"huge": pod_manifest("huge", cpu="10000")})
    world.observe()
    scene.store, scene.blobs, scene.cluster = world.store, world.blobs, world.cluster
    provision(provisioning(scene))
    scene.followed(autoscaler_events=setting)
    assert {event.reason for event in scene.cluster.events if event.kind == "Pod"} == reasons


def test_a_users_nodeclaim_without_its_ec2nodeclass_is_deleted_and_counted(scene: Scene) -> None:
    scene.cluster.nodeclaims["mine"] = nodeclaim_by_hand("mine")
    assert scene.follow() == {"Delete": 1}
    assert "mine" not in scene.cluster.nodeclaims


def test_tags_that_are_due_are_written_and_counted(scene: Scene) -> None:
    scene.hold(launched("a", launch={TAGS_DUE: {"karpenter.sh/nodeclaim": "a"}}), launched("b"))
    scene.follow()
    scene.cloud.calls.clear()
    assert scene.follow()["Tagged"] == 1
    assert [call.about for call in scene.cloud.calls if call.method == "tag"] == [
        ("i-a", "karpenter.sh/nodeclaim")
    ]


def test_terminating_a_claim_removes_instance_object_and_ledger_entry(scene: Scene) -> None:
    scene.hold(launched("a", phase=Phase.GIVEN_UP))
    scene.cluster.nodeclaims["a"] = {"metadata": {"name": "a"}}
    assert scene.follow() == {"Forget": 1}
    assert ("terminate", ("i-a",)) in [(c.method, c.about) for c in scene.cloud.calls]
    assert (scene.cluster.nodeclaims, scene.store.claims) == ({}, {})
    assert Concern.PROVISIONING in scene.hints.concerns()


def test_an_instance_that_cannot_be_terminated_yet_keeps_its_ledger_entry(scene: Scene) -> None:
    scene.hold(launched("a", phase=Phase.GIVEN_UP))
    scene.cloud.raise_before = failing_for("terminate")
    with pytest.raises(Transient):
        scene.follow()
    assert scene.phases() == {"a": "GivenUp"}


def test_without_a_snapshot_nothing_is_done(scene: Scene) -> None:
    scene.hold(launched("a", phase=Phase.GIVEN_UP))
    parts = (scene.store, scene.cloud, scene.cluster, scene.blobs, scene.hints, scene.clock)
    assert follow(Lifecycle(CLUSTER, *parts)).counts == {}
    assert make_ready(Readiness(CLUSTER, *parts)).written == ()
    assert scene.phases() == {"a": "GivenUp"}


# readiness


def two_nodeclasses(scene: Scene) -> None:
    for name in ("a", "b"):
        scene.cluster.nodeclasses[name] = builders.nodeclass_manifest(name)
        scene.cluster.nodepools[name] = builders.nodepool_manifest(name, nodeclass=name)


def ready(obj: Manifest) -> str:
    return next(str(c["status"]) for c in obj["status"]["conditions"] if c["type"] == "Ready")


def test_a_new_cluster_is_described_its_nodeclasses_are_resolved_and_hints_sent(scene: Scene) -> None:
    two_nodeclasses(scene)
    assert scene.make_ready() == (f"cluster {CLUSTER}", "a", "b")
    assert scene.store.cluster == builders.cluster_info()
    assert set(scene.store.nodeclasses) == {"a", "b"}
    objects = (*scene.cluster.nodeclasses.values(), *scene.cluster.nodepools.values())
    assert [ready(o) for o in objects] == ["True"] * 4
    assert scene.hints.concerns() == [Concern.PROVISIONING, Concern.DISRUPTION, Concern.LIFECYCLE]
    calls = len(scene.cluster.calls)
    assert scene.make_ready() == ()
    assert len(scene.cluster.calls) == calls


def test_nodepools_show_that_disruption_pauses_while_many_nodes_are_unready(scene: Scene) -> None:
    two_nodeclasses(scene)
    scene.make_ready()
    old = {"creationTimestamp": "2026-11-21T10:00:00Z"}
    lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-21T11:50:00Z"}
    for name in "abcd":
        scene.cluster.nodes[name] = {
            "metadata": {"name": name, **old},
            "status": {"conditions": [lost]},
        }
    scene.make_ready()
    for pool in scene.cluster.nodepools.values():
        (shown,) = (c for c in pool["status"]["conditions"] if c["type"] == "DisruptionPaused")
        assert (shown["status"], shown["lastTransitionTime"]) == ("True", "2026-11-21T11:50:00Z")
        assert shown["message"].endswith("more than 45 % of the cluster's 4 nodes are not Ready")
        assert ready(pool) == "True"

    scene.cluster.nodes.pop("a")
    scene.make_ready()
    for pool in scene.cluster.nodepools.values():
        (shown,) = (c for c in pool["status"]["conditions"] if c["type"] == "DisruptionPaused")
        assert (shown["status"], shown["reason"]) == ("False", "Resumed")


SELECTORS = {"subnetSelector": {"team": "blue"}, "securityGroupSelector": {"team": "blue"}}
TEMPLATE_SPEC = {**SELECTORS, "amiFamily": "AL2", "instanceProfile": "nodes"}


def of_old(name: str, spec: Manifest) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "generation": 2}, "spec": spec}


def test_dry_runs_ask_for_dedicated_hardware_if_all_nodepools_of_a_class_require_it(scene: Scene) -> None:
    key = "karpenter.k8s.aws/instance-tenancy"
    dedicated, either = (
        [{"key": key, "operator": "In", "values": values}]
        for values in (["dedicated"], ["default", "dedicated"])
    )
    for nodeclass, pools in {"own": [dedicated, dedicated], "mixed": [dedicated, either], "idle": []}.items():
        scene.cluster.nodeclasses[nodeclass] = builders.nodeclass_manifest(nodeclass)
        for number, requirements in enumerate(pools):
            name = f"{nodeclass}-{number}"
            scene.cluster.nodepools[name] = builders.nodepool_manifest(
                name, nodeclass=nodeclass, requirements=requirements
            )
    scene.make_ready()
    resolved = [call.about for call in scene.cloud.calls if call.method == "resolve"]
    assert resolved == [("idle",), ("mixed",), ("own", "dedicated")]


def test_old_objects_show_the_status_of_the_objects_they_convert_to(scene: Scene) -> None:
    scene.cluster.nodetemplates["a"] = of_old("a", TEMPLATE_SPEC)
    scene.cluster.provisioners["p"] = of_old("p", {"providerRef": {"name": "a"}})
    scene.make_ready()
    template, provisioner = scene.cluster.nodetemplates["a"]["status"], scene.cluster.provisioners["p"]
    found = scene.store.nodeclasses["a"]
    assert [each["id"] for each in template["subnets"]] == [subnet.id for subnet in found.subnets] != []
    assert [each["id"] for each in template["securityGroups"]] == [g.id for g in found.security_groups] != []
    assert [each["id"] for each in template["amis"]] == [image.id for image in found.images] != []
    assert {c["observedGeneration"] for c in template["conditions"]} == {2}
    assert (ready(scene.cluster.nodetemplates["a"]), ready(provisioner)) == ("True", "True")
    assert {(call.method, call.about[0]) for call in scene.cluster.calls} == {
        ("merge_status", "AWSNodeTemplate"),
        ("merge_status", "Provisioner"),
    }
    calls = len(scene.cluster.calls)
    scene.make_ready()
    assert len(scene.cluster.calls) == calls


def test_old_objects_are_launched_from_only_in_the_version_that_readiness_has_read(scene: Scene) -> None:
    scene.cluster.nodetemplates["a"] = of_old("a", TEMPLATE_SPEC)
    scene.cluster.provisioners["p"] = of_old("p", {"providerRef": {"name": "a"}, "limits": {"cpu": "8"}})
    scene.cluster.provisioners["q"] = of_old("q", {"provider": TEMPLATE_SPEC})
    scene.make_ready()
    assert unread(own_snapshot(scene.blobs.objects[KEY], CLUSTER), scene.store.load()) == []

    scene.cluster.provisioners["p"] = of_old("p", {"providerRef": {"name": "a"}, "limits": {"cpu": "80"}})
    scene.cluster.nodetemplates["a"] = of_old("a", {**TEMPLATE_SPEC, "userData": "#!/bin/sh"})
    scene.see()
    forged = unread(own_snapshot(scene.blobs.objects[KEY], CLUSTER), scene.store.load())
    assert forged == ["NodePool/p", "EC2NodeClass/a"]


def test_a_template_whose_class_is_split_by_kubelets_shows_it_once(scene: Scene) -> None:
    scene.cluster.nodetemplates["a"] = of_old("a", TEMPLATE_SPEC)
    for pods in (20, 30):
        spec = {"providerRef": {"name": "a"}, "kubeletConfiguration": {"maxPods": pods}}
        scene.cluster.provisioners[f"p{pods}"] = of_old(f"p{pods}", spec)
    scene.make_ready()
    assert set(scene.store.nodeclasses) == {"a", "a-p20", "a-p30"}
    written = [each.about for each in scene.cluster.calls if "AWSNodeTemplate" in each.about]
    assert written == [("AWSNodeTemplate", "a")]


def test_the_status_of_an_inline_provider_is_shown_on_its_provisioner_alone(scene: Scene) -> None:
    scene.cluster.provisioners["p"] = of_old("p", {"provider": TEMPLATE_SPEC})
    scene.make_ready()
    assert ready(scene.cluster.provisioners["p"]) == "True"
    assert {call.about for call in scene.cluster.calls} == {("Provisioner", "p")}


def test_a_provisioner_shows_when_its_number_of_nodes_last_changed(scene: Scene) -> None:
    scene.cluster.nodetemplates["a"] = of_old("a", TEMPLATE_SPEC)
    scene.cluster.provisioners["p"] = of_old("p", {"providerRef": {"name": "a"}})
    scene.make_ready()
    assert "lastScaleTime" not in scene.cluster.provisioners["p"]["status"]

    node = node_manifest(builders.claim("n"))
    node["metadata"]["labels"] = {"karpenter.sh/nodepool": "p"}
    scene.cluster.nodes["n"] = node
    scene.make_ready()
    grown, since = scene.cluster.provisioners["p"]["status"], format_time(scene.now)
    assert (grown["nodes"], grown["lastScaleTime"]) == (1, since)
    scene.now += timedelta(minutes=1)
    scene.make_ready()
    assert scene.cluster.provisioners["p"]["status"]["lastScaleTime"] == since

    del scene.cluster.nodes["n"]
    scene.make_ready()
    shrunk = scene.cluster.provisioners["p"]["status"]
    assert (shrunk["nodes"], shrunk["lastScaleTime"]) == (0, format_time(scene.now))


def test_a_failed_resolution_does_not_affect_other_nodeclasses(scene: Scene) -> None:
    two_nodeclasses(scene)
    scene.cloud.raise_before = failing_for("resolve", "a")
    with pytest.raises(Transient, match="EC2NodeClass a: resolve"):
        scene.make_ready()
    assert set(scene.store.nodeclasses) == {"b"}
    assert [ready(scene.cluster.nodepools[n]) for n in ("a", "b")] == ["False", "True"]
    assert scene.hints.concerns() == [Concern.PROVISIONING, Concern.DISRUPTION, Concern.LIFECYCLE]


def test_a_failed_status_write_does_not_affect_others(scene: Scene) -> None:
    two_nodeclasses(scene)
    scene.cluster.raise_before = failing_for("merge_status", "EC2NodeClass", "a")
    with pytest.raises(Transient, match="EC2NodeClass a: merge_status"):
        scene.make_ready()
    assert "status" not in scene.cluster.nodeclasses["a"]
    assert ready(scene.cluster.nodeclasses["b"]) == "True"
    assert {ready(p) for p in scene.cluster.nodepools.values()} == {"True"}


def test_if_the_cluster_cannot_be_described_every_object_shows_the_reason(scene: Scene) -> None:
    two_nodeclasses(scene)
    scene.cloud.raise_before = failing_for("cluster_info")
    with pytest.raises(Transient, match=f"cluster {CLUSTER}: cluster_info"):
        scene.make_ready()
    assert {ready(o) for o in scene.cluster.nodeclasses.values()} == {"Unknown"}
    assert scene.store.nodeclasses == {}


def test_an_invalid_manifest_has_a_condition_and_an_event_and_does_not_affect_others(scene: Scene) -> None:
    two_nodeclasses(scene)
    scene.cluster.nodepools["a"]["spec"]["template"]["spec"]["requirements"][0]["operator"] = "Is"
    scene.make_ready()
    assert [ready(scene.cluster.nodepools[n]) for n in ("a", "b")] == ["False", "True"]
    (event,) = scene.cluster.events
    assert (event.kind, event.name, event.reason, event.warning) == (
        "NodePool",
        "a",
        "ValidationFailed",
        True,
    )
    assert "requirements[0].operator" in event.message


def test_a_deleted_nodeclass_is_forgotten_and_its_nodepool_shows_it(scene: Scene) -> None:
    two_nodeclasses(scene)
    scene.make_ready()
    del scene.cluster.nodeclasses["a"]
    scene.make_ready()
    assert set(scene.store.nodeclasses) == {"b"}
    assert [ready(scene.cluster.nodepools[n]) for n in ("a", "b")] == ["False", "True"]


def test_a_nodeclass_is_resolved_again_when_it_changes_and_after_five_minutes(scene: Scene) -> None:
    two_nodeclasses(scene)
    scene.make_ready()
    scene.cluster.nodeclasses["a"]["metadata"]["generation"] = 2
    scene.cluster.nodeclasses["a"]["spec"]["tags"] = {"team": "web"}
    assert scene.make_ready() == ("a",)
    scene.now += timedelta(minutes=5)
    calls = len(scene.cloud.calls)
    assert scene.make_ready() == ()
    assert [c.about for c in scene.cloud.calls[calls:] if c.method == "resolve"] == [("a",), ("b",)]


def test_readiness_keeps_digests_of_the_spec_that_nodes_were_launched_from(scene: Scene) -> None:
    two_nodeclasses(scene)
    scene.make_ready()
    (before,) = scene.store.nodeclasses["a"].past
    ref = replace(builders.claim("any").nodeclass, name="a")
    scene.hold(launched("old", nodeclass=ref, nodeclass_hash=before, nodeclass_hash_version="v5"))
    for generation, team in ((2, "web"), (3, "shop")):
        scene.cluster.nodeclasses["a"]["metadata"]["generation"] = generation
        scene.cluster.nodeclasses["a"]["spec"]["tags"] = {"team": team}
        scene.make_ready()
    past = scene.store.nodeclasses["a"].past
    assert before in past
    assert len(past) == 3
    assert ["tags" in digests for digests in past.values()].count(True) == 2
    scene.store.claims.clear()
    scene.now += timedelta(minutes=5)
    scene.make_ready()
    assert len(scene.store.nodeclasses["a"].past) == 1


# observation


class Eye:
    """An Observer that returns a given cluster."""

    def __init__(self, observed: Observed) -> None:
        self.observed, self.looks = observed, 0

    def observe(self) -> Observed:
        self.looks += 1
        return self.observed


def nodeclaim_by_hand(name: str) -> Manifest:
    """Return a NodeClaim that a user created."""
    on_demand = builders.expression("karpenter.sh/capacity-type", "In", "on-demand")
    return builders.nodeclaim_manifest(
        [on_demand], name, resources={"requests": {"cpu": "3", "memory": "6Gi"}}
    )


def looking(scene: Scene, eye: Eye, beat_ago: int | None = None) -> Observation:
    """Return an observation whose forwarder's heartbeat is this many seconds old, or None without a heartbeat."""
    outside = (scene.blobs, scene.hints)
    ago = None if beat_ago is None else timedelta(seconds=beat_ago)
    last = None if ago is None else Heartbeat(scene.now - ago, NOW)
    return Observation(CLUSTER, lambda: eye, *outside, lambda: last, scene.clock, timedelta(seconds=90))


def test_while_the_forwarder_is_alive_observation_does_not_read_the_cluster(scene: Scene) -> None:
    scene.see()
    scene.now += timedelta(days=1)
    eye = Eye(Observed())
    assert observe(looking(scene, eye, beat_ago=89)) is False
    assert (eye.looks, scene.hints.sent) == (0, [])


def test_after_the_forwarder_is_gone_the_last_snapshot_is_valid_as_long_as_a_heartbeat(
    scene: Scene,
) -> None:
    scene.see()
    scene.now += timedelta(seconds=89)
    eye = Eye(Observed())
    assert observe(looking(scene, eye, beat_ago=95)) is False
    scene.now += timedelta(seconds=1)
    assert observe(looking(scene, eye, beat_ago=96)) is True


@pytest.mark.parametrize("beat_ago", [90, -61, None])
def test_an_old_future_or_missing_heartbeat_means_that_the_forwarder_is_gone(
    scene: Scene, beat_ago: int | None
) -> None:
    scene.see()
    scene.now += timedelta(hours=1)
    assert observe(looking(scene, Eye(Observed()), beat_ago)) is True


def test_a_missing_or_damaged_snapshot_is_written_even_if_the_forwarder_is_alive(scene: Scene) -> None:
    assert observe(looking(scene, Eye(Observed()), beat_ago=1)) is True
    scene.blobs.objects[KEY] = b"damaged"
    assert observe(looking(scene, Eye(Observed()), beat_ago=1)) is True


def test_a_stale_snapshot_is_replaced_and_all_concerns_get_a_hint(scene: Scene) -> None:
    scene.see()
    scene.now += timedelta(seconds=90)
    eye = Eye(Observed(nodepools=[reduce_custom(builders.nodepool_manifest())]))
    assert observe(looking(scene, eye)) is True
    written = decode(scene.blobs.objects[KEY])
    assert (written.taken_at, written.cluster, len(written.nodepools)) == (scene.now, CLUSTER, 1)
    assert scene.hints.concerns() == list(INFORMED)


def test_a_snapshot_from_the_future_or_too_large_to_read_is_replaced(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.see()
    scene.now -= timedelta(minutes=2)
    assert observe(looking(scene, Eye(Observed()))) is True

    def too_large(_: FakeBlobs, key: str) -> bytes:
        raise Rejected(f"{key}: 999999999 bytes are too many to read")

    monkeypatch.setattr(FakeBlobs, "get", too_large)
    assert observe(looking(scene, Eye(Observed()))) is True


def test_a_cluster_without_a_forwarder_gets_its_first_snapshot(scene: Scene) -> None:
    assert observe(looking(scene, Eye(Observed()))) is True
    assert decode(scene.blobs.objects[KEY]).cluster == CLUSTER


@pytest.mark.parametrize(
    "damage", [lambda d: d[: len(d) // 2], lambda _: b"{}", lambda _: b"", bytes.swapcase, lambda _: OTHERS]
)
def test_a_damaged_snapshot_is_replaced_at_any_age(scene: Scene, damage: Any) -> None:
    scene.see()
    scene.blobs.objects[KEY] = damage(scene.blobs.objects[KEY])
    assert observe(looking(scene, Eye(Observed()))) is True
    assert decode(scene.blobs.objects[KEY]).taken_at == NOW


# provisioning


@pytest.mark.parametrize("spread", [[], builders.spread(hard=False)])
def test_a_rehearsal_caches_what_makes_the_first_decision_slow(
    spread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    costly = (instance_types, matching_types, templates._offered, templates._stocked)
    for cache in costly:
        cache.cache_clear()
    shares: list[Skyline] = []

    def skyline() -> Skyline:
        shares.append(Skyline())
        return shares[-1]

    monkeypatch.setattr(options, "Skyline", skyline)
    world = World({})
    world.observe()
    provision(replace(world.provisioning(), rehearse=Rehearsal()))
    before = [cache.cache_info().misses for cache in costly] + [len(shares)]
    assert all(before)

    world.cluster.pods["default/web"] = pod_manifest("web", topologySpreadConstraints=spread)
    world.observe()
    assert len(provision(world.provisioning()).launched) == 1
    assert [cache.cache_info().misses for cache in costly] + [len(shares)] == before


def test_a_rehearsal_is_repeated_only_with_other_offers() -> None:
    decided: list[Inputs] = []
    world = World({})
    world.observe()
    run = replace(world.provisioning(), rehearse=Rehearsal(decided.append))
    provision(run)
    once = len(decided)
    assert once > 0
    provision(run)
    assert len(decided) == once

    sold_out = OfferingKey("spot", "m5.large", "us-east-1a")
    world.store.save_unavailable({sold_out: Backoff(world.now + timedelta(hours=1), 1, "sold out")})
    provision(run)
    assert len(decided) == 2 * once


def test_a_rehearsal_buys_nothing_and_writes_no_record() -> None:
    world = World({})
    world.observe()
    kept = dict(world.blobs.objects)
    outcome = provision(replace(world.provisioning(), rehearse=Rehearsal()))
    assert (outcome.launched, outcome.decisions, world.cloud.calls) == ([], [], [])
    assert world.blobs.objects == kept


# an error that no retry fixes


def provisioning(scene: Scene) -> Provisioning:
    return Provisioning(
        CLUSTER,
        NodeSettings(),
        scene.store,
        scene.cloud,
        scene.blobs,
        scene.hints,
        FakeCatalogs(catalog()),
        scene.clock,
        lambda: 0.0,
    )


@pytest.mark.parametrize(
    ("beat_ago", "changed_later", "is_bought"),
    [(None, 0, False), (30, 0, True), (150, 0, False), (30, 1, False)],
)
def test_an_old_snapshot_is_used_for_purchases_only_if_a_heartbeat_confirms_it(
    scene: Scene, beat_ago: int | None, changed_later: int, is_bought: bool
) -> None:
    scene.cluster.nodeclasses["default"] = builders.nodeclass_manifest()
    scene.cluster.nodeclaims["mine"] = nodeclaim_by_hand("mine")
    scene.make_ready()
    scene.see()
    taken_at = scene.now
    scene.now += timedelta(hours=1)
    last = None
    if beat_ago is not None:
        last = Heartbeat(scene.now - timedelta(seconds=beat_ago), taken_at + timedelta(seconds=changed_later))

    provision(replace(provisioning(scene), last_heartbeat=lambda: last))

    assert [claim.name for claim in scene.store.claims.values()] == (["mine"] if is_bought else [])


@pytest.mark.parametrize("concern", [Concern.PROVISIONING, Concern.LIFECYCLE, Concern.READINESS])
@pytest.mark.parametrize("fault", ["cut in half", "of another cluster"])
def test_a_damaged_or_foreign_snapshot_is_rejected_and_nothing_is_done(
    scene: Scene, concern: Concern, fault: str
) -> None:
    two_nodeclasses(scene)
    scene.hold(launched("a", phase=Phase.GIVEN_UP))
    scene.see()
    whole = scene.blobs.objects[KEY]
    scene.blobs.objects[KEY] = whole[: len(whole) // 2]
    if fault == "of another cluster":
        scene.blobs.objects[KEY] = OTHERS
    parts = (scene.store, scene.cloud, scene.cluster, scene.blobs, scene.hints, scene.clock)
    run: dict[Concern, Callable[[], object]] = {
        Concern.PROVISIONING: lambda: provision(provisioning(scene)),
        Concern.LIFECYCLE: lambda: follow(Lifecycle(CLUSTER, *parts)),
        Concern.READINESS: lambda: make_ready(Readiness(CLUSTER, *parts)),
    }
    with pytest.raises(Rejected, match="snapshot"):
        run[concern]()
    assert (scene.cloud.calls, scene.cluster.calls) == ([], [])
    assert scene.phases() == {"a": "GivenUp"}


def test_a_pod_that_fits_no_type_does_not_affect_other_pods() -> None:
    world = World({"small": pod_manifest("small"), "huge": pod_manifest("huge", cpu="10000")})
    world.settle(patience=timedelta(minutes=2))
    assert world.waiting() == ["huge"]


def test_provisioning_whose_commits_always_conflict_sends_itself_a_hint(scene: Scene) -> None:
    world = World({"web": pod_manifest("web")})
    world.observe()
    scene.store, scene.blobs = world.store, world.blobs

    def lose(method: str) -> None:
        if method == "commit":
            raise Conflict("somebody was first")

    scene.store.raise_before = lose
    outcome = provision(provisioning(scene))
    assert outcome.launched == []
    assert Concern.PROVISIONING in scene.hints.concerns()


def test_provisioning_looks_again_soon_while_a_users_nodeclaim_is_still_to_be_read(scene: Scene) -> None:
    scene.cluster.nodeclasses["default"] = builders.nodeclass_manifest()
    scene.make_ready()
    scene.hints.sent.clear()
    scene.cluster.nodeclaims["mine"] = nodeclaim_by_hand("mine")
    scene.cluster.nodeclaims["mine"]["metadata"]["creationTimestamp"] = format_time(NOW)
    scene.see()
    outcome = provision(provisioning(scene))
    assert (outcome.launched, outcome.unread) == ([], True)
    assert hinted(scene, "a NodeClaim is being read") == [(Concern.PROVISIONING, timedelta(seconds=5))]


def test_abandoned_claims_that_cannot_be_looked_up_do_not_affect_new_pods(scene: Scene) -> None:
    world = World({"web": pod_manifest("web", cpu="5")})  # more than the claim's node has room for
    world.observe()
    scene.store, scene.blobs = world.store, world.blobs
    scene.hold(builders.claim("left", phase=Phase.PENDING))
    scene.cloud.raise_before = failing_for("instances_of")
    with pytest.raises(Transient, match="instances_of"):
        provision(provisioning(scene))
    assert sorted(scene.phases().values()) == ["Launched", "Pending"]
    assert len(scene.cloud.alive()) == 1


def test_an_abandoned_claim_that_another_run_settles_does_not_affect_new_pods(
    scene: Scene,
) -> None:
    world = World({"web": pod_manifest("web", cpu="5")})  # more than the claim's node has room for
    world.observe()
    scene.store, scene.blobs = world.store, world.blobs
    scene.hold(builders.claim("left", phase=Phase.PENDING, created_at=NOW - timedelta(hours=1)))
    saves = count()

    def answer_lost(method: str) -> None:
        if method == "save" and next(saves) == 1:  # the first run marks the claim, the second abandons it
            raise Conflict("NodeClaim left has moved on")

    scene.store.raise_after = answer_lost
    provision(provisioning(scene))
    assert sorted(scene.phases().values()) == ["GivenUp", "Launched"]


def test_a_failed_object_deletion_does_not_prevent_hints(scene: Scene) -> None:
    joined(scene, "a", "b")

    def refuse(call: Call) -> None:
        if call.method == "delete_nodeclaim" and call.about[0] == "a":
            raise Rejected("DELETE nodeclaims/a: 422 Invalid")

    scene.cluster.raise_before = refuse
    scene.cluster.raise_after = lambda _: scene.store.claims.clear()  # another run has deleted both
    with pytest.raises(Transient, match="422"):
        scene.follow()
    assert [c.about[0] for c in scene.cluster.calls if c.method == "delete_nodeclaim"] == ["a", "b"]
    assert Concern.LIFECYCLE in scene.hints.concerns()


def test_a_claim_given_up_before_it_had_an_instance_is_forgotten_without_a_call_to_ec2(scene: Scene) -> None:
    scene.hold(replace(builders.claim("a", phase=Phase.PENDING), phase=Phase.GIVEN_UP))
    assert scene.follow() == {"Forget": 1}
    assert scene.cloud.calls == []


STANDING_BY = pytest.mark.parametrize(
    "concern",
    [
        Concern.PROVISIONING,
        Concern.LIFECYCLE,
        Concern.TERMINATION,
        Concern.DISRUPTION,
        Concern.REPAIR,
        Concern.GARBAGECOLLECTION,
    ],
)


@STANDING_BY
def test_a_cluster_released_to_karpenter_has_nothing_that_is_due(concern: Concern) -> None:
    world = World({"web": pod_manifest("web")})
    world.store.hand_over(Handover(NOW, to_karpenter=True, is_settled=True))
    world.observe()
    world.run(concern)
    assert world.dues[concern] is None


@STANDING_BY
def test_while_karpenter_runs_the_next_look_is_due_when_it_has_been_quiet_for_long_enough(
    concern: Concern,
) -> None:
    world = World({"web": pod_manifest("web")})
    world.cluster.karpenter = True
    world.observe()
    world.run(concern)
    assert world.dues[concern] == NOW + QUIET


def shifted(scene: Scene, *zones: str) -> None:
    scene.cloud.shifts = tuple(
        ZonalShift(z, f"id-{z}", NOW + timedelta(hours=1), "zonal shift") for z in zones
    )


def shift_events(scene: Scene) -> list[str]:
    return [event.reason for event in scene.cluster.events if event.reason.startswith("ZonalShift")]


def zone_shifted(scene: Scene) -> str:
    conditions = scene.cluster.nodepools["default"]["status"]["conditions"]
    return next((c["status"] for c in conditions if c["type"] == "ZoneShifted"), "")


def test_a_zonal_shift_is_kept_shown_and_ends_by_itself(scene: Scene) -> None:
    scene.cluster.nodepools["default"] = builders.nodepool_manifest()
    scene.cluster.nodepools["default"]["metadata"]["uid"] = "uid-1"
    scene.cluster.nodeclasses["default"] = builders.nodeclass_manifest()
    scene.make_ready()
    assert (zone_shifted(scene), shift_events(scene)) == ("", [])
    scene.hints.sent.clear()
    shifted(scene, builders.ZONES[0])
    scene.make_ready()
    assert set(scene.store.load().shifted(NOW)) == {builders.ZONES[0]}
    assert (zone_shifted(scene), shift_events(scene)) == ("True", ["ZonalShiftActive"])
    woken = {message.concern for message in scene.hints.sent}
    assert {Concern.PROVISIONING, Concern.DISRUPTION} <= woken
    scene.make_ready()
    assert shift_events(scene) == ["ZonalShiftActive"]
    scene.now += timedelta(minutes=61)
    scene.cloud.shifts = None
    assert not scene.store.load().shifted(scene.now)
    scene.make_ready()
    assert (zone_shifted(scene), shift_events(scene)) == ("False", ["ZonalShiftActive", "ZonalShiftCleared"])
    assert scene.store.zonal_shifts == ()


def test_events_that_could_not_be_published_are_published_by_the_next_run(scene: Scene) -> None:
    scene.cluster.nodepools["default"] = builders.nodepool_manifest()
    scene.cluster.nodepools["default"]["metadata"]["uid"] = "uid-1"
    scene.cluster.nodeclasses["default"] = builders.nodeclass_manifest()
    shifted(scene, builders.ZONES[0])
    scene.cluster.raise_before = failing_for("publish")
    with pytest.raises(Transient):
        scene.make_ready()
    assert set(scene.store.load().shifted(NOW)) == {builders.ZONES[0]}
    scene.cluster.raise_before = lambda _: None
    scene.make_ready()
    assert shift_events(scene) == ["ZonalShiftActive"]


def test_readiness_looks_every_minute_during_a_shift(scene: Scene) -> None:
    scene.cluster.nodeclasses["default"] = builders.nodeclass_manifest()
    shifted(scene, builders.ZONES[0])
    scene.see()
    parts = (scene.store, scene.cloud, scene.cluster, scene.blobs, scene.hints, scene.clock)
    assert make_ready(Readiness(CLUSTER, *parts)).due == NOW + timedelta(minutes=1)


@pytest.mark.parametrize(("minutes", "reason"), [(4.9, ""), (5, "LaunchTimeout")])
def test_a_claim_without_an_instance_is_given_up_five_minutes_after_it_was_made(
    minutes: float, reason: str
) -> None:
    world = World({"web": pod_manifest("web")})
    world.observe()
    world.cloud.script = [lambda request: Deferred(request.claim, "RequestTimeout", "no answer")] * 9
    with pytest.raises(Transient):
        provision(world.provisioning())
    (claim,) = world.store.claims.values()
    world.now = claim.created_at + timedelta(minutes=minutes)
    world.observe()
    with suppress(Transient):
        provision(world.provisioning())
    assert world.store.claims[claim.name].reason == reason


def test_a_pending_request_that_includes_a_shifted_zone_is_not_repeated() -> None:
    world = World({"web": pod_manifest("web")})
    world.observe()
    world.cloud.script = [lambda request: Deferred(request.claim, "RequestTimeout", "the answer was lost")]
    with pytest.raises(Transient):
        provision(world.provisioning())
    (claim,) = world.store.claims.values()
    assert claim.phase is Phase.PENDING
    zone = LaunchRequest.from_item(claim.name, claim.launch).overrides[0].zone
    world.store.zonal_shifts = (ZonalShift(zone, "", world.now + timedelta(hours=1), "zonal shift"),)
    world.now += timedelta(minutes=2)
    for _ in range(2):
        world.observe()
        provision(world.provisioning())
    assert {instance.zone for instance in world.cloud.instances.values()} & {zone} == set()
    assert len(world.cloud.instances) == 1
    assert world.store.claims[claim.name].message.startswith(f"zone {zone} is shifted away from")


def test_an_ec2nodeclass_whose_launches_fail_says_so_until_a_node_joins(scene: Scene) -> None:
    scene.cluster.nodepools["default"] = builders.nodepool_manifest()
    scene.cluster.nodeclasses["default"] = builders.nodeclass_manifest()
    scene.make_ready()
    pool = parse_nodepool(builders.nodepool_manifest()).value
    assert pool is not None
    basis = basis_of(pool, scene.store.nodeclasses["default"])
    failed = tuple(Ending(f"c-{number}", False) for number in range(3))
    message = (
        "InvalidParameterCombination: Enhanced networking with the Elastic Network Adapter (ENA) is required"
    )
    scene.store.health["default"] = RegistrationHealth(
        basis, endings=failed, reason="LaunchFailed", message=message
    )
    scene.make_ready()
    conditions = {c["type"]: c for c in scene.cluster.nodeclasses["default"]["status"]["conditions"]}
    shown = conditions["LaunchHealthy"]
    assert (shown["status"], shown["reason"]) == ("False", "LaunchFailed")
    assert "ENA support" in shown["message"]
    assert conditions["Ready"]["status"] == "True"
    scene.store.health["default"] = RegistrationHealth(basis, endings=(Ending("c-9", True),))
    scene.make_ready()
    conditions = {c["type"]: c for c in scene.cluster.nodeclasses["default"]["status"]["conditions"]}
    assert conditions["LaunchHealthy"]["status"] == "True"
