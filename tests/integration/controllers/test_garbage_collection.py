"""Garbage collection: what is deleted and what stays, despite failures, crashes and concurrent changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.controllers.garbagecollection import GarbageCollection, GarbageReport, collect_garbage
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.keys import snapshot_key
from nodesmith.model.apimachinery.labels import TERMINATION_FINALIZER
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.commands import Owned, OwnedKind
from nodesmith.model.ec2.launches import Instance, LaunchTemplate
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_custom, reduce_node
from tests import builders
from tests.builders import CLUSTER, NOW, ZONES
from tests.fakes.blobs import FakeBlobs
from tests.fakes.cloud import Call
from tests.fakes.outside import ClusterPorts
from tests.samples import sampled, spread
from tests.smallworld.world import Boundaries, Killed, Watched, World, pod_manifest

Manifest = dict[str, Any]
HOUR = timedelta(hours=1)
KARPENTERS = {
    f"kubernetes.io/cluster/{CLUSTER}": "owned",
    "eks:eks-cluster-name": CLUSTER,
    "karpenter.sh/nodepool": "default",
    "karpenter.k8s.aws/ec2nodeclass": "default",
}
OURS = {**KARPENTERS, "nodesmith.dev/managed-by": CLUSTER}


def provider_id(instance: str) -> str:
    return f"aws:///{ZONES[0]}/{instance}"


@dataclass
class Yard(ClusterPorts):
    """A cluster with many leftovers. `survivors` are the instances that must survive garbage collection."""

    boundaries: Boundaries = field(default_factory=Boundaries)
    detached_since: dict[str, datetime] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    """How often EC2 was asked to terminate a living instance, and how often a dead one."""

    def instance(self, id_: str, claim: str, tags: Mapping[str, str] = OURS) -> None:
        instance = Instance(id_, claim, "m5.large", ZONES[0], "spot", "ami", "running", NOW - HOUR)
        self.cloud.instances[id_] = instance
        self.cloud.tags[id_] = {**tags, "karpenter.sh/nodeclaim": claim}

    def claim(self, name: str, instance: str) -> NodeClaim:
        times = dict.fromkeys(["created_at", "phase_since", "launched_at", "registered_at"], NOW - HOUR)
        fields: dict[str, Any] = {**times, "initialized_at": NOW - HOUR, "revision": 1, "decision": "d"}
        made = builders.claim(name, phase=Phase.INITIALIZED, **fields)
        known = replace(
            made, instance_id=instance, provider_id=provider_id(instance), node_name=f"node-{instance}"
        )
        self.store.claims[name] = known
        self.object(known)
        return known

    def object(self, claim: NodeClaim) -> None:
        shown = manifest(claim)
        about = {"finalizers": [TERMINATION_FINALIZER], "creationTimestamp": format_time(NOW - HOUR)}
        self.cluster.nodeclaims[claim.name] = {**shown, "metadata": {**shown["metadata"], **about}}

    def karpenters(self, instance: str) -> None:
        """Add Karpenter's NodeClaim and Node for a missing instance, which Karpenter must clean up."""
        made = replace(self.store.claims["dead"], name="karpenters-dead", provider_id=provider_id(instance))
        self.object(replace(made, decision="", nodepool_uid="uid-default"))
        self.node(instance, ready=False)

    def node(self, instance: str, *, ready: bool) -> None:
        name = f"node-{instance}"
        self.cluster.nodes[name] = {
            "metadata": {
                "name": name,
                "creationTimestamp": format_time(NOW - HOUR),
                "labels": {
                    "karpenter.sh/nodepool": "default",
                    "karpenter.sh/registered": "true",
                    "karpenter.k8s.aws/ec2nodeclass": "default",
                },
                "finalizers": [TERMINATION_FINALIZER],
            },
            "spec": {"providerID": provider_id(instance)},
            "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]},
        }

    def observe(self) -> None:
        observed = Observed(
            nodes=[reduce_node(each) for each in self.cluster.nodes.values()],
            nodepools=[reduce_custom(builders.nodepool_manifest())],
            nodeclasses=[reduce_custom(builders.nodeclass_manifest())],
            nodeclaims=[reduce_custom(each) for each in self.cluster.nodeclaims.values()],
        )
        self.blobs.objects[snapshot_key(CLUSTER)] = encode(CLUSTER, self.now, observed)

    def run(self) -> GarbageReport:
        self.observe()
        ports = self.store, self.cloud, self.cluster, self.blobs, self.hints
        store, cloud, cluster, blobs, hints = (Watched(port, self.boundaries) for port in ports)
        clock = lambda: self.now  # noqa: E731
        return collect_garbage(
            GarbageCollection(CLUSTER, store, cloud, cluster, blobs, hints, clock, self.detached_since)
        )

    def sweep(self, runs: int = 6) -> None:
        """Run at every tick. A run that crashes or fails is repeated at the next one."""
        for _ in range(runs):
            try:
                self.run()
            except (Killed, Transient):
                self.detached_since.clear()  # another process
            self.now += timedelta(minutes=2)

    def watch_terminations(self, call: Call) -> None:
        if call.method == "terminate":
            for id_ in call.about:
                self.ended["again" if not self.cloud.instances[id_].is_alive else "once"] += 1

    def left(self) -> Mapping[str, Any]:
        """Return the remaining resources."""
        return {
            "instances": sorted(i.id for i in self.cloud.alive()),
            "claims": {name: str(claim.phase) for name, claim in sorted(self.store.claims.items())},
            "nodes": sorted(self.cluster.nodes),
            "nodeclaims": sorted(self.cluster.nodeclaims),
            "templates": sorted(self.cloud.templates),
            "loose": sorted(self.cloud.loose),
        }


