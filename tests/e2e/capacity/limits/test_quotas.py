"""Quotas over labels and limits in dollars: what is beyond them waits with a reason, and runs once they are raised.

The tests share a cluster. Each test's pods select nodes of its own NodePool, each of which holds one pod.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.model.karpenter.nodepools import LIMIT_USD_PER_HOUR, LIMIT_USD_PER_MONTH, OBJECTIVE
from nodesmith.model.ledger.spending import LEAST_HORIZON_SECONDS, seconds_left
from nodesmith_local.runs.timeline import condition
from tests.e2e.observed.observing import ONE_SIZE, claims_of, event_of, pool_of
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import Manifest, deployment, nodeclass, requirement
from tests.objects.quotas import QUOTA_CRD, quota_manifest
from tests.patience import patient

ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")
PRICE = 0.153
"""USD an hour of a c6a.xlarge on demand."""
PROMPT_SECONDS = 30.0
"""A raised limit has its effect within this time on an idle machine. A tick comes after a minute or two."""


def waiting(system: System, app: str) -> list[str]:
    return [pod["metadata"]["name"] for pod in system.pods(app) if not pod["spec"].get("nodeName")]


def explained(system: System, app: str) -> str:
    """Return what `nodesmith explain pod` prints about the first pod of an app that has no node."""
    names = waiting(system, app)
    reported = system.nodesmith("explain", "pod", f"default/{names[0]}").stdout if names else ""
    return " ".join(reported.split())  # the terminal's lines are wrapped


def until_only(system: System, running: int, app: str) -> None:
    """Wait until so many pods of an app run, while others wait."""
    system.until(
        f"{running} pods of {app} run and the others wait",
        lambda: (
            len(waiting(system, app)) == len(system.pods(app)) - running > 0
            and sum(pod["status"].get("phase") == "Running" for pod in system.pods(app)) == running
        ),
    )


def quota_of(team: str, nodes: int) -> Manifest:
    made = quota_manifest(team, {"nodes": str(nodes)}, labels={"team": team})
    return {**made, "metadata": {"name": team}}


def is_prompt(system: System, since: datetime) -> bool:
    return system.clock.now() - since < timedelta(seconds=patient(PROMPT_SECONDS))


def shown(system: System, kind: str, name: str) -> dict[str, Any]:
    return dict(system.cluster.objects.get(kind, name))


@pytest.fixture(scope="module", autouse=True)
def installed(lasting: System) -> None:
    """Install the CRD as Cluster Autoscaler would, while the forwarder runs."""
    lasting.apply(QUOTA_CRD)
    lasting.until(
        "the API server serves CapacityQuotas",
        lambda: "capacityquotas" in lasting.kubectl("api-resources", "--api-group=autoscaling.x-k8s.io"),
    )


def test_a_quota_over_a_label_stops_the_fourth_node_until_it_is_raised(shared: System) -> None:
    system, team = shared, "gold"
    system.apply(nodeclass(CLUSTER), quota_of(team, 3), pool_of(team))
    system.until(
        "readiness shows what counts against the quota",
        lambda: "used" in (shown(system, "capacityquotas.autoscaling.x-k8s.io", team).get("status") or {}),
    )
    system.apply(deployment(team, 5, cpu="3", nodeSelector={"team": team}))
    until_only(system, 3, team)
    system.until(
        "`explain pod` names the quota",
        lambda: (
            "the limit of 3 nodes of CapacityQuota gold is reached (3 nodes used since"
            in explained(system, team)
        ),
    )
    system.stays("the quota holds", lambda: len(claims_of(system, team)) == 3, seconds=5)
    event_of(system, team, "LimitReached")
    system.until(
        "the quota shows what is used",
        lambda: (
            shown(system, "capacityquotas.autoscaling.x-k8s.io", team)["status"]["used"]
            == {"resources": {"nodes": "3"}}
        ),
    )
    system.until(
        "`status` shows it, once it is in a snapshot",
        lambda: (
            "CapacityQuota gold: 3 of 3 nodes used" in " ".join(system.nodesmith("status").stdout.split())
        ),
    )

    raised = system.clock.now()
    system.apply(quota_of(team, 5))

    system.until_running(5, team)
    bought = sorted(claim["metadata"]["creationTimestamp"] for claim in claims_of(system, team))
    assert len(bought) == 5
    assert is_prompt(system, raised), "a tick, not the change of the quota, woke it"
    system.until_settled()


def test_an_unreadable_quota_stops_the_nodes_that_it_may_select_and_says_so(shared: System) -> None:
    system, team = shared, "silver"
    broken = quota_of(team, 3)
    broken["spec"]["limits"]["resources"] = {"node": "3"}
    system.apply(nodeclass(CLUSTER), broken, pool_of(team), pool_of("tin"))
    system.until(
        "the quota shows that it cannot be read",
        lambda: (
            condition(
                shown(system, "capacityquotas.autoscaling.x-k8s.io", team), "nodesmith.dev/Enforced"
            ).get("status")
            == "False"
        ),
    )
    system.apply(*(deployment(name, 1, nodeSelector={"team": name}) for name in (team, "tin")))
    system.until_running(1, "tin")
    system.until(
        "`explain pod` says what is wrong with the quota",
        lambda: "did you mean 'nodes'?" in explained(system, team),
    )
    assert claims_of(system, team) == []

    system.apply(quota_of(team, 3))

    system.until_running(1, team)
    system.until_settled()


def test_a_limit_in_dollars_stops_purchases_with_events_until_it_is_raised(shared: System) -> None:
    system, team = shared, "money"
    pool = pool_of(team, ONE_SIZE, ON_DEMAND)
    pool["metadata"]["annotations"] = {LIMIT_USD_PER_HOUR: f"{2.4 * PRICE:.3f}"}
    system.apply(nodeclass(CLUSTER), deployment(team, 4, cpu="3", nodeSelector={"team": team}))
    system.until_reported(4, team)  # so that one decision buys both nodes
    system.apply(pool)
    until_only(system, 2, team)
    system.until(
        "`explain pod` names the limit, its value and what is used",
        lambda: (
            "the limit of 0.367 USD an hour of NodePool money is reached (0.306 USD an hour used since"
            in explained(system, team)
        ),
    )
    system.stays("the limit holds", lambda: len(claims_of(system, team)) == 2, seconds=5)
    event_of(system, team, "LimitNearlyReached")
    event_of(system, team, "LimitReached")
    shown_pool = " ".join(system.nodesmith("explain", "nodepool", team).stdout.split())
    assert "limit NodePool money: 0.306 of 0.367 USD an hour used" in shown_pool

    raised = system.clock.now()
    pool["metadata"]["annotations"] = {LIMIT_USD_PER_HOUR: "2"}
    system.apply(pool)

    system.until_running(4, team)
    assert is_prompt(system, raised), "a tick, not the change of the limit, woke it"
    system.until_settled()


def test_a_limit_in_dollars_a_month_leaves_room_for_what_nodes_cost_until_its_end(shared: System) -> None:
    system, team = shared, "month"
    hours = max(seconds_left(system.clock.now()), LEAST_HORIZON_SECONDS) / 3600
    pool = pool_of(team, ONE_SIZE, ON_DEMAND)
    pool["metadata"]["annotations"] = {LIMIT_USD_PER_MONTH: f"{2.4 * PRICE * hours:.2f}"}
    system.apply(nodeclass(CLUSTER), pool)
    system.until_nodepools_ready()
    system.apply(deployment(team, 4, cpu="3", nodeSelector={"team": team}))
    until_only(system, 2, team)
    system.until(
        "`explain pod` names the limit",
        lambda: "USD a month of NodePool month is reached" in explained(system, team),
    )
    event_of(system, team, "LimitReached")

    pool["metadata"]["annotations"] = {LIMIT_USD_PER_MONTH: "100000"}
    system.apply(pool)

    system.until_running(4, team)
    system.until_settled()


def test_a_nodepool_with_least_nodes_buys_one_large_node_where_small_ones_cost_less(shared: System) -> None:
    system = shared
    sizes = requirement("node.kubernetes.io/instance-type", "c6a.large", "c6a.4xlarge")
    few, cheap = pool_of("few", sizes, ON_DEMAND), pool_of("cheap", sizes, ON_DEMAND)
    few["metadata"]["annotations"] = {OBJECTIVE: "LeastNodes"}
    few["spec"]["weight"] = 10
    system.apply(
        nodeclass(CLUSTER),
        *(deployment(team, 4, cpu="1", nodeSelector={"team": team}) for team in ("few", "cheap")),
    )
    system.until_reported(8, "few", "cheap")  # for the first pods alone, small nodes would be bought
    system.apply(few, cheap)
    for team in ("few", "cheap"):
        system.until_running(4, team)

    assert [types_of(system, team) for team in ("few", "cheap")] == [["c6a.4xlarge"], ["c6a.large"] * 4]
    system.until_settled()


def types_of(system: System, team: str) -> list[str]:
    return [c["metadata"]["labels"]["node.kubernetes.io/instance-type"] for c in claims_of(system, team)]
