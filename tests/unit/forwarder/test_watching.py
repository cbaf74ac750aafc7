"""One watch, step by step, against a scripted API server."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any
from urllib.parse import parse_qs

import pytest

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Expired, NotServed
from nodesmith.errors import Transient
from nodesmith.observation.mirror import (
    CAPACITY_BUFFERS,
    DEPLOYMENTS,
    NODEPOOLS,
    NODES,
    POD_TEMPLATES,
    PODS,
    REQUESTS,
    SLICES,
    WatchedKind,
)
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_forwarder.clock import SystemClock
from nodesmith_forwarder.watching import Pauses, Watch
from nodesmith_forwarder.windows import Pace
from nodesmith_forwarder.world import World
from tests.objects.clusters import Manifest, deployment_pod, node, rolled


class Stop(Event):
    """Counts the waits instead of waiting, and stops after `after` of them."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        if len(self.waits) >= self.after:
            self.set()
        return self.is_set()


class Whole(Pauses):
    """Waits for a retry in one piece, so that Stop counts it once."""

    def wait_to_retry(self, seconds: float, stop: Event) -> None:
        stop.wait(seconds)


@dataclass
class Scripted(ApiServer):
    """Answers lists and watches from scripts and raises their exceptions. `asked` are the versions of watches."""

    lists: list[list[Manifest] | Exception] = field(default_factory=list)
    watches: list[list[bytes] | Exception] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    listed: int = 0

    def pages(self, path: str, selector: str = "") -> Iterator[dict[str, Any]]:  # noqa: ARG002
        self.paths.append(path)
        answer = self.lists[min(self.listed, len(self.lists) - 1)]
        self.listed += 1
        if isinstance(answer, Exception):
            raise answer
        yield {"metadata": {"resourceVersion": str(self.listed * 100)}, "items": answer}

    def stream(self, path: str, query: str, *, read_seconds: float) -> Iterator[bytes]:  # noqa: ARG002
        self.asked.append(parse_qs(query)["resourceVersion"][0])
        answer = self.watches.pop(0) if self.watches else Transient("nothing more")
        if isinstance(answer, Exception):
            raise answer
        return iter(answer)


def event(verb: str, version: int, manifest: Manifest | None = None) -> bytes:
    about = manifest or {"metadata": {}}
    body = {**about, "metadata": {**about["metadata"], "resourceVersion": str(version)}}
    return json.dumps({"type": verb, "object": body}).encode()


def watched(server: Scripted, rounds: int, kind: WatchedKind = NODES) -> tuple[World, Stop]:
    world, stop = World(SystemClock(), Pace()), Stop(rounds)
    Watch(kind, server, world, Whole(SystemClock())).run(stop)
    return world, stop


def names(world: World) -> set[str]:
    return set(world._mirrors["nodes"].objects)


def machine(number: int) -> Manifest:
    return {
        **node(number, rolled(number)),
        "metadata": {"name": f"n{number}", "creationTimestamp": "2026-11-21T08:00:00Z"},
    }


def test_a_watch_resumes_from_the_last_version_including_bookmarks() -> None:
    server = Scripted([[machine(1)]], [[event("ADDED", 107, machine(2))], [event("BOOKMARK", 250)], []])
    world, _ = watched(server, 3)
    assert server.asked == ["100", "107", "250"]
    assert server.listed == 1
    assert names(world) == {"n1", "n2"}


def test_an_expired_version_in_the_stream_causes_a_new_list() -> None:
    gone = b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}'
    server = Scripted([[machine(1), machine(2)], [machine(2)]], [[gone], []])
    world, _ = watched(server, 2)
    assert server.asked == ["100", "200"]
    assert names(world) == {"n2"}


def test_an_expired_list_is_restarted() -> None:
    server = Scripted([Expired("too slow"), [machine(1)]], [[]])
    world, _ = watched(server, 2)
    assert names(world) == {"n1"}


def test_a_stream_cut_within_an_event_resumes_from_the_event_before() -> None:
    whole = event("ADDED", 107, machine(2))
    server = Scripted([[machine(1)]], [[whole, event("ADDED", 108, machine(3))[:-20]], []])
    watched(server, 2)
    assert server.asked == ["100", "107"]


def test_a_version_that_fails_three_times_is_given_up() -> None:
    server = Scripted([[]], [Transient("504"), Transient("504"), Transient("504"), []])
    watched(server, 4)
    assert server.asked == ["100", "100", "100", "200"]


