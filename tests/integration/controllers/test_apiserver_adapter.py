"""API server responses and how the adapter handles them."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.apiserver import (
    ApiServer,
    Expired,
    Method,
    NotServed,
    Unfit,
    connect,
    failure,
    read_status,
)
from nodesmith.adapters.kubernetes.cluster import ApiCluster, Observer
from nodesmith.composition.parts import system_time
from nodesmith.errors import Conflict, NodesmithError, Rejected, Transient
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith_local.apiserver import ApiServer as LocalApiServer
from tests.objects.clusters import cluster, deployment_pod, node, rolled
from tests.servers.served import CRDS, created, now


@pytest.fixture
def local() -> Iterator[LocalApiServer]:
    with LocalApiServer(crds=CRDS, now=now) as server:
        yield server


def server_at(url: str) -> ApiServer:
    return ApiServer(connect(url, "", lambda: "token"))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Rejected),
        (401, Transient),
        (403, Transient),
        (409, Conflict),
        (410, Expired),
        (422, Unfit),
        (429, Transient),
        (500, Transient),
        (503, Transient),
    ],
)
def test_each_error_status_has_its_error_type_with_the_servers_message(
    status: int, kind: type[NodesmithError]
) -> None:
    error = failure(status, {"reason": "Odd", "message": "spec.x: no"}, "PATCH /x")
    assert type(error) is kind
    assert str(error) == f"PATCH /x: {status} Odd: spec.x: no"


def test_a_proxys_response_that_is_not_json_is_quoted() -> None:
    assert "<html>bad gateway" in str(failure(502, read_status(b"<html>bad gateway</html>"), "GET /x"))


def test_an_object_that_the_server_refuses_is_rejected_with_the_servers_message(
    local: LocalApiServer,
) -> None:
    broken = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "Bad_Name"},
        "spec": {},
    }
    with pytest.raises(Rejected, match="Bad_Name"):
        ApiCluster(server_at(local.url), system_time).apply_nodeclaim(broken)


def test_a_claim_without_its_crd_is_refused_with_what_to_install() -> None:
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a"}, "spec": {}}
    with LocalApiServer(now=now) as bare, pytest.raises(NotServed, match="install its CRD"):
        ApiCluster(server_at(bare.url), system_time).apply_nodeclaim(claim)


def test_an_unreachable_server_is_transient() -> None:
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        port = placeholder.getsockname()[1]
    with pytest.raises(Transient):
        ApiCluster(server_at(f"http://127.0.0.1:{port}"), system_time).merge_status("NodePool", "default", {})


class Contended(ApiServer):
    """An API server on which another writer wins `times` times."""

    def __init__(self, url: str, times: int) -> None:
        super().__init__(connect(url, "", lambda: "token"))
        self.times = times

    def patch(self, path: str, patch: Mapping[str, Any]) -> dict[str, Any] | None:
        if self.times > 0:
            self.times -= 1
            super().patch(path, {"metadata": {"labels": {"somebody": f"else-{self.times}"}}})
        return super().patch(path, patch)


def test_a_conflicting_write_is_retried_on_the_new_object(local: LocalApiServer) -> None:
    local.store.create("nodes", {"metadata": {"name": "n1"}})
    assert ApiCluster(Contended(local.url, 2), system_time).register_node(
        "n1", NodePatch({"mine": "yes"}, {})
    )
    labels = local.store.get("nodes", "n1")["metadata"]["labels"]
    assert (labels["mine"], labels["somebody"]) == ("yes", "else-0")


def test_a_write_that_always_conflicts_is_transient(local: LocalApiServer) -> None:
    local.store.create("nodes", {"metadata": {"name": "n1"}})
    with pytest.raises(Transient, match="Node/n1"):
        ApiCluster(Contended(local.url, 99), system_time).register_node("n1", NodePatch({"mine": "yes"}, {}))


def test_a_name_that_looks_like_a_path_cannot_reach_other_objects(local: LocalApiServer) -> None:
    local.store.create("nodes", {"metadata": {"name": "n1"}})
    cluster = ApiCluster(server_at(local.url), system_time)
    for name in ("../nodes/n1", "n1?dryRun=All", "x/../n1", "n1#"):
        assert not cluster.register_node(name, NodePatch({"mine": "yes"}))
    assert "mine" not in (local.store.get("nodes", "n1")["metadata"].get("labels") or {})


def test_an_event_about_an_object_with_the_longest_name_is_published(local: LocalApiServer) -> None:
    name = "a" * 199 + "." + "b" * 53
    local.store.create("nodes", {"metadata": {"name": name}})
    ApiCluster(server_at(local.url), system_time).publish([ObjectEvent("Node", name, "Odd", "thing")])
    (event,) = local.store.list("events")
    assert event["involvedObject"]["name"] == name


def test_a_repeated_event_counts_how_often_it_was_sent_because_kubectl_describe_shows_no_later_time_else(
    local: LocalApiServer,
) -> None:
    moments = [datetime(2026, 11, 21, hour, tzinfo=UTC) for hour in (8, 9, 10)]
    times = iter(moments)
    local.store.create("nodes", {"metadata": {"name": "n1"}})
    publisher = ApiCluster(server_at(local.url), lambda: next(times))
    for _ in moments:
        publisher.publish([ObjectEvent("Node", "n1", "DisruptionBlocked", "it is annotated")])
    (event,) = local.store.list("events")
    assert event["count"] == 3
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (
        "2026-11-21T08:00:00Z",
        "2026-11-21T10:00:00Z",
    )


class Counting(ApiServer):
    """An API server that records the writes of Events."""

    def __init__(self, url: str) -> None:
        super().__init__(connect(url, "", lambda: "token"))
        self.writes: list[str] = []

    def ask(
        self, method: Method, path: str, body: Mapping[str, Any], *, read_seconds: float
    ) -> tuple[int, dict[str, Any]]:
        self.writes.append(method)
        return super().ask(method, path, body, read_seconds=read_seconds)

    def patch(self, path: str, patch: Mapping[str, Any]) -> dict[str, Any] | None:
        self.writes.append("PATCH")
        return super().patch(path, patch)


def test_a_process_repeats_its_own_event_in_one_call_and_that_of_another_process_too_from_then_on(
    local: LocalApiServer,
) -> None:
    blocked = [ObjectEvent("Node", "n1", "DisruptionBlocked", "it is annotated")]
    local.store.create("nodes", {"metadata": {"name": "n1"}})
    servers = Counting(local.url), Counting(local.url)
    one, other = (ApiCluster(server, system_time) for server in servers)
    for publisher in (one, one, other, other, one):
        publisher.publish(blocked)
    (event,) = local.store.list("events")
    assert event["count"] == 5
    known, found = ["PATCH"], ["POST", "PATCH", "PATCH"]
    assert servers[1].writes == [*found, *known]
    assert servers[0].writes == ["POST", *known, "PATCH", *found]


def test_an_event_that_has_expired_is_created_again(local: LocalApiServer) -> None:
    local.store.create("nodes", {"metadata": {"name": "n1"}})
    publisher = ApiCluster(server_at(local.url), system_time)
    blocked = [ObjectEvent("Node", "n1", "DisruptionBlocked", "it is annotated")]
    publisher.publish(blocked)
    (event,) = local.store.list("events")
    local.store.delete("events", event["metadata"]["name"], event["metadata"]["namespace"])
    publisher.publish(blocked)
    (again,) = local.store.list("events")
    assert again["count"] == 1


def test_an_observer_reads_every_page_of_every_kind(local: LocalApiServer) -> None:
    made = cluster(20, 1_300, deployments=5)
    for plural, manifests in made.items():
        for manifest in manifests:
            created(local.store, plural, manifest)
    observed = Observer(server_at(local.url)).observe()
    snapshot = decode(encode("c", now(), observed))
    assert len(snapshot.pods) == 1_300
    assert len(snapshot.nodes) == 20
    assert {budget.expected_pods for budget in snapshot.budgets} == {260}
    assert snapshot.problems == ()


def test_an_observer_treats_kinds_without_a_crd_as_empty() -> None:
    with LocalApiServer(now=now) as bare:
        created(bare.store, "nodes", node(1, rolled(1)))
        observed = Observer(server_at(bare.url)).observe()
    assert (len(observed.nodes), list(observed.nodepools)) == (1, [])


def test_an_observer_restarts_an_expired_list(local: LocalApiServer) -> None:
    class Slow(ApiServer):
        expirations = 2

        def pages(self, path: str, selector: str = "") -> Iterator[dict[str, Any]]:
            for page in super().pages(path, selector):
                yield page
                if path == "/api/v1/pods" and self.expirations:
                    self.expirations -= 1
                    raise Expired("too old")

    created(local.store, "pods", deployment_pod(1, rolled(1)))
    observed = Observer(Slow(connect(local.url, "", lambda: "token"))).observe()
    assert len(observed.pods) == 1
