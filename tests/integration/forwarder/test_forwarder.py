"""The forwarder with an API server that pages, expires, restarts and lacks CRDs, and a bucket that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.controllers.observation import newest_snapshot
from nodesmith.errors import Transient
from nodesmith.keys import snapshot_key
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.kubernetes.nodes import VolumeAttachment
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_forwarder import watching
from nodesmith_forwarder.forwarder import Forwarder, ReportingIntervals
from nodesmith_local.apiserver import ApiServer as LocalApiServer
from nodesmith_local.apiserver import Store, Write
from nodesmith_local.apiserver.requests.subresources import bound
from nodesmith_local.apiserver.storage.deletion import DeleteOptions
from tests.fakes.blobs import FakeBlobs
from tests.fakes.heartbeats import FakeHeartbeats
from tests.fakes.hints import FakeHints
from tests.objects.clusters import Manifest, deployment_pod, node, rolled
from tests.objects.manifests import nodepool
from tests.objects.storage import attachment, claim, pod_with, storage_class, volume
from tests.patience import eventually, hurried
from tests.servers.served import CRDS, created

ROOT = Path(__file__).parents[3]
SPEED = 20.0
BRISK = ReportingIntervals(heartbeat=timedelta(seconds=5))
POOL = nodepool(requirements=())


class Stage:
    """A cluster, a forwarder that can be started and stopped, and the hints and heartbeats that it has sent."""

    def __init__(self, stack: ExitStack, crds: Any = CRDS) -> None:
        self.clock = LocalClock(hurried(SPEED))
        self.blobs, self.hints = FakeBlobs(), FakeHints(self.clock.now)
        self.heartbeats = FakeHeartbeats()
        self._stack = stack
        self.server = LocalApiServer(crds=crds, now=self.clock.now).start()
        stack.callback(lambda: self.server.stop())

    @property
    def store(self) -> Store:
        return self.server.store

    @contextmanager
    def forwarding(self, intervals: ReportingIntervals | None = None, **options: Any) -> Iterator[Forwarder]:
        api = ApiServer(connect(self.server.url, "", lambda: "token"))
        outside = (self.blobs, self.hints, self.heartbeats, self.clock)
        forwarder = Forwarder("east", api, *outside, intervals=intervals or ReportingIntervals(), **options)
        stop = Event()
        thread = Thread(target=forwarder.run, args=(stop,), daemon=True)
        thread.start()
        try:
            yield forwarder
        finally:
            stop.set()
            thread.join(60)
            assert not thread.is_alive()

    def restart(self, store: Store | None = None, down_seconds: float = 0.0) -> None:
        """Stop the API server, and start one on the same port with its objects, or with those of `store`."""
        port = int(self.server.url.rpartition(":")[2])
        kept = store or self.store
        self.server.stop()
        time.sleep(down_seconds)
        self.server = LocalApiServer(port, now=self.clock.now, store=kept).start()

    @property
    def snapshot(self) -> Snapshot:
        found = newest_snapshot(self.blobs, "east")
        assert found is not None
        return found

    def pods(self) -> set[str]:
        return {pod.key.split("/")[1] for pod in self.snapshot.pods} if self.blobs.objects else set()

    def hints_for(self, concern: Concern) -> int:
        return self.hints.concerns().count(concern)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack)


def pending(name: str) -> Manifest:
    manifest = deployment_pod(1, rolled(1))
    manifest["metadata"]["name"] = name
    return manifest


def bind(store: Store, name: str) -> None:
    """Bind a pod as the scheduler does."""
    bound(store, name, "team-1", {"target": {"kind": "Node", "name": "n1"}}, Write())


def test_pending_pods_become_a_snapshot_and_a_hint(stage: Stage) -> None:
    with stage.forwarding():
        eventually(lambda: bool(stage.blobs.puts))
        for name in ("a", "b"):
            created(stage.store, "pods", pending(name))
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) > 0)
        assert stage.pods() == {"a", "b"}
        assert all(pod.unschedulable for pod in stage.snapshot.pods)
        assert stage.snapshot.cluster == "east"


class Watched(FakeHints):
    """Hints that record the pods in the bucket at each hint to provisioning."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.clock.now)
        self.stage = stage
        self.held: list[set[str]] = []

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        if concern is Concern.PROVISIONING:
            self.held.append(self.stage.pods())
        super().send(concern, hint, delay_seconds)


