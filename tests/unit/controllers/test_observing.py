"""A cluster that is only observed: who is woken for it, and what a look of its shadows does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.controllers.shadow import KEPT_AT_LEAST, Watch, watch
from nodesmith.decisions.dispatch import due_observers, findings, own_minute
from nodesmith.errors import Rejected
from nodesmith.keys import shadow_key, snapshot_key
from nodesmith.model.costs.shadow import Shadow, read_shadow
from nodesmith.model.functions import Concern, Heartbeat, Hint
from nodesmith.model.policies import NodeSettings
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_custom, reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from nodesmith.registration import Registration
from nodesmith_forwarder.__main__ import ShadowHints
from nodesmith_forwarder.settings import read_forwarder_settings
from tests import builders
from tests.fakes.blobs import FakeBlobs
from tests.fakes.catalogs import FakeCatalogs
from tests.fakes.hints import FakeHints
from tests.objects.fleets import pool
from tests.smallworld.world import catalog, pod_manifest

STALE = timedelta(seconds=90)
MINUTE = timedelta(minutes=1)
KEY = shadow_key(builders.CLUSTER)


def beat(changed: timedelta, age: timedelta = timedelta()) -> Heartbeat:
    return Heartbeat(builders.NOW - age, builders.NOW - changed)


def test_shadows_look_every_minute_while_their_cluster_changes() -> None:
    busy = beat(MINUTE)
    at = builders.NOW.replace(minute=7)
    # No heartbeat for so long.
    assert due_observers("web", busy, STALE, at) == [
        Concern.SHADOW,
        Concern.OBSERVATION,
    ]
    assert due_observers("web", Heartbeat(at, at - MINUTE), STALE, at) == [Concern.SHADOW]


def test_shadows_of_a_quiet_cluster_look_every_ten_minutes() -> None:
    woken = []
    for minute in range(30):
        at = builders.NOW + minute * MINUTE
        quiet = Heartbeat(at, at - timedelta(hours=1))
        woken += due_observers("web", quiet, STALE, at)
    assert woken.count(Concern.SHADOW) == 3
    assert woken.count(Concern.OBSERVATION) == 1
    assert own_minute("web") < 5


def test_no_other_concern_is_expected_to_look_at_an_observed_cluster() -> None:
    observed = Registration("web", "vpc-0123456789abcdef0", ("role",), observed=True)
    long_ago = builders.NOW - timedelta(days=1)
    found = findings([], [(observed, long_ago)], long_ago, builders.NOW)
    assert {each.concern for each in found if each.cluster} == {"shadow", "observation"}


def test_the_forwarder_of_an_observed_cluster_wakes_its_shadows_alone() -> None:
    sent = FakeHints()
    hints = ShadowHints(sent)
    for concern in (Concern.PROVISIONING, Concern.DISRUPTION, Concern.TERMINATION, Concern.READINESS):
        hints.send(concern, Hint("web", "pods pending: 3"))
    assert [(each.concern, each.hint.reason) for each in sent.sent] == [(Concern.SHADOW, "pods pending: 3")]


def test_the_forwarders_setting_is_true_or_false() -> None:
    given = {"CLUSTER_NAME": "web", "AWS_REGION": "r", "BUCKET_NAME": "b", "TABLE_NAME": "t"}
    assert not read_forwarder_settings(given).is_observing
    assert read_forwarder_settings({**given, "OBSERVE": "true"}).is_observing
    with pytest.raises(Rejected, match="OBSERVE='yes': must be true or false"):
        read_forwarder_settings({**given, "OBSERVE": "yes"})


class Scene:
    """An observed cluster with one node, and the function that watches it."""

    def __init__(self) -> None:
        self.now, self.blobs = builders.NOW, FakeBlobs()
        self.beats: Heartbeat | None = None
        self.pods = [pod_manifest("a")]
        self.pods[0]["spec"]["nodeName"] = "one"
        labels = {
            "karpenter.sh/nodepool": "default",
            "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/zone": builders.ZONES[0],
            "karpenter.sh/capacity-type": "on-demand",
        }
        offered = {"cpu": "2", "memory": "8Gi", "pods": "29"}
        created = {"creationTimestamp": "2026-11-21T10:00:00Z"}
        self.node = {
            "metadata": {"name": "one", "uid": "1", "labels": labels, **created},
            "spec": {"providerID": f"aws:///{builders.ZONES[0]}/i-1"},
            "status": {"capacity": offered, "allocatable": offered},
        }
        self.write()

    def write(self) -> None:
        """Write the snapshot, as the forwarder does after a change."""
        observed = Observed(
            pods=[reduced for each in self.pods if (reduced := reduce_pod(each)) is not None],
            nodes=[reduce_node(self.node)],
            nodepools=[reduce_custom(pool(policy="WhenEmpty"))],
            nodeclasses=[reduce_custom(builders.nodeclass_manifest())],
        )
        self.blobs.put(snapshot_key(builders.CLUSTER), encode(builders.CLUSTER, self.now, observed))

    def look(self, after: timedelta = timedelta()) -> dict[str, int]:
        self.now += after
        self.beats = Heartbeat(self.now, self.now)
        return dict(watch(self.run()).counts)

    def run(self) -> Watch:
        return Watch(
            builders.CLUSTER,
            NodeSettings(),
            self.blobs,
            self.blobs,
            FakeCatalogs(catalog()),
            lambda: self.beats,
            lambda: self.now,
            STALE,
        )

    def kept(self) -> Shadow:
        return read_shadow(self.blobs.objects[KEY], KEY)


def test_a_look_keeps_news_at_once_and_time_alone_every_five_minutes() -> None:
    scene = Scene()
    assert scene.look() == {"ShadowsWritten": 1}
    assert scene.look(MINUTE) == {}
    assert scene.look(KEPT_AT_LEAST) == {"ShadowsWritten": 1}
    assert scene.kept().days[-1].seconds == 360
    scene.pods.append(pod_manifest("b", cpu="1500m"))
    scene.write()
    assert scene.look(MINUTE) == {"ShadowsWritten": 1}
    assert "default/b" in scene.kept().waiting


def test_nothing_but_the_shadows_is_written() -> None:
    scene = Scene()
    scene.look()
    scene.look(KEPT_AT_LEAST)
    assert set(scene.blobs.puts) == {snapshot_key(builders.CLUSTER), KEY}


def test_a_cluster_that_cannot_be_seen_as_it_is_now_is_not_counted() -> None:
    scene = Scene()
    scene.look()
    scene.now += timedelta(hours=1)
    assert dict(watch(scene.run()).counts) == {"SnapshotsStale": 1}
    assert scene.kept().at == builders.NOW


def test_shadows_that_cannot_be_read_are_reported_and_begin_anew() -> None:
    scene = Scene()
    scene.blobs.put(KEY, b"damaged")
    report = watch(scene.run())
    assert report.counts["ShadowsWritten"] == 1
    assert "the shadows start again" in report.rejected[0]
    assert scene.kept().started_at == builders.NOW


class Racing(FakeBlobs):
    """A bucket in which another run writes between a read and a write."""

    def replace(self, key: str, data: bytes, known: str) -> str:
        self.objects[key] = b"of another run"
        return FakeBlobs.replace(self, key, data, known)


def test_of_two_looks_at_once_one_is_kept() -> None:
    scene = Scene()
    scene.blobs = Racing(scene.blobs.objects)
    assert scene.look() == {"Conflict": 1}
    assert scene.blobs.objects[KEY] == b"of another run"