def untidy() -> Yard:
    yard = Yard()
    yard.cloud.raise_before = yard.watch_terminations
    yard.instance("i-good", "good")
    yard.claim("good", "i-good")
    yard.node("i-good", ready=True)
    yard.instance("i-leaked", "forgotten")
    yard.instance("i-second", "good")
    yard.instance("i-served", "lost")
    yard.node("i-served", ready=True)
    yard.claim("dead", "i-dead")
    yard.node("i-dead", ready=False)
    yard.node("i-nobody", ready=False)
    yard.instance("i-karpenter", "karpenters", KARPENTERS)
    yard.node("i-karpenter", ready=False)
    yard.object(replace(yard.store.claims["dead"], name="orphan", provider_id=provider_id("i-long-gone")))
    yard.object(replace(yard.store.claims["dead"], name="karpenters", provider_id=provider_id("i-karpenter")))
    yard.karpenters("i-terminated")
    yard.cluster.nodeclaims["by-hand"] = {"metadata": {"name": "by-hand"}, "spec": {}}
    for name, age in (("nodesmith/test/old", 2 * HOUR), ("nodesmith/test/new", timedelta(minutes=5))):
        yard.cloud.templates[name] = LaunchTemplate(name, {}, {})
        yard.cloud.made_at[name] = NOW - age
    yard.store.nodeclasses["default"] = builders.nodeclass_status(instance_profile="current")
    for owned in (
        Owned(OwnedKind.INSTANCE_PROFILE, "gone", "gone", NOW - 2 * HOUR, owner_uid="uid-gone"),
        Owned(
            OwnedKind.INSTANCE_PROFILE,
            "current",
            "current",
            NOW - 2 * HOUR,
            owner_uid="uid-nodeclass-default",
        ),
        Owned(OwnedKind.VOLUME, "vol-1", created_at=NOW - HOUR, claim="forgotten"),
        Owned(OwnedKind.NETWORK_INTERFACE, "eni-1"),
    ):
        yard.cloud.loose[owned.id] = owned
    return yard


TIDY = {
    "instances": ["i-good", "i-karpenter", "i-served"],
    "claims": {"dead": "Terminating", "good": "Initialized", "lost": "Terminating"},
    "nodes": ["node-i-dead", "node-i-good", "node-i-karpenter", "node-i-served", "node-i-terminated"],
    "nodeclaims": ["by-hand", "dead", "good", "karpenters", "karpenters-dead"],
    "templates": ["nodesmith/test/new"],
    "loose": ["current"],
}
"""Termination is responsible for `dead` and `lost` from here on: nodes that are not drained yet stay."""


def test_only_unneeded_resources_are_deleted() -> None:
    yard = untidy()
    report = yard.run()
    assert report.counts == {
        "InstancesUnclaimed": 1,
        "InstancesDoubled": 1,
        "NodeClaimsTakenBack": 1,
        "NodeClaimsEnded": 1,
        "NodesReleased": 1,
        "NodeClaimsReleased": 1,
        "LaunchTemplatesRemoved": 1,
        "InstanceProfilesRemoved": 1,
        "Left": 0,
    }
    assert sorted(report.collected) == sorted(
        ["i-leaked", "i-second", "lost", "dead", "node-i-nobody", "orphan", "lt-nodesmith/test/old", "gone"]
    )
    assert yard.hints.concerns() == [Concern.TERMINATION]
    yard.sweep(6)
    assert yard.left() == TIDY
    assert yard.ended == {"once": 2}


