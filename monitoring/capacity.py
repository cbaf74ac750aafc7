"""The dashboards about capacity: the fleet, its cost, and how long pods wait for it."""

from __future__ import annotations

from monitoring.panels import Dashboard, Panel, Query
from monitoring.queries import (
    CPU,
    MEMORY,
    SPOT,
    UNTRUE,
    USD,
    grown,
    mean,
    quantiles,
    selected,
)

_UNINITIALIZED = selected(
    "operator_nodeclaim_status_condition_current_status_seconds", 'type="Initialized"', UNTRUE
)

FLEET = Dashboard(
    "nodesmith-fleet",
    "nodesmith: fleet",
    "Which nodes there are, what they offer, and what pods request of it.",
    (
        (
            "Now",
            (
                Panel("Nodes", (Query(f"sum({selected('cluster_state_node_count')})"),), kind="stat"),
                Panel("Pods that wait", (Query(f"sum({selected('scheduler_queue_depth')})"),), kind="stat"),
                Panel(
                    "USD an hour", (Query(f"sum({selected('nodepools_cost_total')})"),), "currencyUSD", "stat"
                ),
                Panel(
                    "CPU requested",
                    (Query(f"avg({selected('cluster_utilization_percent', CPU)})"),),
                    "percent",
                    "stat",
                ),
                Panel(
                    "Memory requested",
                    (Query(f"avg({selected('cluster_utilization_percent', MEMORY)})"),),
                    "percent",
                    "stat",
                ),
            ),
        ),
        (
            "Nodes",
            tuple(
                Panel(
                    f"Nodes by {title}",
                    (
                        Query(
                            f"count by ({label}) ({selected('nodes_allocatable', CPU)})",
                            f"{{{{{label}}}}}",
                        ),
                    ),
                    stacked=True,
                )
                for title, label in (
                    ("NodePool", "nodepool"),
                    ("kind of capacity", "capacity_type"),
                    ("zone", "zone"),
                    ("instance type", "instance_type"),
                )
            ),
        ),
        (
            "Room",
            tuple(
                Panel(
                    f"{title}: allocatable and requested",
                    tuple(
                        Query(f"sum({selected(series, resource)})", legend)
                        for series, legend in (
                            ("nodes_allocatable", "allocatable"),
                            ("nodes_total_pod_requests", "requested"),
                            ("nodes_total_daemon_requests", "of which DaemonSets"),
                        )
                    ),
                    unit,
                )
                for title, resource, unit in (("CPU", CPU, "short"), ("Memory", MEMORY, "bytes"))
            ),
        ),
        (
            "Limits",
            (
                Panel(
                    "Use of NodePools' limits",
                    (
                        Query(
                            f"100 * {selected('nodepools_usage')} / ({selected('nodepools_limit')} > 0)",
                            "{{nodepool}} {{resource_type}}",
                        ),
                    ),
                    "percent",
                    "bargauge",
                ),
                Panel(
                    "NodeClaims created and terminated",
                    (
                        Query(grown("nodeclaims_created_total", "reason"), "created: {{reason}}"),
                        Query(grown("nodeclaims_terminated_total", "nodepool"), "terminated: {{nodepool}}"),
                    ),
                ),
            ),
        ),
    ),
)