def test_a_snapshot_is_written_before_hints_are_sent(stage: Stage) -> None:
    stage.hints = hints = Watched(stage)
    with stage.forwarding():
        created(stage.store, "pods", pending("a"))
        eventually(lambda: bool(hints.held))
    assert hints.held[0] == {"a"}


def test_a_pods_binding_is_in_the_next_snapshot_and_sends_no_hint(stage: Stage) -> None:
    created(stage.store, "pods", pending("a"))
    with stage.forwarding():
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) == 1)
        bind(stage.store, "a")
        eventually(lambda: [pod.node for pod in stage.snapshot.pods] == ["n1"])
        assert stage.hints_for(Concern.PROVISIONING) == 1


def test_with_a_capacity_buffer_a_pods_binding_sends_a_hint_although_no_pod_is_pending(stage: Stage) -> None:
    crd = yaml.safe_load((ROOT / "overlays" / "capacity-buffers" / "crd.yaml").read_text())
    stage.store.create("customresourcedefinitions", crd)
    about = {"name": "room", "namespace": "default"}
    spec = {"podTemplateRef": {"name": "room"}, "replicas": 1}
    with stage.forwarding():
        created(stage.store, "capacitybuffers", {"metadata": about, "spec": spec})
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) == 1)
        assert [each["metadata"]["name"] for each in stage.snapshot.capacitybuffers] == ["room"]
        eventually(lambda: stage.hints_for(Concern.DISRUPTION) == 1)
        unseen = pending("a")
        del unseen["status"]
        created(stage.store, "pods", unseen)
        bind(stage.store, "a")
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) == 2)
        assert [pod.node for pod in stage.snapshot.pods] == ["n1"]


def test_a_workload_that_grows_sends_a_hint_before_its_pods_exist(stage: Stage) -> None:
    spec = {"containers": [{"name": "main", "image": "web"}]}
    about = {"name": "web", "namespace": "default"}
    labels = {"matchLabels": {"app": "web"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    made = {"metadata": about, "spec": {"replicas": 0, "selector": labels, "template": template}}
    with stage.forwarding():
        created(stage.store, "replicasets", made)
        eventually(lambda: bool(stage.blobs.objects))
        assert not stage.snapshot.grown
        asks = {"annotations": {"nodesmith.dev/proactive-scale-up": "true"}}
        stage.store.patch("namespaces", "default", {"metadata": asks})
        before = stage.hints_for(Concern.PROVISIONING)
        stage.store.patch("replicasets", "web", {"spec": {"replicas": 30}}, namespace="default")
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) > before)
        assert [each.lacking for each in stage.snapshot.grown] == [30]


def test_a_late_volume_binding_sends_a_hint_and_adds_the_volumes_zone_to_the_snapshot(stage: Stage) -> None:
    waiting = pod_with("data")
    created(stage.store, "storageclasses", storage_class(mode="Immediate"))
    created(stage.store, "pods", waiting)
    created(stage.store, "persistentvolumeclaims", claim("data"))
    with stage.forwarding():
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) == 1)
        (pod,) = stage.snapshot.pods
        assert "binds immediately (Immediate), so its volume must exist first" in pod.refusal

        created(stage.store, "persistentvolumes", volume("pv-1", "us-east-1b", claim="default/data"))
        bound_claim = {"spec": {"volumeName": "pv-1"}, "metadata": claim("data", bound_to="pv-1")["metadata"]}
        stage.store.patch("persistentvolumeclaims", "data", bound_claim, namespace="default")
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) == 2)
        (pod,) = stage.snapshot.pods
        assert pod.refusal == ""
        assert [str(term["topology.kubernetes.io/zone"]) for term in pod.shape.terms] == [
            "topology.kubernetes.io/zone In [us-east-1b]"
        ]


def test_nodes_that_join_or_are_deleted_wake_lifecycle(stage: Stage) -> None:
    with stage.forwarding():
        created(stage.store, "nodes", node(1, rolled(1)))
        eventually(lambda: stage.hints_for(Concern.LIFECYCLE) == 1)
        assert len(stage.snapshot.nodes) == 1
        stage.store.delete("nodes", stage.snapshot.nodes[0].name)
        eventually(lambda: stage.hints_for(Concern.LIFECYCLE) == 2)
        assert not stage.snapshot.nodes