def test_waits_grow_to_at_most_half_a_minute() -> None:
    _, stop = watched(Scripted([Transient("down")]), 12)
    assert 0.25 <= stop.waits[0] <= 0.5
    assert all(earlier <= 2.0 * later for earlier, later in zip(stop.waits, stop.waits[1:], strict=False))
    assert 15 <= stop.waits[-1] <= 30


class Answered(Stop):
    """Lets the API server answer another watch, which had failed, during the third wait."""

    def __init__(self, after: int, pauses: Pauses) -> None:
        super().__init__(after)
        self.pauses = pauses

    def wait(self, timeout: float | None = None) -> bool:
        if len(self.waits) == 2:
            recovering = Scripted([[]], [Transient("503"), [event("BOOKMARK", 101)]])
            Watch(PODS, recovering, World(SystemClock(), Pace()), self.pauses).run(Stop(2))
        return super().wait(timeout)


def test_a_wait_to_retry_ends_once_the_api_server_has_answered_another_watch() -> None:
    pauses = Pauses(SystemClock())
    alone, together = Stop(100), Answered(100, pauses)
    pauses.wait_to_retry(16.5, alone)
    assert (sum(alone.waits), max(alone.waits)) == (16.5, 1.0)
    pauses.wait_to_retry(16.5, together)
    assert sum(together.waits) == 3.0


def test_waits_are_shorter_where_time_runs_faster() -> None:
    stop = Stop(100)
    pauses = Pauses(LocalClock(10.0))
    pauses.wait(5.0, stop)
    pauses.wait_to_retry(5.0, stop)
    assert stop.waits == [0.5, 0.5]


def test_a_kind_that_cannot_be_watched_is_logged_at_first_and_repeatedly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        world, _ = watched(Scripted([Transient("403 Forbidden: nodes")]), 21)
    assert [record.getMessage() for record in caplog.records] == [
        "Node: cannot be watched: 403 Forbidden: nodes"
    ] * 3
    assert "Node" in world.missing


def test_a_kind_without_its_crd_is_up_to_date_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        world, stop = watched(Scripted([NotServed("404")]), 5, NODEPOOLS)
    assert "NodePool" not in world.missing
    assert [record.getMessage() for record in caplog.records] == [
        "NodePool is not installed, looking again every 10 s"
    ]
    assert all(8 <= wait <= 10 for wait in stop.waits)


def test_a_missing_kind_that_a_cluster_may_do_without_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        world, _ = watched(Scripted([NotServed("404")]), 5, REQUESTS)
    assert "ProvisioningRequest" not in world.missing
    assert not caplog.records


def test_a_built_in_kind_that_is_not_served_does_not_count_as_empty() -> None:
    world, _ = watched(Scripted([NotServed("404")]), 2)
    assert "Node" in world.missing


def test_no_snapshot_is_taken_while_a_kind_is_not_up_to_date() -> None:
    world, _ = watched(Scripted([[machine(1)]], [[]]), 1)
    assert world.missing
    assert world.take() is None


def buffer_manifest(**spec: Any) -> Manifest:
    about = {"name": "room", "namespace": "default", "creationTimestamp": "2026-11-21T08:00:00Z"}
    return {"metadata": about, "spec": spec}


def test_an_older_version_of_a_kind_is_watched_where_the_newer_one_is_not_served() -> None:
    server = Scripted([NotServed("404"), [buffer_manifest(replicas=1)]], [[], []])
    world, _ = watched(server, 2, CAPACITY_BUFFERS)
    assert server.paths == list(CAPACITY_BUFFERS.paths)
    assert "CapacityBuffer" not in world.missing
    assert set(world._mirrors["capacitybuffers"].objects) == {"default/room"}


@dataclass
class Upgraded(Scripted):
    """Serves one version of CapacityBuffers, and only the other one once the first has been watched."""

    served: str = "v1alpha1"

    def pages(self, path: str, selector: str = "") -> Iterator[dict[str, Any]]:
        if self.served not in path:
            raise NotServed("404")
        yield from super().pages(path, selector)

    def stream(self, path: str, query: str, *, read_seconds: float) -> Iterator[bytes]:
        if self.served not in path:
            raise NotServed("404")
        self.served = "v1beta1"
        return super().stream(path, query, read_seconds=read_seconds)


def test_objects_of_a_kind_stay_while_its_crd_changes_to_another_version() -> None:
    server = Upgraded([[buffer_manifest(replicas=1)]], [[], []])
    world, stop = watched(server, 2, CAPACITY_BUFFERS)
    assert server.paths == list(reversed(CAPACITY_BUFFERS.paths))
    assert all(wait < 1 for wait in stop.waits), "meanwhile it did not count as absent"
    assert set(world._mirrors["capacitybuffers"].objects) == {"default/room"}


