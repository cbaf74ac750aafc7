"""The dashboards about changes: disruption, interruptions, and the health of what observes and carries them out."""

from __future__ import annotations

from monitoring.panels import Dashboard, Panel, Query
from monitoring.queries import (
    conditions,
    grown,
    quantiles,
    selected,
)

DISRUPTION = Dashboard(
    "nodesmith-disruption",
    "nodesmith: disruption",
    "Which nodes are removed or replaced and why, what budgets allow, and how long drains take.",
    (
        (
            "Decisions",
            (
                Panel(
                    "Moves",
                    (
                        Query(
                            grown("voluntary_disruption_decisions_total", "decision, reason"),
                            "{{decision}} {{reason}}",
                        ),
                    ),
                ),
                Panel(
                    "NodeClaims that were disrupted",
                    (Query(grown("nodeclaims_disrupted_total", "reason"), "{{reason}}"),),
                ),
                Panel(
                    "Nodes that may be disrupted",
                    (
                        Query(
                            f"sum by (reason) ({selected('voluntary_disruption_eligible_nodes')})",
                            "{{reason}}",
                        ),
                    ),
                ),
                Panel(
                    "Moves that failed",
                    (
                        Query(
                            grown("voluntary_disruption_failed_validations_total", "consolidation_type"),
                            "validation: {{consolidation_type}}",
                        ),
                        Query(
                            grown("voluntary_disruption_queue_failures_total", "reason"),
                            "replacement: {{reason}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "Budgets",
            (
                Panel(
                    "Disruptions that budgets allow",
                    (
                        Query(
                            f"sum by (nodepool, reason) ({selected('nodepools_allowed_disruptions')})",
                            "{{nodepool}} {{reason}}",
                        ),
                    ),
                ),
                Panel(
                    "Nodes that count against budgets",
                    (
                        Query(
                            f"max by (nodepool) ({selected('nodepools_nodes_consuming_budgets')})",
                            "{{nodepool}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "Drains",
            (
                Panel(
                    "From the decision to the end of a NodeClaim",
                    quantiles("nodeclaims_termination_duration_seconds"),
                    "s",
                ),
                Panel(
                    "NodeClaims that end, longest first",
                    (
                        Query(
                            "topk(20, max by (cluster, name) ("
                            f"{selected('operator_nodeclaim_termination_current_time_seconds')}))",
                            "{{name}}",
                            instant=True,
                        ),
                    ),
                    "s",
                    "table",
                ),
                Panel(
                    "Pods that were evicted", (Query(grown("pods_drained_total", "reason"), "{{reason}}"),)
                ),
                Panel(
                    "Eviction requests by the API server's answer",
                    (Query(grown("pods_eviction_requests_total", "code"), "{{code}}"),),
                ),
            ),
        ),
        (
            "Searches",
            (
                Panel(
                    "Duration of searches",
                    quantiles("voluntary_disruption_decision_evaluation_duration_seconds"),
                    "s",
                ),
                Panel("Age of nodes that ended", quantiles("nodes_lifetime_duration_seconds"), "s"),
            ),
        ),
    ),
)

INTERRUPTIONS = Dashboard(
    "nodesmith-interruptions",
    "nodesmith: interruptions",
    "What EC2 takes and breaks, how soon notices are read, and which nodes were repaired.",
    (
        (
            "Notices",
            (
                Panel(
                    "Notices of EC2 and AWS Health",
                    (
                        Query(
                            grown("interruption_received_messages_total", "message_type"), "{{message_type}}"
                        ),
                    ),
                ),
                Panel(
                    "From the event until it was read",
                    quantiles("interruption_message_queue_duration_seconds"),
                    "s",
                ),
                Panel(
                    "NodeClaims that ended because of them",
                    (
                        Query(
                            grown(
                                "nodeclaims_disrupted_total",
                                "reason, capacity_type",
                                'reason!~"empty|drifted|underutilized|expired"',
                            ),
                            "{{reason}} {{capacity_type}}",
                        ),
                    ),
                ),
                Panel(
                    "Notices that were handled",
                    (Query(grown("interruption_deleted_messages_total", "cluster"), "{{cluster}}"),),
                ),
            ),
        ),
        (
            "Health of instances",
            (
                Panel(
                    "Nodes that end because of a status check",
                    (
                        Query(
                            grown("interruption_instance_status_unhealthy_total", "category"), "{{category}}"
                        ),
                    ),
                ),
                Panel(
                    "Nodes that were replaced because of a condition",
                    (
                        Query(
                            grown("nodeclaims_unhealthy_disrupted_total", "condition, nodepool"),
                            "{{condition}} {{nodepool}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)

HEALTH = Dashboard(
    "nodesmith-health",
    "nodesmith: health",
    "Whether the forwarder observes the cluster, which objects are at fault, and how EC2 answers.",
    (
        (
            "Forwarder",
            (
                Panel(
                    "Observes every kind", (Query(f"min({selected('cluster_state_synced')})"),), kind="stat"
                ),
                Panel(
                    "Does not for",
                    (Query(f"max({selected('cluster_state_unsynced_time_seconds')})"),),
                    "s",
                    "stat",
                ),
                Panel(
                    "Versions",
                    (
                        Query(
                            f"count by (version, goarch) ({selected('build_info')})",
                            "{{version}} {{goarch}}",
                            instant=True,
                        ),
                    ),
                    kind="stat",
                ),
            ),
        ),
        (
            "Objects",
            (
                conditions("nodepool", "NodePools whose conditions are not True"),
                conditions("ec2nodeclass", "EC2NodeClasses whose conditions are not True"),
            ),
        ),
        (
            "EC2",
            (
                Panel(
                    "Calls that failed",
                    (Query(grown("cloudprovider_errors_total", "method, error"), "{{method}} {{error}}"),),
                ),
                Panel(
                    "Calls",
                    (
                        Query(
                            grown("cloudprovider_duration_seconds_count", "controller, method"),
                            "{{controller}} {{method}}",
                        ),
                    ),
                ),
                Panel(
                    "Duration of calls",
                    quantiles("cloudprovider_duration_seconds", by="method"),
                    "s",
                ),
                Panel(
                    "Searches that ended before all nodes were examined",
                    (
                        Query(
                            grown("voluntary_disruption_consolidation_timeouts_total", "consolidation_type"),
                            "{{consolidation_type}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