def test_a_claim_learns_the_security_groups_that_somebody_has_given_its_instance() -> None:
    yard = Yard()
    yard.instance("i-good", "good")
    yard.cloud.instances["i-good"] = replace(yard.cloud.instances["i-good"], security_groups=("sg-theirs",))
    yard.store.claims["good"] = replace(yard.claim("good", "i-good"), security_groups=("sg-ours",))
    yard.node("i-good", ready=True)
    report = yard.run()
    assert (report.counts["NodeClaimsCorrected"], report.collected) == (1, ["good"])
    assert yard.store.claims["good"].security_groups == ("sg-theirs",)


@pytest.mark.exhaustive
def test_a_crash_before_or_after_any_call_does_not_change_the_outcome() -> None:
    undisturbed = untidy()
    undisturbed.sweep()
    moments = range(1, undisturbed.boundaries.passed + 1)
    assert len(moments) > 100
    broken = {}
    for moment in spread(moments, sampled(60, whole=0), "sweep"):
        yard = untidy()
        yard.boundaries.fatal = frozenset({moment})
        yard.sweep(12)
        if yard.left() != TIDY or yard.ended["again"]:
            broken[moment] = yard.boundaries.moments[moment - 1][0], yard.left(), yard.ended
    assert broken == {}


@pytest.mark.exhaustive
def test_two_crashes_in_one_sweep_do_not_change_the_outcome() -> None:
    first_run = untidy()
    first_run.run()
    last = first_run.boundaries.passed
    for one in range(1, last, sampled(10, whole=3)):
        for two in range(one + 1, last + 20, 7):
            yard = untidy()
            yard.boundaries.fatal = frozenset({one, two})
            yard.sweep(12)
            assert (yard.left(), yard.ended["again"]) == (TIDY, 0), (one, two)


def failing(method: str) -> Callable[[Call], None]:
    def fail(call: Call) -> None:
        if call.method == method:
            raise Transient(f"{method} failed", "InternalError")

    return fail


@pytest.mark.parametrize(
    "method", ["terminate", "remove", "release_node", "delete_nodeclaim", "apply_nodeclaim"]
)
def test_a_failed_deletion_does_not_affect_others_and_is_raised_at_the_end(method: str) -> None:
    yard = untidy()
    port = yard.cloud if hasattr(yard.cloud, method) else yard.cluster
    port.raise_before = failing(method)
    with pytest.raises(Transient, match=f"{method} failed"):
        yard.run()
    sound = untidy()
    sound.run()
    kept = {part for part, held in yard.left().items() if held != sound.left()[part]}
    parts = {
        "terminate": {"instances"},
        "remove": {"templates", "loose"},
        "release_node": {"nodes"},
        "delete_nodeclaim": {"nodeclaims"},
        "apply_nodeclaim": set(),  # the ledger already has it, and lifecycle shows it again
    }
    assert kept == parts[method]
    yard.cloud.raise_before = yard.cluster.raise_before = yard.watch_terminations
    yard.sweep(8)
    assert yard.left() == TIDY


def test_while_living_instances_are_unknown_nothing_that_may_be_alive_is_released() -> None:
    yard = untidy()
    yard.cloud.raise_before = failing("living")
    with pytest.raises(Transient, match="living failed"):
        yard.run()
    assert {"node-i-dead", "node-i-nobody"} <= yard.cluster.nodes.keys()
    assert "orphan" in yard.cluster.nodeclaims
    assert yard.store.claims["dead"].phase is Phase.INITIALIZED
    assert not yard.cloud.instances["i-leaked"].is_alive


def test_while_instances_cannot_be_listed_nothing_is_deleted() -> None:
    yard = untidy()
    before = yard.left()
    yard.cloud.raise_before = failing("owned_instances")
    with pytest.raises(Transient, match="owned_instances failed"):
        yard.run()
    assert yard.left() == before


