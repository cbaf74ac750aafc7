"""The series that functions count and measure, each under Karpenter's name, with its labels and buckets.

The forwarder answers Prometheus with these and no others, so what is not listed here is not recorded.
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
"""Upper ends, in seconds, that Karpenter gives most of its durations,"""
DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, math.inf)
"""and those that it leaves to Prometheus' client"""
AT_ONCE = timedelta()
SOON = timedelta(seconds=15)
SELDOM = timedelta(minutes=10)
"""For what is measured in a cluster where nothing happens, too: each write is paid for"""


@dataclass(frozen=True, slots=True)
class Series:
    """One metric. `buckets` are the upper ends of a histogram's.

    `patience` is how long it may wait until it is written, so that runs in a row share a write; `by_value` says it of
    those that have a label with one of these values. A process that is not used again never writes what waits, so what
    happens seldom does not.
    """

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = BUCKETS
    patience: timedelta = AT_ONCE
    by_value: Mapping[str, timedelta] = field(default_factory=dict)

    def patience_of(self, values: Iterable[str]) -> timedelta:
        """Return how long the series with labels of these values may wait."""
        return min(
            (self.by_value[value] for value in values if value in self.by_value), default=self.patience
        )


_CALL = ("controller", "method", "provider")
_DECISION = ("consolidation_type", "decision", "reason")

SERIES: Mapping[str, Series] = {
    "voluntary_disruption_decisions_total": Series(
        "counter", "Disruptions that were begun, by decision, reason and consolidation type.", _DECISION
    ),
    "voluntary_disruption_decisions_by_nodepool_total": Series(
        "counter", "Disruptions that were begun, for each NodePool of their nodes.", ("nodepool", *_DECISION)
    ),
    "voluntary_disruption_eligible_nodes": Series(
        "gauge", "Nodes that might be disrupted when that was last looked at.", ("reason",), patience=SOON
    ),
    "voluntary_disruption_failed_validations_total": Series(
        "counter", "Nodes that were chosen for disruption and failed its validation.", ("consolidation_type",)
    ),
    "voluntary_disruption_queue_failures_total": Series(
        "counter", "Replacements of disruptions that were not to be had, or never ready.", _DECISION
    ),
    "voluntary_disruption_consolidation_timeouts_total": Series(
        "counter", "Passes of consolidation that ended before all was seen.", ("consolidation_type",)
    ),
    "voluntary_disruption_decision_evaluation_duration_seconds": Series(
        "histogram",
        "How long it took to look for disruptions.",
        ("consolidation_type", "reason"),
        patience=SOON,
    ),
    "scheduler_scheduling_duration_seconds": Series(
        "histogram", "How long decisions about pods took, by controller.", ("controller",), patience=SOON
    ),
    "scheduler_unschedulable_pods_count": Series(
        "gauge", "Pods for which nothing could be bought.", ("controller",), patience=SOON
    ),
    "scheduler_ignored_pods_count": Series(
        "gauge", "Pods that wait and that no node can be had for, whatever NodePools offer.", patience=SOON
    ),
    "scheduler_pending_pods_by_effective_zone_count": Series(
        "gauge",
        "Pods that wait, by the only zone that they may have: flexible for several, none for no zone.",
        ("controller", "zone"),
        patience=SOON,
    ),
    "pods_eviction_requests_total": Series(
        "counter",
        "Evictions that the API server was asked for, by its answer.",
        ("code",),
        by_value={"429": timedelta(minutes=1)},
    ),
    "pods_drained_total": Series(
        "counter", "Pods that were evicted, by what their node ends for.", ("reason",)
    ),
    "nodeclaims_unhealthy_disrupted_total": Series(
        "counter",
        "Nodes that were replaced because a condition was bad for long, by that condition.",
        ("capacity_type", "condition", "image_id", "nodepool"),
    ),
    "nodepools_cost_total": Series(
        "gauge", "What the nodes of NodePools cost, in USD an hour.", ("nodepool",), patience=SOON
    ),
    "interruption_received_messages_total": Series(
        "counter", "Notices of EC2 and AWS Health about the cluster's instances.", ("message_type",)
    ),
    "interruption_deleted_messages_total": Series("counter", "Such notices that were done with."),
    "interruption_message_queue_duration_seconds": Series(
        "histogram", "From the event of a notice until it was read.", patience=SOON
    ),
    "interruption_instance_status_unhealthy_total": Series(
        "counter", "Nodes that end because EC2's own checks of them say so, by check.", ("category",)
    ),
    "cloudprovider_instance_launch_failures_total": Series(
        "counter",
        "Offerings that a launch was refused, by EC2's word for it.",
        ("capacity_type", "reason", "zone", "zone_id"),
    ),
    "cloudprovider_duration_seconds": Series(
        "histogram",
        "How long calls to EC2 took, by Karpenter's names of controller and method.",
        _CALL,
        DEFAULT_BUCKETS,
        SELDOM,
        {"Create": AT_ONCE, "Delete": AT_ONCE},
    ),
    "cloudprovider_errors_total": Series(
        "counter", "Calls to EC2 that came to nothing, by controller, method and error.", (*_CALL, "error")
    ),
}
"""By name, without Karpenter's prefix"""
