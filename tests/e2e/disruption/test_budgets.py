"""Budgets as an observer counts them: finalizers of other controllers do not let more Nodes be disrupted at once."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from nodesmith.model.apimachinery.labels import INITIALIZED
from nodesmith_local.runs.timeline import condition
from tests.e2e.conftest import Figures, Start
from tests.e2e.systems.system import CLUSTER, HURRIED, Manifest, System
from tests.experiments.overruns import is_disrupted
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement

pytestmark = pytest.mark.slow  # tests/integration/disruption/test_budget_overruns.py counts the same

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.large")  # 2 vCPUs: one pod of 1 each
ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")
BACKUP = "example.com/backup"
NODES, AT_ONCE = 4, 2


def reported_reasons(system: System) -> set[str | None]:
    """Return what NodeClaims say about the end of their instances."""
    return {condition(claim, "InstanceTerminating").get("message") for claim in system.claims()}


def test_an_observer_counts_no_more_disrupted_nodes_than_the_budget_while_finalizers_hold_some(
    start: Start, figures: Figures
) -> None:
    system = start(speed=HURRIED)
    pool = nodepool(requirements=[ONE_SIZE, ON_DEMAND])
    pool["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": str(AT_ONCE)}]}
    system.apply(nodeclass(CLUSTER), pool)
    system.until_nodepools_ready()
    system.apply(deployment("web", NODES))
    system.until_running(NODES, seconds=120)
    system.until_settled()
    let_go = json.dumps({"metadata": {"finalizers": None}})
    add = json.dumps([{"op": "add", "path": "/metadata/finalizers/-", "value": BACKUP}])
    for node in system.nodes():
        system.kubectl("patch", "node", node["metadata"]["name"], "--type=json", "-p", add)
    disrupted: dict[str, bool] = {}
    most: list[int] = []

    def note(node: Manifest, _: datetime, *, gone: bool) -> None:
        if node["metadata"].get("labels", {}).get(INITIALIZED) == "true":
            disrupted[node["metadata"]["name"]] = is_disrupted(node) and not gone
            most.append(sum(disrupted.values()))

    def held() -> list[Manifest]:
        return [n for n in system.nodes() if n["metadata"].get("finalizers") == [BACKUP]]

    with system.followed("nodes", note):
        system.kubectl("scale", "deployment", "web", "--replicas=0")
        for _ in range(NODES // AT_ONCE):
            system.until("only the other controller holds two Nodes", lambda: len(held()) == AT_ONCE, 120)
            names = {node["metadata"]["name"] for node in held()}
            claims = [c for c in system.claims() if c["status"].get("nodeName") in names]
            assert len(claims) == AT_ONCE, "their NodeClaims exist"
            system.stays("no other Node is disrupted", lambda: len(held()) == AT_ONCE, seconds=8)
            message = f"is held by finalizer {BACKUP} of another controller"
            said = {f"Node {name} {message}" for name in names}
            system.until("their NodeClaims say so", lambda said=said: reported_reasons(system) >= said)  # type: ignore[misc]
            assert not {i["PrivateDnsName"] for i in system.instances()} & names, "their instances have ended"
            for name in names:
                system.kubectl("patch", "node", name, "--type=merge", "-p", let_go)
        system.until("all are gone", lambda: not (system.claims() or system.nodes()), seconds=120)
    figures("disrupted-at-once-most", max(most))
    assert max(most) == AT_ONCE
    # The ledger forgets a claim after its NodeClaim is gone.
    system.until("the ledger has no claim", lambda: not system.ledger().claims)
    assert system.instances() == []
