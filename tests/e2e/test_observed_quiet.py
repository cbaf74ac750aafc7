"""What an observer with kubectl sees as pods come to a node and leave it, by an unhurried clock.

Pods' own times are the control plane's, which nobody can hurry.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.times import parse_time
from nodesmith_cli.local.timeline import condition
from tests.e2e.conftest import Start
from tests.e2e.manifests import Manifest, deployment, nodeclass, nodepool, pod, requirement
from tests.e2e.observer import Observer, is_true, observing
from tests.e2e.system import CLUSTER, System

pytestmark = pytest.mark.slow

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.large")
ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")


def quiet_for(after: str) -> Manifest:
    """Return a NodePool whose nodes are consolidated when their pods have been quiet for so long."""
    made = nodepool("quiet", requirements=[ONE_SIZE, ON_DEMAND])
    made["spec"]["disruption"] = {"consolidateAfter": after, "budgets": [{"nodes": "100%"}]}
    return made


def bound_to(node: str) -> dict[str, Any]:
    """Return a pod that is bound to a node already, and asks not to be disrupted."""
    made = pod("late", "100m", nodeName=node, tolerations=[{"operator": "Exists"}])
    made["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    return made


def marks(system: System) -> tuple[int, str]:
    """Return how many such taints the one node has, and the reason for which its claim says that it is disrupted."""
    (node,), (claim,) = system.nodes(), system.claims()
    taints = [each for each in node["spec"].get("taints") or () if each["key"] == "karpenter.sh/disrupted"]
    return len(taints), str(condition(claim, "DisruptionReason").get("reason", ""))


def test_a_node_is_consolidatable_once_its_pods_are_quiet_and_a_pod_that_comes_meanwhile_keeps_it(
    start: Start,
) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), quiet_for("10s"), deployment("web", 1, "500m"))
    with observing(system) as seen:
        system.until("its pods are quiet", lambda: is_true(seen.only("quiet"), "Consolidatable"), 120)
        claim = seen.only("quiet")
        since, ready = (
            parse_time(condition(claim, kind)["lastTransitionTime"])
            for kind in ("Consolidatable", "Initialized")
        )
        assert since - ready >= timedelta(seconds=10)

        system.kubectl("scale", "deployment", "web", "--replicas=0")
        system.until("the empty node is tainted", lambda: marks(system) == (1, "Empty"), 120)
        (node,) = system.nodes()
        system.cluster.objects.create("pods", bound_to(node["metadata"]["name"]))

        system.until("it stays after all", lambda: marks(system) == (0, ""), 60)
        system.until("both say why", lambda: rejected(seen) == {"Node", "NodeClaim"}, 30)
        assert not seen.ended("quiet")


def rejected(seen: Observer) -> set[str]:
    """Return the kinds of the objects that say that the late pod keeps the node."""
    told = seen.told("quiet", "ConsolidationRejected")
    return {kind for kind, message in told if "default/late" in message}
