"""The metrics in Karpenter's documentation, including those of its AWS provider: name, kind, labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class KarpenterSeries(NamedTuple):
    """One metric, without its prefix."""

    kind: str
    labels: frozenset[str]


_NODE = "node_name resource_type managed nodepool zone arch capacity_type instance_type region os"
_POD = (
    "name namespace owner node scheduled nodepool zone arch capacity_type instance_type phase ready managed"
)
_TABLE = f"""
build_info gauge version goversion goarch commit
consolidation_score histogram decision nodepool policy
consolidation_moves_total counter decision nodepool policy
nodepools_usage gauge resource_type nodepool
nodepools_limit gauge resource_type nodepool
nodepools_nodes_consuming_budgets gauge nodepool reason
nodepools_allowed_disruptions gauge nodepool reason
nodepools_cost_total gauge nodepool
nodepools_cost_tracker_errors_total counter nodepool
nodeclaims_created_total counter reason nodepool min_values_relaxed
nodeclaims_terminated_total counter nodepool capacity_type zone
nodeclaims_disrupted_total counter reason nodepool capacity_type
nodeclaims_unhealthy_disrupted_total counter condition nodepool capacity_type image_id
nodeclaims_termination_duration_seconds histogram nodepool
nodeclaims_instance_termination_duration_seconds histogram nodepool
nodes_created_total counter nodepool zone
nodes_terminated_total counter nodepool zone
nodes_drained_total counter nodepool
nodes_termination_duration_seconds summary nodepool
nodes_lifetime_duration_seconds histogram nodepool
nodes_current_lifetime_seconds gauge {_NODE.replace(" resource_type", "")}
nodes_allocatable gauge {_NODE}
nodes_system_overhead gauge {_NODE}
nodes_total_pod_requests gauge {_NODE}
nodes_total_pod_limits gauge {_NODE}
nodes_total_daemon_requests gauge {_NODE}
nodes_total_daemon_limits gauge {_NODE}
cluster_utilization_percent gauge resource_type
cluster_state_node_count gauge
cluster_state_synced gauge
cluster_state_unsynced_time_seconds gauge
pods_state gauge {_POD}
pods_startup_duration_seconds summary
pods_bound_duration_seconds histogram
pods_unbound_time_seconds gauge name namespace
pods_unstarted_time_seconds gauge name namespace
pods_scheduling_decision_duration_seconds histogram
pods_provisioning_bound_duration_seconds histogram
pods_provisioning_startup_duration_seconds histogram
pods_provisioning_unbound_time_seconds gauge name namespace
pods_provisioning_unstarted_time_seconds gauge name namespace
pods_provisioning_scheduling_undecided_time_seconds gauge name namespace
pods_eviction_requests_total counter code
pods_drained_total counter reason
pods_disruption_initiated_total counter reason nodepool capacity_type
scheduler_queue_depth gauge controller scheduling_id
scheduler_unschedulable_pods_count gauge controller
scheduler_ignored_pods_count gauge
scheduler_pending_pods_by_effective_zone_count gauge controller zone
scheduler_scheduling_duration_seconds histogram controller
scheduler_unfinished_work_seconds gauge controller scheduling_id
voluntary_disruption_decisions_total counter decision reason consolidation_type
voluntary_disruption_decisions_by_nodepool_total counter nodepool decision reason consolidation_type
voluntary_disruption_eligible_nodes gauge reason
voluntary_disruption_failed_validations_total counter consolidation_type
voluntary_disruption_queue_failures_total counter decision reason consolidation_type
voluntary_disruption_consolidation_timeouts_total counter consolidation_type
voluntary_disruption_decision_evaluation_duration_seconds histogram reason consolidation_type
cloudprovider_duration_seconds histogram controller method provider
cloudprovider_errors_total counter controller method provider error
cloudprovider_instance_type_offering_price_estimate gauge instance_type capacity_type zone
cloudprovider_instance_type_offering_available gauge instance_type capacity_type zone
cloudprovider_instance_type_memory_bytes gauge instance_type
cloudprovider_instance_type_cpu_cores gauge instance_type
cloudprovider_instance_launch_failures_total counter zone zone_id capacity_type reason
cloudprovider_instance_termination_failures_total counter zone zone_id
cloudprovider_batcher_batch_time_seconds histogram batcher
cloudprovider_batcher_batch_size histogram batcher
interruption_received_messages_total counter message_type
interruption_deleted_messages_total counter
interruption_message_queue_duration_seconds histogram
interruption_instance_status_unhealthy_total counter category
ec2nodeclasses_userdata_bytes gauge nodeclass
"""
_CONDITIONS = """
status_condition_count gauge name namespace type status reason
status_condition_current_status_seconds gauge name namespace type status reason
status_condition_transitions_total counter type status reason
status_condition_transition_seconds histogram type status
termination_current_time_seconds gauge name namespace
termination_duration_seconds histogram
"""
_KINDS = ("nodeclaim", "nodepool", "ec2nodeclass", "node")


def _read(table: str, prefix: str = "") -> dict[str, KarpenterSeries]:
    rows = (line.split() for line in table.strip().splitlines())
    return {f"{prefix}{name}": KarpenterSeries(kind, frozenset(labels)) for name, kind, *labels in rows}


KARPENTERS: Mapping[str, KarpenterSeries] = {
    **_read(_TABLE),
    **{name: each for kind in _KINDS for name, each in _read(_CONDITIONS, f"operator_{kind}_").items()},
}
"""Name without the prefix `karpenter_` → metric; those with the prefix `operator_` keep it"""
