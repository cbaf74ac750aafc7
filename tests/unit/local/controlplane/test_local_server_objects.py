"""Objects over HTTP behave like those in process: writes, reads and watches."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty
from typing import Any

import pytest

from nodesmith.errors import Transient
from nodesmith_local.apiserver import ApiError, ApiServer, Store, Write
from nodesmith_local.apiserver.storage.history import Change, Watcher
from nodesmith_local.backends.objects import Objects
from nodesmith_local.backends.serverobjects import ServerObjects
from tests import builders
from tests.servers.served import CRDS, now

CRD = "customresourcedefinitions.apiextensions.k8s.io"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=CRDS, now=now) as server:
        yield server


@pytest.fixture
def objects(server: ApiServer) -> Objects:
    return ServerObjects(server.url, "", "anything")


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [container]},
    }


def upcoming(watcher: Watcher, count: int) -> list[tuple[str, str, Any]]:
    """Return the next changes: verb, name, and the earlier value of the label `step`."""
    try:
        changes = [watcher.queue.get(timeout=60) for _ in range(count)]
    except Empty:
        raise AssertionError(f"fewer than {count} changes") from None
    return [_summary(change) for change in changes if change]


def _summary(change: Change) -> tuple[str, str, Any]:
    before = change.before.object["metadata"].get("labels", {}).get("step") if change.before else None
    return change.verb, f"{change.after.object['kind']} {change.after.object['metadata']['name']}", before


def test_objects_written_over_http_are_in_the_store(server: ApiServer, objects: Objects) -> None:
    created = objects.create("pods", pod("web", labels={"app": "web"}))
    assert created == server.store.get("pods", "web", "default")
    objects.patch("pods", "web", {"metadata": {"labels": {"app": None, "tier": "front"}}}, "default")
    objects.patch("pods", "web", {"status": {"phase": "Running"}}, "default", subresource="status")
    found = objects.get("pods", "web", "default")
    assert (found["metadata"]["labels"], found["status"]["phase"]) == ({"tier": "front"}, "Running")
    objects.delete("pods", "web", "default")
    assert server.store.find("pods", "web", "default") is objects.find("pods", "web", "default") is None


def test_a_list_is_the_same_as_in_process_including_kinds(server: ApiServer, objects: Objects) -> None:
    for name, namespace, app in (("b", "default", "x"), ("a", "kube-system", "x"), ("c", "default", "y")):
        server.store.create("pods", pod(name, namespace=namespace, labels={"app": app}))
    for asked in ({}, {"namespace": "default"}, {"labels": "app=x"}, {"fields": "metadata.name=c"}):
        assert objects.list("pods", **asked) == server.store.list("pods", **asked)
    assert len(objects.list("pods", "default", labels="app=x")) == 1


@pytest.mark.parametrize("plural", ["nodepools", "nodepools.karpenter.sh"])
def test_a_custom_resource_is_found_by_its_plural(objects: Objects, plural: str) -> None:
    objects.create(plural, builders.nodepool_manifest("general"))
    assert objects.list(plural)[0]["metadata"]["name"] == "general"


def test_a_kind_that_came_later_is_found_too(server: ApiServer, objects: Objects) -> None:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    names = {"kind": "Boat", "plural": "boats"}
    spec = {"group": "sea.example", "names": names, "scope": "Cluster", "versions": [version]}
    with pytest.raises(LookupError, match="'boats'"):
        objects.list("boats")
    server.store.create(CRD, {"metadata": {"name": "boats.sea.example"}, "spec": spec})
    objects.create("boats", {"apiVersion": "sea.example/v1", "kind": "Boat", "metadata": {"name": "ark"}})
    assert [boat["kind"] for boat in objects.list("boats")] == ["Boat"]
    assert objects.registry.of({"apiVersion": "sea.example/v1", "kind": "Boat"}).name == "boats.sea.example"


@pytest.mark.parametrize("namespace", ["default", "nowhere"])
def test_a_refusal_is_the_same_error_as_in_process(
    server: ApiServer, objects: Objects, namespace: str
) -> None:
    broken = {**pod("web", namespace=namespace), "spec": {"containers": []}}
    refusals = []
    for each in (objects, server.store):
        with pytest.raises(ApiError) as refused:
            each.create("pods", broken)
        refusals.append(refused.value.status())
    assert refusals[0] == refusals[1]
    assert refusals[0]["code"] == (422 if namespace == "default" else 404)


def test_applying_an_unknown_field_is_refused(server: ApiServer, objects: Objects) -> None:
    manifest = {**builders.nodepool_manifest("general"), "metadata": {"name": "general"}, "sepc": {}}
    for each in (objects, server.store):
        with pytest.raises(ApiError, match=r"\.sepc: field not declared in schema"):
            each.apply("nodepools", manifest, write=Write(manager="nodesmith", force=True))


def test_a_field_of_another_manager_is_taken_only_by_force(server: ApiServer, objects: Objects) -> None:
    server.store.apply("pods", pod("web", labels={"app": "web"}), write=Write(manager="kubectl"))
    ours = pod("web", labels={"app": "other"})
    with pytest.raises(ApiError, match="conflict"):
        objects.apply("pods", ours, write=Write(manager="nodesmith"))
    objects.apply("pods", ours, write=Write(manager="nodesmith", force=True))
    assert objects.get("pods", "web", "default")["metadata"]["labels"] == {"app": "other"}


def test_a_watch_reports_changes_from_its_start_with_the_earlier_states(
    server: ApiServer, objects: Objects
) -> None:
    store = server.store
    store.create("pods", pod("early", labels={"step": "1"}))
    watchers = [objects.watch("pods"), store.watch("pods")]
    store.create("pods", pod("late", labels={"step": "1"}))
    store.patch("pods", "early", {"metadata": {"labels": {"step": "2"}}}, "default")
    store.delete("pods", "late", "default")
    expected = [
        ("ADDED", "Pod late", None),
        ("MODIFIED", "Pod early", "1"),
        ("DELETED", "Pod late", "1"),
    ]
    assert [upcoming(watcher, 3) for watcher in watchers] == [expected] * 2
    watchers[0].close()
    assert watchers[0].queue.get(timeout=60) is None


def test_a_watch_misses_nothing_while_the_server_is_away_and_forgets(server: ApiServer) -> None:
    store, port = server.store, int(server.url.rpartition(":")[2])
    for name in ("stays", "changes", "goes"):
        store.create("pods", pod(name, labels={"step": "1"}))
    objects = ServerObjects(server.url, "", "anything")
    watcher = objects.watch("pods")
    server.stop()
    with pytest.raises(Transient, match="GET /api/v1/pods"):
        objects.list("pods")
    store.patch("pods", "changes", {"metadata": {"labels": {"step": "2"}}}, "default")
    store.delete("pods", "goes", "default")
    store.create("pods", pod("comes"))
    store.history.compact()
    with ApiServer(port, now=now, store=store):
        reported = upcoming(watcher, 3)
    assert sorted(reported) == [
        ("ADDED", "Pod comes", None),
        ("DELETED", "Pod goes", "1"),
        ("MODIFIED", "Pod changes", "1"),
    ]
    watcher.close()


def test_a_store_satisfies_the_objects_protocol() -> None:
    objects: Objects = Store(now)
    assert objects.get("namespaces", "default")["kind"] == "Namespace"
