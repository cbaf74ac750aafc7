"""The plan's accounting: every pod appears once, every price is that of an offering, and every sum is correct."""

from __future__ import annotations

from collections import Counter
from math import isclose

from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.purchases import Purchase
from nodesmith_cli.audit.reading.cluster import Cluster
from nodesmith_cli.audit.reading.fields import plus, shown
from nodesmith_cli.audit.reading.plans import Plan, PlannedNode
from nodesmith_cli.audit.reading.pods import Pod, needs_of
from nodesmith_cli.audit.violations import Kind

_ATTACHABLE = "attachable-volumes-"
"""The prefix of attachable volumes, which are not requests of pods. See `mounting`."""
_ROUNDING = 1e-6
"""The tolerance for rounded prices, in USD an hour for each node."""


def check_pods(result: Outcome) -> None:
    """Check that the plan contains every pending pod exactly once, and no other pod."""
    cluster, placed = result.cluster, _placed(result.plan)
    spoken = placed + Counter(result.plan.unplaced)
    for key, times in sorted(spoken.items()):
        pod = cluster.pods.get(key)
        if pod is None:
            result.report(Kind.POD_UNKNOWN, key, "is not in the manifests, or has finished")
            continue
        reason = _no_need(cluster, pod, placed=placed[key] > 0)
        if reason:
            result.report(Kind.POD_NOT_PENDING, key, reason)
        if placed[key] and pod.fault:
            result.report(Kind.UNREADABLE, key, f"is placed, but is unreadable: {pod.fault}")
        if times > 1:
            result.report(Kind.POD_TWICE, key, f"appears {times} times")
    for key, pod in sorted(cluster.pods.items()):
        if cluster.is_pending(pod) and not (spoken[key] or pod.gated or pod.nominated):
            result.report(Kind.POD_MISSING, key, "is pending, but the plan does not contain it")


def _placed(plan: Plan) -> Counter[str]:
    placed = Counter(key for _, pods in plan.existing for key in pods)
    placed.update(key for node in plan.nodes for key in node.pods)
    return placed


def _no_need(cluster: Cluster, pod: Pod, *, placed: bool) -> str:
    """Return the reason why the plan must not contain or place a pod, or an empty string."""
    if pod.node and not cluster.is_moving(pod):
        return f"needs no node: it is bound to {pod.node}"
    if pod.is_daemon or pod.is_mirror or (pod.deleting and not pod.node):
        return "needs no node: it is a DaemonSet pod, a static pod or being deleted"
    return "is placed, but has scheduling gates" if placed and pod.gated else ""


def check_prices(result: Outcome) -> None:
    """Check that each node has its offering's price, the total is their sum, and the bound is not above it."""
    plan = result.plan
    for node in plan.nodes:
        offered = _machine_prices(result.purchases.get(node.name), node)
        if offered and not any(
            isclose(node.price_hourly, price, rel_tol=1e-6, abs_tol=_ROUNDING) for price in offered
        ):
            where = f"{node.instance_type} in {node.zone} as {node.capacity_type}"
            result.report(
                Kind.PRICE, node.name, f"has the price {node.price_hourly}, but {where} costs {offered[0]}"
            )
    total = sum(node.price_hourly for node in plan.nodes)
    stated, bound = plan.numbers.get("priceHourly"), plan.numbers.get("lowerBoundHourly")
    slack = _ROUNDING * (len(plan.nodes) + 1)
    if stated is not None and not isclose(stated, total, rel_tol=1e-6, abs_tol=slack):
        result.report(Kind.SUM, "priceHourly", f"is {stated}, but the nodes cost {total}")
    if stated is not None and bound is not None and bound > stated * (1 + 1e-6) + slack:
        result.report(Kind.BOUND, "lowerBoundHourly", f"{bound} is above the plan's price, {stated}")


def _machine_prices(bought: Purchase | None, node: PlannedNode) -> list[float]:
    """Return the prices of the machine: its own, and that of dedicated hardware, which pods may ask for."""
    machines = [m for m in (bought.machines if bought else ()) if m.type.name == node.instance_type]
    sold = (node.zone, node.capacity_type)
    dedicated = [
        o.price_hourly_usd
        for m in machines[:1]
        for o in m.type.offerings
        if o.dedicated and (o.zone, o.capacity_type) == sold
    ]
    return [m.price_hourly_usd for m in machines[:1]] + dedicated


def check_requests(result: Outcome) -> None:
    """Check that each node's `requests` are those of its pods and of the DaemonSets on its instanceType.

    They may include DaemonSets that only run in another zone or capacity type, which is a safe overestimate.
    """
    every = needs_of(result.cluster.daemons)
    for node in result.plan.nodes:
        bought, place = result.purchases.get(node.name), result.places.get(node.name)
        if bought is None or place is None:
            continue
        pods = needs_of(place.pods)
        least = plus(pods, needs_of(bought.daemons.get(node.instance_type, ())))
        stated = {n: a for n, a in node.requests.items() if not n.startswith(_ATTACHABLE)}
        for name in sorted(least.keys() | stated.keys()):
            stated_amount, required_amount = stated.get(name, 0), least.get(name, 0)
            if not required_amount <= stated_amount <= pods.get(name, 0) + every.get(name, 0):
                required, has = shown(name, required_amount), shown(name, stated_amount)
                message = f"pods and DaemonSets request {required}, but requests has {has}"
                result.report(Kind.REQUESTS, node.name, message)
