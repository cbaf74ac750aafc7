"""The alerts, each with series that fire it and series that do not. docs/runbooks.md has a section for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GROUPS = ("forwarder", "pods", "nodes", "disruption", "money")


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    `expression` is PromQL, without the selection of clusters. `lasting` is how long it must hold. `firing` and `quiet`
    map series to values in promtool's notation, one value a minute. They run for as long as `duration` says.
    """

    name: str
    group: str
    severity: Literal["critical", "warning"]
    expression: str
    lasting: str
    summary: str
    firing: dict[str, str]
    quiet: dict[str, str]
    duration: str


_SCHEDULING = 'karpenter_scheduler_scheduling_duration_seconds_bucket{controller="provisioner",le='
_USD = '{cluster="east",nodepool="web",resource_type="nodesmith.dev/usd-per-hour"}'
_DRIFTED = (
    "operator_nodeclaim_status_condition_count"
    '{cluster="east",karpenter_sh_nodepool="web",name="web-a",status="True",type="Drifted"}'
)
_ALLOWED = 'karpenter_nodepools_allowed_disruptions{cluster="east",nodepool="%s",reason="Drifted"}'
_UP = {'karpenter_cluster_state_synced{cluster="east"}': "1x120"}
_TAKEN = "spot_interrupted|capacity_reservation_interrupted|scheduled_change"