def test_a_kind_that_cannot_be_listed_does_not_affect_others() -> None:
    yard = untidy()

    def fail(call: Call) -> None:
        if call == Call("owned", (OwnedKind.INSTANCE_PROFILE,)):
            raise Transient("IAM is away")

    yard.cloud.raise_before = fail
    with pytest.raises(Transient, match="IAM is away"):
        yard.run()
    assert sorted(yard.cloud.templates) == ["nodesmith/test/new"]
    assert "gone" in yard.cloud.loose


def nothing(_method: str) -> None:
    """Do nothing at the call."""


def test_a_claim_that_another_run_has_changed_is_left_to_that_run() -> None:
    yard = untidy()

    def moved(method: str) -> None:
        if method in {"save", "commit"}:
            raise Conflict("somebody was faster")

    yard.store.raise_before = moved
    assert yard.run().counts["Conflict"] == 2
    yard.store.raise_before = nothing
    yard.sweep()
    assert yard.left() == TIDY


def test_with_nothing_to_do_the_number_of_calls_is_constant() -> None:
    calls = []
    for size in (1, 300):
        yard = Yard()
        for number in range(size):
            yard.instance(f"i-{number}", f"default-{number}")
            yard.claim(f"default-{number}", f"i-{number}")
            yard.node(f"i-{number}", ready=True)
        assert +yard.run().counts == {}
        calls.append([where for where, _ in yard.boundaries.moments if where.startswith("before")])
    assert calls[0] == calls[1]
    assert calls[0] == [
        "before FakeBlobs.get",
        "before FakeCloud.owned_instances",
        *["before FakeCloud.owned"] * len(OwnedKind),
        "before FakeStore.load",
    ]


def test_without_a_snapshot_nothing_is_done() -> None:
    yard = untidy()
    empty = replace(yard, blobs=FakeBlobs())
    run = GarbageCollection(
        CLUSTER, empty.store, empty.cloud, empty.cluster, empty.blobs, empty.hints, lambda: NOW
    )
    assert collect_garbage(run).collected == []
    assert yard.cloud.calls == []


def test_another_clusters_snapshot_is_rejected_before_any_call() -> None:
    yard = untidy()
    yard.blobs.objects[snapshot_key(CLUSTER)] = encode("another", NOW, Observed())
    run = GarbageCollection(
        CLUSTER, yard.store, yard.cloud, yard.cluster, yard.blobs, yard.hints, lambda: NOW
    )
    with pytest.raises(Rejected, match="another"):
        collect_garbage(run)
    assert yard.cloud.calls == []


def test_a_launch_during_a_collection_is_never_treated_as_a_leak() -> None:
    """EC2's clock is an hour behind, so that the age of instances protects none: only the order of reads does."""
    quiet = launching()
    quiet.visit(Concern.GARBAGECOLLECTION)
    quiet.run(Concern.GARBAGECOLLECTION)
    for moment in range(1, quiet.boundaries.passed + 1):
        world = launching()
        world.boundaries.visits[moment] = lambda world=world: world.visit(Concern.PROVISIONING)  # type: ignore[misc]
        world.run(Concern.GARBAGECOLLECTION)
        world.run(Concern.GARBAGECOLLECTION)
        assert [i.state for i in world.cloud.instances.values()] == ["pending"], moment


def test_a_collection_during_a_launch_deletes_nothing_of_it() -> None:
    quiet = launching()
    quiet.run(Concern.PROVISIONING)
    for moment in range(1, quiet.boundaries.passed + 1):
        world = launching()
        world.boundaries.visits[moment] = lambda world=world: world.visit(Concern.GARBAGECOLLECTION)  # type: ignore[misc]
        world.run(Concern.PROVISIONING)
        assert [i.state for i in world.cloud.instances.values()] == ["pending"], moment
        assert [c.phase for c in world.store.claims.values()] == [Phase.LAUNCHED], moment


def launching() -> World:
    world = World({"web-0": pod_manifest("web-0")})
    world.cloud.clock = lambda: world.now - HOUR
    world.observe()
    return world


def test_after_loss_of_the_ledger_all_nodes_are_adopted_and_drained_gracefully() -> None:
    world = World({name: pod_manifest(name) for name in ("web-0", "web-1")})
    world.settle()
    (before,) = world.cluster.nodes
    world.live(timedelta(minutes=2))
    world.store.claims.clear()
    for _ in range(8):
        world.run(Concern.GARBAGECOLLECTION)
        world.live(timedelta(minutes=1))
    assert world.violations() == []
    assert before not in world.cluster.nodes
    assert [claim.phase for claim in world.store.claims.values()] == [Phase.INITIALIZED]
