"""Consolidation and drift on the real control plane: the fleet shrinks with its workload, and drifts within budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import fsum

import pytest

from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith_formats.kubernetes.objects import pod_key
from nodesmith_local.aws.account import RELEASES
from nodesmith_local.runs.timeline import condition
from tests.e2e.conftest import Figures, Start
from tests.e2e.systems.system import CLUSTER, HURRIED, Manifest, System, Waited
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement, zone_spread

pytestmark = pytest.mark.slow

SIZES = requirement("node.kubernetes.io/instance-type", "c6a.2xlarge", "c6a.4xlarge", "m6a.2xlarge")
ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.large")  # 2 vCPUs: one pod of 1 each
ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")
NODES, AT_ONCE = 40, 4
NOTICED = timedelta(seconds=10)
"""Clock seconds (ten to a real second) by which the watches of Nodes and pods may differ."""


def price_hourly_usd(claims: tuple[NodeClaim, ...]) -> float:
    """Return the price of the instances that run or are starting: EC2 charges until an instance is terminated."""
    return fsum(claim.price_hourly_usd for claim in claims if claim.phase is not Phase.TERMINATED)


def by_zone(system: System) -> list[int]:
    """Count pods in the zones that have nodes, as kube-scheduler does for a spread, in descending order."""
    zones = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in system.nodes()}
    pods = Counter(zones[pod["spec"]["nodeName"]] for pod in system.pods())
    return sorted((pods[zone] for zone in set(zones.values())), reverse=True)


def skew(system: System) -> int:
    """Return the largest difference in pods between the nodes' zones."""
    counts = by_zone(system)
    return counts[0] - counts[-1]


def waits(waited: Mapping[str, Waited]) -> list[float]:
    """Return how long each of these pods was pending, the longest last; fail if a pod never ran."""
    never = [key for key, one in waited.items() if one.running_at is None]
    assert not never, never
    return sorted(
        (one.running_at - one.pending_at).total_seconds() for one in waited.values() if one.running_at
    )


@dataclass(slots=True)
class Opened:
    """When pods could first be bound to each Node."""

    at: dict[str, datetime] = field(default_factory=dict)

    def note(self, node: Manifest, now: datetime, *, gone: bool) -> None:
        """Record a change of a Node."""
        if not gone and condition(node, "Ready").get("status") == "True" and not node["spec"].get("taints"):
            self.at.setdefault(node["metadata"]["name"], now)

    def late_for(self, waited: Mapping[str, Waited]) -> list[str]:
        """Return the pods that were pending before their node was open, for longer than a restart takes."""
        return [key for key, one in waited.items() if self.at[one.node] > one.pending_at + NOTICED]


def test_when_half_of_the_pods_leave_nodes_are_removed_and_the_rest_stays_spread(
    start: Start, figures: Figures
) -> None:
    system = start(speed=HURRIED)
    web = deployment("web", 20, topologySpreadConstraints=zone_spread("web", "ScheduleAnyway"))
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[SIZES, ON_DEMAND]))
    system.until_nodepools_ready()
    system.apply(web)
    system.until_running(20, seconds=120)
    system.until_settled()
    before = system.ledger().claims
    prices = [price_hourly_usd(before)]

    system.kubectl("scale", "deployment", "web", "--replicas=10")
    system.until_running(10)
    left = skew(system)

    def two_are_left() -> bool:
        claims = system.ledger().claims
        prices.append(price_hourly_usd(claims))
        return len(claims) == 2 and all(claim.phase is Phase.INITIALIZED for claim in claims)

    system.until("two nodes are left", two_are_left, seconds=240)
    system.until_running(10)
    system.until_settled()
    after = system.ledger().claims
    new = [claim for claim in after if claim.name not in {old.name for old in before}]
    figures("price-before-hourly-usd", round(prices[0], 4))
    figures("price-after-hourly-usd", round(price_hourly_usd(after), 4))
    assert max(prices) <= prices[0] + price_hourly_usd(tuple(new)) + 1e-9
    assert price_hourly_usd(after) < 0.7 * prices[0]
    assert len(system.nodes()) == len(by_zone(system)) == 2, "two nodes in two zones"
    assert skew(system) <= max(1, left), (
        "the ReplicaSet chose which pods stay; moving the others must not make the skew worse"
    )


def test_nodes_with_an_old_image_are_replaced_a_few_at_a_time(start: Start, figures: Figures) -> None:
    system = start(speed=HURRIED)
    old, new = ([{"alias": f"al2023@v{release}"}] for release in (RELEASES[0], RELEASES[-1]))
    pool = nodepool(requirements=[ONE_SIZE, ON_DEMAND])
    pool["spec"]["disruption"] = {"budgets": [{"nodes": "10%"}], "consolidateAfter": "Never"}
    system.apply(nodeclass(CLUSTER, amiSelectorTerms=old), pool)
    system.until_nodepools_ready()
    system.apply(deployment("web", NODES))
    system.until_running(NODES, seconds=240)
    system.until_settled(seconds=120)
    first = {claim.name for claim in system.ledger().claims}
    images = {claim.image_id for claim in system.ledger().claims}
    assert (len(first), len(images)) == (NODES, 1)
    at_once: list[int] = []

    system.apply(nodeclass(CLUSTER, amiSelectorTerms=new))

    def renewed() -> bool:
        ledger = system.ledger()
        moving = {name for move in ledger.moves if not move.is_over for name in move.sources}
        ending = {c.name for c in ledger.claims if c.is_ending and c.phase is not Phase.TERMINATED}
        at_once.append(len((moving | ending) & {claim.name for claim in ledger.claims}))
        return not first & {claim.name for claim in ledger.claims}

    began, before = system.clock.now(), {pod_key(pod) for pod in system.pods()}
    opened = Opened()
    with system.followed("nodes", opened.note), system.watched_pods() as waited:
        system.until("no node of the old image is left", renewed, seconds=900)
        system.until_running(NODES, seconds=60)
    system.until_settled()
    figures("renewed-nodes", NODES)
    figures("renewed-in-s", round((system.clock.now() - began).total_seconds()))
    figures("at-once-most", max(at_once))
    anew = {key: one for key, one in waited.items() if key not in before}
    seconds = waits(anew)
    figures("pods-made-again", len(seconds))
    figures("pending-s-longest", round(seconds[-1], 1))
    figures("pending-s-together", round(fsum(seconds), 1))
    assert len(seconds) >= NODES
    assert not opened.late_for(anew)
    assert max(at_once) <= AT_ONCE
    assert not images & {claim.image_id for claim in system.ledger().claims}
