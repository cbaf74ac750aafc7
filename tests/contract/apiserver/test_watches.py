"""Lists, pages, selectors and watches with the official client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import watch
from kubernetes.client import ApiException

from nodesmith_local.apiserver import ApiServer
from tests.contract.servers import Server, in_memory
from tests.patience import patient_seconds

WATCH: Any = watch.Watch  # the client's watch has no types


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"a": "1"}}


def timeout() -> str:
    """Return the option after which the server ends a watch: later on a busy machine, so that all events arrive."""
    return f"timeoutSeconds={patient_seconds(1)}"


def seen(server: Server, path: str) -> list[tuple[str, str]]:
    return [(each["type"], each["object"]["metadata"].get("name", "")) for each in server.events(path)]


def test_a_watch_from_a_list_misses_nothing_and_repeats_nothing(core: Any, ns: str) -> None:
    core.create_namespaced_config_map(ns, config_map("before"))
    version = core.list_namespaced_config_map(ns).metadata.resource_version
    core.create_namespaced_config_map(ns, config_map("after"))
    core.patch_namespaced_config_map("after", ns, {"data": {"a": "2"}})
    core.delete_namespaced_config_map("before", ns)

    stream = WATCH().stream(
        core.list_namespaced_config_map, ns, resource_version=version, timeout_seconds=patient_seconds(1)
    )

    assert [(each["type"], each["object"].metadata.name) for each in stream] == [
        ("ADDED", "after"),
        ("MODIFIED", "after"),
        ("DELETED", "before"),
    ]


def test_a_watch_without_a_version_starts_with_the_existing_objects(
    core: Any, server: Server, ns: str
) -> None:
    core.create_namespaced_config_map(ns, config_map("one"))

    assert seen(server, f"/api/v1/namespaces/{ns}/configmaps?watch=1&{timeout()}") == [("ADDED", "one")]


def test_an_open_watch_receives_later_writes(core: Any, ns: str) -> None:
    stream = WATCH().stream(core.list_namespaced_config_map, ns, timeout_seconds=10)
    core.create_namespaced_config_map(ns, config_map("live"))

    assert next(stream)["object"].metadata.name == "live"


def test_a_watch_reports_an_object_that_no_longer_matches_as_deleted(
    core: Any, server: Server, ns: str
) -> None:
    version = core.list_namespaced_config_map(ns).metadata.resource_version
    core.create_namespaced_config_map(ns, config_map("a", tier="web"))
    core.create_namespaced_config_map(ns, config_map("b", tier="db"))
    core.patch_namespaced_config_map("a", ns, {"metadata": {"labels": {"tier": "db"}}})
    core.patch_namespaced_config_map("b", ns, {"metadata": {"labels": {"tier": "web"}}})

    path = f"/api/v1/namespaces/{ns}/configmaps?watch=1&{timeout()}&labelSelector=tier%3Dweb"
    assert seen(server, f"{path}&resourceVersion={version}") == [
        ("ADDED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
    ]


def test_a_compacted_version_is_410_and_a_new_list_recovers(
    core: Any, server: Server, ns: str, forget: Callable[[], None]
) -> None:
    for name in ("one", "two"):
        core.create_namespaced_config_map(ns, config_map(name))
    page = core.list_namespaced_config_map(ns, limit=1).metadata
    core.create_namespaced_config_map(ns, config_map("three"))
    forget()

    path = f"/api/v1/namespaces/{ns}/configmaps"
    (error,) = server.events(f"{path}?watch=1&{timeout()}&resourceVersion={page.resource_version}")
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert error["object"]["message"].startswith(f"too old resource version: {page.resource_version} (")
    code, status = server.call("GET", path, limit="1", **{"continue": page._continue})
    assert (code, status["reason"]) == (410, "Expired")

    newer = core.list_namespaced_config_map(ns).metadata.resource_version
    core.create_namespaced_config_map(ns, config_map("four"))
    assert seen(server, f"{path}?watch=1&{timeout()}&resourceVersion={newer}") == [("ADDED", "four")]


@pytest.mark.in_memory_only(
    "a real server remembers nothing of before its start: the watch above is what happens then"
)
def test_watches_resume_on_a_restarted_server_with_the_same_store(
    core: Any, api_server: ApiServer, ns: str
) -> None:
    core.create_namespaced_config_map(ns, config_map("before"))
    version = core.list_namespaced_config_map(ns).metadata.resource_version
    api_server.stop()

    with ApiServer(now=api_server.store.now, store=api_server.store) as again:
        after = config_map("after")
        again.store.create("configmaps", {**after, "metadata": {"name": "after", "namespace": ns}})
        path = f"/api/v1/namespaces/{ns}/configmaps?watch=1&timeoutSeconds=1&resourceVersion={version}"
        assert seen(in_memory(again), path) == [("ADDED", "after")]


@pytest.mark.in_memory_only("a real server keeps quiet until its revision gets there")
def test_a_version_from_before_a_fresh_start_is_410(server: Server) -> None:
    (error,) = server.events("/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=1000000")

    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)


@pytest.mark.in_memory_only("how a real server stops is its own affair; e2e restarts it")
def test_stopping_the_server_ends_its_watches(server: Server, api_server: ApiServer) -> None:
    lines: list[bytes] = []
    with server.open("/api/v1/configmaps?watch=1&timeoutSeconds=30") as answer:
        api_server.stop()
        lines.extend(answer)

    assert lines == []


@pytest.mark.in_memory_only("a real server sends one a minute, which is too long to wait for")
def test_bookmarks_are_sent_on_request(core: Any, server: Server, ns: str, own: Callable[[str], str]) -> None:
    core.create_namespaced_config_map(ns, config_map("one"))
    version = core.list_namespaced_config_map(ns).metadata.resource_version
    core.create_namespaced_config_map("default", config_map(own("elsewhere")))

    path = f"/api/v1/namespaces/{ns}/configmaps?watch=1&timeoutSeconds=2&resourceVersion={version}"
    events = list(server.events(f"{path}&allowWatchBookmarks=true"))

    assert {each["type"] for each in events} == {"BOOKMARK"}
    assert events[0]["object"]["kind"] == "ConfigMap"
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) > int(version)


def test_initial_events_end_with_a_marked_bookmark(core: Any, server: Server, ns: str) -> None:
    core.create_namespaced_config_map(ns, config_map("one"))

    path = f"/api/v1/namespaces/{ns}/configmaps?watch=1&{timeout()}&allowWatchBookmarks=true"
    events = list(server.events(f"{path}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"))

    assert [each["type"] for each in events[:2]] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize(
    ("query", "types"),
    [
        ("", ["ADDED"]),
        ("resourceVersion=0", ["ADDED"]),
        ("resourceVersion=0&allowWatchBookmarks=true", ["ADDED", "BOOKMARK"]),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", ["ADDED"]),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", []),
    ],
)
def test_the_options_of_a_watch_determine_its_first_events(
    core: Any, server: Server, ns: str, query: str, types: list[str]
) -> None:
    core.create_namespaced_config_map(ns, config_map("one"))

    events = server.events(f"/api/v1/namespaces/{ns}/configmaps?watch=1&{timeout()}&{query}")

    assert [each["type"] for each in events][:2] == types


_FORBIDDEN = "Forbidden: resourceVersionMatch is forbidden"


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("resourceVersionMatch=Exact", 422, f"{_FORBIDDEN} unless resourceVersion is provided"),
        ("resourceVersionMatch=New&resourceVersion=1", 422, 'Unsupported value: "New": supported values: "Exact"'),
        ("resourceVersion=new", 400, 'Invalid value: "new": strconv.ParseUint: parsing "new": invalid syntax'),
        ("limit=few", 400, 'strconv.ParseInt: parsing "few": invalid syntax'),
        ("watch=1&sendInitialEvents=true", 422, "requires setting resourceVersionMatch to NotOlderThan"),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422, f"{_FORBIDDEN} for watch unless sendInitialEvents is"),
        ("resourceVersion=1000000000", 504, "Too large resource version: 1000000000, current: "),
    ],
)  # fmt: skip
def test_invalid_list_and_watch_options_are_refused(
    server: Server, query: str, code: int, words: str
) -> None:
    found, status = server.call("GET", f"/api/v1/configmaps?{query}")

    assert found == code
    assert words in status["message"]


def test_the_watch_parameter_on_a_single_object_is_ignored(core: Any, server: Server, ns: str) -> None:
    core.create_namespaced_config_map(ns, config_map("one"))

    code, found = server.call("GET", f"/api/v1/namespaces/{ns}/configmaps/one", watch="1", timeoutSeconds="1")

    assert (code, found["kind"], found["metadata"]["name"]) == (200, "ConfigMap", "one")


def test_items_in_a_list_of_a_built_in_kind_have_no_kind(core: Any, server: Server, ns: str) -> None:
    core.create_namespaced_config_map(ns, config_map("one"))

    _, found = server.call("GET", f"/api/v1/namespaces/{ns}/configmaps")

    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert set(found["items"][0]) == {"metadata", "data"}


def test_a_watch_ends_after_its_timeout(core: Any, ns: str) -> None:
    assert list(WATCH().stream(core.list_namespaced_secret, ns, timeout_seconds=1)) == []


def test_pages_form_a_consistent_list_as_of_the_first_page(core: Any, ns: str) -> None:
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


def test_an_invalid_continue_token_is_400(core: Any, ns: str) -> None:
    with pytest.raises(ApiException) as error:
        core.list_namespaced_config_map(ns, limit=3, _continue="long-gone")

    assert error.value.status == 400
    message = json.loads(error.value.body or "")["message"]
    assert message.startswith("invalid continue token: continue key is not valid: ")


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
def test_lists_can_be_filtered_by_label_selectors(
    core: Any, selector: str, names: list[str], ns: str
) -> None:
    core.create_namespaced_config_map(ns, config_map("a", tier="web"))
    core.create_namespaced_config_map(ns, config_map("b", tier="db", zone="x"))
    core.create_namespaced_config_map(ns, config_map("c"))

    found = core.list_namespaced_config_map(ns, label_selector=selector).items

    assert [each.metadata.name for each in found] == names


def test_pods_can_be_selected_by_node_and_phase(core: Any, ns: str, node_name: str) -> None:
    spec = {"containers": [{"name": "c", "image": "i:1"}]}
    here = {**spec, "nodeName": node_name}
    core.create_namespaced_pod(ns, {"metadata": {"name": "here"}, "spec": here})
    core.create_namespaced_pod(ns, {"metadata": {"name": "nowhere"}, "spec": spec})

    def found(fields: str) -> list[str]:
        everywhere = core.list_pod_for_all_namespaces(field_selector=fields).items
        return [each.metadata.name for each in everywhere]

    assert found(f"spec.nodeName={node_name},status.phase!=Succeeded,status.phase!=Failed") == ["here"]
    assert found(f"spec.nodeName=,metadata.namespace={ns}") == ["nowhere"]
    assert found(f"metadata.namespace={ns},metadata.name!=here") == ["nowhere"]
    assert found(f"metadata.namespace={ns},status.podIPs=10.0.0.1") == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v1/pods?fieldSelector=spec.image%3Dx", "field label not supported: spec.image"),
        ("/api/v1/nodes?fieldSelector=spec.image%3Dx", "field label not supported: spec.image"),
        (
            "/apis/apps/v1/deployments?fieldSelector=spec.replicas%3D1",
            '"spec.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            "/api/v1/pods?fieldSelector=metadata.name",
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
        ("/api/v1/pods?labelSelector=a+in+b", "unable to parse requirement: "),
        ("/api/v1/pods?labelSelector=!", "unable to parse requirement: "),
    ],
)
def test_an_unsupported_selector_is_400_with_the_reason(server: Server, path: str, words: str) -> None:
    code, status = server.call("GET", path)

    assert (code, status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith(words)
