"""How the world's state decides which concerns a change wakes: awaited volumes, and nodes that end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from gc import get_referents
from types import FunctionType, ModuleType

import pytest

from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.functions import Concern
from nodesmith.observation.mirror import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODECLAIMS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    WATCHED,
    WatchedKind,
)
from nodesmith_forwarder.windows import Pace, Topic
from nodesmith_forwarder.world import World
from tests.clocks import StillClock
from tests.objects.clusters import deployment_pod, node, rolled
from tests.objects.storage import Manifest, claim, pod_with, storage_class, volume
from tests.smallworld.world import pod_manifest


class Seen:
    """A world with all kinds up to date, and the concerns that changes in it wake."""

    def __init__(self) -> None:
        self.clock = StillClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.world = World(self.clock, Pace())
        for kind in WATCHED:
            self.world.mark(kind, current=True)

    def put(self, kind: WatchedKind, *manifests: Manifest) -> None:
        self.world.put(kind, manifests)

    def topics(self) -> Mapping[Topic, int]:
        """Return the topics of the windows that have closed since the last call, and forget them."""
        self.clock.time += timedelta(seconds=30)
        taken = self.world.take()
        assert taken is not None
        return {topic: count for topic, count in taken[0].items() if topic is not None}


@pytest.fixture
def seen() -> Seen:
    made = Seen()
    made.put(STORAGE_CLASSES, storage_class(mode="Immediate"))
    made.put(PODS, pod_with("data"))
    made.put(VOLUME_CLAIMS, claim("data"), claim("other"))
    made.topics()
    return made


def test_binding_the_claim_of_a_pending_pod_wakes_provisioning(seen: Seen) -> None:
    seen.put(VOLUME_CLAIMS, claim("data", bound_to="pv"))
    assert seen.topics() == {Concern.PROVISIONING: 1}


def test_binding_a_claim_that_no_pending_pod_mounts_wakes_nothing(seen: Seen) -> None:
    seen.put(VOLUME_CLAIMS, claim("other", bound_to="pv"))
    assert seen.topics() == {}


@pytest.mark.parametrize("end", ["bound", "gone"])
def test_a_claim_wakes_nothing_once_its_pod_is_bound_or_gone(seen: Seen, end: str) -> None:
    if end == "bound":
        seen.put(PODS, pod_with("data", nodeName="n1"))
    else:
        seen.world.keep_only(PODS, ())
    seen.put(VOLUME_CLAIMS, claim("data", bound_to="pv"))
    assert seen.topics() == {}


def test_a_claim_wakes_as_long_as_one_of_its_pods_is_pending(seen: Seen) -> None:
    seen.put(PODS, pod_with("data", name="web-1"))
    seen.put(PODS, pod_with("data", nodeName="n1"))
    seen.topics()
    seen.put(VOLUME_CLAIMS, claim("data", bound_to="pv"))
    assert seen.topics() == {Concern.PROVISIONING: 1}


def test_a_volume_provisioned_for_the_selected_node_wakes_nothing(seen: Seen) -> None:
    chosen = {"volume.kubernetes.io/selected-node": "n1"}
    seen.put(VOLUME_CLAIMS, claim("data", annotations=chosen))
    seen.put(VOLUMES, volume("pv", "us-east-1a", claim="default/data"))
    seen.put(VOLUME_CLAIMS, claim("data", annotations=chosen, bound_to="pv"))
    assert seen.topics() == {}


def test_a_volume_that_cannot_be_provisioned_on_the_selected_node_wakes_provisioning(seen: Seen) -> None:
    seen.put(VOLUME_CLAIMS, claim("data", annotations={"volume.kubernetes.io/selected-node": "n1"}))
    seen.put(VOLUME_CLAIMS, claim("data"))
    assert seen.topics() == {Concern.PROVISIONING: 1}


class Ends:
    """A node with two pods, and its NodeClaim; either can be deleted and restored."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.machine = node(1, rolled(1))
        self.name = self.machine["metadata"]["name"]
        self.pods = [deployment_pod(1, rolled(seed), self.name) for seed in (1, 2)]
        self.claim: Manifest = {"metadata": {"name": "c1"}, "status": {"nodeName": self.name}}
        self.seen.put(NODES, self.machine)
        self.seen.put(NODECLAIMS, self.claim)
        self.seen.put(PODS, *self.pods)
        self.seen.topics()

    def put(self, kind: WatchedKind, manifest: Manifest, *, deleted: bool) -> None:
        leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
        self.seen.put(kind, {**manifest, "metadata": {**manifest["metadata"], **leaving}})
        self.seen.topics()

    def wakes_for_a_pod(self) -> bool:
        """Return whether the end of a pod wakes termination; restore the pod afterwards."""
        self.seen.world.drop(PODS, self.pods[0])
        woken = self.seen.topics()
        self.seen.put(PODS, self.pods[0])
        self.seen.topics()
        return Concern.TERMINATION in woken