def test_termination_is_woken_until_a_nodes_pods_and_volumes_are_gone(stage: Stage) -> None:
    machine, at_once = node(1, rolled(1)), DeleteOptions(grace_seconds=0)
    machine["metadata"]["finalizers"] = ["karpenter.sh/termination"]
    name = machine["metadata"]["name"]
    pod = {**deployment_pod(1, rolled(1), name)}
    pod["metadata"]["name"] = "a"
    created(stage.store, "nodes", machine)
    created(stage.store, "pods", pod)
    created(stage.store, "volumeattachments", attachment("pv-1", name))
    with stage.forwarding():
        eventually(lambda: stage.pods() == {"a"})
        assert (stage.hints_for(Concern.TERMINATION), stage.snapshot.attachments) == (0, ())

        stage.store.delete("nodes", name)
        eventually(lambda: stage.hints_for(Concern.TERMINATION) == 1)
        assert stage.snapshot.nodes[0].deleting
        assert list(stage.snapshot.attachments) == [VolumeAttachment(name, "pv-1")]

        stage.store.delete("pods", "a", "team-1", at_once)
        eventually(lambda: stage.hints_for(Concern.TERMINATION) == 2)
        assert stage.pods() == set()

        stage.store.delete("volumeattachments", f"csi-pv-1-{name}")
        eventually(lambda: stage.hints_for(Concern.TERMINATION) == 3)
        assert list(stage.snapshot.attachments) == []


def test_a_new_nodepool_wakes_readiness_and_a_new_status_only_provisioning(stage: Stage) -> None:
    with stage.forwarding():
        created(stage.store, "nodepools", POOL)
        eventually(lambda: stage.hints_for(Concern.READINESS) == 1)
        assert stage.hints_for(Concern.PROVISIONING) == 0
        created(stage.store, "pods", pending("a"))
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) == 1)
        condition = {"type": "Ready", "status": "True", "reason": "", "message": ""}
        ready = {"status": {"conditions": [{**condition, "lastTransitionTime": "2026-11-21T08:00:00Z"}]}}
        stage.store.patch("nodepools", "default", ready, subresource="status")
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) == 2)
        assert stage.hints_for(Concern.READINESS) == 1


def test_the_hint_is_renewed_while_a_pod_stays_pending(stage: Stage) -> None:
    created(stage.store, "pods", pending("a"))
    intervals = ReportingIntervals(renewal=timedelta(seconds=5))
    with stage.forwarding(intervals):
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) >= 3)
        bind(stage.store, "a")
        eventually(lambda: [pod.node for pod in stage.snapshot.pods] == ["n1"])
        reported = stage.hints_for(Concern.PROVISIONING)
        stage.clock.sleep(12)
        assert stage.hints_for(Concern.PROVISIONING) == reported


def test_an_unchanged_snapshot_is_written_once_while_heartbeats_continue(stage: Stage) -> None:
    with stage.forwarding(BRISK):
        eventually(lambda: len(stage.heartbeats.beats) >= 4)
    first, *_, last = stage.heartbeats.beats
    assert stage.blobs.puts == [snapshot_key("east")]
    assert last.at - first.at >= timedelta(seconds=15)
    assert {beat.changed for beat in stage.heartbeats.beats} == {first.changed}
    assert abs(stage.snapshot.taken_at - first.changed) < timedelta(milliseconds=1)
    assert stage.hints.sent == []


def test_a_heartbeat_contains_the_time_of_the_last_snapshot_change(stage: Stage) -> None:
    with stage.forwarding(BRISK):
        eventually(lambda: bool(stage.heartbeats.beats))
        created(stage.store, "nodepools", POOL)
        eventually(lambda: len({beat.changed for beat in stage.heartbeats.beats}) == 2)
    last = stage.heartbeats.beats[-1]
    assert abs(stage.snapshot.taken_at - last.changed) < timedelta(milliseconds=1)


def test_changes_that_can_wait_are_written_with_the_next_heartbeat(stage: Stage) -> None:
    created(stage.store, "pods", {**pending("a"), "spec": {**pending("a")["spec"], "nodeName": "n1"}})
    with stage.forwarding(BRISK):
        eventually(lambda: stage.pods() == {"a"})
        (pod,) = stage.snapshot.pods
        flipped = "False" if pod.ready else "True"
        condition = {"type": "Ready", "status": flipped, "lastTransitionTime": "2026-11-21T08:00:00Z"}
        status = {"status": {"phase": "Running", "conditions": [condition]}}
        stage.store.patch("pods", "a", status, namespace="team-1", subresource="status")
        eventually(lambda: stage.snapshot.pods[0].ready is not pod.ready)


