"""What Prometheus scrapes on the real control plane, functions' metrics included, after a node's end."""

from __future__ import annotations

import pytest

from nodesmith.model.karpenter.nodeclaims import Phase
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, HURRIED
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement
from tests.patience import eventually, hurried

pytestmark = pytest.mark.slow  # tests/integration/disruption/test_metrics.py counts the same

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.large")
ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")
DECISIONS = "karpenter_voluntary_disruption_decisions"


def decided(name: str, decision: str, reason: str, kind: str, **more: str) -> str:
    """Return the metric line that counts a decision once."""
    labels = {"consolidation_type": kind, "decision": decision, **more, "reason": reason}
    written = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"voluntary_disruption_{name}{{{written}}} 1.0"


def test_metrics_count_the_decisions_to_replace_and_then_to_end_a_node(start: Start) -> None:
    system = start(speed=hurried(HURRIED))  # a move that takes too long is given up, and decided again
    pool = nodepool(requirements=[ONE_SIZE, ON_DEMAND])
    pool["spec"]["disruption"] = {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": "0s",
        "budgets": [{"nodes": "100%"}],
    }
    system.apply(nodeclass(CLUSTER), pool)
    system.until_nodepools_ready()
    system.apply(deployment("web", 1))
    system.until_running(1)
    system.until_settled()
    (first,) = (claim.name for claim in system.ledger().claims)

    pool["spec"]["template"]["metadata"] = {"labels": {"team": "other"}}
    system.apply(pool)

    def is_renewed() -> bool:
        claims = system.ledger().claims
        return [c.phase for c in claims] == [Phase.INITIALIZED] and claims[0].name != first

    system.until("the node is renewed", is_renewed, seconds=240)
    system.until_running(1)
    system.kubectl("scale", "deployment", "web", "--replicas=0")
    system.until("the node has ended", lambda: not system.ledger().claims, seconds=240)

    drifted, empty = ("replace", "drifted", ""), ("delete", "empty", "empty")
    called = 'cloudprovider_duration_seconds_count{controller="%s",method="%s",provider="aws"} %d.0'
    expected = {
        f"karpenter_{line}"
        for line in (
            *(decided("decisions_total", *each) for each in (drifted, empty)),
            *(decided("decisions_by_nodepool_total", *each, nodepool="default") for each in (drifted, empty)),
            called % ("provisioner", "Create", 1),
            called % ("disruption", "Create", 1),
            called % ("node.termination", "Delete", 2),
            'pods_eviction_requests_total{code="200"} 1.0',
            'pods_drained_total{reason="Drifted"} 1.0',
            'nodepools_cost_total{nodepool="default"} 0.0',
            'voluntary_disruption_eligible_nodes{reason="drifted"} 0.0',
            'voluntary_disruption_eligible_nodes{reason="empty"} 0.0',
        )
    }
    last: list[str] = []

    def are_served() -> bool:
        last[:] = system.forwarder.metrics()
        return expected <= set(last)

    def otherwise() -> str:
        names = {line.partition("{")[0] for line in expected.difference(last)}
        reported = [line for line in last if line.partition("{")[0] in names and not line.startswith("#")]
        return "\n".join(
            ["expected", *sorted(expected.difference(last)), "scraped", *reported, system.state()]
        )

    eventually(are_served, "Prometheus scrapes the expected metrics", seconds=240, tell=otherwise)
    decisions = [each for each in system.forwarder.metrics() if each.startswith(DECISIONS)]
    assert len(decisions) == 4, decisions
