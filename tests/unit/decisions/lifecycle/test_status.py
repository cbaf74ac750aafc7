"""`nodesmith status`: a cluster, its interruptions and its disruptions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.decisions.readiness.launchconditions import NEAR_LIMIT
from nodesmith.decisions.termination.waiting import replacement
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.region import Region
from nodesmith.model.ledger.spending import Share
from nodesmith.model.limits.spendinglimits import parse_spending_limit
from nodesmith.model.policies import MONTHLY
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.costs.limits import limit_lines, limit_reports, read_region
from nodesmith_cli.views.status import lines, report_of
from tests.builders import NOW, bind, claim, node, shape, snapshot
from tests.objects.nodeoverlays import overlay

BORN = NOW - timedelta(hours=3)
BEGAN = NOW - timedelta(seconds=40)


def running(name: str, at: Any = BORN) -> NodeClaim:
    found = claim(name, phase=Phase.PENDING, created_at=at, phase_since=at)
    for phase in (Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED):
        found = found.advanced(phase, at)
    return replace(found, provider_id=f"aws:///us-east-1a/i-{name}", instance_id=f"i-{name}")


def interrupted(name: str, seconds: int = 80, **waits: str) -> NodeClaim:
    deadline = NOW + timedelta(seconds=seconds)
    found = running(name).terminating("SpotInterrupted", "EC2 says so", BEGAN, deadline)
    return replace(found, **{"reason": "", "message": "", **waits})  # type: ignore[arg-type]


def seen(*claims: NodeClaim, **fields: Any) -> Snapshot:
    shown = []
    for each in claims:
        written = manifest(each)
        written["metadata"]["creationTimestamp"] = each.created_at.isoformat()
        if each.is_ending:
            written["metadata"]["deletionTimestamp"] = BEGAN.isoformat()
        shown.append(written)
    nodes = tuple(its_node(each.name) for each in claims if each.initialized_at)
    return replace(snapshot(nodes=nodes, nodeclaims=tuple(shown), **fields), taken_at=NOW)


def its_node(name: str) -> Node:
    return node(f"node-{name}", provider_id=f"aws:///us-east-1a/i-{name}")


def test_a_calm_cluster_is_shown_in_three_lines() -> None:
    pods = (*bind(shape(), "node-a"), *bind(shape(), ""))
    found = report_of(seen(running("a"), pods=pods), NOW)
    assert list(lines(found)) == ["1 node", "2 pods (1 pending)", "no interruptions in progress"]


def test_the_time_of_an_old_snapshot_is_printed_first() -> None:
    found = report_of(seen(running("a")), NOW + timedelta(minutes=10))
    first, *others = lines(found)
    assert first == "as of 2026-11-21 12:00:00 UTC, the time of the newest snapshot"
    assert others == ["1 node", "no pods", "no interruptions in progress"]


def test_an_interruption_shows_the_seconds_left_and_its_replacement() -> None:
    waits = replacement(running("a"))
    bought = claim("new", phase=Phase.PENDING, created_at=BEGAN, phase_since=BEGAN)
    bought = bought.advanced(Phase.LAUNCHED, NOW - timedelta(seconds=31))
    found = report_of(seen(interrupted("a", reason=waits.reason, message=waits.message), bought), NOW)
    (reported,) = found["interruptions"]
    assert (reported["name"], reported["cause"], reported["secondsLeft"]) == ("node-a", "SpotInterrupted", 80)
    assert reported["waitsFor"] == f"{waits.message}: new has been Launched for 31 s"
    assert (found["coming"], found["ending"]) == (1, 1)
    assert "  node-a  SpotInterrupted         80 s left  Terminating, waiting: its pods" in "\n".join(
        lines(found)
    )


def test_interruptions_are_sorted_by_deadline_without_other_terminations() -> None:
    deleted = running("c").terminating("Deleted", "by hand", BEGAN, NOW + timedelta(seconds=5))
    found = report_of(seen(interrupted("a"), interrupted("b", seconds=9), deleted), NOW)
    assert [each["nodeClaim"] for each in found["interruptions"]] == ["b", "a"]


def test_a_passed_deadline_has_zero_seconds_left() -> None:
    (reported,) = report_of(seen(interrupted("a", seconds=-9)), NOW)["interruptions"]
    assert reported["secondsLeft"] == 0


def test_nodes_of_moves_are_shown_once_they_are_closed_to_new_pods() -> None:
    snapshot = seen(running("a"), running("b").terminating("Drifted", "AMIDrift", BEGAN), running("c"))
    nodes = tuple(replace(n, taints=(DISRUPTED,)) if n.name == "node-a" else n for n in snapshot.nodes)
    found = report_of(replace(snapshot, nodes=nodes), NOW)
    reported = [(each["nodeClaim"], each["reason"], each["phase"]) for each in found["disruptions"]]
    assert reported == [("a", None, None), ("b", "Drifted", "Terminating")]
    text = "\n".join(lines(found))
    closed = "node-a  closed to new pods: its move is Proposed or Replacing"
    assert f"2 nodes under disruption\n  {closed}\n  node-b  Drifted: Terminating" in text


def test_overlays_are_counted_and_those_left_out_are_named() -> None:
    why = {"type": "ValidationSucceeded", "status": "False", "reason": "Conflict", "message": "contradicts b"}
    overlays = (overlay("a", price="1"), overlay("b", price="2"))
    shown = ({**overlays[0], "status": {"conditions": [why]}}, overlays[1])
    found = list(lines(report_of(seen(nodeoverlays=shown), NOW)))
    assert found[2:4] == [
        "2 NodeOverlays (1 applied)",
        "  NodeOverlay a is left out: Conflict: contradicts b",
    ]


def test_spending_limits_are_reported_with_what_is_used_and_since_when() -> None:
    near, far, odd = (
        parse_spending_limit(name, text)
        for name, text in (
            ("near", '{"format": 1, "usdPerHour": "1"}'),
            ("far", '{"format": 1, "usdPerMonth": "900"}'),
            ("odd", "5 EUR"),
        )
    )
    shares = {
        near.key: {"east": Share(500_000), "west": Share(350_000)},
        far.key: {"east": Share(0, f"{NOW:%Y-%m}", 90 * MONTHLY)},
    }
    condition = {
        "type": NEAR_LIMIT,
        "status": "True",
        "message": "SpendingLimit near: 0.85 of 1 USD an hour used",
        "lastTransitionTime": "2026-11-20T10:00:00Z",
    }
    pools = [{"metadata": {"name": "default"}, "status": {"conditions": [condition]}}]
    reported = limit_reports(Region("", (far, near, odd), ("east", "west"), shares), NOW, pools)
    month, hour, unread = limit_lines(reported)
    assert month.startswith("SpendingLimit far: 90 of 900 USD a month used (10 %) since 2026-11-01T00:00:00Z")
    assert hour == "SpendingLimit near: 0.85 of 1 USD an hour used (85 %) since 2026-11-20T10:00:00Z"
    assert unread.startswith("SpendingLimit odd cannot be read, so nothing is bought that it may select:")


def test_a_table_that_the_caller_may_not_read_is_reported() -> None:
    class Refusing:
        meta = SimpleNamespace(
            region_name="eu-central-1", events=SimpleNamespace(register=lambda *_, **__: None)
        )

        def batch_get_item(self, **_: object) -> None:
            error = {"Error": {"Code": "AccessDeniedException", "Message": "no right"}}
            raise ClientError(error, "BatchGetItem")  # type: ignore[arg-type]

    region, why_not = read_region(Refusing())
    assert region is None
    assert "no right" in why_not
