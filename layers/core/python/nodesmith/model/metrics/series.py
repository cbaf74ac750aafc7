"""The metrics that functions record, under Karpenter's names, with their labels and buckets.

The forwarder exposes only these to Prometheus, so a metric that is not listed here cannot be recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
    *(120, 150, 300, 450, 600, math.inf),
)
"""Upper bounds, in seconds, of the buckets of most of Karpenter's durations."""
DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, math.inf)
"""Upper bounds of the durations for which Karpenter uses the defaults of the Prometheus client."""
AT_ONCE = timedelta()
SOON = timedelta(seconds=15)
SELDOM = timedelta(minutes=10)
"""For metrics that are also recorded in a cluster without any activity, because each write costs money."""


@dataclass(frozen=True, slots=True)
class Series:
    """One metric. `buckets` are the upper bounds of a histogram's buckets.

    `patience` is how long it may wait before it is written, so that consecutive runs share a write. `by_value`
    overrides it for series that have a label with one of these values. A process that is not used again never writes
    what waits, so rare events do not wait.
    """

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = BUCKETS
    patience: timedelta = AT_ONCE
    by_value: Mapping[str, timedelta] = field(default_factory=dict)

    def patience_of(self, values: Iterable[str]) -> timedelta:
        """Return how long a series with these label values may wait before it is written."""
        return min(
            (self.by_value[value] for value in values if value in self.by_value), default=self.patience
        )


_CALL = ("controller", "method", "provider")
_DECISION = ("consolidation_type", "decision", "reason")

SERIES: Mapping[str, Series] = {
    "voluntary_disruption_decisions_total": Series(
        "counter", "Disruptions that were started, by decision, reason and consolidation type.", _DECISION
    ),
    "voluntary_disruption_decisions_by_nodepool_total": Series(
        "counter",
        "Disruptions that were started, by NodePool, decision, reason and consolidation type.",
        ("nodepool", *_DECISION),
    ),
    "voluntary_disruption_eligible_nodes": Series(
        "gauge",
        "Nodes that were eligible for disruption at the last check, by reason.",
        ("reason",),
        patience=SOON,
    ),
    "voluntary_disruption_failed_validations_total": Series(
        "counter", "Nodes that were chosen for disruption and failed validation.", ("consolidation_type",)
    ),
    "voluntary_disruption_queue_failures_total": Series(
        "counter", "Replacements of disruptions that could not be launched or never became ready.", _DECISION
    ),
    "voluntary_disruption_consolidation_timeouts_total": Series(
        "counter",
        "Consolidation passes that ended before all candidates were evaluated.",
        ("consolidation_type",),
    ),
    "voluntary_disruption_decision_evaluation_duration_seconds": Series(
        "histogram",
        "Duration of searches for disruptions.",
        ("consolidation_type", "reason"),
        patience=SOON,
    ),
    "scheduler_scheduling_duration_seconds": Series(
        "histogram", "Duration of scheduling decisions, by controller.", ("controller",), patience=SOON
    ),
    "scheduler_unschedulable_pods_count": Series(
        "gauge", "Pods for which no node could be bought.", ("controller",), patience=SOON
    ),
    "scheduler_ignored_pods_count": Series(
        "gauge", "Pending pods that no node can be launched for, whatever the NodePools offer.", patience=SOON
    ),
    "scheduler_pending_pods_by_effective_zone_count": Series(
        "gauge",
        "Pending pods, by the only zone that they can run in: flexible for several zones, none for no zone.",
        ("controller", "zone"),
        patience=SOON,
    ),
    "pods_eviction_requests_total": Series(
        "counter",
        "Eviction requests to the API server, by response code.",
        ("code",),
        by_value={"429": timedelta(minutes=1)},
    ),
    "pods_drained_total": Series(
        "counter", "Pods that were evicted, by the reason for which their node ends.", ("reason",)
    ),
    "nodeclaims_unhealthy_disrupted_total": Series(
        "counter",
        "Nodes that were replaced because a condition was unhealthy for too long, by condition.",
        ("capacity_type", "condition", "image_id", "nodepool"),
    ),
    "nodepools_cost_total": Series(
        "gauge", "Cost of each NodePool's nodes, in USD per hour.", ("nodepool",), patience=SOON
    ),
    "interruption_received_messages_total": Series(
        "counter", "Notices from EC2 and AWS Health about the cluster's instances.", ("message_type",)
    ),
    "interruption_deleted_messages_total": Series(
        "counter", "Notices from EC2 and AWS Health that were handled completely."
    ),
    "interruption_message_queue_duration_seconds": Series(
        "histogram", "Time from the event of a notice until it was read.", patience=SOON
    ),
    "interruption_instance_status_unhealthy_total": Series(
        "counter", "Nodes that end because they failed an EC2 status check, by check.", ("category",)
    ),
    "cloudprovider_instance_launch_failures_total": Series(
        "counter",
        "Offerings that failed in a launch, by EC2's error code.",
        ("capacity_type", "reason", "zone", "zone_id"),
    ),
    "cloudprovider_duration_seconds": Series(
        "histogram",
        "Duration of calls to EC2, by Karpenter's names of controller and method.",
        _CALL,
        DEFAULT_BUCKETS,
        SELDOM,
        {"Create": AT_ONCE, "Delete": AT_ONCE},
    ),
    "cloudprovider_errors_total": Series(
        "counter", "Calls to EC2 that failed, by controller, method and error.", (*_CALL, "error")
    ),
}
"""Name without Karpenter's prefix → metric"""