def test_changes_that_no_decision_reads_are_not_written_with_a_heartbeat(stage: Stage) -> None:
    created(stage.store, "nodes", node(1, rolled(1)))
    with stage.forwarding(BRISK):
        eventually(lambda: stage.hints_for(Concern.LIFECYCLE) == 1)
        written = len(stage.blobs.puts)
        name = stage.snapshot.nodes[0].name
        stage.store.patch("nodes", name, {"metadata": {"annotations": {"example.com/seen": "now"}}})
        beats = len(stage.heartbeats.beats)
        eventually(lambda: len(stage.heartbeats.beats) >= beats + 2)
        assert len(stage.blobs.puts) == written


def test_a_forwarder_that_cannot_write_its_snapshot_sends_no_heartbeat(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with stage.forwarding(BRISK):
        eventually(lambda: bool(stage.heartbeats.beats))
        stage.blobs.down = True
        created(stage.store, "nodepools", POOL)
        eventually(lambda: "delivery failed" in caplog.text)
        beats = list(stage.heartbeats.beats)
        stage.clock.sleep(15)
        assert stage.heartbeats.beats == beats
        stage.blobs.down = False
        eventually(lambda: len(stage.heartbeats.beats) > len(beats))
        assert stage.heartbeats.beats[-1].changed > beats[-1].changed


def test_after_missing_heartbeats_the_forwarder_writes_its_snapshot_again(stage: Stage) -> None:
    with stage.forwarding(BRISK) as forwarder:
        eventually(lambda: bool(stage.heartbeats.beats))
        stage.heartbeats.down = True
        stage.blobs.objects.clear()
        stage.clock.sleep(30)
        stage.heartbeats.down = False
        eventually(lambda: stage.clock.now() - (forwarder.last_beat or stage.clock.now()) < BRISK.heartbeat)
        eventually(lambda: bool(stage.blobs.objects))


def test_after_an_expired_resource_version_objects_are_listed_again(stage: Stage) -> None:
    created(stage.store, "pods", pending("a"))
    with stage.forwarding():
        eventually(lambda: stage.pods() == {"a"})
        stage.server.stop()
        created(stage.store, "pods", pending("b"))
        stage.store.delete("pods", "a", "team-1")
        stage.store.history.compact()
        stage.restart()
        eventually(lambda: stage.pods() == {"b"})


def test_watches_resume_after_a_restart_of_the_api_server(stage: Stage) -> None:
    created(stage.store, "pods", pending("a"))
    with stage.forwarding():
        eventually(lambda: stage.pods() == {"a"})
        stage.restart(down_seconds=0.5)
        created(stage.store, "pods", pending("b"))
        eventually(lambda: stage.pods() == {"a", "b"})


def test_an_api_server_restored_from_an_older_state_is_listed_again(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        created(stage.store, "pods", pending(name))
    with stage.forwarding():
        eventually(lambda: stage.pods() == {"a", "b", "c"})
        older = Store(stage.clock.now, CRDS)
        created(older, "pods", pending("a"))
        stage.restart(older)
        eventually(lambda: stage.pods() == {"a"})


def test_nothing_is_written_while_the_api_server_is_unreachable(stage: Stage) -> None:
    reported = stage.heartbeats.beats
    with stage.forwarding(ReportingIntervals(heartbeat=timedelta(seconds=2))):
        eventually(lambda: len(reported) >= 2)
        stage.server.stop()

        def is_silent() -> bool:
            known = len(reported)
            stage.clock.sleep(20)  # away for longer than a heartbeat and 15 s, so that it writes again
            return len(reported) == known

        eventually(is_silent)
        known, written = len(reported), len(stage.blobs.puts)
        stage.restart()
        eventually(lambda: len(reported) > known and len(stage.blobs.puts) > written)


def test_a_restarted_forwarder_sends_hints_about_what_it_missed(stage: Stage) -> None:
    created(stage.store, "pods", pending("a"))
    with stage.forwarding():
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) == 1)
    created(stage.store, "pods", pending("b"))
    created(stage.store, "nodes", node(1, rolled(1)))
    with stage.forwarding():
        eventually(
            lambda: stage.hints_for(Concern.PROVISIONING) == 2 and stage.hints_for(Concern.LIFECYCLE) == 1
        )
        assert stage.pods() == {"a", "b"}


