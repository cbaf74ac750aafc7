"""How long disruption takes, as an observer with a watch sees it, in real time and with 30 seconds per boot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith_local.aws.instances.stages import USUAL
from nodesmith_local.runs.timeline import condition
from tests.e2e.conftest import Alone, Figures
from tests.e2e.systems.system import CLUSTER, Manifest, System
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement

pytestmark = pytest.mark.slow

SHARED = {"delays": USUAL}
ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.large")  # 2 vCPUs: one pod of 1 each
ON_DEMAND = requirement("karpenter.sh/capacity-type", "on-demand")


@dataclass(slots=True)
class Seen:
    """When an observer first saw each change of one NodeClaim and its node's pods; `emptied` is the last time."""

    node: str = ""
    moments: dict[str, datetime] = field(default_factory=dict)

    def note(self, what: str, now: datetime) -> None:
        """Record the first time that something is seen."""
        self.moments.setdefault(what, now)

    def seconds(self, what: str, since: datetime) -> float:
        """Return how long after a moment something was seen. Raises KeyError where it never was."""
        return (self.moments[what] - since).total_seconds()

    def busy(self, until: datetime) -> list[tuple[datetime, datetime]]:
        """Return the spans in which the NodeClaim is starting or ending."""
        spans = ("created", "initialized"), ("ended", "gone")
        return [(self.moments[a], self.moments.get(b, until)) for a, b in spans if a in self.moments]


@dataclass(slots=True)
class Observer:
    """Watches the NodeClaims of one NodePool, and the pods on their nodes."""

    pool: str
    claims: dict[str, Seen] = field(default_factory=dict)

    def claim(self, claim: Manifest, now: datetime, *, gone: bool) -> None:
        """Record a change of a NodeClaim."""
        if claim["metadata"].get("labels", {}).get(NODEPOOL) != self.pool:
            return
        seen = self.claims.setdefault(claim["metadata"]["name"], Seen())
        seen.node = claim.get("status", {}).get("nodeName") or seen.node
        seen.note("created", now)
        for kind in ("Initialized", "Drifted"):
            if condition(claim, kind).get("status") == "True":
                seen.note(kind.lower(), now)
        if claim["metadata"].get("deletionTimestamp"):
            seen.note("ended", now)
        if gone:
            seen.note("gone", now)

    def pod(self, pod: Manifest, now: datetime, *, gone: bool) -> None:
        """Record a change of a pod."""
        for seen in self.claims.values():
            if seen.node and seen.node == pod["spec"].get("nodeName"):
                if pod["metadata"].get("deletionTimestamp"):
                    seen.note("evicted", now)
                if gone:
                    seen.moments["emptied"] = now

    def story(self, began: datetime) -> str:
        """Describe what was seen of each NodeClaim, in seconds since `began`, for error messages."""
        reported = []
        for name, seen in self.claims.items():
            later = sorted((at, what) for what, at in seen.moments.items() if at >= began)
            reported.append(
                f"{name}: {', '.join(f'{what} {(at - began).total_seconds():.1f}' for at, what in later)}"
            )
        return "\n".join(reported)


def workload(system: System, name: str, replicas: int, **disruption: Any) -> Mapping[str, Any]:
    """Create a NodePool with its own Deployment, each pod of which fills a node, and return the NodePool."""
    pool = nodepool(name, requirements=[ONE_SIZE, ON_DEMAND])
    pool["spec"]["disruption"] = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "Never", **disruption}
    system.apply(nodeclass(CLUSTER), pool)
    system.until_nodepools_ready()
    system.apply(deployment(name, replicas, nodeSelector={NODEPOOL: name}))
    system.until_running(replicas, name, seconds=180)
    system.until_settled(seconds=60)
    return pool


def relabelled(pool: Mapping[str, Any]) -> Manifest:
    """Return the NodePool with a label in its template that its nodes do not have."""
    template = {**pool["spec"]["template"], "metadata": {"labels": {"team": "blue"}}}
    return {**pool, "spec": {**pool["spec"], "template": template}}


def seconds_without(spans: Iterable[tuple[datetime, datetime]], began: datetime, ended: datetime) -> float:
    """Return how many seconds between two moments no span covers."""
    idle, at = 0.0, began
    for start, end in sorted(spans):
        idle += max(0.0, (min(start, ended) - at).total_seconds())
        at = max(at, min(end, ended))
    return idle + (ended - at).total_seconds()


def test_all_nodeclaims_of_a_changed_nodepool_are_drifted_within_seconds(
    shared: System, figures: Figures, alone: Alone
) -> None:
    count = 20
    pool = workload(shared, "many", count, budgets=[{"nodes": "0"}])
    seen = Observer("many")
    with alone(), shared.followed("nodeclaims", seen.claim):
        assert len(seen.claims) == count
        began = shared.clock.now()
        shared.apply(relabelled(pool))
        shared.until(
            "all are Drifted",
            lambda: all("drifted" in one.moments for one in seen.claims.values()),
            seconds=90,
        )
    seconds = max(one.seconds("drifted", began) for one in seen.claims.values())
    figures("drifted-seconds", round(seconds, 1))
    assert seconds <= 5, seen.story(began)


def test_five_drifted_nodes_are_replaced_three_at_a_time_without_pauses(
    shared: System, figures: Figures, alone: Alone
) -> None:
    pool = workload(shared, "rolling", 5, budgets=[{"nodes": "3"}])
    seen = Observer("rolling")
    replaced_by: dict[str, tuple[str, ...]] = {}
    with alone(), shared.followed("nodeclaims", seen.claim), shared.followed("pods", seen.pod, "default"):
        nodes = {one.node for one in seen.claims.values()}
        assert len(nodes) == 5
        began = shared.clock.now()
        shared.apply(relabelled(pool))

        def renewed() -> bool:
            replaced_by.update({c.name: c.replaced_by for c in shared.ledger().claims if c.replaced_by})
            return not nodes & {node["metadata"]["name"] for node in shared.nodes()}

        shared.until("no old node is left", renewed, seconds=600)
        ended = shared.clock.now()
    spans = [span for one in seen.claims.values() for span in one.busy(ended) if span[1] > began]
    waits = [
        seen.claims[old].seconds("evicted", max(seen.claims[name].moments["initialized"] for name in new))
        for old, new in replaced_by.items()
    ]
    figures("rolling-5-seconds", round((ended - began).total_seconds(), 1))
    figures("rolling-5-idle-seconds", round(seconds_without(spans, began, ended), 1))
    figures("ready-to-eviction-seconds", round(max(waits), 1))
    assert len(waits) == 5
    assert max(waits) <= 3, seen.story(began)
    assert (ended - began).total_seconds() <= 150, seen.story(began)


def test_an_empty_node_without_consolidate_after_ends_within_seconds(
    shared: System, figures: Figures, alone: Alone
) -> None:
    workload(shared, "short", 2, consolidateAfter="0s", consolidationPolicy="WhenEmpty")
    seen = Observer("short")
    with alone(), shared.followed("nodeclaims", seen.claim), shared.followed("pods", seen.pod, "default"):
        began = shared.clock.now()
        shared.kubectl("delete", "deployment", "short")
        shared.until(
            "both end", lambda: all("ended" in one.moments for one in seen.claims.values()), seconds=150
        )
    waits = [one.seconds("ended", one.moments["emptied"]) for one in seen.claims.values()]
    figures("empty-to-ended-seconds", round(max(waits), 1))
    assert max(waits) <= 25, seen.story(began)
