"""The page of metrics names every series that Karpenter has: what the forwarder answers, or where else to look."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from nodesmith_forwarder.metrics.gauges import gauges
from nodesmith_forwarder.windows import Pace
from nodesmith_forwarder.world import World

PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
KARPENTERS = """
build_info cloudprovider_duration_seconds cloudprovider_errors_total cluster_state_node_count
cluster_state_synced cluster_state_unsynced_time_seconds cluster_utilization_percent consolidation_moves_total
consolidation_score nodeclaims_created_total nodeclaims_disrupted_total
nodeclaims_instance_termination_duration_seconds nodeclaims_terminated_total
nodeclaims_termination_duration_seconds nodeclaims_unhealthy_disrupted_total nodepools_allowed_disruptions
nodepools_cost_total nodepools_cost_tracker_errors_total nodepools_limit nodepools_nodes_consuming_budgets
nodepools_usage nodes_allocatable nodes_created_total nodes_current_lifetime_seconds nodes_drained_total
nodes_lifetime_duration_seconds nodes_system_overhead nodes_terminated_total
nodes_termination_duration_seconds nodes_total_daemon_limits nodes_total_daemon_requests
nodes_total_pod_limits nodes_total_pod_requests operator_nodeclaim_status_condition_count
operator_nodeclaim_status_condition_current_status_seconds
operator_nodeclaim_status_condition_transition_seconds operator_nodeclaim_status_condition_transitions_total
operator_nodeclaim_termination_current_time_seconds operator_nodeclaim_termination_duration_seconds
pods_bound_duration_seconds pods_disruption_initiated_total pods_drained_total pods_eviction_requests_total
pods_provisioning_bound_duration_seconds pods_provisioning_scheduling_undecided_time_seconds
pods_provisioning_startup_duration_seconds pods_provisioning_unbound_time_seconds
pods_provisioning_unstarted_time_seconds pods_scheduling_decision_duration_seconds
pods_startup_duration_seconds pods_state pods_unbound_time_seconds pods_unstarted_time_seconds
scheduler_ignored_pods_count scheduler_pending_pods_by_effective_zone_count scheduler_queue_depth
scheduler_scheduling_duration_seconds scheduler_unfinished_work_seconds scheduler_unschedulable_pods_count
voluntary_disruption_consolidation_timeouts_total voluntary_disruption_decision_evaluation_duration_seconds
voluntary_disruption_decisions_by_nodepool_total voluntary_disruption_decisions_total
voluntary_disruption_eligible_nodes voluntary_disruption_failed_validations_total
voluntary_disruption_queue_failures_total
""".split()
"""Without `karpenter_`, which those of `operator_` do not have; of what each kind has, NodeClaims' stand for all"""


class Clock:
    def now(self) -> datetime:
        return datetime(2026, 11, 22, tzinfo=UTC)

    def wall_seconds(self, seconds: float) -> float:
        return seconds


def answered() -> set[str]:
    """Give the names that the forwarder answers Prometheus with."""
    world = World(Clock(), Pace())
    counted, observed = world.measured()
    return {family.name for family in [*counted, *gauges(observed, Clock().now())]}


def on_the_page(part: str) -> list[str]:
    """Give the names in the first column of a part's table; `*` in one stands for anything."""
    rows = re.findall(r"^\| (`[a-z].*?) \|", part, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([a-z_*]+)`", row)]


ABOVE, BELOW = PAGE.split("## What Karpenter has and the forwarder does not")


def test_every_series_of_karpenters_is_answered_or_has_another_place() -> None:
    names = [*on_the_page(ABOVE), *on_the_page(BELOW.split("## CloudWatch")[0])]
    assert [name for name in KARPENTERS if not any(fnmatchcase(name, known) for known in names)] == []


def test_the_page_promises_what_the_forwarder_answers_and_nothing_else() -> None:
    promised = {name for name in on_the_page(ABOVE) if "operator" not in name}
    assert promised == {name for name in answered() if "operator" not in name}