ALERTS = (
    Alert(
        "NodesmithForwarderAbsent",
        "forwarder",
        "critical",
        "absent(karpenter_cluster_state_synced)",
        "10m",
        "No forwarder is scraped, so the cluster's metrics are missing and functions read the API server themselves.",
        {'karpenter_build_info{cluster="east"}': "1x2 stale"},
        _UP,
        "30m",
    ),
    Alert(
        "NodesmithForwarderUnsynced",
        "forwarder",
        "warning",
        "max by (cluster) (karpenter_cluster_state_unsynced_time_seconds) > 300",
        "5m",
        "The forwarder cannot observe every kind that it watches.",
        {'karpenter_cluster_state_unsynced_time_seconds{cluster="east"}': "0+60x60"},
        {'karpenter_cluster_state_unsynced_time_seconds{cluster="east"}': "0x60"},
        "30m",
    ),
    Alert(
        "NodesmithPodsUnschedulable",
        "pods",
        "warning",
        "sum by (cluster) (karpenter_scheduler_unschedulable_pods_count) > 0",
        "15m",
        "{{ $value }} pods wait, and no node can be bought for them.",
        {'karpenter_scheduler_unschedulable_pods_count{cluster="east",controller="provisioner"}': "3x60"},
        {
            'karpenter_scheduler_unschedulable_pods_count{cluster="east",controller="provisioner"}': "3x10 0x50"
        },
        "30m",
    ),
    Alert(
        "NodesmithPodsIgnored",
        "pods",
        "warning",
        "sum by (cluster) (karpenter_scheduler_ignored_pods_count) > 0",
        "30m",
        "{{ $value }} pods wait that no node can hold, whatever NodePools offer.",
        {'karpenter_scheduler_ignored_pods_count{cluster="east"}': "1x90"},
        {'karpenter_scheduler_ignored_pods_count{cluster="east"}': "0x90"},
        "60m",
    ),
    Alert(
        "NodesmithPodsWaitLong",
        "pods",
        "warning",
        "count by (cluster) (karpenter_pods_unbound_time_seconds > 900) > 0",
        "5m",
        "{{ $value }} pods have waited for a node for more than 15 minutes.",
        {'karpenter_pods_unbound_time_seconds{cluster="east",name="web-1"}': "0+60x60"},
        {'karpenter_pods_unbound_time_seconds{cluster="east",name="web-1"}': "0+60x10 stale"},
        "40m",
    ),
    Alert(
        "NodesmithPodsBindSlowly",
        "pods",
        "warning",
        "histogram_quantile(0.9, sum by (cluster, le) (rate(karpenter_pods_bound_duration_seconds_bucket[30m]))) > 300",
        "15m",
        "One pod in ten waited more than {{ $value | humanizeDuration }} for its node.",
        {
            'karpenter_pods_bound_duration_seconds_bucket{cluster="east",le="300"}': "0x90",
            'karpenter_pods_bound_duration_seconds_bucket{cluster="east",le="450"}': "0+2x90",
            'karpenter_pods_bound_duration_seconds_bucket{cluster="east",le="+Inf"}': "0+2x90",
        },
        {
            'karpenter_pods_bound_duration_seconds_bucket{cluster="east",le="60"}': "0+2x90",
            'karpenter_pods_bound_duration_seconds_bucket{cluster="east",le="300"}': "0+2x90",
            'karpenter_pods_bound_duration_seconds_bucket{cluster="east",le="+Inf"}': "0+2x90",
        },
        "60m",
    ),
    Alert(
        "NodesmithDecisionsSlow",
        "pods",
        "warning",
        "histogram_quantile(0.99, sum by (cluster, le) ("
        'rate(karpenter_scheduler_scheduling_duration_seconds_bucket{controller="provisioner"}[30m]))) > 20',
        "15m",
        "Decisions about pending pods take more than {{ $value | humanizeDuration }}.",
        {
            f'{_SCHEDULING}"20"}}': "0x90",
            f'{_SCHEDULING}"40"}}': "0+1x90",
            f'{_SCHEDULING}"+Inf"}}': "0+1x90",
        },
        {
            f'{_SCHEDULING}"1"}}': "0+1x90",
            f'{_SCHEDULING}"+Inf"}}': "0+1x90",
        },
        "60m",
    ),
    Alert(
        "NodesmithLaunchFailures",
        "nodes",
        "warning",
        "sum by (cluster, reason) (increase(karpenter_cloudprovider_instance_launch_failures_total[30m])) > 20",
        "5m",
        "EC2 refused {{ $value | humanize }} offerings in half an hour: {{ $labels.reason }}.",
        {
            'karpenter_cloudprovider_instance_launch_failures_total{cluster="east",zone="a",'
            'reason="InsufficientInstanceCapacity"}': "0+2x60"
        },
        {
            'karpenter_cloudprovider_instance_launch_failures_total{cluster="east",zone="a",'
            'reason="InsufficientInstanceCapacity"}': "0+0.1x60"
        },
        "45m",
    ),
    Alert(
        "NodesmithCloudErrors",
        "nodes",
        "warning",
        "sum by (cluster, method) ("
        'increase(karpenter_cloudprovider_errors_total{error!="InsufficientCapacityError"}[30m])) > 5',
        "5m",
        "{{ $value | humanize }} calls to EC2 failed in half an hour: {{ $labels.method }}.",
        {'karpenter_cloudprovider_errors_total{cluster="east",method="Create",error=""}': "0+1x60"},
        {
            'karpenter_cloudprovider_errors_total{cluster="east",method="Create",'
            'error="InsufficientCapacityError"}': "0+1x60"
        },
        "45m",
    ),
    Alert(
        "NodesmithNodePoolNotReady",
        "nodes",
        "critical",
        'max by (cluster, name) (operator_nodepool_status_condition_count{type="Ready",status="False"}) > 0',
        "15m",
        "NodePool {{ $labels.name }} is not Ready, so nothing is bought for it.",
        {
            'operator_nodepool_status_condition_count{cluster="east",name="web",type="Ready",'
            'status="False",reason="NodeClassNotReady"}': "1x60"
        },
        {
            'operator_nodepool_status_condition_count{cluster="east",name="web",type="Ready",'
            'status="True",reason="Ready"}': "1x60"
        },
        "30m",
    ),
    Alert(
        "NodesmithNodesBoughtInVain",
        "nodes",
        "critical",
        'max by (cluster, name) (operator_nodepool_status_condition_count{type="NodesBoughtInVain",status="True"}) > 0',
        "1m",
        "Nodes of NodePool {{ $labels.name }} were bought in vain, so its launches or replacements are paused.",
        {
            'operator_nodepool_status_condition_count{cluster="east",name="web",type="NodesBoughtInVain",'
            'status="True",reason="NodesUnused"}': "1x60"
        },
        {
            'operator_nodepool_status_condition_count{cluster="east",name="web",type="NodesBoughtInVain",'
            'status="False",reason="NodesUsed"}': "1x60"
        },
        "30m",
    ),
    Alert(
        "NodesmithEC2NodeClassNotReady",
        "nodes",
        "critical",
        'max by (cluster, name) (operator_ec2nodeclass_status_condition_count{type="Ready",status="False"}) > 0',
        "15m",
        "EC2NodeClass {{ $labels.name }} is not Ready, so no NodePool can use it.",
        {
            'operator_ec2nodeclass_status_condition_count{cluster="east",name="web",type="Ready",'
            'status="False",reason="SubnetsNotFound"}': "1x60"
        },
        {
            'operator_ec2nodeclass_status_condition_count{cluster="east",name="web",type="Ready",'
            'status="True",reason="Ready"}': "1x60"
        },
        "30m",
    ),
    Alert(
        "NodesmithNodesNotInitialized",
        "nodes",
        "warning",
        "count by (cluster) ("
        'operator_nodeclaim_status_condition_current_status_seconds{type="Initialized",status!="True"} > 900) > 0',
        "5m",
        "{{ $value }} nodes have not become ready for more than 15 minutes.",
        {
            'operator_nodeclaim_status_condition_current_status_seconds{cluster="east",name="web-1",'
            'type="Initialized",status="Unknown",reason="NodeNotReady"}': "0+60x60"
        },
        {
            'operator_nodeclaim_status_condition_current_status_seconds{cluster="east",name="web-1",'
            'type="Initialized",status="True",reason="Initialized"}': "0+60x60"
        },
        "40m",
    ),
    Alert(
        "NodesmithNodesUnhealthy",
        "nodes",
        "warning",
        "sum by (cluster, condition) (increase(karpenter_nodeclaims_unhealthy_disrupted_total[1h])) > 2",
        "0m",
        "{{ $value | humanize }} nodes were replaced within an hour because of {{ $labels.condition }}.",
        {
            'karpenter_nodeclaims_unhealthy_disrupted_total{cluster="east",condition="KernelReady"}': "0+0.2x90"
        },
        {'karpenter_nodeclaims_unhealthy_disrupted_total{cluster="east",condition="KernelReady"}': "1x90"},
        "60m",
    ),
    Alert(
        "NodesmithTerminationStuck",
        "disruption",
        "warning",
        "max by (cluster, name) (operator_nodeclaim_termination_current_time_seconds) > 3600",
        "5m",
        "NodeClaim {{ $labels.name }} has been ending for {{ $value | humanizeDuration }}.",
        {'operator_nodeclaim_termination_current_time_seconds{cluster="east",name="web-1"}': "0+60x120"},
        {'operator_nodeclaim_termination_current_time_seconds{cluster="east",name="web-1"}': "0+60x20 stale"},
        "90m",
    ),
    Alert(
        "NodesmithDriftBlocked",
        "disruption",
        "warning",
        "(count by (cluster, nodepool) (label_replace(operator_nodeclaim_status_condition_count"
        '{type="Drifted",status="True"}, "nodepool", "$1", "karpenter_sh_nodepool", "(.+)")) > 0) '
        'and on (cluster, nodepool) (karpenter_nodepools_allowed_disruptions{reason="Drifted"} == 0)',
        "24h",
        "{{ $value }} nodes of NodePool {{ $labels.nodepool }} have drifted, and its budgets have allowed no "
        "disruption for a day.",
        {
            _DRIFTED: "1x1800",
            _ALLOWED % "web": "0x1800",
            _ALLOWED % "batch": "5x1800",
        },
        {
            _DRIFTED: "1x1800",
            _ALLOWED % "web": "0x600 1x1200",
            _ALLOWED % "batch": "0x1800",
        },
        "25h",
    ),
    Alert(
        "NodesmithReplacementsFail",
        "disruption",
        "warning",
        "sum by (cluster, reason) (increase(karpenter_voluntary_disruption_queue_failures_total[1h])) > 5",
        "0m",
        "{{ $value | humanize }} replacements failed within an hour: {{ $labels.reason }}.",
        {'karpenter_voluntary_disruption_queue_failures_total{cluster="east",reason="drifted"}': "0+0.5x90"},
        {'karpenter_voluntary_disruption_queue_failures_total{cluster="east",reason="drifted"}': "3x90"},
        "60m",
    ),
    Alert(
        "NodesmithManyInterruptions",
        "disruption",
        "warning",
        f'sum by (cluster) (increase(karpenter_interruption_received_messages_total{{message_type=~"{_TAKEN}"}}[15m]))'
        " > 10",
        "0m",
        "EC2 took {{ $value | humanize }} instances within 15 minutes.",
        {
            'karpenter_interruption_received_messages_total{cluster="east",message_type="spot_interrupted"}': "0+1x30"
        },
        {'karpenter_interruption_received_messages_total{cluster="east",message_type="no_op"}': "0+9x30"},
        "20m",
    ),
    Alert(
        "NodesmithNoticesReadLate",
        "disruption",
        "critical",
        "histogram_quantile(0.9, sum by (cluster, le) ("
        "rate(karpenter_interruption_message_queue_duration_seconds_bucket[30m]))) > 30",
        "5m",
        "Notices of interruptions, which leave two minutes, are read {{ $value | humanizeDuration }} late.",
        {
            'karpenter_interruption_message_queue_duration_seconds_bucket{cluster="east",le="30"}': "0x60",
            'karpenter_interruption_message_queue_duration_seconds_bucket{cluster="east",le="60"}': "0+1x60",
            'karpenter_interruption_message_queue_duration_seconds_bucket{cluster="east",le="+Inf"}': "0+1x60",
        },
        {
            'karpenter_interruption_message_queue_duration_seconds_bucket{cluster="east",le="5"}': "0+1x60",
            'karpenter_interruption_message_queue_duration_seconds_bucket{cluster="east",le="+Inf"}': "0+1x60",
        },
        "45m",
    ),
    Alert(
        "NodesmithLimitNearlyReached",
        "money",
        "warning",
        "max by (cluster, nodepool, resource_type) ("
        'karpenter_nodepools_usage / (karpenter_nodepools_limit{resource_type!~"nodesmith.dev/.*"} > 0)) > 0.9',
        "10m",
        "NodePool {{ $labels.nodepool }} uses {{ $value | humanizePercentage }} of its limit of"
        " {{ $labels.resource_type }}.",
        {
            'karpenter_nodepools_usage{cluster="east",nodepool="web",resource_type="cpu"}': "95x60",
            'karpenter_nodepools_limit{cluster="east",nodepool="web",resource_type="cpu"}': "100x60",
        },
        {
            'karpenter_nodepools_usage{cluster="east",nodepool="web",resource_type="cpu"}': "85x60",
            'karpenter_nodepools_limit{cluster="east",nodepool="web",resource_type="cpu"}': "100x60",
        },
        "30m",
    ),
    Alert(
        "NodesmithSpendingHigh",
        "money",
        "warning",
        "max by (cluster, nodepool) (karpenter_nodepools_cost_total / on (cluster, nodepool) "
        '(karpenter_nodepools_limit{resource_type="nodesmith.dev/usd-per-hour"} > 0)) > 0.8',
        "10m",
        "NodePool {{ $labels.nodepool }} uses {{ $value | humanizePercentage }} of its limit in USD an hour.",
        {
            'karpenter_nodepools_cost_total{cluster="east",nodepool="web"}': "9x60",
            f"karpenter_nodepools_limit{_USD}": "10x60",
        },
        {
            'karpenter_nodepools_cost_total{cluster="east",nodepool="web"}': "7x60",
            f"karpenter_nodepools_limit{_USD}": "10x60",
        },
        "30m",
    ),
)