def test_a_pods_end_wakes_termination_only_while_its_node_or_claim_is_deleted() -> None:
    ends = Ends()
    assert not ends.wakes_for_a_pod()
    for kind, manifest in ((NODES, ends.machine), (NODECLAIMS, ends.claim)):
        ends.put(kind, manifest, deleted=True)
        assert ends.wakes_for_a_pod()
        ends.put(kind, manifest, deleted=False)
        assert not ends.wakes_for_a_pod()


def test_a_node_ends_as_long_as_its_node_or_claim_is_deleted() -> None:
    ends = Ends()
    ends.put(NODES, ends.machine, deleted=True)
    ends.put(NODECLAIMS, ends.claim, deleted=True)
    ends.put(NODES, ends.machine, deleted=False)
    assert ends.wakes_for_a_pod()
    ends.seen.world.keep_only(NODECLAIMS, ())
    ends.seen.topics()
    assert not ends.wakes_for_a_pod()


def departure(seen: Seen, name: str) -> int | None:
    seen.clock.time += timedelta(seconds=30)
    return seen.world.whole().departures.get(name)


@pytest.mark.parametrize("how", ["deleted", "done", "missing from a new list"])
def test_a_pods_departure_time_is_kept_as_long_as_its_node_exists(how: str) -> None:
    ends = Ends()
    pod, moment = ends.pods[0], int(ends.seen.clock.time.timestamp())
    assert departure(ends.seen, ends.name) is None
    gone = moment + 30
    if how == "deleted":
        ends.seen.world.drop(PODS, pod)
    elif how == "done":
        ends.seen.put(PODS, {**pod, "status": {"phase": "Succeeded"}})
    else:
        ends.seen.world.keep_only(PODS, ())
    assert departure(ends.seen, ends.name) == gone
    ends.seen.world.drop(NODES, ends.machine)
    assert departure(ends.seen, ends.name) is None


def test_pods_of_daemonsets_and_pods_without_a_node_leave_no_departure() -> None:
    ends = Ends()
    owner = {"kind": "DaemonSet", "name": "logs", "uid": "u", "controller": True}
    daemon, waiting = deployment_pod(1, rolled(3), ends.name), deployment_pod(1, rolled(4))
    daemon["metadata"]["ownerReferences"] = [owner]
    ends.seen.put(PODS, daemon, waiting)
    for pod in (daemon, waiting):
        ends.seen.world.drop(PODS, pod)
    assert ends.seen.world.whole().departures == {}


def test_a_pod_that_outlives_its_node_leaves_no_departure() -> None:
    ends = Ends()
    ends.seen.world.drop(NODES, ends.machine)
    ends.seen.world.drop(PODS, ends.pods[0])
    assert ends.seen.world.whole().departures == {}


def test_a_pod_that_leaves_before_nodes_are_listed_leaves_a_departure() -> None:
    ends = Ends()
    ends.seen.world.mark(NODES, current=False)
    ends.seen.world.keep_only(NODES, ())
    ends.seen.world.drop(PODS, ends.pods[0])
    ends.seen.put(NODES, ends.machine)
    assert set(ends.seen.world.whole().departures) == {ends.name}


def texts(root: object) -> set[str]:
    """Return all texts that an object keeps in memory."""
    found, seen, left = set[str](), set[int](), [root]
    while left:
        value = left.pop()
        if id(value) in seen or isinstance(value, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(value))
        if isinstance(value, str):
            found.add(value)
        left += get_referents(value)
    return found


