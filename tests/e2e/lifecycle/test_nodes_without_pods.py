"""NodeClaims created by hand, static NodePools, and nodes held for DaemonSets, with the real control plane."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import ZONE
from tests.e2e.conftest import Figures, Start
from tests.e2e.systems.system import CLUSTER, Manifest, System
from tests.objects.manifests import daemonset, deployment, nodeclaim, nodeclass, nodepool, requirement
from tests.patience import eventually

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.xlarge")  # 4 vCPUs, 3.92 of them allocatable
READY = "Ready"


def scheduled_at(pod: Manifest) -> str:
    """Return when kube-scheduler bound a pod."""
    found: str = next(
        c["lastTransitionTime"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"
    )
    return found


def conditions(claim: Manifest) -> dict[str, tuple[str, str]]:
    found = (claim.get("status") or {}).get("conditions") or ()
    return {c["type"]: (c["status"], c["reason"]) for c in found}


def claim_named(system: System, name: str) -> Manifest:
    return next((c for c in system.claims() if c["metadata"]["name"] == name), {})


def messages_of(system: System, name: str) -> set[str]:
    """Return the reasons of the Events about an object."""
    events = system.cluster.objects.list("events", fields=f"involvedObject.name={name}")
    return {event["reason"] for event in events}


def by_hand(name: str, **spec: Any) -> Manifest:
    return nodeclaim(name, ONE_SIZE, **{"resources": {"requests": {"cpu": "3"}}, **spec})


@pytest.mark.slow  # tests/integration/lifecycle/test_held_nodes.py
def test_on_a_held_node_the_pods_of_every_daemonset_are_bound_first(start: Start) -> None:
    system = start()
    pool = nodepool(requirements=[ONE_SIZE])
    pool["metadata"]["annotations"] = {"nodesmith.dev/hold-until-daemonsets": "true"}
    usual = daemonset("agent", "400m", tolerations=[])
    system.apply(nodeclass(CLUSTER), pool, usual, daemonset("logs", "200m", tolerations=[]))
    system.until_nodepools_ready()
    system.apply(deployment("web", 6))

    system.until_running(6, "web", seconds=120)
    system.until_settled()

    assert all(not node["spec"].get("unschedulable") for node in system.nodes())
    for node in system.nodes():
        mine = [p for p in system.pods() if p["spec"].get("nodeName") == node["metadata"]["name"]]
        web = [scheduled_at(p) for p in mine if p["metadata"]["labels"]["app"] == "web"]
        first = [scheduled_at(p) for p in mine if p["metadata"]["labels"]["app"] in {"agent", "logs"}]
        assert len(first) == 2
        assert not web or max(first) <= min(web)


def test_a_nodeclaim_created_by_hand_becomes_a_node_and_ends_with_its_object(start: Start) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), by_hand("mine"), by_hand("huge", resources={"requests": {"cpu": "999"}}))

    system.until("it is ready", lambda: conditions(claim_named(system, "mine")).get(READY) == ("True", READY))
    system.until("the other is gone", lambda: claim_named(system, "huge") == {}, seconds=90)
    assert messages_of(system, "huge") == {"InsufficientCapacityError"}
    assert len(system.instances()) == 1

    system.kubectl("delete", "nodeclaim", "mine", "--wait=false")
    system.until("its instance is gone", lambda: system.instances() == [], seconds=120)
    system.until("its object is gone", lambda: claim_named(system, "mine") == {}, seconds=60)


def with_ready(status: str) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": READY, "status": status, "reason": "Audit", "message": "", "lastTransitionTime": now}
    return json.dumps({"status": {"conditions": [condition]}})


@pytest.mark.slow  # tests/integration/lifecycle/test_nodeclaims_by_hand.py
def test_a_nodeclaim_created_by_hand_is_deleted_at_once_without_a_ready_nodeclass(
    start: Start, figures: Figures
) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]))
    system.until_nodepools_ready()
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "none"}

    system.apply(by_hand("orphan", nodeClassRef=ref))
    took = eventually(lambda: not claim_named(system, "orphan"), "the orphan is gone", 15, system.state)
    figures("nodeclaim-without-nodeclass-gone-seconds", round(took, 1))

    without_subnets = nodeclass(CLUSTER, "useless", subnetSelectorTerms=[{"tags": {"made": "never"}}])
    system.apply(by_hand("hasty", nodeClassRef={**ref, "name": "useless"}), without_subnets)
    took = eventually(lambda: not claim_named(system, "hasty"), "the hasty one is gone", 8, system.state)
    figures("nodeclaim-of-nodeclass-found-unready-gone-seconds", round(took, 1))

    patch = ["patch", "ec2nodeclass", "default", "--subresource=status", "--type=merge", "-p"]
    system.kubectl(*patch, with_ready("False"))
    system.apply(by_hand("early"), deployment("web", 1))
    took = eventually(lambda: not claim_named(system, "early"), "the early one is gone", 15, system.state)
    figures("nodeclaim-of-unready-nodeclass-gone-seconds", round(took, 1))
    assert system.instances() == []

    system.kubectl(*patch, with_ready("True"))
    system.until_running(1, "web", seconds=180)


@pytest.mark.slow  # tests/integration/lifecycle/test_static_nodepools.py
def test_a_static_nodepool_is_spread_over_zones_and_scaled_by_kubectl(start: Start) -> None:
    system = start()
    pool = nodepool(requirements=[ONE_SIZE])
    pool["spec"]["replicas"] = 3
    system.apply(nodeclass(CLUSTER), pool)

    system.until("three nodes are ready", lambda: ready(system) == 3, seconds=120)
    zones = Counter(node["metadata"]["labels"][ZONE] for node in system.nodes())
    assert max(zones.values()) == 1

    system.kubectl("scale", "nodepool", "default", "--replicas=1")
    system.until("one is left", lambda: len(system.instances()) == 1, seconds=150)


def ready(system: System) -> int:
    return sum(conditions(claim).get(READY) == ("True", READY) for claim in system.claims())