MONEY = Dashboard(
    "nodesmith-money",
    "nodesmith: money",
    "What nodes cost at the prices at which they were bought, and what more could be saved.",
    (
        (
            "Now",
            (
                Panel(
                    "USD an hour", (Query(f"sum({selected('nodepools_cost_total')})"),), "currencyUSD", "stat"
                ),
                Panel(
                    "USD a month at this rate",
                    (Query(f"730 * sum({selected('nodepools_cost_total')})"),),
                    "currencyUSD",
                    "stat",
                ),
                Panel(
                    "USD an hour for each requested CPU",
                    (
                        Query(
                            f"sum({selected('nodepools_cost_total')}) / "
                            f"sum({selected('nodes_total_pod_requests', CPU)})"
                        ),
                    ),
                    "currencyUSD",
                    "stat",
                ),
            ),
        ),
        (
            "Cost",
            (
                Panel(
                    "USD an hour by NodePool",
                    (Query(f"sum by (nodepool) ({selected('nodepools_cost_total')})", "{{nodepool}}"),),
                    "currencyUSD",
                    stacked=True,
                ),
                Panel(
                    "Use of limits in USD an hour",
                    (
                        Query(
                            f"100 * {selected('nodepools_cost_total')} / on (cluster, nodepool) ("
                            f"{selected('nodepools_limit', USD)} > 0)",
                            "{{nodepool}}",
                        ),
                    ),
                    "percent",
                    "bargauge",
                ),
                Panel(
                    "Share of spot nodes",
                    (
                        Query(
                            f"100 * sum({selected('nodes_allocatable', CPU, SPOT)})"
                            f" / sum({selected('nodes_allocatable', CPU)})",
                            "of allocatable CPU",
                        ),
                    ),
                    "percent",
                ),
                Panel(
                    "CPU and memory that nobody requests",
                    tuple(
                        Query(f"100 - avg({selected('cluster_utilization_percent', capacity_kind)})", legend)
                        for capacity_kind, legend in ((CPU, "CPU"), (MEMORY, "memory"))
                    ),
                    "percent",
                ),
            ),
        ),
        (
            "Prices",
            (
                Panel(
                    "Cheapest offerings that are available, USD an hour",
                    (
                        Query(
                            "bottomk(20, min by (instance_type, capacity_type, zone) ("
                            f"{selected('cloudprovider_instance_type_offering_price_estimate')}) and "
                            "on (instance_type, capacity_type, zone) ("
                            f"{selected('cloudprovider_instance_type_offering_available')} == 1))",
                            "{{instance_type}} {{capacity_type}} {{zone}}",
                            instant=True,
                        ),
                    ),
                    "currencyUSD",
                    "bargauge",
                ),
                Panel(
                    "Offerings without capacity, by zone",
                    (
                        Query(
                            "count by (zone, capacity_type) ("
                            f"{selected('cloudprovider_instance_type_offering_available')} == 0)",
                            "{{zone}} {{capacity_type}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)

LATENCY = Dashboard(
    "nodesmith-latency",
    "nodesmith: from pending to ready",
    "How long pods wait, and which part of the way to a ready node takes the time.",
    (
        (
            "Pods",
            (
                Panel("From created to bound", quantiles("pods_bound_duration_seconds"), "s"),
                Panel(
                    "From created to running",
                    (
                        Query(
                            f"max by (quantile) ({selected('pods_startup_duration_seconds')})", "{{quantile}}"
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Pods that wait longest",
                    (
                        Query(
                            f"topk(20, max by (cluster, name) ({selected('pods_unbound_time_seconds')}))",
                            "{{name}}",
                            instant=True,
                        ),
                    ),
                    "s",
                    "table",
                ),
                Panel(
                    "Pods that wait",
                    (
                        Query(f"sum({selected('scheduler_queue_depth')})", "waiting"),
                        Query(
                            f"sum({selected('scheduler_unschedulable_pods_count')})", "nothing can be bought"
                        ),
                        Query(f"sum({selected('scheduler_ignored_pods_count')})", "no node can hold them"),
                    ),
                ),
            ),
        ),
        (
            "Parts",
            (
                Panel(
                    "Decision",
                    quantiles("scheduler_scheduling_duration_seconds", 'controller="provisioner"'),
                    "s",
                ),
                Panel(
                    "Calls to EC2 that launch",
                    quantiles("cloudprovider_duration_seconds", 'method="Create"'),
                    "s",
                ),
                Panel(
                    "Mean time that a NodeClaim's condition takes to change",
                    (mean("operator_nodeclaim_status_condition_transition_seconds", "type"),),
                    "s",
                    description="Launched, Registered and Initialized: from the instance to the ready node.",
                ),
                Panel(
                    "NodeClaims that are not initialized, longest first",
                    (
                        Query(
                            f"topk(20, max by (cluster, name, reason) ({_UNINITIALIZED}))",
                            "{{name}} {{reason}}",
                            instant=True,
                        ),
                    ),
                    "s",
                    "table",
                ),
            ),
        ),
        (
            "What is in the way",
            (
                Panel(
                    "Pods by the only zone that they can run in",
                    (
                        Query(
                            f"sum by (zone) ({selected('scheduler_pending_pods_by_effective_zone_count')})",
                            "{{zone}}",
                        ),
                    ),
                    stacked=True,
                ),
                Panel(
                    "Offerings that failed in launches",
                    (
                        Query(
                            grown("cloudprovider_instance_launch_failures_total", "zone, reason"),
                            "{{zone}} {{reason}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
