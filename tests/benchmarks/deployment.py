"""What is deployed: resources of a region and of a cluster, and what sessions of one cluster may do to another."""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.infra.figures import figures as counted


def figures() -> list[Figure]:
    """Synthesise the stacks, count, and ask IAM's rules."""
    found = counted()
    return [
        Figure("stack-resources", found.region_resources, "resources", 90, f"{found.region_alarms} alarms"),
        Figure(
            "cluster-resources", found.cluster_resources, "resources", 12, f"{found.cluster_billed} billed"
        ),
        Figure(
            "isolation-violations",
            found.isolation_violations,
            "calls",
            0,
            "of every role, in the session of one cluster, on the resources of others and without a session",
        ),
    ]