@pytest.mark.parametrize("first", [PODS, NODES])
def test_memory_keeps_nothing_of_pods_and_nodes_that_are_gone(first: WatchedKind) -> None:
    seen = Seen()
    machine = node(1, rolled(1))
    machine["metadata"] |= {"name": "vanished-node"}
    pods = [deployment_pod(1, rolled(seed), "vanished-node") for seed in (1, 2)]
    spread = pods[0]["spec"]["topologySpreadConstraints"][0]
    selector = {"matchLabels": {"vanished-label": "x"}}
    pods[0]["spec"]["topologySpreadConstraints"] = [{**spread, "labelSelector": selector}]
    pods[1]["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "vanished", "controller": True}]
    objects = [(PODS, pods[0]), (PODS, pods[1]), (NODES, machine)]
    for kind, manifest in objects:
        seen.put(kind, manifest)
    assert any("vanished" in text for text in texts(seen.world))
    for kind, manifest in sorted(objects, key=lambda item: item[0] != first):
        seen.world.drop(kind, manifest)
    seen.topics()
    assert [text for text in texts(seen.world) if "vanished" in text] == []


def replica_set(replicas: int, age: int = 3600) -> Manifest:
    created = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=age)
    about = {"namespace": "shop", "name": "web-1", "creationTimestamp": format_time(created)}
    return {"metadata": about, "spec": {"replicas": replicas, "template": {"spec": {"containers": []}}}}


def owned(name: str) -> Manifest:
    """Return a running pod of the ReplicaSet."""
    made = pod_manifest(name, nodeName="a")
    owner = {"kind": "ReplicaSet", "name": "web-1", "controller": True}
    made["metadata"] |= {"namespace": "shop", "uid": name, "ownerReferences": [owner]}
    return made


class Proactive(Seen):
    """A world in which the namespace `shop` asks for proactive scale-up."""

    def __init__(self, asked: str = "true") -> None:
        super().__init__()
        asks = {"nodesmith.dev/proactive-scale-up": asked}
        self.put(NAMESPACES, {"metadata": {"name": "shop", "annotations": asks}})
        self.put(REPLICA_SETS, replica_set(1))
        self.put(PODS, owned("a"))
        self.topics()

    def growths(self) -> Mapping[str, int]:
        """Return when workloads grew, in seconds since the start."""
        start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
        return {name: at - start for name, at in self.world.measured()[1].growths.items()}


@pytest.mark.parametrize(("asked", "is_read"), [("true", True), ("false", False)])
def test_workloads_are_read_only_while_a_namespace_asks_for_proactive_scale_up(
    asked: str, is_read: bool
) -> None:
    world = Proactive(asked).world
    assert [world.needs(kind) for kind in (REPLICA_SETS, STATEFUL_SETS, JOBS)] == [is_read] * 3
    assert not world.needs(DEPLOYMENTS)


def test_growth_wakes_provisioning_at_once_and_shrinking_does_not() -> None:
    seen = Proactive()
    seen.clock.time += timedelta(seconds=5)
    seen.put(REPLICA_SETS, replica_set(5))
    due = seen.world.windows.next_due()
    assert due is not None
    assert due - seen.clock.time == timedelta(seconds=0.2)
    assert seen.topics() == {Concern.PROVISIONING: 1}
    seen.put(REPLICA_SETS, replica_set(2))
    assert seen.topics() == {}


def test_growth_before_all_pods_are_there_does_not_renew_the_time_in_which_they_are_planned() -> None:
    seen = Proactive()
    seen.put(REPLICA_SETS, replica_set(3))
    assert seen.growths() == {"ReplicaSet/shop/web-1": 30}
    seen.topics()
    seen.put(REPLICA_SETS, replica_set(4))
    assert seen.growths() == {"ReplicaSet/shop/web-1": 30}
    seen.put(PODS, owned("b"), owned("c"), owned("d"))
    seen.put(REPLICA_SETS, replica_set(5))
    assert seen.growths() == {"ReplicaSet/shop/web-1": 60}
    seen.world.drop(REPLICA_SETS, replica_set(5))
    assert seen.growths() == {}
