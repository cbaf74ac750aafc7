"""Two clusters on real control planes share one set of functions, and events in one do not affect the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import Credentials

from nodesmith.adapters.aws.eks import eks_token
from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.errors import NodesmithError
from nodesmith.settings import role_name
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.aws.instances.eventbus import announce_interruption
from tests.e2e.conftest import UNUSED, Alone, Figures
from tests.e2e.deployed.access import assume
from tests.e2e.systems.region import REGION, start_region
from tests.e2e.systems.system import CLUSTER, HURRIED, ClusterSide, Waited
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement

pytestmark = pytest.mark.slow
SIZES = requirement("node.kubernetes.io/instance-type", "c6a.large", "c6a.xlarge", "m6a.large")
SPOT = requirement("karpenter.sh/capacity-type", "spot")
CLAIMS, POOL = "/apis/karpenter.sh/v1/nodeclaims", "/apis/karpenter.sh/v1/nodepools/default"
AWAY_SECONDS = 120.0
PODS = 4
SLOWER = 2.0
"""How many times longer than usual new pods may wait while the other cluster's API server is down."""


@pytest.fixture
def clusters(folder: Path, record_property: Any) -> Iterator[tuple[ClusterSide, ClusterSide]]:
    """Yield two clusters of one region, each with a NodePool. No function may call AWS without a grant."""
    clock = LocalClock(HURRIED)
    names = (CLUSTER, f"{CLUSTER}-2")
    with ExitStack() as stack:
        first, second = (ClusterSide(folder / name, clock, name=name) for name in names)
        deployed = start_region(stack, folder, clock, [first, second])
        for each, after in ((first, "10s"), (second, "Never")):  # so that the second stays exactly as it is
            pool = nodepool(requirements=[SIZES, SPOT])
            pool["spec"]["disruption"] = {"consolidateAfter": after}
            each.apply(nodeclass(each.name), pool)
        yield first, second
        record_property(UNUSED, deployed.unused())
        assert deployed.ungranted() == []


def test_events_in_one_of_two_clusters_do_not_affect_the_other(
    clusters: tuple[ClusterSide, ClusterSide], figures: Figures, alone: Alone
) -> None:
    first, second = clusters
    with alone():
        usual = first_pods_run_in_both(first, second)
    figures("usual-s", usual)
    an_interruption_in_one_is_survived(first, second)
    one_is_consolidated(first, second)
    with alone():
        meanwhile = pods_run_while_the_others_api_server_is_away(first, second)
    figures("while-other-is-away-s", meanwhile)
    assert meanwhile <= SLOWER * usual
    no_function_may_do_in_one_cluster_what_it_may_in_its_session_for_the_other(first, second)


def first_pods_run_in_both(*clusters: ClusterSide) -> float:
    """Return the longest time that a pod waited, in clock seconds."""
    for each in clusters:
        each.until_nodepools_ready()
    with ExitStack() as stack:
        seen = [stack.enter_context(each.watched_pods()) for each in clusters]
        for each in clusters:
            each.apply(deployment("web", PODS))
        for each in clusters:
            each.until_running(PODS, seconds=120)
            each.until_settled()
    for each in clusters:
        for instance in each.instances():
            assert instance["VpcId"] == each.aws.networks[each.name].vpc_id
        assert {node_instance(node) for node in each.nodes()} == {i["InstanceId"] for i in each.instances()}
    return max(longest(each) for each in seen)


def an_interruption_in_one_is_survived(first: ClusterSide, second: ClusterSide) -> None:
    """Interrupt a node of the first cluster; the second must stay exactly as it is."""
    before, victim = everything(second), first.claims()[0]
    instance = victim["status"]["providerID"].rpartition("/")[2]
    announce_interruption(first.aws.client("events"), REGION, instance, first.clock.now())
    first.until(
        "its node is gone",
        lambda: victim["metadata"]["name"] not in {c["metadata"]["name"] for c in first.claims()},
        seconds=120,
    )
    first.until_running(PODS, seconds=120)
    first.until_settled()
    assert everything(second) == before


def one_is_consolidated(first: ClusterSide, second: ClusterSide) -> None:
    """Remove most pods of the first cluster, so that its nodes follow; the second must stay exactly as it is."""
    before, nodes = everything(second), len(first.nodes())
    first.kubectl("scale", "deployment", "web", "--replicas=1")
    first.until("it has one node", lambda: len(first.nodes()) == 1 < nodes, seconds=120)
    first.until_running(1, seconds=60)
    first.until_settled()
    assert everything(second) == before


def pods_run_while_the_others_api_server_is_away(first: ClusterSide, second: ClusterSide) -> float:
    """Return how long the second cluster's new pods waited while the first cluster's API server was down."""
    back_at = first.clock.now() + timedelta(seconds=AWAY_SECONDS)
    first.plane.kill_api_server()
    with second.watched_pods() as seen:
        second.apply(deployment("meanwhile", PODS))
        second.until_running(PODS, "meanwhile", seconds=60)
    first.clock.wait(threading.Event(), (back_at - first.clock.now()).total_seconds())
    first.plane.start_api_server()
    first.apply(deployment("after", 1))
    first.until_running(1, "after", seconds=120)
    return longest(seen)


def no_function_may_do_in_one_cluster_what_it_may_in_its_session_for_the_other(
    first: ClusterSide, second: ClusterSide
) -> None:
    """Kubernetes identifies the session by its cluster's name, and grants the other cluster's session nothing."""
    role = f"arn:aws:iam::123456789012:role/{role_name('lifecycle', REGION)}"
    for home, other in ((first, second), (second, first)):
        session = assume(home.aws.client("sts"), role, home.name)
        signer = Credentials(session.access_key, session.secret, session.token)
        assert server_as(signer, home).get(POOL), "its own cluster admits it"
        claim = f"{CLAIMS}/{other.claims()[0]['metadata']['name']}"
        foreign = server_as(signer, other)
        for what, attempt in (("get", foreign.get), ("delete", foreign.delete)):
            refused = (
                f'403 Forbidden.*User "nodesmith:writer:{home.name}" cannot {what} resource "nodeclaims"'
            )
            with pytest.raises(NodesmithError, match=refused):
                attempt(claim)


def server_as(signer: Credentials, cluster: ClusterSide) -> ApiServer:
    """Return access to a cluster's API server with `signer`'s tokens for that cluster."""
    plane, token = cluster.plane, eks_token(signer, cluster.name, REGION)
    return ApiServer(connect(plane.url, plane.ca_bundle, lambda: token))


def everything(cluster: ClusterSide) -> Mapping[str, Any]:
    """Return everything that must not change: the specs of all NodeClaims, nodes and pods, by kind and UID."""
    lists = {"claims": cluster.claims(), "nodes": cluster.nodes(), "pods": cluster.pods()}
    return {
        kind: {
            each["metadata"]["uid"]: (each["spec"], each["metadata"].get("deletionTimestamp"))
            for each in there
        }
        for kind, there in lists.items()
    }


def node_instance(node: Mapping[str, Any]) -> str:
    return str(node["spec"]["providerID"]).rpartition("/")[2]


def longest(seen: Mapping[str, Waited]) -> float:
    """Return the longest wait of the pods that ran, in clock seconds."""
    waits = {
        key: (one.running_at - one.pending_at).total_seconds()
        for key, one in seen.items()
        if key.startswith("default/") and one.running_at
    }
    assert waits
    return round(max(waits.values()), 1)
