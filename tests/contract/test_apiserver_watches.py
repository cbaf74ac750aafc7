"""Lists, pages, selectors and watches, as the official client uses them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes import watch
from kubernetes.client import ApiException

from nodesmith_cli.local.apiserver import ApiServer
from tests.contract.servers import Server, in_memory

WATCH: Any = watch.Watch  # the client's watch has no types


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"a": "1"}}


def seen(server: Server, path: str) -> list[tuple[str, str]]:
    return [(each["type"], each["object"]["metadata"].get("name", "")) for each in server.events(path)]


def test_a_watch_from_a_list_misses_nothing_and_repeats_nothing(core: Any, ns: str) -> None:
    core.create_namespaced_config_map(ns, config_map("before"))
    version = core.list_namespaced_config_map(ns).metadata.resource_version
    core.create_namespaced_config_map(ns, config_map("after"))
    core.patch_namespaced_config_map("after", ns, {"data": {"a": "2"}})
    core.delete_namespaced_config_map("before", ns)

    stream = WATCH().stream(core.list_namespaced_config_map, ns, resource_version=version, timeout_seconds=1)

    assert [(each["type"], each["object"].metadata.name) for each in stream] == [
        ("ADDED", "after"),
        ("MODIFIED", "after"),
        ("DELETED", "before"),
    ]


def test_a_watch_without_a_version_begins_with_what_is_there(core: Any, server: Server, ns: str) -> None:
    core.create_namespaced_config_map(ns, config_map("one"))

    assert seen(server, f"/api/v1/namespaces/{ns}/configmaps?watch=1&timeoutSeconds=1") == [("ADDED", "one")]


def test_what_is_written_while_a_watch_is_open_arrives(core: Any, ns: str) -> None:
    stream = WATCH().stream(core.list_namespaced_config_map, ns, timeout_seconds=10)
    core.create_namespaced_config_map(ns, config_map("live"))

    assert next(stream)["object"].metadata.name == "live"


def test_an_object_that_leaves_the_selection_is_deleted_for_the_watcher(
    core: Any, server: Server, ns: str
) -> None:
    version = core.list_namespaced_config_map(ns).metadata.resource_version
    core.create_namespaced_config_map(ns, config_map("a", tier="web"))
    core.create_namespaced_config_map(ns, config_map("b", tier="db"))
    core.patch_namespaced_config_map("a", ns, {"metadata": {"labels": {"tier": "db"}}})
    core.patch_namespaced_config_map("b", ns, {"metadata": {"labels": {"tier": "web"}}})

    path = f"/api/v1/namespaces/{ns}/configmaps?watch=1&timeoutSeconds=1&labelSelector=tier%3Dweb&resourceVersion={version}"
    assert seen(server, path) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]


@pytest.mark.in_memory_only("TODO")
def test_a_version_that_is_forgotten_is_410_and_a_new_list_helps(
    core: Any, server: Server, api_server: ApiServer, ns: str
) -> None:
    version = core.list_namespaced_config_map(ns).metadata.resource_version
    core.create_namespaced_config_map(ns, config_map("one"))
    api_server.store.history.compact()

    with pytest.raises(ApiException) as error:
        list(WATCH().stream(core.list_namespaced_config_map, ns, resource_version=version, timeout_seconds=1))
    assert error.value.status == 410

    newer = core.list_namespaced_config_map(ns).metadata.resource_version
    path = f"/api/v1/namespaces/{ns}/configmaps?watch=1&timeoutSeconds=1&resourceVersion={newer}"
    assert seen(server, path) == []


@pytest.mark.in_memory_only("TODO")
def test_a_server_that_comes_back_on_the_same_store_carries_on(
    core: Any, server: Server, api_server: ApiServer, ns: str
) -> None:
    core.create_namespaced_config_map(ns, config_map("before"))
    version = core.list_namespaced_config_map(ns).metadata.resource_version
    api_server.stop()

    with ApiServer(now=api_server.store.now, store=api_server.store) as again:
        again.store.create("configmaps", config_map("after"))
        path = f"/api/v1/namespaces/{ns}/configmaps?watch=1&timeoutSeconds=1&resourceVersion={version}"
        assert seen(in_memory(again), path) == [("ADDED", "after")]


@pytest.mark.in_memory_only("TODO")
def test_stopping_the_server_ends_its_watches(server: Server, api_server: ApiServer) -> None:
    lines: list[bytes] = []
    with server.open("/api/v1/configmaps?watch=1&timeoutSeconds=30") as answer:
        api_server.stop()
        lines.extend(answer)

    assert lines == []


def test_bookmarks_come_to_those_who_ask(core: Any, server: Server, ns: str) -> None:
    core.create_namespaced_config_map(ns, config_map("one"))
    version = core.list_namespaced_config_map(ns).metadata.resource_version
    core.create_namespace({"metadata": {"name": "elsewhere"}})

    path = f"/api/v1/namespaces/{ns}/configmaps?watch=1&timeoutSeconds=2&allowWatchBookmarks=true&resourceVersion={version}"
    bookmarks = [each for each in server.events(path) if each["type"] == "BOOKMARK"]

    assert bookmarks
    assert int(bookmarks[-1]["object"]["metadata"]["resourceVersion"]) > int(version)


def test_initial_events_end_with_a_marked_bookmark(core: Any, server: Server, ns: str) -> None:
    core.create_namespaced_config_map(ns, config_map("one"))

    path = f"/api/v1/namespaces/{ns}/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true"
    events = list(server.events(f"{path}&resourceVersionMatch=NotOlderThan"))

    assert [each["type"] for each in events[:2]] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_ends_when_its_time_is_up(core: Any, ns: str) -> None:
    assert list(WATCH().stream(core.list_namespaced_secret, ns, timeout_seconds=1)) == []


def test_pages_together_are_the_list_as_it_was_when_the_first_was_read(core: Any, ns: str) -> None:
    for number in range(7):
        core.create_namespaced_config_map(ns, config_map(f"c{number}"))

    first = core.list_namespaced_config_map(ns, limit=3)
    core.delete_namespaced_config_map("c5", ns)
    second = core.list_namespaced_config_map(ns, limit=3, _continue=first.metadata._continue)
    third = core.list_namespaced_config_map(ns, limit=3, _continue=second.metadata._continue)

    assert first.metadata.remaining_item_count == 4
    names = [each.metadata.name for page in (first, second, third) for each in page.items]
    assert names == [f"c{number}" for number in range(7)]
    assert third.metadata._continue is None


def test_a_continue_token_that_nobody_knows_is_410(core: Any, ns: str) -> None:
    with pytest.raises(ApiException) as error:
        core.list_namespaced_config_map(ns, limit=3, _continue="long-gone")

    assert error.value.status == 410


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=web", ["a"]),
        ("tier==web", ["a"]),
        ("tier!=web", ["b", "c"]),
        ("tier in (web, db)", ["a", "b"]),
        ("tier notin (web,db)", ["c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier,zone=x", ["b"]),
    ],
)
def test_label_selectors_select(core: Any, selector: str, names: list[str], ns: str) -> None:
    core.create_namespaced_config_map(ns, config_map("a", tier="web"))
    core.create_namespaced_config_map(ns, config_map("b", tier="db", zone="x"))
    core.create_namespaced_config_map(ns, config_map("c"))

    found = core.list_namespaced_config_map(ns, label_selector=selector).items

    assert [each.metadata.name for each in found] == names


def test_pods_are_found_by_their_node_and_phase(core: Any, ns: str, node_name: str) -> None:
    spec = {"containers": [{"name": "c", "image": "i:1"}]}
    core.create_namespaced_pod(ns, {"metadata": {"name": "here"}, "spec": {**spec, "nodeName": node_name}})
    core.create_namespaced_pod(ns, {"metadata": {"name": "nowhere"}, "spec": spec})

    fields = f"spec.nodeName={node_name},status.phase!=Succeeded,status.phase!=Failed"
    assert [each.metadata.name for each in core.list_pod_for_all_namespaces(field_selector=fields).items] == [
        "here"
    ]
    unbound = core.list_pod_for_all_namespaces(field_selector="spec.nodeName=").items
    assert [each.metadata.name for each in unbound] == ["nowhere"]


@pytest.mark.parametrize("selector", ["status.podIPs=1", "spec.image=x"])
def test_a_field_that_cannot_be_selected_by_is_400_and_named(core: Any, selector: str) -> None:
    with pytest.raises(ApiException) as error:
        core.list_pod_for_all_namespaces(field_selector=selector)

    assert error.value.status == 400
    assert selector.partition("=")[0] in json.loads(error.value.body or "")["message"]
