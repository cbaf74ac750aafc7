"""Whatever happens in a cluster, the base with the newest delta is the whole snapshot."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.keys import snapshot_base_key
from nodesmith.observation.decoding import Reader, decode, encode
from nodesmith.observation.mirror import (
    ATTACHMENTS,
    BUDGETS,
    CSI_NODES,
    DAEMONSETS,
    NAMESPACES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PODS,
    VOLUME_CLAIMS,
    VOLUMES,
    WatchedKind,
)
from nodesmith_forwarder.changes import Changes
from nodesmith_forwarder.recording import Recorder
from nodesmith_forwarder.windows import Pace
from nodesmith_forwarder.world import World
from tests import builders
from tests.clocks import StillClock
from tests.objects.clusters import Manifest, budget, deployment_pod, node, rolled
from tests.objects.storage import attachment, claim, mounting, volume

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
NODE_NAMES = [node(number, rolled(number))["metadata"]["name"] for number in range(3)]
CREATED = "2026-11-20T09:00:00Z"


class Cluster(StillClock):
    """A World whose recorder writes, and a reader of what was written, which stays warm."""

    def __init__(self) -> None:
        super().__init__(START)
        changes = Changes(("team",))
        self.world = World(self, Pace(), changes)
        self.recorder = Recorder("c", changes, self.world.whole, small_bytes=0)
        self.reader = Reader()
        self.objects: dict[str, bytes] = {}
        self.deltas = 0
        for kind in self.world._mirrors:
            self.world._current.add(kind)

    def check(self) -> None:
        """Write, and compare what is read with what a whole snapshot would be."""
        taken = self.world.take()
        assert taken is not None
        made = self.recorder.encoded(self.time, taken.part)
        if made.base:
            self.objects[snapshot_base_key("c", made.digest)] = made.base
        self.deltas += not made.base
        data = self.reader.completed(made.head, "c", self.objects.get)
        observed = replace(self.world.measured()[1], labels_kept=("team",))
        whole = decode(encode("c", self.time, observed))
        assert repr(self.reader.read(data)) == repr(whole)
        assert repr(decode(data)) == repr(whole)


def pod(draw: st.DrawFn) -> Manifest:
    app = draw(st.integers(0, 3))
    home = draw(st.sampled_from(["", *NODE_NAMES]))
    made = deployment_pod(app, rolled(app), home)
    made["metadata"]["name"] = f"pod-{draw(st.integers(0, 4))}"
    made["metadata"]["labels"]["team"] = draw(st.sampled_from("ab"))
    if draw(st.booleans()):
        made["metadata"]["creationTimestamp"] = CREATED
    match draw(st.sampled_from(["plain", "plain", "mounts", "daemon", "ends", "selects", "names spaces"])):
        case "mounts":
            made["metadata"]["namespace"] = "default"
            made["spec"]["volumes"] = mounting(draw(st.sampled_from(["data-0", "data-1"])))
        case "daemon":
            owner = {"kind": "DaemonSet", "name": "agent", "controller": True}
            made["metadata"] |= {"namespace": "default", "ownerReferences": [owner]}
        case "ends":
            made["metadata"] |= {
                "deletionTimestamp": "2026-11-21T12:00:30Z",
                "deletionGracePeriodSeconds": 30,
            }
        case "selects":
            spread = made["spec"]["topologySpreadConstraints"][0]
            made["spec"]["topologySpreadConstraints"] = [
                {**spread, "labelSelector": {"matchLabels": {"x": "y"}}}
            ]
        case "names spaces":
            term = {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {},
                "namespaceSelector": {"matchLabels": {"stage": "test"}},
            }
            terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            made["spec"]["affinity"] = {"podAntiAffinity": terms}
    return made


def machine(draw: st.DrawFn) -> Manifest:
    number = draw(st.integers(0, 2))
    made = node(number, rolled(number))
    if draw(st.booleans()):
        made["spec"]["taints"] = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    if draw(st.booleans()):
        made["metadata"]["labels"].pop("karpenter.sh/initialized")
    return made


def nodeclaim(draw: st.DrawFn) -> Manifest:
    number = draw(st.integers(0, 2))
    shown = node(number, rolled(number))
    made: Manifest = {
        "metadata": {"name": f"claim-{number}", "uid": f"u{number}"},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
        "status": {"providerID": shown["spec"]["providerID"], "nodeName": shown["metadata"]["name"]},
    }
    if draw(st.booleans()):
        made["status"]["lastPodEventTime"] = draw(st.sampled_from([CREATED, "2026-11-21T12:10:00Z"]))
    if draw(st.booleans()):
        made["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    return made


def guard(draw: st.DrawFn) -> Manifest:
    made = budget(draw(st.integers(0, 1)), draw(st.sampled_from([10, 20])))
    if draw(st.booleans()):
        made["spec"]["selector"] = {"matchLabels": {"team": "a"}}
    return made


def daemonset(draw: st.DrawFn) -> Manifest:
    requests = {"cpu": draw(st.sampled_from(["100m", "200m"]))}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    return {
        "metadata": {"name": "agent", "namespace": "default", "uid": "uid-agent"},
        "spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": containers}}},
    }


def other(draw: st.DrawFn) -> tuple[WatchedKind, Manifest]:
    number, home = draw(st.integers(0, 1)), draw(st.sampled_from(NODE_NAMES))
    drivers = [{"name": "ebs.csi.aws.com", "allocatable": {"count": draw(st.integers(1, 3))}}]
    stage = {"stage": draw(st.sampled_from(["test", "live"]))}
    choices: list[tuple[WatchedKind, Manifest]] = [
        (VOLUME_CLAIMS, claim(f"data-{number}", bound_to=draw(st.sampled_from(["", f"pv-{number}"])))),
        (VOLUMES, volume(f"pv-{number}", draw(st.sampled_from(["us-east-1a", "us-east-1b"])))),
        (CSI_NODES, {"metadata": {"name": home}, "spec": {"drivers": drivers}}),
        (ATTACHMENTS, attachment(f"pv-{number}", home)),
        (NAMESPACES, {"metadata": {"name": f"team-{number}", "labels": stage}}),
        (NODEPOOLS, builders.nodepool_manifest(f"pool-{number}")),
        (DAEMONSETS, daemonset(draw)),
    ]
    return choices[draw(st.integers(0, len(choices) - 1))]


MAKERS = {PODS.name: (PODS, pod), NODES.name: (NODES, machine)}
MAKERS |= {NODECLAIMS.name: (NODECLAIMS, nodeclaim), BUDGETS.name: (BUDGETS, guard)}


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """Draw steps: an object that comes or changes, goes, or comes and goes, a write, or an hour that passes."""
    steps: list[Any] = []
    for _ in range(draw(st.integers(5, 40))):
        what = draw(
            st.sampled_from(["pods", "pods", "pods", "nodes", "nodeclaims", "poddisruptionbudgets", ""])
        )
        kind, made = other(draw) if not what else (MAKERS[what][0], MAKERS[what][1](draw))
        steps.append((draw(st.sampled_from(["put", "put", "put", "drop", "pass"])), kind, made))
        if draw(st.integers(0, 2)) == 0:
            steps.append("write")
        if draw(st.integers(0, 12)) == 0:
            steps.append("hour")
    return [*steps, "write"]


@given(histories())
def test_a_base_with_its_delta_is_the_whole_snapshot(steps: list[Any]) -> None:
    cluster = Cluster()
    cluster.check()
    for step in steps:
        cluster.time += timedelta(seconds=7)
        match step:
            case "write":
                cluster.check()
            case "hour":
                cluster.time += timedelta(hours=1)
            case ("put", kind, manifest):
                cluster.world.put(kind, [manifest])
            case ("pass", kind, manifest):
                cluster.world.put(kind, [manifest])
                cluster.time += timedelta(seconds=7)
                cluster.world.drop(kind, manifest)
            case (_, kind, manifest):
                cluster.world.drop(kind, manifest)


def test_a_delta_has_the_departure_of_a_pod_that_came_after_the_base() -> None:
    cluster, home = Cluster(), node(0, rolled(0))
    earlier, later = (deployment_pod(0, rolled(0), home["metadata"]["name"]) for _ in range(2))
    later["metadata"]["name"] = "later"
    cluster.world.put(NODES, [home])
    cluster.world.put(PODS, [earlier])
    cluster.check()
    cluster.world.put(PODS, [later])
    cluster.check()
    cluster.time += timedelta(minutes=10)
    cluster.world.drop(PODS, later)
    cluster.check()
    assert cluster.deltas == 2
