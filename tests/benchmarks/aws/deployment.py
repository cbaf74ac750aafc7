"""The deployment: resources of a region and of a cluster, and access of one cluster's sessions to other clusters."""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.infra.figures import figures as counted


def figures() -> list[Figure]:
    """Synthesise the stacks, count resources, and evaluate IAM policies."""
    found = counted()
    return [
        Figure("stack-resources", found.region_resources, "resources", 95, f"{found.region_alarms} alarms"),
        Figure(
            "cluster-resources", found.cluster_resources, "resources", 12, f"{found.cluster_billed} billed"
        ),
        Figure(
            "isolation-violations",
            found.isolation_violations,
            "calls",
            0,
            "calls of every role on other clusters' resources, in one cluster's session and without a session",
        ),
    ]
