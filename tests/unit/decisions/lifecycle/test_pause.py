"""Pausing and resuming disruption."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.readiness.readiness import nodepool_update
from nodesmith.errors import Rejected
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.ledger.ledger import Pause, shown_pause
from nodesmith_cli.access.ledger import pause, resume
from nodesmith_cli.views.status import lines, report_of
from tests import builders
from tests.builders import CLUSTER, NOW
from tests.fakes.store import FakeStore

Condition = tuple[str, str, str]


def test_a_pause_is_stored_with_its_time_and_reason() -> None:
    store = FakeStore(cluster=builders.cluster_info())
    assert pause(store, CLUSTER, "a release", NOW) == (
        "disruption of cluster test is paused since 2026-11-21 12:00 UTC"
    )
    assert store.load().paused == Pause(NOW, "a release")


def test_pausing_again_changes_the_reason_but_not_the_time() -> None:
    store = FakeStore(cluster=builders.cluster_info())
    pause(store, CLUSTER, "a release", NOW)
    pause(store, CLUSTER, "", NOW + timedelta(hours=1))
    assert store.load().paused == Pause(NOW, "a release")
    pause(store, CLUSTER, "another release", NOW + timedelta(hours=2))
    assert store.load().paused == Pause(NOW, "another release")


def test_an_unknown_cluster_cannot_be_paused() -> None:
    store = FakeStore()
    with pytest.raises(Rejected, match="cluster 'tset': unknown in this region"):
        pause(store, "tset", "", NOW)
    assert store.load().paused is None


def test_resuming_a_cluster_of_which_nothing_is_known_says_so() -> None:
    """A wrong name would otherwise look like a cluster that is not paused."""
    store, unknown = FakeStore(), "nothing else is known of it in this region: check the name and --region"
    for _ in range(2):
        assert resume(store, "tset", NOW) == f"disruption of cluster tset is not paused; {unknown}"


def test_resuming_reports_the_duration_of_the_pause() -> None:
    store = FakeStore(cluster=builders.cluster_info())
    assert resume(store, CLUSTER, NOW) == "disruption of cluster test is not paused"
    pause(store, CLUSTER, "", NOW)
    later = NOW + timedelta(minutes=125)
    assert resume(store, CLUSTER, later) == "disruption of cluster test is resumed, after 2 h 5 min"
    assert store.load().paused is None


def test_while_it_is_paused_no_move_is_proposed_and_every_node_says_why() -> None:
    claim = builders.claim(phase=Phase.INITIALIZED, initialized_at=NOW - timedelta(hours=1))
    snapshot = builders.snapshot(nodes=(builders.node("node-1", provider_id=claim.provider_id),))

    def found(paused: Pause | None) -> tuple[int, list[str]]:
        inputs = builders.inputs(snapshot=snapshot, ledger=builders.ledger(claims=(claim,), paused=paused))
        proposals = propose(inputs)
        return len(proposals.proposals), [blocker.message for blocker in proposals.blocked.values()]

    assert found(None) == (1, [])
    assert found(Pause(NOW, "a release")) == (
        0,
        ["disruption has been paused since 2026-11-21 12:00 UTC: a release"],
    )


def condition(paused: Pause | None, shown: Condition | None = None) -> Condition | None:
    manifest = builders.nodepool_manifest()
    if shown is not None:
        kind, status, message = shown
        manifest["status"] = {"conditions": [{"type": kind, "status": status, "message": message}]}
    update = nodepool_update(
        manifest, parse_nodepool(manifest), {}, None, builders.snapshot(), NOW, paused=paused
    )
    assert update is not None
    conditions = {c["type"]: (c["type"], c["status"], c["message"]) for c in update.status["conditions"]}
    return conditions.get("DisruptionPaused")


def test_status_shows_that_the_cluster_is_paused() -> None:
    pause = Pause(NOW, "a release")
    manifest = builders.nodepool_manifest()
    update = nodepool_update(
        manifest, parse_nodepool(manifest), {}, None, builders.snapshot(), NOW, paused=pause
    )
    assert update is not None
    shown = {**manifest, "status": update.status}
    assert shown_pause([shown]) == pause
    assert shown_pause([manifest]) is None
    reported = report_of(builders.snapshot(nodepools=(shown,)), NOW)
    assert str(pause) in list(lines(reported))
    assert report_of(builders.snapshot(), NOW)["paused"] is None


def test_nodepools_show_that_disruption_is_paused_and_that_it_is_no_longer() -> None:
    message = "disruption has been paused since 2026-11-21 12:00 UTC: a release"
    paused = ("DisruptionPaused", "True", message)
    assert condition(None) is None
    assert condition(Pause(NOW, "a release")) == paused
    assert condition(None, paused) == ("DisruptionPaused", "False", "")
