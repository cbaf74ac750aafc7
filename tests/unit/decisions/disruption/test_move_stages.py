"""The next step of a move, stage by stage, and what remains of abandoned moves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.moves import (
    ABANDONED,
    PROPOSED_WITHIN,
    REMEMBERED,
    SECOND_LOOK,
    Abandon,
    Await,
    Conclude,
    EndSources,
    ForgetMove,
    LookAgain,
    Retry,
    Step,
    StepInputs,
    Taint,
    TerminateUnused,
    leftovers,
    next_step,
)
from nodesmith.decisions.disruption.proposals import LARGEST_BATCH, Proposal, in_batches
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.kubernetes.provisioningrequests import Gang, GangStage
from nodesmith.model.ledger.ledger import Pause
from nodesmith.model.ledger.moves import Move, Reason, Stage
from tests import builders
from tests.builders import NOW

OLD = builders.claim("default-old", phase=Phase.INITIALIZED, node_name="old", initialized_at=NOW)
NEW = builders.claim("default-new", phase=Phase.REGISTERED, node_name="new")
READY = replace(NEW, phase=Phase.INITIALIZED)
MOVE = Move("m", Reason.UNDERUTILIZED, (OLD.name,), Stage.PROPOSED, NOW, NOW, message="it is half empty")
REPLACING = MOVE.at(Stage.REPLACING, NOW, replacements=(NEW.name,))
LEFT = REPLACING.at(Stage.ABANDONED, NOW, message="the world has changed")


def step(
    move: Move,
    *claims: NodeClaim,
    tainted: bool = True,
    after: timedelta = timedelta(0),
    pods: tuple[Pod, ...] = (),
    **ledger: Any,
) -> Step:
    return next_step(move, scene(move, *claims, tainted=tainted, after=after, pods=pods, **ledger))


def scene(
    move: Move,
    *claims: NodeClaim,
    tainted: bool = True,
    after: timedelta = timedelta(0),
    pods: tuple[Pod, ...] = (),
    shown: tuple[dict[str, Any], ...] = (),
    **ledger: Any,
) -> StepInputs:
    taints = [DISRUPTED] if tainted else []
    nodes = (
        builders.node("old", provider_id=OLD.provider_id, taints=taints),
        builders.node("new", provider_id=NEW.provider_id),
    )
    seen = builders.snapshot(nodes=nodes, pods=pods, nodeclaims=shown)
    return StepInputs.of(seen, builders.ledger(claims=claims, moves=(move,), **ledger), NOW + after)


def test_a_proposed_move_taints_its_nodes_until_the_cluster_shows_the_taint() -> None:
    for after in (timedelta(0), SECOND_LOOK, timedelta(minutes=2)):
        found = step(MOVE, OLD, tainted=False, after=after)
        assert isinstance(found, Taint)
        assert found.claims == (OLD,)


def test_a_move_is_validated_after_15_seconds_and_for_drift_at_once() -> None:
    assert step(MOVE, OLD) == Await(MOVE, timedelta(seconds=15))
    assert step(MOVE, OLD, after=timedelta(seconds=15)) == LookAgain(MOVE)
    drifted = replace(MOVE, reason=Reason.DRIFTED)
    assert step(drifted, OLD) == LookAgain(drifted)


def test_a_move_is_abandoned_if_the_cluster_never_shows_the_taint() -> None:
    assert isinstance(step(MOVE, OLD, tainted=False, after=PROPOSED_WITHIN), Abandon)


@pytest.mark.parametrize("move", [MOVE, REPLACING], ids=["proposed", "replacing"])
@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ((), "default-old is gone"),
        ((OLD.terminating("SpotInterrupted", "", NOW),), "is already terminating: SpotInterrupted"),
    ],
)
def test_a_move_is_abandoned_if_it_loses_a_source(
    move: Move, claims: tuple[NodeClaim, ...], why: str
) -> None:
    found = step(move, *claims, NEW)
    assert isinstance(found, Abandon)
    assert why in found.message


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ((), "replacement NodeClaim default-new is gone"),
        ((replace(NEW, phase=Phase.LAUNCHED).given_up("Ice", "none", NOW),), "is not available: Ice: none"),
        ((NEW.terminating("Deleted", "by hand", NOW),), "is not available: Deleted: by hand"),
    ],
)
def test_a_move_is_abandoned_if_it_loses_a_replacement(claims: tuple[NodeClaim, ...], why: str) -> None:
    found = step(REPLACING, OLD, *claims)
    assert isinstance(found, Abandon)
    assert why in found.message
    assert found.failed


@pytest.mark.parametrize("phase", [Phase.LAUNCHED, Phase.INITIALIZED])
def test_a_move_is_abandoned_if_the_zone_of_a_replacement_is_shifted_away(phase: Phase) -> None:
    new = replace(NEW, phase=phase, zone=builders.ZONES[1])
    away = ZonalShift(builders.ZONES[1], "z-1", NOW + timedelta(hours=1), "zonal shift")
    found = step(REPLACING, OLD, new, zonal_shifts=(away,))
    assert isinstance(found, Abandon)
    assert "default-new is not available" in found.message
    assert builders.ZONES[1] in found.message
    elsewhere = replace(away, zone=builders.ZONES[2])
    assert not isinstance(step(REPLACING, OLD, new, zonal_shifts=(elsewhere,)), Abandon)


def test_a_move_waits_for_replacements_as_long_as_karpenter_does() -> None:
    assert step(REPLACING, OLD, NEW) == Await(REPLACING, for_claims=(NEW.name,))
    found = step(REPLACING, OLD, NEW, after=timedelta(minutes=10))
    assert found == Abandon(REPLACING, "NodeClaim default-new was not ready within 10 minutes", failed=True)


OTHER = replace(NEW, name="default-other", node_name="", instance_id="", provider_id="")
PENDING = replace(OTHER, phase=Phase.PENDING)
TWO = MOVE.at(Stage.REPLACING, NOW, replacements=(NEW.name, OTHER.name))
MINUTE = timedelta(minutes=1)


def pending(name: str = NEW.name) -> NodeClaim:
    return replace(PENDING, name=name)


def unanswered(reason: str = "LaunchTimeout", name: str = NEW.name) -> NodeClaim:
    return pending(name).given_up(reason, "EC2 is away", NOW)


@pytest.mark.parametrize("reason", ["LaunchTimeout", "TemporarilyUnavailable"])
def test_a_move_is_retried_if_ec2_did_not_answer_and_nothing_was_bought(reason: str) -> None:
    found = step(REPLACING, OLD, unanswered(reason))
    why = f"replacement NodeClaim {NEW.name} is not available: {reason}: EC2 is away"
    assert found == Retry(REPLACING, why)
    assert step(TWO, OLD, unanswered(reason), unanswered(reason, OTHER.name)) == Retry(TWO, why)


@pytest.mark.parametrize(
    "other",
    [
        NEW,
        READY,
        pending().given_up("InsufficientCapacity", "none left", NOW),
        NEW.terminating("Deleted", "", NOW),
    ],
    ids=["registered", "ready", "no capacity", "ending"],
)
def test_a_move_that_bought_a_node_or_lacks_capacity_counts_as_failed_although_ec2_was_away_too(
    other: NodeClaim,
) -> None:
    found = step(TWO, OLD, other, unanswered(name=OTHER.name))
    assert isinstance(found, Abandon)
    assert found.failed


def test_a_move_is_not_given_up_before_ec2_has_answered_about_all_of_its_replacements() -> None:
    for after in (MINUTE, 90 * MINUTE):
        found = step(TWO, OLD, pending(), unanswered(name=OTHER.name), after=after)
        assert found == Await(TWO, for_claims=(NEW.name, OTHER.name))


def test_a_move_waits_two_hours_for_an_instance_that_ec2_may_have_launched_unless_pods_need_the_room() -> (
    None
):
    assert step(REPLACING, OLD, pending(), after=119 * MINUTE) == Await(REPLACING, for_claims=(NEW.name,))
    late = step(REPLACING, OLD, pending(), after=120 * MINUTE)
    why = f"EC2 has not answered about NodeClaim {NEW.name} within 120 minutes"
    assert late == Abandon(REPLACING, why, failed=True)
    (waits,) = builders.pods(builders.shape())
    assert isinstance(step(REPLACING, OLD, pending(), pods=(waits,), after=9 * MINUTE), Await)
    assert isinstance(step(REPLACING, OLD, pending(), pods=(waits,), after=10 * MINUTE), Abandon)


def test_a_replacement_that_ec2_launched_late_has_ten_minutes_from_then_on() -> None:
    claim = replace(
        NEW, phase=Phase.LAUNCHED, node_name="", provider_id="aws:///z/i-0", launched_at=NOW + 50 * MINUTE
    )
    assert step(REPLACING, OLD, claim, after=59 * MINUTE) == Await(REPLACING, for_claims=(NEW.name,))
    assert isinstance(step(REPLACING, OLD, claim, after=60 * MINUTE), Abandon)


def test_a_move_waits_for_a_registered_replacement_whose_node_became_ready_during_an_outage() -> None:
    """lifecycle, which cannot read snapshots without S3, still knows the Node as not Ready."""
    known = replace(NEW, registered_at=NOW + MINUTE, reason="NodeNotReady")
    assert step(REPLACING, OLD, known, after=60 * MINUTE) == Await(REPLACING, for_claims=(NEW.name,))
    tainted = replace(known, reason="StartupTaintsExist")
    assert isinstance(step(REPLACING, OLD, tainted, after=60 * MINUTE), Abandon)


def test_a_move_waits_for_a_ready_replacement_that_the_ledger_does_not_know_yet() -> None:
    """An outage of the ledger may last longer than a replacement may take."""
    late, hour = timedelta(minutes=1), timedelta(hours=1)
    launched = replace(NEW, phase=Phase.LAUNCHED, node_name="")
    assert step(REPLACING, OLD, launched, after=hour) == Await(REPLACING, for_claims=(NEW.name,))
    registered = replace(NEW, registered_at=NOW + hour)
    assert step(REPLACING, OLD, registered, after=hour + late) == Await(REPLACING, for_claims=(NEW.name,))
    assert isinstance(step(REPLACING, OLD, registered, after=hour + 5 * late), Abandon)


def test_once_all_replacements_are_ready_the_move_is_concluded_unless_disruption_is_paused() -> None:
    assert step(REPLACING, OLD, READY) == Conclude(REPLACING)
    found = step(REPLACING, OLD, READY, paused=Pause(NOW, "a release"))
    assert isinstance(found, Abandon)
    assert "a release" in found.message
    assert not found.failed


def test_sources_end_with_the_moves_reason_and_the_move_is_then_forgotten() -> None:
    ending = REPLACING.at(Stage.ENDING, NOW)
    found = step(ending, OLD, READY)
    assert isinstance(found, EndSources)
    assert [(c.name, c.cause, c.message) for c in found.claims] == [
        ("default-old", "Underutilized", "it is half empty")
    ]
    assert step(ending, *found.claims, READY) == ForgetMove(ending)
    assert step(ending, READY) == ForgetMove(ending)


def test_unused_replacements_of_an_abandoned_move_terminate() -> None:
    for claim in (NEW, READY, replace(NEW, phase=Phase.PENDING, provider_id="", node_name="")):
        found = step(LEFT, OLD, claim)
        assert isinstance(found, TerminateUnused)
        assert [(c.name, c.cause) for c in found.claims] == [(claim.name, ABANDONED)]


def test_replacements_of_an_abandoned_move_stay_while_pods_run_on_them_or_wait() -> None:
    shape = builders.shape()
    (bound, waiting) = (*builders.bind(shape, "new"), *builders.pods(shape))
    agent = builders.bind(builders.daemon(), "new")
    assert step(LEFT, OLD, READY, pods=(bound,)) == Await(LEFT)
    assert step(LEFT, OLD, READY, pods=(bound,), after=REMEMBERED) == ForgetMove(LEFT)
    assert step(LEFT, OLD, READY, pods=(waiting,)) == Await(LEFT)
    assert isinstance(step(LEFT, OLD, READY, pods=(waiting,), after=REMEMBERED), TerminateUnused)
    assert isinstance(step(LEFT, OLD, READY, pods=tuple(agent)), TerminateUnused)
    meant = replace(NEW, nominated=(waiting.key,))
    assert step(LEFT, OLD, meant, pods=(waiting,), after=REMEMBERED) == Await(LEFT)


@pytest.mark.parametrize(
    ("nodes", "tainted", "ends"),
    [("1", False, True), ("1", True, False), ("2", True, True), ("0", False, False)],
)
def test_ready_replacements_of_an_abandoned_move_terminate_within_budgets(
    nodes: str, tainted: bool, ends: bool
) -> None:
    """A ready replacement counts like any other node. One that was never ready counts for no budget."""
    pool = builders.nodepool_manifest()
    pool["spec"]["disruption"] = {"budgets": [{"nodes": nodes}]}
    for claim, may_end in ((replace(READY, initialized_at=NOW), ends), (NEW, True)):
        seen = scene(LEFT, OLD, claim, tainted=tainted)
        seen = replace(seen, snapshot=replace(seen.snapshot, nodepools=(pool,)))
        assert isinstance(next_step(LEFT, seen), TerminateUnused) is may_end


def test_a_replacement_of_an_abandoned_move_stays_while_room_on_it_is_kept_for_a_request() -> None:
    gang = Gang("uid", "default/job", GangStage.PROVISIONED, NOW, NOW, places={READY.name: (1,)})
    kept = replace(gang, booked_until=NOW + timedelta(minutes=10))
    assert step(LEFT, OLD, READY, gangs=(kept,)) == Await(LEFT)
    assert isinstance(step(LEFT, OLD, READY, after=timedelta(minutes=10), gangs=(kept,)), TerminateUnused)


def test_an_abandoned_move_is_remembered_for_a_while() -> None:
    assert step(LEFT, OLD) == Await(LEFT)
    assert step(LEFT, OLD, after=REMEMBERED) == ForgetMove(LEFT)


def test_a_tainted_node_without_a_move_or_termination_is_a_stray() -> None:
    assert leftovers(scene(MOVE, OLD, READY)) == []
    assert leftovers(scene(LEFT, OLD, READY)) == [OLD]
    assert leftovers(scene(LEFT, OLD, READY, tainted=False)) == []
    assert leftovers(scene(LEFT, OLD.terminating("Deleted", "", NOW), READY)) == []


def test_a_disruption_reason_without_a_move_or_termination_is_a_stray() -> None:
    reason = {"type": "DisruptionReason", "status": "True", "reason": "Underutilized"}
    shown = ({"metadata": {"name": OLD.name}, "status": {"conditions": [reason]}},)
    assert leftovers(scene(MOVE, OLD, READY, tainted=False, shown=shown)) == []
    assert leftovers(scene(LEFT, OLD, READY, tainted=False, shown=shown)) == [OLD]
    ending = OLD.terminating("Deleted", "", NOW)
    assert leftovers(scene(LEFT, ending, READY, tainted=False, shown=shown)) == []


def test_empty_nodes_are_removed_in_batches_and_others_one_move_at_a_time() -> None:
    each = Proposal(Reason.EMPTY, (), saving_hourly_usd=0.1, eviction_cost=0.5, worth_usd=0.25)
    empty = [replace(each, sources=(f"e{n}",)) for n in range(LARGEST_BATCH + 2)]
    half = Proposal(Reason.UNDERUTILIZED, ("h",))
    batches = in_batches([empty[0], half, *empty[1:]])
    assert [len(batch.sources) for batch in batches] == [LARGEST_BATCH, 2, 1]
    assert batches[1].message == "removing 2 nodes without pods saves 0.2000 USD an hour"
    assert (batches[1].saving_hourly_usd, batches[1].eviction_cost, batches[1].worth_usd) == (0.2, 1.0, 0.5)
    assert batches[2] is half
    assert in_batches([empty[0]]) == [empty[0]]
