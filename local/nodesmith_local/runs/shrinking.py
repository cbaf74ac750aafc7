"""The demo's second act: half of the workload is removed and the fleet shrinks; then some of the workload returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.decisions.disruption.search.search import DISRUPTION
from nodesmith_formats.prices import HOURS_A_YEAR
from nodesmith_local.runs.quiet import pending_activity
from nodesmith_local.runs.report import Report
from nodesmith_local.runs.running import wait_for
from nodesmith_local.runs.servedcluster import ServedCluster


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """A cluster before and after a Deployment was scaled down, and the decisions in between.

    `activity` is what was still under way when time was up.
    """

    before: Report
    after: Report
    decisions: tuple[Mapping[str, Any], ...]
    activity: str = ""

    @property
    def saving_yearly_usd(self) -> float:
        """The savings on nodes in a year."""
        hourly = self.before.price.hourly_usd - self.after.price.hourly_usd
        return hourly * HOURS_A_YEAR


def shrink(cluster: ServedCluster, deployment: str, replicas: int, patience_seconds: float) -> ScaleDown:
    """Scale a Deployment down, and wait until a node is gone and the cluster is quiet, or patience is over."""
    before, decisions_before = cluster.report(), len(cluster.decisions.all)
    nodes_before = {node.name for node in before.nodes}
    with cluster.stage(f"scaling Deployment/{deployment} to {replicas} replicas"):
        cluster.objects.patch("deployments", deployment, {"spec": {"replicas": replicas}}, "default")

    def under_way() -> str:
        now = {str(node["metadata"]["name"]) for node in cluster.objects.list("nodes")}
        return "no node has gone yet" if nodes_before <= now else pending_activity(cluster.state())

    activity = wait_for(cluster, patience_seconds, under_way)
    disruptions = [
        record for record in cluster.decisions.all[decisions_before:] if record["concern"] == DISRUPTION
    ]
    return ScaleDown(before, cluster.report(), tuple(disruptions), activity)


def grow(cluster: ServedCluster, deployment: str, replicas: int, patience_seconds: float) -> None:
    """Scale a Deployment up and wait until all pods run on ready nodes, or patience is over."""
    with cluster.stage(f"scaling Deployment/{deployment} to {replicas} replicas"):
        cluster.objects.patch("deployments", deployment, {"spec": {"replicas": replicas}}, "default")

    def under_way() -> str:
        report = cluster.report()
        if report.running < replicas:
            return f"{report.running} of {replicas} pods run"
        return next((f"Node/{node.name} is not ready" for node in report.nodes if not node.ready), "")

    wait_for(cluster, patience_seconds, under_way)