def test_a_kind_that_others_install_may_be_absent_silently(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        world, _ = watched(Scripted([NotServed("404")]), 5, CAPACITY_BUFFERS)
    assert caplog.records == []
    assert "CapacityBuffer" not in world.missing


def test_workloads_are_read_only_while_a_buffer_refers_to_one_of_their_kind() -> None:
    server = Scripted([[]], [[]])
    world, stop = World(SystemClock(), Pace()), Stop(2)
    Watch(DEPLOYMENTS, server, world).run(stop)
    assert server.listed == 0
    assert "Deployment" not in world.missing

    world.put(CAPACITY_BUFFERS, [buffer_manifest(scalableRef={"kind": "Deployment", "name": "web"})])
    assert "Deployment" in world.missing, "no snapshot may be taken before they have been listed"
    assert "StatefulSet" in world.missing, "it was never watched in this test"
    Watch(DEPLOYMENTS, server, world).run(Stop(1))
    assert server.listed == 1
    assert "Deployment" not in world.missing

    world.put(CAPACITY_BUFFERS, [buffer_manifest(podTemplateRef={"name": "room"}, replicas=1)])
    Watch(DEPLOYMENTS, server, world).run(Stop(1))
    assert server.listed == 1


def test_workloads_of_every_kind_are_read_while_a_buffer_refers_to_a_custom_resource() -> None:
    world = World(SystemClock(), Pace())
    rollout = {"apiGroup": "argoproj.io", "kind": "Rollout", "name": "web"}
    world.put(CAPACITY_BUFFERS, [buffer_manifest(scalableRef=rollout)])
    assert {"Deployment", "ReplicaSet", "StatefulSet", "Job"} <= set(world.missing)


def test_a_buffer_that_no_api_server_accepts_is_left_out() -> None:
    server = Scripted([[buffer_manifest(scalableRef="web")]], [[]])
    world, _ = watched(server, 1, CAPACITY_BUFFERS)
    assert world._mirrors["capacitybuffers"].objects == {}


def test_a_kind_that_an_earlier_releases_roles_do_not_grant_counts_as_empty(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        world, _ = watched(
            Scripted([Transient("403 Forbidden: podtemplates", "Forbidden")]), 3, POD_TEMPLATES
        )
    assert "PodTemplate" not in world.missing
    (reported,) = [record.getMessage() for record in caplog.records]
    assert reported.startswith("PodTemplate may not be read until this release's roles are applied")


def test_objects_stay_while_the_roles_that_grant_them_are_replaced() -> None:
    refused = Transient("403 Forbidden: capacitybuffers", "Forbidden")
    server = Scripted([[buffer_manifest(replicas=1)], refused], [[]])
    world, stop = watched(server, 5, CAPACITY_BUFFERS)
    assert "CapacityBuffer" in world.missing, "no snapshot may be taken without them"
    assert all(wait < 8 for wait in stop.waits), "they are looked for again soon"
    assert set(world._mirrors["capacitybuffers"].objects) == {"default/room"}


def test_a_kind_that_roles_no_longer_grant_counts_as_empty_in_the_end() -> None:
    refused = Transient("403 Forbidden: capacitybuffers", "Forbidden")
    server = Scripted([[buffer_manifest(replicas=1)], refused], [[]])
    world, _ = watched(server, 12, CAPACITY_BUFFERS)
    assert "CapacityBuffer" not in world.missing
    assert world._mirrors["capacitybuffers"].objects == {}


def test_devices_are_read_only_while_a_pod_claims_any() -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    pod = deployment_pod(1, rolled(1), resourceClaims=claims)
    server = Scripted([[]], [[]])
    world = World(SystemClock(), Pace())
    Watch(SLICES, server, world).run(Stop(2))
    assert (server.listed, "ResourceSlice" in world.missing) == (0, False)

    world.put(PODS, [pod])
    assert "ResourceSlice" in world.missing, "no snapshot may be taken before they have been listed"
    Watch(SLICES, server, world).run(Stop(1))
    assert (server.listed, "ResourceSlice" in world.missing) == (1, False)

    world.drop(PODS, pod)
    assert not world.needs(SLICES)


def test_devices_are_read_in_every_version_of_their_api() -> None:
    versions = [path.split("/")[3] for path in SLICES.paths]
    assert versions == ["v1", "v1beta2", "v1beta1"]
