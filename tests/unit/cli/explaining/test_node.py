"""`nodesmith explain node` on terminating nodes and on others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from nodesmith.keys import snapshot_key
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.disruption import SCHEDULE
from nodesmith.model.karpenter.nodeclaimobjects import manifest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget
from nodesmith.model.kubernetes.nodes import Node, VolumeAttachment, parse_node
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith_cli.main import app
from nodesmith_cli.views.explaining.node import Report, named, report_of, subjects, unknown_node
from nodesmith_cli.views.explaining.nodecommand import ending_lines, lines, selected_lines
from nodesmith_cli.views.explaining.stay import why_it_stays
from nodesmith_cli.views.status import lines as status_lines
from nodesmith_cli.views.status import report_of as tell_status
from nodesmith_formats.decisions.records import Folder
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_formats.localsystem.reaching import reachable
from tests.builders import NOW, READY, bind, catalog, claim, node, nodepool_manifest, shape, snapshot
from tests.objects import foreign

BORN = NOW - timedelta(hours=30)
DELETED = NOW - timedelta(minutes=6)
WHERE = {
    "karpenter.sh/nodepool": "default",
    "node.kubernetes.io/instance-type": "m5.large",
    "topology.kubernetes.io/zone": "us-east-1a",
    "topology.kubernetes.io/region": "us-east-1",
    "karpenter.sh/capacity-type": "spot",
}
LIFE = (Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED)


def price_of(region: str, labels: Mapping[str, str]) -> tuple[float, bool] | None:
    asked = "karpenter.sh/capacity-type", "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
    known = tuple(labels[key] for key in asked) == ("spot", "m5.large", "us-east-1a")
    return (0.03, True) if known and region == "us-east-1" else None


def shown(name: str, *phases: Phase, grace: str | None = None, **waits: str) -> dict[str, Any]:
    """Return the object of a claim that went through these phases one after another, the last one at its deletion."""
    found = claim(name, phase=Phase.PENDING, created_at=BORN, labels=WHERE, termination_grace_period=grace)
    for phase in phases:
        at = DELETED if phase not in LIFE else BORN
        found = found.advanced(phase, at, **waits)
    written = manifest(with_instance(found))
    written["metadata"]["creationTimestamp"] = BORN.isoformat()
    if found.is_ending:
        written["metadata"]["deletionTimestamp"] = DELETED.isoformat()
    return written


def with_instance(of: NodeClaim) -> NodeClaim:
    facts = {"instance_type": "m5.large", "zone": "us-east-1a", "capacity_type": "spot"}
    if of.launched_at is None:
        return of
    return replace(of, provider_id=f"aws:///us-east-1a/i-{of.name}", instance_id=f"i-{of.name}", **facts)  # type: ignore[arg-type]


def its_node(name: str, **fields: Any) -> Node:
    found = node(f"node-{name}", labels=WHERE, provider_id=f"aws:///us-east-1a/i-{name}", **fields)
    return replace(found, created_at=BORN)


def budget(healthy: int = 2) -> PodDisruptionBudget:
    selector = parse_selector({"matchLabels": {"app": "web"}})
    return PodDisruptionBudget(
        "default/web", selector, max(0, healthy - 2), healthy, 2, healthy, False, "2", ""
    )


def seen(*claims: dict[str, Any], **fields: Any) -> Snapshot:
    return replace(snapshot(nodeclaims=claims, **fields), taken_at=NOW - timedelta(seconds=5))


def explained(name: str, of: Snapshot) -> Report:
    subject = named(name, of, NOW)
    assert subject is not None
    return report_of(subject, of, price_of, NOW)


def text(name: str, of: Snapshot) -> str:
    return "\n".join(lines(explained(name, of)))


@pytest.fixture
def blocked() -> Snapshot:
    """Return a cluster in which the node of claim `a` cannot be drained, and that of `b` is running."""
    return seen(
        shown("a", *LIFE, Phase.TERMINATING),
        shown("b", *LIFE),
        nodes=(its_node("a", deleting=True), its_node("b")),
        pods=[*bind(shape(app="web"), "node-a"), *bind(shape(app="web"), "node-b")],
        budgets=(budget(),),
    )


def test_a_blocked_node_shows_what_blocks_it_since_when_and_at_what_cost(
    blocked: Snapshot,
) -> None:
    found = explained("node-a", blocked)
    assert (found["phase"], found["ending"]) == ("Terminating", True)
    assert found["waiting"]["reason"] == "PodDisruptionBudget"
    assert found["waiting"]["on"] == "PodDisruptionBudget/default/web"
    assert found["waiting"]["since"] == DELETED.isoformat()
    assert found["waiting"]["seconds"] == 360
    assert found["waiting"]["cost"] == pytest.approx(0.003)
    assert (found["priceHourly"], found["priceEstimated"]) == (0.03, True)
    assert found["obstacles"] == [], "obstacles are only shown before termination"
    said = text("node-a", blocked)
    assert "node node-a: terminating, Terminating since" in said
    assert "guarded by PodDisruptionBudget default/web: 2 of 2 healthy, 2 needed (minAvailable 2)" in said
    assert "fix       raise its maxUnavailable, or lower its minAvailable" in said
    assert "6 min ago, at a cost of $0.0030" in said
    assert "a of NodePool default, m5.large in us-east-1a, spot, i-a, ~$0.0300/hour" in said


@pytest.mark.parametrize("name", ["node-b", "b", "i-b"])
def test_a_running_node_shows_its_claim_age_price_and_obstacles(blocked: Snapshot, name: str) -> None:
    found = explained(name, blocked)
    assert (found["node"], found["nodeClaim"], found["nodePool"]) == ("node-b", "b", "default")
    assert (found["phase"], found["ready"], found["waiting"]) == ("Initialized", True, None)
    assert (found["ageSeconds"], found["pods"]) == (108_000, 1)
    (obstacle,) = found["obstacles"]
    assert obstacle["on"] == "PodDisruptionBudget/default/web"
    said = text(name, blocked)
    assert "age       30 h, 1 pod to evict" in said
    assert "obstacle  pod default/on-node-b-0000 is guarded by PodDisruptionBudget default/web" in said


def test_a_budget_that_will_allow_evictions_is_no_obstacle(blocked: Snapshot) -> None:
    roomy = replace(budget(), min_available="", max_unavailable="1")
    assert explained("node-b", replace(blocked, budgets=(roomy,)))["obstacles"] == []


def test_a_drained_node_waits_for_its_volume_and_then_for_its_instance() -> None:
    attached = VolumeAttachment("node-a", "pvc-1", ())
    drained = seen(
        shown("a", *LIFE, Phase.TERMINATING, Phase.DRAINED),
        nodes=(its_node("a", deleting=True),),
        attachments=(attached,),
    )
    assert explained("a", drained)["waiting"]["on"] == "PersistentVolume/pvc-1"
    gone = seen(shown("a", *LIFE, Phase.TERMINATING, Phase.DRAINED, Phase.DETACHED, Phase.TERMINATED))
    assert explained("i-a", gone)["waiting"]["message"] == "EC2 is shutting down instance i-a"
    assert "NodeClaim a: terminating, Terminated since" in text("a", gone)


def test_a_node_held_by_another_controller_shows_the_finalizer_and_costs_nothing() -> None:
    held = its_node("a", deleting=True, finalizers=("example.com/backup",))
    ended = shown("a", *LIFE, Phase.TERMINATING, Phase.DRAINED, Phase.DETACHED, Phase.TERMINATED)
    found = explained("a", seen(ended, nodes=(held,)))
    waiting = found["waiting"]
    assert (waiting["reason"], waiting["on"]) == ("AwaitingNodeDeletion", "Node/node-a")
    assert waiting["message"] == "Node node-a is held by finalizer example.com/backup of another controller"
    assert (found["priceHourly"], waiting["cost"]) == (0, 0)


def test_the_termination_grace_period_of_a_node_is_shown_as_its_deadline(blocked: Snapshot) -> None:
    bounded = seen(
        shown("a", *LIFE, Phase.TERMINATING, grace="1h"),
        nodes=blocked.nodes[:1],
        pods=blocked.pods,
        budgets=blocked.budgets,
    )
    assert explained("a", bounded)["deadline"] == (DELETED + timedelta(hours=1)).isoformat()
    assert "deadline" in text("a", bounded)


def test_an_in_flight_claim_shows_what_it_waits_for() -> None:
    found = explained("a", seen(shown("a", Phase.LAUNCHED, reason="NodeNotFound", message="no Node yet")))
    assert (found["node"], found["phase"]) == (None, "Launched")
    assert (found["waiting"]["reason"], found["waiting"]["message"]) == ("NodeNotFound", "no Node yet")
    assert found["priceHourly"] == 0.03


def test_a_node_that_nodesmith_does_not_manage_says_so() -> None:
    stranger = seen(nodes=(node("managed", provider_id=""),))
    found = explained("managed", stranger)
    assert (found["nodeClaim"], found["phase"], found["waiting"], found["priceHourly"]) == (None,) * 4
    assert "it has no NodeClaim, so nodesmith does not manage it" in text("managed", stranger)


def test_all_terminating_nodes_are_listed_with_their_total_cost(blocked: Snapshot) -> None:
    ending = [report_of(s, blocked, price_of, NOW) for s in subjects(blocked, NOW) if s.is_ending]
    first, line = ending_lines(ending)
    assert first == "1 node terminating, ~$0.0300/hour", "a total of estimates is an estimate"
    assert line.startswith("  node-a  ~$0.0300/hour  pod default/on-node-a-0000 is guarded by")
    assert line.endswith("for 6 min")
    assert list(ending_lines([])) == ["no node is terminating"]


def test_an_unknown_node_name_is_answered_with_similar_names(blocked: Snapshot) -> None:
    assert named("node-c", blocked, NOW) is None
    assert unknown_node("node-c", blocked, NOW).endswith(
        "has no Node, NodeClaim or instance node-c; did you mean node-b, node-a?"
    )


def test_a_just_deleted_node_is_terminating_before_its_claim_is(
    blocked: Snapshot,
) -> None:
    fresh = replace(blocked, nodes=(its_node("b", deleting=True),))
    found = explained("node-b", fresh)
    assert (found["phase"], found["phaseSince"]) == ("Terminating", fresh.taken_at.isoformat())
    assert found["waiting"]["reason"] == "PodDisruptionBudget"


def test_the_node_of_an_unreadable_nodeclaim_is_still_explained(blocked: Snapshot) -> None:
    broken = {"kind": "NodeClaim", "metadata": {"name": "a"}, "spec": {"nodeClassRef": 3}}
    found = explained("node-a", replace(blocked, nodeclaims=(broken,)))
    assert (found["nodeClaim"], found["ending"]) == (None, True)


def staying(
    written: dict[str, Any],
    *pods: Pod,
    pool: dict[str, Any] | None = None,
    claims: tuple[dict[str, Any], ...] = (),
    nodes: tuple[Node, ...] = (),
) -> tuple[str, bool, str]:
    """Return the rule that keeps a node of this claim, whether it leaves, and the line that says so."""
    its = replace(its_node("a"), labels={**WHERE, **READY})
    seen = snapshot(
        pods=pods,
        nodes=(its, *nodes),
        nodeclaims=(written, *claims),
        nodepools=(pool or nodepool_manifest(),),
    )
    subject = named("node-a", seen, NOW)
    assert subject is not None
    assert subject.claim is not None
    stay = why_it_stays(subject.claim, [subject.claim], seen, catalog(), NOW)
    assert stay is not None
    reported = report_of(subject, seen, price_of, NOW, stay)
    assert reported["staying"]["reason"] == stay.rule
    line = next(line for line in lines(reported) if stay.message in line)
    return stay.rule, stay.leaves, line


ALIVE = shown("a", *LIFE)
ON_DEMAND = {
    **ALIVE,
    "metadata": {**ALIVE["metadata"], "labels": {**WHERE, "karpenter.sh/capacity-type": "on-demand"}},
}


def test_an_empty_node_is_reported_as_leaving() -> None:
    assert staying(ALIVE)[:2] == ("Empty", True)


def test_a_node_that_a_user_asked_for_stays_because_it_has_no_nodepool() -> None:
    labels = {name: value for name, value in WHERE.items() if name != "karpenter.sh/nodepool"}
    rule, leaves, line = staying({**ALIVE, "metadata": {**ALIVE["metadata"], "labels": labels}})
    assert (rule, leaves) == ("NodePool", False)
    assert "a user created its NodeClaim, which belongs to no NodePool" in line


def test_a_node_with_do_not_disrupt_says_so() -> None:
    alone = replace(shape("1"), annotations={"karpenter.sh/do-not-disrupt": "true"})
    rule, leaves, line = staying(ALIVE, *bind(alone, "node-a"))
    assert (rule, leaves) == ("DoNotDisrupt", False)
    assert line.startswith("  stays ")


def test_the_settings_of_a_nodepool_keep_its_nodes() -> None:
    never = nodepool_manifest()
    never["spec"]["disruption"] = {"consolidateAfter": "Never"}
    assert staying(ALIVE, pool=never)[0] == "ConsolidateAfter"
    none = nodepool_manifest()
    none["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}
    assert staying(ALIVE, pool=none)[0] == "Budget"
    paused = nodepool_manifest()
    since = {"type": "DisruptionPaused", "status": "True", "lastTransitionTime": "2026-11-21T11:00:00Z"}
    paused["status"] = {"conditions": [since]}
    rule, _, line = staying(ALIVE, pool=paused)
    assert rule == "Paused"
    assert "disruption has been paused since 2026-11-21 11:00 UTC" in line


def test_the_verdict_of_consolidation_on_a_single_node_is_shown() -> None:
    rule, leaves, line = staying(ALIVE, *bind(shape("3500m", "14Gi"), "node-a"))
    assert (rule, leaves) == ("Consolidation", False)
    prices = "it costs 0.0336 USD an hour, and what its pods need 0.0791"
    assert line == f"  stays     on its own, it cannot be replaced by anything cheaper: {prices}"
    rule, leaves, line = staying(ON_DEMAND, *bind(shape("100m", "64Mi"), "node-a"))
    assert (rule, leaves) == ("Underutilized", True)
    assert line.startswith("  leaves    its pods fit on cheaper capacity, which saves $0.0")


def test_a_drifted_node_shows_the_reason_of_its_drift() -> None:
    drifted = shown("a", *LIFE)
    found = {
        "type": "Drifted",
        "status": "True",
        "reason": "AMIDrift",
        "lastTransitionTime": "2026-11-21T10:00:00Z",
    }
    drifted["status"]["conditions"].append(found)
    rule, leaves, line = staying(drifted, *bind(shape("1"), "node-a"))
    assert (rule, leaves) == ("AMIDrift", True)
    assert line.startswith("  leaves    it has drifted (AMIDrift)")


def test_a_terminating_node_shows_its_cause() -> None:
    ending = claim("a", phase=Phase.PENDING, created_at=BORN, labels=WHERE)
    for phase in LIFE:
        ending = ending.advanced(phase, BORN)
    written = manifest(with_instance(ending).terminating("Drifted", "it has drifted", DELETED))
    written["metadata"]["deletionTimestamp"] = DELETED.isoformat()
    seen = snapshot(nodes=(its_node("a"),), nodeclaims=(written,))
    subject = named("a", seen, NOW)
    assert subject is not None
    reported = report_of(subject, seen, price_of, NOW)
    assert reported["cause"] == "Drifted"
    assert "  cause     Drifted" in list(lines(reported))


def test_a_local_cluster_is_explained_by_its_own_clock(tmp_path: Path) -> None:
    kept, kubeconfig = Folder(tmp_path), tmp_path / "kubeconfig"
    lone = {"metadata": {"name": "lone", "creationTimestamp": format_time(BORN)}}
    kept.put(snapshot_key("shop"), encode("shop", NOW, Observed(nodes=(lone,))))
    (tmp_path / "clusters/shop/decisions").mkdir()
    clock = LocalClock(1, start=NOW + timedelta(seconds=90))
    cluster = {
        "clusters": [{"name": "local", "cluster": {"server": "http://127.0.0.1"}}],
        "contexts": [{"name": "local", "context": {"cluster": "local"}}],
    }
    kubeconfig.write_text(yaml.safe_dump(reachable(cluster, "http://127.0.0.1", "us-east-1", clock, "shop")))

    options = ["--keep", str(tmp_path), "--kubeconfig", str(kubeconfig), "-o", "json"]
    reported = json.loads(CliRunner().invoke(app, ["explain", "node", "lone", *options]).stdout)

    assert 90 <= reported["snapshotAgeSeconds"] < 150


def test_a_node_of_auto_mode_is_reported_as_served_by_it() -> None:
    node = parse_node(foreign.node("i-auto1", "system"))
    of = replace(seen(), nodes=(node,), foreign_nodepools=(foreign.auto_mode_nodepool("system"),))
    assert explained("i-auto1", of)["servedBy"] == "EKS Auto Mode"
    assert "its NodePool system is served by EKS Auto Mode: nodesmith leaves it alone" in text("i-auto1", of)
    status = tell_status(of, NOW)
    assert status["foreignNodePools"] == {"system": "EKS Auto Mode"}
    assert any("system is served by EKS Auto Mode" in line for line in status_lines(status))


def test_a_node_of_a_nodepool_that_its_schedule_has_closed_leaves_and_it_is_told_until_when() -> None:
    pool = nodepool_manifest()
    window = '[{"schedule": "0 7 * * mon-fri", "duration": "13h"}]'
    pool["metadata"]["annotations"] = {SCHEDULE: window}  # NOW is a Saturday
    rule, leaves, line = staying(ON_DEMAND, pool=pool)
    assert (rule, leaves) == ("ScheduleClosed", True)
    assert "closed until Mon 2026-11-23 07:00 UTC: it ends as soon as the budgets" in line


def test_selected_nodes_are_listed_with_their_type_and_zone_if_that_is_asked_for(blocked: Snapshot) -> None:
    found = [report_of(each, blocked, price_of, NOW) for each in subjects(blocked, NOW)]

    narrow, wide = list(selected_lines(found)), list(selected_lines(found, is_wide=True))

    assert len(narrow) == len(wide) == len(found) + 1
    assert narrow[0].endswith(f"~${sum(each['priceHourly'] or 0 for each in found):.4f}/hour")
    listed = [{**each, "priceEstimated": False} for each in found]
    assert "~" not in next(selected_lines(listed))
    assert all(str(each["zone"]) in line for each, line in zip(found, wide[1:], strict=True))
    assert list(selected_lines([])) == ["the selector matches no node"]