def test_no_hint_is_lost_while_the_bucket_is_down(stage: Stage) -> None:
    with stage.forwarding():
        eventually(lambda: bool(stage.blobs.puts))
        stage.blobs.down = True
        created(stage.store, "pods", pending("a"))
        created(stage.store, "nodepools", POOL)
        stage.clock.sleep(5)
        assert stage.hints.sent == []
        stage.blobs.down = False
        eventually(
            lambda: stage.hints_for(Concern.PROVISIONING) == 1 and stage.hints_for(Concern.READINESS) == 1
        )
        assert stage.pods() == {"a"}


def test_no_hint_is_lost_while_hints_cannot_be_sent(stage: Stage) -> None:
    with stage.forwarding():
        eventually(lambda: bool(stage.blobs.puts))
        stage.hints.down = True
        created(stage.store, "pods", pending("a"))
        eventually(lambda: stage.pods() == {"a"})
        stage.hints.down = False
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) == 1)


def test_crds_are_detected_once_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ABSENT_SECONDS", 0.3)
    with ExitStack() as stack:
        stage = Stage(stack, crds=())
        created(stage.store, "pods", pending("a"))
        with stage.forwarding():
            eventually(lambda: stage.pods() == {"a"})
            for crd in CRDS:
                stage.store.create("customresourcedefinitions", crd)
            created(stage.store, "nodepools", POOL)
            eventually(lambda: [pool["metadata"]["name"] for pool in stage.snapshot.nodepools] == ["default"])
            eventually(lambda: stage.hints_for(Concern.READINESS) == 1)


def test_a_watch_that_crashes_stops_the_forwarder(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(watching.Watch, "_list", broken)
    api = ApiServer(connect(stage.server.url, "", lambda: "token"))
    forwarder = Forwarder("east", api, stage.blobs, stage.hints, stage.heartbeats, stage.clock)
    stop = Event()
    with pytest.raises(RuntimeError, match="a watch has died"):
        forwarder.run(stop)
    stop.set()  # else watches that rest would look again, after random waits, until the process ends


def test_a_large_cluster_is_written_as_a_base_and_deltas_until_a_new_forwarder_starts(stage: Stage) -> None:
    created(stage.store, "pods", {**pending("z"), "status": {}})
    with stage.forwarding(small_bytes=0):
        eventually(lambda: len(stage.blobs.puts) == 2)
        first, head = stage.blobs.puts
        assert head == snapshot_key("east")
        assert first.startswith("clusters/east/snapshot.")
        created(stage.store, "pods", pending("a"))
        eventually(lambda: stage.hints_for(Concern.PROVISIONING) > 0)
        assert stage.pods() == {"a", "z"}
        assert set(stage.blobs.puts) == {first, head}
    created(stage.store, "pods", pending("b"))
    with stage.forwarding(small_bytes=0):
        eventually(lambda: stage.pods() == {"a", "b", "z"})
        assert len(set(stage.blobs.puts)) == 3


class Refusing(FakeBlobs):
    """A bucket that takes bases and refuses deltas, as if the forwarder had died in between."""

    is_refusing, refused = False, 0

    def put(self, key: str, data: bytes) -> None:
        if self.is_refusing and key == snapshot_key("east"):
            self.refused += 1
            raise Transient("the bucket is down", "ServiceUnavailable")
        super().put(key, data)


def test_a_delta_that_was_not_written_after_its_base_changes_nothing_until_the_next_base(
    stage: Stage,
) -> None:
    stage.blobs = blobs = Refusing()
    blobs.objects[snapshot_key("east")] = before = encode("east", stage.clock.now(), Observed())
    blobs.is_refusing = True
    created(stage.store, "pods", pending("a"))
    with stage.forwarding(small_bytes=0):
        eventually(lambda: blobs.refused)
        assert blobs.puts
        assert snapshot_key("east") not in blobs.puts
        assert blobs.objects[snapshot_key("east")] == before
        blobs.is_refusing = False
        eventually(lambda: stage.pods() == {"a"})
    bases = blobs.puts.index(snapshot_key("east"))
    assert bases >= 2, "the next attempt writes a base of its own"
