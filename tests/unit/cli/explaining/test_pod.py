"""`nodesmith explain pod` on the records of real decisions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nodesmith.decisions.provisioning import Plan, canonical, decide, record
from nodesmith.keys import decision_key, decision_snapshot_key, snapshot_key
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith_cli.main import app
from nodesmith_cli.views.explaining.pod import Search, pod_key, report_of, unknown_pod
from nodesmith_formats.decisions.records import Folder
from tests.builders import CLUSTER, NOW, inputs, ledger, node, nodepool_manifest, pods, shape, snapshot

SMALL = {"metadata": {"namespace": "default"}, "spec": {"containers": [{"name": "main"}]}}


def name_at(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%SZ}-cafecafe"


def decided(
    some: Sequence[Pod], *, at: datetime = NOW, claims: Sequence[NodeClaim] = (), **seen: Any
) -> tuple[Plan, dict[str, Any]]:
    """Make a decision, and return the plan and its record."""
    about = snapshot(pods=some, **seen)
    known = inputs(
        snapshot=replace(about, taken_at=at),
        ledger=ledger(claims=tuple(claims)),
        now=at,
        decision=name_at(at),
    )
    plan = decide(known)
    written: dict[str, Any] = json.loads(canonical(record(known, plan, "00" * 32, {})))
    return plan, written


def keep(folder: Path, *records: dict[str, Any]) -> None:
    for written in records:
        data = gzip.compress(canonical(written))
        Folder(folder).put(decision_key(CLUSTER, written["id"]), data)


def observed(at: datetime, **fields: Any) -> bytes:
    """Return a snapshot with one pod, default/web-0000."""
    known: dict[str, Any] = {
        "name": "web-0000",
        "namespace": "default",
        "uid": "uid-0",
        "shape": canonical(SMALL).decode(),
        "labels": {},
        "created": 0,
    }
    return encode(CLUSTER, at, Observed(pods=[ReducedPod(**known | fields)]))


def explain(folder: Path, pod: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["explain", "pod", pod, "--keep", str(folder), *options])


def as_json(folder: Path, pod: str, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(explain(folder, pod, "-o", "json", *options).stdout)
    return found


def test_a_pod_with_a_launched_node_shows_the_node_and_its_price(tmp_path: Path) -> None:
    plan, written = decided(pods(shape(), 3))
    keep(tmp_path, written)
    (bought,) = plan.nodes

    found = as_json(tmp_path, "default/web-0001")
    reported = explain(tmp_path, "web-0001").stdout

    assert found["outcome"] == "bought"
    assert found["nodeClaim"] == bought.claim.name
    assert found["nodePool"] == "default"
    assert found["capacityType"] == "spot"
    assert found["priceHourly"] == bought.price_hourly_usd
    assert bought.request.overrides[0].instance_type == found["instanceTypes"][0]
    assert found["decision"] == written["id"]
    assert (
        f"pod default/web-0001: a node is launched for it\n  node      {bought.claim.name} of NodePool"
        in reported
    )
    assert f"one of {found['instanceTypes'][0]}, " in reported


def test_later_records_show_how_the_node_has_progressed(tmp_path: Path) -> None:
    plan, first = decided(pods(shape()))
    launched = replace(
        plan.nodes[0].claim, phase=Phase.LAUNCHED, instance_type="c7a.medium", zone="us-east-1b"
    )
    other = pods(shape("10000", app="other"))
    _, second = decided(other, at=NOW + timedelta(minutes=1), claims=[launched])
    keep(tmp_path, first, second)

    found = as_json(tmp_path, "web-0000")

    assert found["decision"] == first["id"]
    assert (found["instanceType"], found["zone"], found["phase"]) == ("c7a.medium", "us-east-1b", "Launched")
    assert "c7a.medium in us-east-1b, Launched" in explain(tmp_path, "web-0000").stdout


def test_a_waiting_pod_and_a_fitting_pod_show_their_node(tmp_path: Path) -> None:
    some = pods(shape())
    plan, _ = decided(some)
    claim = replace(plan.nodes[0].claim, phase=Phase.PENDING)
    guest = pods(shape(app="guest", nodeSelector={"kubernetes.io/hostname": "node-1"}))
    _, written = decided([*some, *guest], at=NOW + timedelta(seconds=1), claims=[claim], nodes=[node()])
    keep(tmp_path, written)

    waiting, fitting = as_json(tmp_path, "web-0000"), as_json(tmp_path, "guest-0000")

    assert (waiting["outcome"], waiting["nodeClaim"], waiting["nodePool"]) == ("waits", claim.name, "default")
    assert (fitting["outcome"], fitting["node"], fitting["nodeClaim"]) == ("fits", "node-1", None)


def test_a_pod_blocked_by_limits_shows_what_to_raise(tmp_path: Path) -> None:
    _, written = decided(pods(shape()), nodepools=[nodepool_manifest("small", limits={"cpu": "1"})])
    keep(tmp_path, written)

    reported = explain(tmp_path, "web-0000").stdout

    assert (
        "pod default/web-0000: not placed\n  reason    NodePool small: its limit of 1 cpu is reached"
        in reported
    )
    assert "\n  fix       for this pod raise spec.limits.cpu to at least 2\n" in reported


def test_the_nearest_of_several_nodepools_is_shown_and_the_others_counted(tmp_path: Path) -> None:
    pools = [
        nodepool_manifest("a", weight=2, limits={"cpu": "1"}),
        nodepool_manifest("b", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
    ]
    _, written = decided(pods(shape()), nodepools=pools)
    keep(tmp_path, written)

    lines = explain(tmp_path, "web-0000").stdout.splitlines()
    found = as_json(tmp_path, "web-0000")

    assert lines[1].startswith(
        "  reason    0 of 2 NodePools fit: 1 at their limit, 1 with a taint that the pods do not tolerate; "
        "nearest is NodePool a: its limit of 1 cpu is reached"
    )
    assert (found["nodePool"], found["blocking"]) == ("a", "limit cpu")


def test_an_ignored_pod_shows_the_reason(tmp_path: Path) -> None:
    _, written = decided([*pods(shape()), *pods(shape(app="new"), unschedulable=False)])
    keep(tmp_path, written)

    found = as_json(tmp_path, "new-0000")

    assert found["outcome"] == "ignored"
    assert "has not called it unschedulable" in found["reason"]


def test_the_newest_decision_that_mentions_the_pod_counts_however_old(tmp_path: Path) -> None:
    moments = [NOW + timedelta(minutes=n) for n in range(40)]
    mine = [decided(pods(shape()), at=moment)[1] for moment in moments[:2]]
    others = [decided(pods(shape(app="other")), at=moment)[1] for moment in moments[2:]]
    keep(tmp_path, *mine, *others)

    found = as_json(tmp_path, "web-0000")

    assert (found["decision"], found["decisionsLookedAt"]) == (mine[1]["id"], 39)
    assert "(39 searched, newest first)" in explain(tmp_path, "web-0000").stdout
    assert explain(tmp_path, "web-0000", "--last", "38").exit_code == 1


def test_superseded_decisions_are_ignored(tmp_path: Path) -> None:
    _, first = decided(pods(shape()))
    _, lost = decided(pods(shape("10000")), at=NOW + timedelta(minutes=1))
    keep(tmp_path, first, lost | {"superseded": True})

    assert as_json(tmp_path, "web-0000")["outcome"] == "bought"


def test_a_damaged_record_is_reported_and_does_not_hide_others(tmp_path: Path) -> None:
    _, written = decided(pods(shape()))
    keep(tmp_path, written)
    Folder(tmp_path).put(decision_key(CLUSTER, "20261122T000000Z-broken"), b"\x1f\x8bcut")

    result = explain(tmp_path, "web-0000")

    assert result.exit_code == 0
    assert "20261122T000000Z-broken" in result.stderr


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("shop-1/web-0000", "; did you mean default/web-0000?"),
        ("web", "; did you mean default/web-0000, default/web-0001?"),
        ("wbe-0000", "; did you mean default/web-0000, default/web-0001?"),
        ("zzz", ""),
    ],
)
def test_an_unknown_pod_is_answered_with_similar_names(tmp_path: Path, asked: str, meant: str) -> None:
    keep(tmp_path, decided(pods(shape(), 2))[1])

    result = explain(tmp_path, asked)

    assert result.exit_code == 1
    assert result.stderr == (
        f"nodesmith: no stored decision mentions pod {pod_key(asked)} (1 searched, newest first){meant}\n"
    )


@pytest.mark.parametrize("name", ["", "/", "a/", "/a", "a/b/c"])
def test_an_invalid_pod_name_is_refused(tmp_path: Path, name: str) -> None:
    keep(tmp_path, decided(pods(shape()))[1])

    assert "expected NAMESPACE/NAME" in str(explain(tmp_path, name).exception)


class TestWithASnapshot:
    """What the cluster's newest snapshot adds to the decisions."""

    @pytest.mark.parametrize(
        ("fields", "outcome", "said"),
        [
            ({"node": "n1"}, "bound", "it is bound to a node\n  node      n1"),
            ({"unschedulable": True}, "pending", "no decision yet"),
            ({}, "ignored", "the scheduler has not called it unschedulable"),
            ({"deletion": 0}, "ignored", "it is being deleted"),
            ({"shape": "Node"}, "ignored", "it is a static pod"),
            (
                {"shape": "DaemonSet"},
                "ignored",
                "it belongs to DaemonSet/agent: nodes are never launched for",
            ),
        ],
    )
    def test_a_pod_without_a_decision_shows_its_state(
        self, tmp_path: Path, fields: dict[str, Any], outcome: str, said: str
    ) -> None:
        if "shape" in fields:
            owner = {"kind": fields["shape"], "name": "agent", "controller": True}
            manifest = SMALL | {"metadata": {"namespace": "default", "ownerReferences": [owner]}}
            fields = {"shape": canonical(manifest).decode()}
        keep(tmp_path, decided(pods(shape(app="other")))[1])
        Folder(tmp_path).put(snapshot_key(CLUSTER), observed(NOW, **fields))

        found, reported = as_json(tmp_path, "web-0000"), explain(tmp_path, "web-0000").stdout

        assert (found["outcome"], found["decision"]) == (outcome, None)
        assert said in reported
        assert "decision  none mentions it (1 searched" in reported

    def test_the_state_since_the_decision_is_shown(self, tmp_path: Path) -> None:
        keep(tmp_path, decided(pods(shape("10000")))[1])
        Folder(tmp_path).put(snapshot_key(CLUSTER), observed(NOW + timedelta(minutes=5), node="n1"))

        found, reported = as_json(tmp_path, "web-0000"), explain(tmp_path, "web-0000").stdout

        assert (found["outcome"], found["seen"]["outcome"], found["seen"]["node"]) == (
            "unplaced",
            "bound",
            "n1",
        )
        assert reported.startswith(
            "pod default/web-0000: it is bound to a node\n  decided   not placed\n  reason    "
        )
        assert "  since     it is bound to a node, n1 (snapshot of 2026-11-21 12:05:00 UTC, " in reported

    def test_the_snapshot_of_the_decision_adds_nothing(self, tmp_path: Path) -> None:
        _, written = decided(pods(shape()))
        keep(tmp_path, written)
        Folder(tmp_path).put(decision_snapshot_key(CLUSTER, written["id"]), observed(NOW, unschedulable=True))

        assert as_json(tmp_path, "web-0000")["seen"] is None

    def test_an_unreadable_snapshot_is_reported_and_ignored(self, tmp_path: Path) -> None:
        keep(tmp_path, decided(pods(shape()))[1])
        Folder(tmp_path).put(snapshot_key(CLUSTER), b"\x1f\x8bcut")

        result = explain(tmp_path, "web-0000")

        assert result.exit_code == 0
        assert "snapshot: truncated or damaged" in result.stderr


