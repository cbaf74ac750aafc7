"""Moves in the small world: the fleet shrinks with the workload, and no pod is harmed despite faults."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from nodesmith.controllers.disruption.disruption import disrupt
from nodesmith.controllers.disruption.moves import moves as carrying
from nodesmith.controllers.disruption.moves.runstate import Disruption, Memory
from nodesmith.decisions.disruption.moves import READY_WITHIN, REMEMBERED, SECOND_LOOK
from nodesmith.decisions.disruption.search.search import replay
from nodesmith.decisions.provisioning import canonical
from nodesmith.keys import decision_key, decision_snapshot_key
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.ec2.launches import LaunchOutcome, LaunchRequest, Unfulfilled
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaimobjects import CREATED_FOR
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.learned import FIRST_BACKOFF
from nodesmith.model.ledger.moves import MoveKind, Stage
from nodesmith.observation.decoding import decode
from nodesmith_cli.views.explaining.decision import explain
from nodesmith_formats.decisions.summaries import summary
from tests import builders
from tests.fakes.catalogs import FakeCatalogs
from tests.samples import sampled, spread
from tests.scenarios import moves
from tests.scenarios.moves import LIVES, ON_DEMAND, Life, settled, shrink
from tests.smallworld.world import SETTINGS, STEP, Boundaries, Messages, World, catalog, pod_manifest

CHEAPER, ROOM = LIVES[:2]
BY_NAME = pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)


def life(name: str) -> Life:
    return next(each for each in LIVES if each.name == name)


def stages(world: World) -> list[Stage]:
    return [move.stage for move in world.store.moves.values()]


def until(world: World, reached: Callable[[], object], within: timedelta = timedelta(minutes=5)) -> World:
    """Run the world until a condition holds."""
    end = world.now + within
    while not reached():
        assert world.now < end, (stages(world), sorted(world.store.claims))
        world.live(STEP)
    return world


def proposed(of: Life) -> World:
    """Return a world in which a move has just been proposed."""
    world = of.begun()
    return until(world, lambda: stages(world) == [Stage.PROPOSED])


def source(world: World) -> NodeClaim:
    (move,) = world.store.moves.values()
    return world.store.claims[move.sources[0]]


def price(world: World) -> float:
    """Return the hourly cost of all running instances in USD."""
    alive = {instance.id for instance in world.cloud.alive()}
    return sum(c.price_hourly_usd for c in world.store.claims.values() if c.instance_id in alive)


def said(world: World, kind: str = "NodeClaim") -> list[str]:
    """Return the distinct reasons of Events about disruption, in order."""
    reasons = [e.reason for e in world.cluster.events if e.kind == kind]
    return list(dict.fromkeys(r for r in reasons if r.startswith(("Disruption", "Consolidation"))))


def disrupted(world: World) -> dict[str, int]:
    """Return what one run of disruption counts of moves, in the present state."""
    world.observe()
    outside = world.store, world.cloud, world.cluster, world.blobs, world.hints, world.clock
    catalogs = FakeCatalogs(world.sold)
    look = disrupt(
        Disruption(builders.CLUSTER, *outside, SETTINGS, catalogs, Memory(), metrics=world.metrics)
    )
    assert look is not None
    return {name: count for name, count in look.done.items() if count and name != "NodesBlocked"}


def hinted(world: World, why: str) -> list[tuple[Concern, timedelta]]:
    """Return the concerns that got a hint with this reason, each with its delay from now."""
    return [(m.concern, m.due_at - world.now) for m in world.hints.sent if m.hint.reason == why]


@BY_NAME
def test_every_move_ends_cleanly(life: Life) -> None:
    assert life.lived().violations() == []


@pytest.mark.exhaustive
@BY_NAME
def test_a_crash_at_any_call_leaves_no_pending_pod_no_taint_and_no_extra_node(life: Life) -> None:
    broken = {where: faults for where, faults in moves.crashes(life, sample=sampled(1, whole=40)) if faults}
    assert broken == {}


@pytest.mark.exhaustive
@BY_NAME
def test_several_crashes_leave_nothing_behind(life: Life) -> None:
    assert {
        where: faults for where, faults in moves.several_crashes(life, sampled(1, whole=3)) if faults
    } == {}


@pytest.mark.exhaustive
def test_a_function_that_hangs_until_its_timeout_does_no_harm_when_it_continues() -> None:
    assert {where: faults for where, faults in moves.pauses(CHEAPER, sampled(2, whole=10)) if faults} == {}


@pytest.mark.parametrize("seed", range(6))
def test_lost_duplicated_and_late_hints_change_only_when_a_move_ends(seed: int) -> None:
    life = LIVES[seed % len(LIVES)]
    world = life.lived(messages=Messages(lost=0.3, doubled=0.4, delayed=0.4, seed=seed))
    assert world.violations() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("visitor", [Concern.DISRUPTION, Concern.PROVISIONING])
def test_a_complete_run_during_another_duplicates_nothing(visitor: Concern) -> None:
    undisturbed = Boundaries()
    CHEAPER.lived(undisturbed)
    moments = [
        n for n, (where, _) in enumerate(undisturbed.moments, 1) if "commit" in where or "_move" in where
    ]
    assert len(moments) >= 8
    for moment in spread(moments, sampled(4, whole=0), visitor):
        boundaries = Boundaries()
        world = CHEAPER.begun()
        boundaries.visits[moment] = lambda world=world: world.visit(visitor)  # type: ignore[misc]
        world.boundaries = boundaries
        world.live(timedelta(minutes=4))
        world.settle()
        assert (moment, world.violations(), len(world.cloud.instances)) == (moment, [], 2)


def test_when_half_of_the_pods_are_deleted_a_node_is_removed_and_the_price_only_falls() -> None:
    world = ROOM.begun()
    prices = [price(world)]
    while world.store.moves or len(prices) < 60:
        world.live(STEP)
        prices.append(price(world))
    assert prices == sorted(prices, reverse=True)
    assert (len(world.cloud.alive()), prices[-1] < prices[0]) == (1, True)


def test_a_replacement_is_ready_before_any_pod_is_evicted() -> None:
    world = CHEAPER.begun()
    until(world, lambda: any(call.method == "evict" for call in world.cluster.calls))
    phases = {claim.phase for claim in world.store.claims.values()}
    assert phases == {Phase.INITIALIZED, Phase.TERMINATING}
    assert [reason for reason in said(world) if reason != "DisruptionBlocked"] == [
        "ConsolidationCandidate",
        "DisruptionLaunching",
        "DisruptionWaitingReadiness",
        "DisruptionTerminating",
    ]


def shown_reason(world: World, claim: NodeClaim) -> str:
    """Return the disruption reason that a NodeClaim shows, or an empty string."""
    conditions = world.cluster.nodeclaims[claim.name]["status"]["conditions"]
    return next((c["reason"] for c in conditions if c["type"] == "DisruptionReason"), "")


def test_a_nodeclaim_shows_its_disruption_reason_while_its_node_is_tainted() -> None:
    world = proposed(ROOM)
    claim = source(world)
    assert shown_reason(world, claim) == "Underutilized"
    late_pod(world, **{"karpenter.sh/do-not-disrupt": "true"})
    until(world, lambda: stages(world) == [Stage.ABANDONED])
    assert shown_reason(world, claim) == ""
    assert world.cluster.nodes[claim.node_name]["spec"].get("taints", []) == []


def test_marks_of_an_ended_disruption_are_removed() -> None:
    world = settled(6, ON_DEMAND)
    claim = next(iter(world.store.claims.values()))
    marks = {"conditions": [{"type": "DisruptionReason", "status": "True", "reason": "Empty"}]}
    world.cluster.merge_status("NodeClaim", claim.name, marks)
    world.cluster.nodes[claim.node_name]["spec"]["taints"] = [
        {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    ]
    world.observe()
    until(world, lambda: not shown_reason(world, claim))
    assert world.cluster.nodes[claim.node_name]["spec"].get("taints", []) == []


def test_a_move_is_validated_fifteen_seconds_after_its_nodes_are_tainted() -> None:
    world = proposed(ROOM)
    at = world.now
    until(world, lambda: Stage.PROPOSED not in stages(world))
    assert SECOND_LOOK <= world.now - at <= SECOND_LOOK + 2 * STEP


def late_pod(world: World, **annotations: str) -> None:
    """Bind a pod to the candidate of a move between the taint and the validation."""
    node = source(world).node_name
    world.add("late", memory="2Gi")
    pod = world.pods["late"]
    pod["metadata"]["annotations"] = annotations
    pod["spec"]["nodeName"] = node
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]


def test_a_valid_move_is_carried_out_without_conflicts_with_itself() -> None:
    world = validated(CHEAPER)
    world.concerns = tuple(each for each in world.concerns if each is not Concern.DISRUPTION)
    assert disrupted(world) == {"NodeClaimsLaunched": 1}
    assert hinted(world, "claims changed") == [(Concern.LIFECYCLE, timedelta())]
    assert (Concern.DISRUPTION, timedelta(seconds=1)) not in hinted(world, "moves are under way")

    (move,) = world.store.moves.values()
    until(world, lambda: world.store.claims[move.replacements[0]].phase is Phase.INITIALIZED)
    world.hints.sent.clear()
    assert disrupted(world) == {"NodesDisrupted": 1, "NodesDisruptedUnderutilized": 1}
    assert hinted(world, "nodes are disrupted") == [(Concern.PROVISIONING, timedelta())]
    assert hinted(world, "nodes end") == [(Concern.TERMINATION, timedelta())]
    assert world.store.moves == {}


def test_if_another_run_has_bought_nodes_since_the_validation_the_move_is_validated_again_soon() -> None:
    world = validated(CHEAPER)
    known = {key for key in world.blobs.objects if "/decisions/" in key}
    world.store.lose_next_commit()
    assert disrupted(world) == {"Conflict": 1}
    assert hinted(world, "moves are under way") == [(Concern.DISRUPTION, timedelta(seconds=1))]
    assert (stages(world), len(world.cloud.alive())) == ([Stage.PROPOSED], 1)
    records = [key for key in world.blobs.objects if "/decisions/" in key and key not in known]
    (record,) = (json.loads(gzip.decompress(world.blobs.objects[k])) for k in records if "snapshot" not in k)
    assert record["superseded"]


def test_moves_beyond_those_of_one_validation_are_validated_a_second_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = validated(CHEAPER)
    (move,) = world.store.moves.values()
    other = replace(move, id=f"{move.id}-2", revision=0)
    world.store.save_move(other)
    monkeypatch.setattr(carrying, "MOST_AT_ONCE", 1)
    disrupted(world)
    assert hinted(world, "moves are under way") == [(Concern.DISRUPTION, timedelta(seconds=1))]


def test_a_pod_that_arrives_before_validation_is_moved_with_the_others() -> None:
    world = proposed(ROOM)
    late_pod(world)
    world.live(timedelta(minutes=4))
    world.settle()
    assert world.violations() == []
    assert {name for name, _ in world.pods.items() if name.startswith("late")} == {"late-r"}


def test_a_protected_pod_that_arrives_before_validation_keeps_the_node_and_its_taint_is_removed() -> None:
    world = proposed(ROOM)
    claim = source(world)
    late_pod(world, **{"karpenter.sh/do-not-disrupt": "true"})
    until(world, lambda: stages(world) == [Stage.ABANDONED])
    world.live(STEP)
    assert world.violations() == [f"move {next(iter(world.store.moves))} stays Abandoned"]
    assert world.store.claims[claim.name].phase is Phase.INITIALIZED
    (move,) = world.store.moves.values()
    assert "karpenter.sh/do-not-disrupt" in move.message
    assert "ConsolidationRejected" in said(world, "Node")


def test_a_budget_that_closes_before_validation_keeps_the_node() -> None:
    world = proposed(ROOM)
    pool = world.cluster.nodepools["default"]
    pool["metadata"]["generation"] = 2
    pool["spec"]["disruption"] = {"budgets": [{"nodes": "0"}]}
    until(world, lambda: stages(world) == [Stage.ABANDONED])
    world.live(timedelta(minutes=10))
    assert (world.violations(), len(world.cloud.alive())) == ([], 2)


def test_nodes_of_an_abandoned_move_are_not_candidates_for_a_while() -> None:
    world = life("nothing is to be had").begun()
    until(world, lambda: stages(world) == [Stage.ABANDONED])
    (first,) = world.store.moves
    began = world.now
    until(world, lambda: first not in world.store.moves, within=timedelta(minutes=10))
    assert world.now - began >= REMEMBERED
    until(world, lambda: world.store.moves, within=timedelta(minutes=10))


def test_unavailable_replacements_are_retried_with_increasing_back_off() -> None:
    world = life("nothing is to be had").begun()
    until(world, lambda: stages(world) == [Stage.ABANDONED])
    ((kind, backoff),) = world.store.move_backoffs.items()
    assert kind == MoveKind("default", "Underutilized")
    assert (backoff.failures, backoff.until - world.now <= FIRST_BACKOFF) == (1, True)
    until(world, lambda: not world.store.move_backoffs, within=timedelta(minutes=30))
    world.settle()
    assert world.violations() == []
    assert len(world.cloud.alive()) == 1


def away(requests: int) -> Callable[[World], None]:
    """Return what makes EC2 answer so many requests with an error that passes, and without an instance."""

    def begin(world: World) -> None:
        def answer(request: LaunchRequest) -> LaunchOutcome:
            return Unfulfilled(request.claim, "InternalError", "An internal error has occurred.")

        world.cloud.script = [answer] * requests

    return begin


def test_a_move_to_which_ec2_does_not_answer_is_tried_again_a_minute_later_and_no_less_often() -> None:
    world = replace(CHEAPER, happens=away(6)).begun()
    attempts: list[datetime] = []
    while len(world.cloud.instances) < 2:
        assert world.now - builders.NOW < timedelta(minutes=30)
        moves = set(world.store.moves)
        world.live(STEP)
        attempts += [world.now] * bool(world.store.moves.keys() - moves)
    waits = [later - earlier for earlier, later in pairwise(attempts)]
    assert len(waits) == 6
    assert all(timedelta(seconds=45) <= wait <= timedelta(seconds=120) for wait in waits)
    assert {backoff.failures for backoff in world.store.move_backoffs.values()} <= {0}
    world.settle()
    assert (world.violations(), len(world.cloud.instances)) == ([], 2), "nothing was bought in vain"


def validated(of: Life) -> World:
    """Return a world in which a move has been proposed that can be validated now."""
    world = proposed(of)
    world.now += SECOND_LOOK
    world.hints.sent.clear()
    return world


def test_a_move_to_which_ec2_does_not_answer_is_over_at_once_and_says_why() -> None:
    world = validated(replace(CHEAPER, happens=away(1)))
    node = source(world).node_name
    assert disrupted(world) == {"NodeClaimsGivenUp": 1, "MovesRetried": 1}
    assert world.store.moves == {}
    assert hinted(world, "moves are under way") == [(Concern.DISRUPTION, timedelta(seconds=5))]
    (event,) = (e for e in world.cluster.events if e.kind == "Node" and e.reason == "ConsolidationRejected")
    assert (event.name, "InternalError" in event.message) == (node, True)


def test_a_move_without_capacity_is_over_at_once_and_backs_off() -> None:
    world = validated(life("nothing is to be had"))
    assert disrupted(world) == {"NodeClaimsGivenUp": 1, "MovesAbandoned": 1}
    assert [each.failures for each in world.store.move_backoffs.values()] == [1]


def test_ec2_being_away_neither_adds_to_failures_nor_forgets_them() -> None:
    world = life("nothing is to be had").begun()
    until(world, lambda: world.store.move_backoffs)
    ((kind, lacking),) = world.store.move_backoffs.items()
    assert (lacking.failures, "InsufficientCapacity" in lacking.reason) == (1, True)
    away(3)(world)
    until(world, lambda: not world.cloud.script, within=timedelta(minutes=20))
    assert world.store.move_backoffs[kind].failures == 1


def test_a_crash_between_back_off_and_abandonment_counts_the_failure_once() -> None:
    undisturbed = Boundaries()
    life("nothing is to be had").lived(undisturbed)
    at = next(
        n
        for n, (where, _) in enumerate(undisturbed.moments, 1)
        if where == "after FakeStore.save_move_backoff"
    )
    world = life("nothing is to be had").begun()
    world.boundaries = Boundaries(frozenset({at}))
    until(world, lambda: stages(world) == [Stage.ABANDONED])
    assert [each.failures for each in world.store.move_backoffs.values()] == [1]


def test_if_free_capacity_is_gone_at_validation_the_node_is_not_changed() -> None:
    world = proposed(ROOM)
    kept = source(world)
    taken = next(c for c in world.store.claims.values() if c.name != kept.name)
    for number in range(3):
        world.add(f"greedy-{number}", cpu="2", memory="4Gi")
        world.pods[f"greedy-{number}"]["spec"]["nodeName"] = taken.node_name
        world.pods[f"greedy-{number}"]["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    until(world, lambda: Stage.PROPOSED not in stages(world))
    world.live(timedelta(minutes=12))
    world.settle()
    assert world.violations() == []


def test_a_poddisruptionbudget_created_before_validation_keeps_the_node() -> None:
    world = proposed(ROOM)
    kept = source(world)
    world.cluster.poddisruptionbudgets["default/web"] = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    }
    until(world, lambda: stages(world) == [Stage.ABANDONED])
    assert world.store.claims[kept.name].phase is Phase.INITIALIZED
    world.live(timedelta(minutes=10))
    assert (world.violations(), len(world.cloud.alive())) == ([], 2)


def test_a_replacement_that_never_becomes_ready_is_removed_after_ten_minutes_and_the_node_stays() -> None:
    world = life("the replacement never joins").begun()
    until(world, lambda: stages(world) == [Stage.REPLACING])
    began, kept = world.now, source(world)
    until(world, lambda: stages(world) == [Stage.ABANDONED], within=READY_WITHIN + timedelta(minutes=2))
    assert world.now - began >= READY_WITHIN
    until(world, lambda: len(world.cloud.alive()) == 1)
    assert [instance.id for instance in world.cloud.alive()] == [kept.instance_id]


def test_the_replacement_of_a_node_that_is_interrupted_takes_its_pods() -> None:
    world = life("the source is interrupted while its replacement starts").lived()
    assert len(world.cloud.instances) == 2


def test_a_taint_without_a_move_is_removed() -> None:
    world = settled(3)
    (node,) = world.cluster.nodes.values()
    node["spec"]["taints"] = [{"key": DISRUPTED.key, "effect": DISRUPTED.effect}]
    world.live(timedelta(minutes=2))
    assert world.violations() == []
    assert len(world.cloud.instances) == 1, "no node was bought for its pods"


def test_a_run_for_an_unchanged_cluster_reads_only_snapshot_and_ledger() -> None:
    world = settled(3, requirements=ON_DEMAND)
    world.run(Concern.DISRUPTION)
    world.now += timedelta(minutes=1)
    world.observe()
    before = len(world.cluster.calls), len(world.cloud.calls), len(world.hints.sent)
    boundaries = Boundaries()
    world.boundaries = boundaries
    world.run(Concern.DISRUPTION)
    called = [where for where, _ in boundaries.moments if where.startswith("before")]
    assert called == ["before FakeBlobs.get", "before FakeStore.load"]
    assert (len(world.cluster.calls), len(world.cloud.calls), len(world.hints.sent)) == before


def test_every_decision_about_a_move_leaves_a_record_that_replays_to_the_same_bytes() -> None:
    world = CHEAPER.lived()
    found = [kind for kind in records(world) if kind["concern"] == "disruption"]
    assert [bool(each["again"]) for each in found] == [False, True]
    for written in found:
        data = world.blobs.objects[decision_snapshot_key(builders.CLUSTER, written["id"])]
        assert replay(written, decode(data), catalog()) == canonical(written["plan"])


def records(world: World) -> list[dict[str, Any]]:
    prefix, suffix = decision_key(builders.CLUSTER, "|").split("|")
    keys = sorted(k for k in world.blobs.objects if k.startswith(prefix) and k.endswith(suffix))
    return [json.loads(gzip.decompress(world.blobs.objects[k])) for k in keys if ".snapshot." not in k]


def test_pending_pods_are_not_placed_on_replacements_of_a_move() -> None:
    world = CHEAPER.begun()
    until(world, lambda: stages(world) == [Stage.REPLACING])
    world.add("more", cpu="3", memory="2Gi")
    world.live(timedelta(minutes=5))
    world.settle()
    assert world.violations() == []


def test_a_decision_about_a_move_can_be_explained() -> None:
    world = CHEAPER.lived()
    first, second = [kind for kind in records(world) if kind["concern"] == "disruption"]
    assert summary(first) == summary(second) == "1 move, saves $0.2140/hour"
    reported = "\n".join(explain(second))
    move = "moving 2 pods from 1 node onto 1 new node saves 0.2140 USD an hour, eviction cost 2"
    assert move in reported
    assert "on-demand, $0.1700/hour, for default/web-00, default/web-01" in reported


def test_of_many_empty_nodes_only_one_that_has_got_a_pod_stays() -> None:
    small = (*ON_DEMAND, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4"))
    pods = {f"web-{n}": pod_manifest(f"web-{n}", cpu="3") for n in range(3)}
    world = World(pods, nodepool=builders.nodepool_manifest(requirements=small))
    world.cluster.nodepools["default"]["spec"]["disruption"] = {"budgets": [{"nodes": "100%"}]}
    world.concerns = moves.MOVING
    world.settle()
    shrink(world, 0)
    until(world, lambda: stages(world) == [Stage.PROPOSED])
    (move,) = world.store.moves.values()
    assert len(move.sources) == 3
    late_pod(world)
    world.live(timedelta(minutes=3))
    world.settle()
    assert world.violations() == []
    assert list(world.pods) == ["late"], "it was not evicted"
    assert len(world.cloud.alive()) == 1
    failed = world.metrics.take().counters["voluntary_disruption_failed_validations_total"]
    assert [*failed.values()] == [1], "the two others passed"


def test_the_reason_why_a_node_stays_is_reported_once_per_quarter_of_an_hour() -> None:
    world = settled(3)
    for pod in world.pods.values():
        pod["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    world.live(timedelta(minutes=12))
    reported = [
        e for e in world.cluster.events if e.reason == "DisruptionBlocked" and "do-not-disrupt" in e.message
    ]
    assert sorted(event.kind for event in reported) == ["Node", "NodeClaim"]


def test_a_replacement_shows_the_disruption_it_was_created_for() -> None:
    world = proposed(CHEAPER)
    until(world, lambda: stages(world) == [Stage.REPLACING])
    (move,) = world.store.moves.values()
    made = [world.store.claims[name].annotations for name in move.replacements]
    assert made
    assert {each[CREATED_FOR] for each in made} == {"underutilized"}
    others = [c for name, c in world.store.claims.items() if name not in move.replacements]
    assert [c.name for c in others if CREATED_FOR in c.annotations] == []
