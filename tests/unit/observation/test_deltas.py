"""Snapshots as deltas of a base: what is written when, and what is said of those that cannot be read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest

from nodesmith.controllers.observation import Observation, newest_data, newest_snapshot, observe
from nodesmith.errors import Rejected
from nodesmith.keys import snapshot_base_key, snapshot_key
from nodesmith.model.functions import Heartbeat
from nodesmith.observation.decoding import Reader, decode, encode
from nodesmith.observation.mirror import NODES, PODS, WATCHED
from nodesmith.observation.observed import Observed
from nodesmith_forwarder.changes import Changes
from nodesmith_forwarder.recording import Encoded, Recorder
from nodesmith_forwarder.windows import Pace
from nodesmith_forwarder.world import World
from tests.clocks import StillClock
from tests.fakes.blobs import FakeBlobs
from tests.fakes.hints import FakeHints
from tests.objects.clusters import Manifest, deployment_pod, node, rolled

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HEAD = snapshot_key("c")


@dataclass
class Scene(StillClock):
    """A large cluster's forwarder and its bucket."""

    small_bytes: int = 0
    blobs: FakeBlobs = field(default_factory=FakeBlobs)

    def __post_init__(self) -> None:
        changes = Changes()
        self.world = World(self, Pace(), changes)
        self.recorder = Recorder("c", changes, self.world.whole, self.small_bytes)
        for kind in WATCHED:
            self.world.mark(kind, current=True)
        self.world.put(NODES, [node(number, rolled(number)) for number in range(20)])
        self.add("0")  # its selector's keys are known

    def add(self, *names: str, app: int = 1, **spec: Any) -> None:
        self.world.put(PODS, [named(name, app, **spec) for name in names])

    def write(self) -> Encoded:
        taken = self.world.take()
        assert taken is not None
        made = self.recorder.encoded(self.time, taken.part)
        if made.base:
            self.blobs.put(snapshot_base_key("c", made.digest), made.base)
        self.blobs.put(HEAD, made.head)
        return made

    def pods(self) -> list[str]:
        snapshot = newest_snapshot(self.blobs, "c")
        assert snapshot is not None
        return [pod.key.partition("/")[2] for pod in snapshot.pods]


def named(name: str, app: int, **spec: Any) -> Manifest:
    made = deployment_pod(app, rolled(app), **spec)
    made["metadata"]["name"] = name
    return made


def written(**changes: Any) -> tuple[Scene, Encoded]:
    """Return a scene whose newest snapshot is a delta in which these fields are others, and its base."""
    scene = Scene()
    base = scene.write()
    scene.add("a")
    scene.write()
    document = json.loads(gzip.decompress(scene.blobs.objects[HEAD]))
    if changes:
        scene.blobs.objects[HEAD] = gzip.compress(
            json.dumps(document | changes, sort_keys=True, separators=(",", ":")).encode()
        )
    return scene, base


def test_a_change_is_written_as_a_delta_of_the_same_base() -> None:
    scene = Scene()
    base = scene.write()
    scene.add("b", "a")
    delta = scene.write()
    assert (bool(base.base), bool(delta.base)) == (True, False)
    assert len(delta.head) < len(base.base)
    assert scene.pods() == ["0", "a", "b"]


def test_a_warm_reader_reads_no_base_again() -> None:
    scene, base = written()
    reader, asked = Reader(), list[str]()

    def get(key: str) -> bytes | None:
        asked.append(key)
        return scene.blobs.get(key)

    for name in ("b", "c"):
        scene.add(name)
        scene.write()
        first = reader.read(reader.completed(scene.blobs.objects[HEAD], "c", get))
    assert asked == [snapshot_base_key("c", base.digest)]
    assert [pod.key for pod in first.pods] == ["team-1/0", "team-1/a", "team-1/b", "team-1/c"]


def test_a_small_snapshot_is_always_written_whole() -> None:
    scene = Scene(small_bytes=2**20)
    for name in ("a", "b"):
        scene.add(name)
        made = scene.write()
        assert made.base == b""
        assert repr(decode(made.head)) == repr(newest_snapshot(scene.blobs, "c"))
    assert set(scene.blobs.puts) == {HEAD}


def later(scene: Scene) -> None:
    scene.time += timedelta(minutes=31)
    scene.add("late")


def selecting(scene: Scene) -> None:
    spread = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"run": "1"}}}
    scene.add("new", topologySpreadConstraints=[spread])


def crowded(scene: Scene) -> None:
    for number in range(3000):
        scene.add(f"{rolled(number).getrandbits(256):064x}", app=number % 50)


@pytest.mark.parametrize("change", [later, selecting, crowded])
def test_a_new_base_is_written_when_a_delta_no_longer_serves(change: Callable[[Scene], None]) -> None:
    scene = Scene()
    first = scene.write()
    change(scene)
    second = scene.write()
    assert second.base
    assert second.digest != first.digest
    assert len(scene.pods()) == len(scene.world.whole().pods)