def test_a_pod_whose_nodes_were_launched_in_vain_says_so(tmp_path: Path) -> None:
    (waiting,) = pods(shape())
    (first,) = decided([waiting])[0].nodes
    failed = replace(
        first.claim,
        phase=Phase.INITIALIZED,
        phase_since=NOW,
        initialized_at=NOW,
        nominated=(),
        attempts=dict.fromkeys(first.claim.attempts, 2),
    )
    at = NOW + timedelta(seconds=90)
    filler = replace(pods(shape("2", app="filler"))[0], node="node-x")
    there = node("node-x", provider_id=failed.provider_id)
    later = decided([replace(waiting, created_at=NOW), filler], at=at, claims=[failed], nodes=(there,))[1]
    keep(tmp_path, later)

    found, reported = as_json(tmp_path, "web-0000"), explain(tmp_path, "web-0000").stdout

    assert (found["outcome"], found["blocking"]) == ("unplaced", "back-off")
    assert "nodes were bought 2 times for ReplicaSet/web, and none of its pods stayed" in reported
    assert "tried again after 12:10:00 UTC" in reported


def test_ages_are_shown_and_never_negative() -> None:
    _, written = decided(pods(shape()))
    search = Search("default/web-0000")
    search.search_records([written])

    later = report_of(search, None, NOW + timedelta(seconds=90))
    earlier = report_of(search, None, NOW - timedelta(seconds=90))

    assert later is not None
    assert later["ageSeconds"] == 90
    assert earlier is not None
    assert earlier["ageSeconds"] == 0


def test_an_unknown_pod_is_reported_without_a_snapshot() -> None:
    assert unknown_pod(Search("default/x"), None).endswith("pod default/x (0 searched, newest first)")
