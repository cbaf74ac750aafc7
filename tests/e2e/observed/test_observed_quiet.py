"""What an observer with kubectl sees as pods join and leave a node, in real time.

Pods' own times come from the control plane, which cannot be accelerated.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.times import parse_time
from nodesmith_formats.kubernetes.objects import is_true
from nodesmith_local.runs.timeline import condition
from tests.e2e.conftest import Start
from tests.e2e.observed.observer import Observer, observing
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import Manifest, deployment, nodeclass, nodepool, pod, requirement

pytestmark = pytest.mark.slow

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.large")
ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")


def quiet_for(after: str) -> Manifest:
    """Return a NodePool with this consolidateAfter."""
    made = nodepool("quiet", requirements=[ONE_SIZE, ON_DEMAND])
    made["spec"]["disruption"] = {"consolidateAfter": after, "budgets": [{"nodes": "100%"}]}
    return made


def bound_to(node: str) -> dict[str, Any]:
    """Return a pod that is already bound to a node and asks not to be disrupted."""
    made = pod("late", "100m", nodeName=node, tolerations=[{"operator": "Exists"}])
    made["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    return made


def marks(system: System) -> tuple[int, str]:
    """Return how many disruption taints the only node has, and the reason of its claim's DisruptionReason condition."""
    (node,), (claim,) = system.nodes(), system.claims()
    taints = [each for each in node["spec"].get("taints") or () if each["key"] == "karpenter.sh/disrupted"]
    return len(taints), str(condition(claim, "DisruptionReason").get("reason", ""))


def test_a_node_is_consolidatable_once_its_pods_are_quiet_and_a_late_pod_keeps_it(
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

        system.until("the node is no longer marked", lambda: marks(system) == (0, ""), 60)
        system.until("Events on both say why", lambda: rejected(seen) == {"Node", "NodeClaim"}, 30)
        assert not seen.ended("quiet")


def rejected(seen: Observer) -> set[str]:
    """Return the kinds of the objects with an Event that says that the late pod keeps the node."""
    reported = seen.reports("quiet", "ConsolidationRejected")
    return {kind for kind, message in reported if "default/late" in message}