def test_an_unchanged_cluster_gives_the_same_delta() -> None:
    scene = Scene()
    scene.write()
    scene.add("a")
    first = scene.write()
    taken = scene.world.take()
    assert taken is not None
    assert scene.recorder.rewritten(scene.time, taken.part) == first.head


def test_what_a_decision_keeps_of_a_snapshot_is_read_without_its_bucket() -> None:
    scene, _ = written()
    kept = newest_data(scene.blobs, "c")
    assert kept is not None
    assert repr(decode(kept)) == repr(newest_snapshot(scene.blobs, "c"))


def test_a_delta_alone_is_refused() -> None:
    scene, base = written()
    with pytest.raises(Rejected, match=f"a delta alone, expected its base {base.digest} behind it"):
        decode(scene.blobs.objects[HEAD])


def healed(scene: Scene) -> bool:
    """Let the observation function look while the forwarder is alive, and return whether it wrote a snapshot."""
    run = Observation(
        cluster_name="c",
        observer=lambda: Observer(),
        blobs=scene.blobs,
        hints=FakeHints(scene.now),
        last_heartbeat=lambda: Heartbeat(scene.time, scene.time),
        clock=scene.now,
        stale_after=timedelta(seconds=90),
    )
    return observe(run)


class Observer:
    """Sees an empty cluster."""

    def observe(self) -> Observed:
        return Observed()


def test_an_absent_base_is_named_and_observation_heals_it() -> None:
    scene, base = written()
    key = snapshot_base_key("c", base.digest)
    del scene.blobs.objects[key]
    cold = Reader()
    with pytest.raises(Rejected, match=f"it is a delta of {key}, which does not exist"):
        cold.completed(scene.blobs.objects[HEAD], "c", scene.blobs.get)
    another = Scene()
    another.blobs.objects[HEAD] = delta_of("0" * 64, scene)
    assert healed(another)
    assert another.pods() == []
    assert not healed(another)


def delta_of(digest: str, scene: Scene) -> bytes:
    document = json.loads(gzip.decompress(scene.blobs.objects[HEAD]))
    return gzip.compress(
        json.dumps({"base": digest, **(document | {"base": digest})}, separators=(",", ":")).encode()
    )


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def other(_: bytes) -> bytes:
    return b"not gzip"


def swapped(data: bytes) -> bytes:
    return gzip.compress(gzip.decompress(data), 1)


@pytest.mark.parametrize("damage", [cut, swapped, other])
def test_a_damaged_base_is_refused_by_its_digest(damage: Callable[[bytes], bytes]) -> None:
    scene, base = written()
    with pytest.raises(
        Rejected, match=f"truncated or damaged, its base .* the delta is one of {base.digest}"
    ):
        decode(scene.blobs.objects[HEAD] + damage(base.base))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"not gzip", "not gzip"),
        (encode("another", NOW, Observed()), "'cluster' is 'c', that of its base is 'another'"),
        (gzip.compress(b'{"format":"nodesmith-snapshot","version":4}'), "a part is missing"),
    ],
    ids=["garbage", "of another cluster", "incomplete"],
)
def test_a_base_that_its_delta_names_must_be_a_whole_snapshot_of_its_cluster(data: bytes, why: str) -> None:
    scene, _ = written()
    with pytest.raises(Rejected, match=why):
        decode(delta_of(sha256(data).hexdigest(), scene) + data)


def test_a_base_may_not_be_a_delta() -> None:
    scene, _ = written()
    data = scene.blobs.objects[HEAD]
    with pytest.raises(Rejected, match="its base is a delta, expected a whole snapshot"):
        decode(delta_of(sha256(data).hexdigest(), scene) + data)


GROUP = {"names": ["x"], "created": [1], "nodes": [-1], "flags": [0]}


@pytest.mark.parametrize(
    "changes",
    [
        {"pods": [{"at": 7, "gone": [], **GROUP}]},
        {"pods": [{"at": -1, "gone": [], **GROUP}]},
        {"pods": [{"at": "0", "gone": [], **GROUP}]},
        {"pods": 7},
        {"nodes": {"put": [{}], "gone": []}},
        {"podEvents": []},
        {"without": ["nodepools"]},
        {"sections": {"problems": 7}},
        {"takenAt": "yesterday"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_malicious_delta_is_refused(changes: dict[str, Any]) -> None:
    scene, base = written(**changes)
    with pytest.raises(Rejected, match="snapshot: "):
        decode(scene.blobs.objects[HEAD] + base.base)


def test_a_name_of_ten_kilobytes_and_markup_stay_a_pod() -> None:
    scene = Scene()
    scene.write()
    names = ["<script>", "x" * 10_000]
    scene.add(*names)
    scene.write()
    assert scene.pods() == sorted(["0", *names])
