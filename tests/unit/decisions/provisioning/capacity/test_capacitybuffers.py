"""Tests for CapacityBuffers: how they are read, for how many pods they keep room, and what is bought for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.writes import merged_status
from nodesmith.decisions.disruption.costs import held_for_buffers
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Inputs, Plan, decide, round_robin
from nodesmith.decisions.provisioning.buffers.resolutions import due_statuses, next_window, resolutions
from nodesmith.decisions.provisioning.decide import next_change
from nodesmith.model.apimachinery.labels import DISRUPTED, DO_NOT_DISRUPT
from nodesmith.model.karpenter.capacitybuffers import CapacityBuffer, count_of, is_room, parse_buffer
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import parse_budget
from nodesmith.model.kubernetes.pods import PodTemplate, Shape, is_planned
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.model.ledger.spending import month_end
from nodesmith.observation.reduction.objects import reduce_buffer
from tests.builders import (
    NOW,
    READY,
    ZONES,
    claim,
    inputs,
    ledger,
    node,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
    spread,
)
from tests.objects.capacitybuffers import TEMPLATE, capacitybuffer
from tests.objects.fleets import fleet, pool, running, worker

HOUR = timedelta(hours=1)


def template(
    of: Shape | None = None, kind: str = "PodTemplate", name: str = "room", replicas: int = 0
) -> PodTemplate:
    return PodTemplate(kind, name, of or shape("1", "1Gi", app="room"), 1, replicas)


def given(
    *buffers: Mapping[str, Any],
    templates: Sequence[PodTemplate] = (),
    known: Ledger | None = None,
    **fields: Any,
) -> Inputs:
    """Return inputs with these buffers and templates; other keywords are fields of the snapshot."""
    there = {each.key: each for each in templates or [template()]}
    seen = snapshot(capacitybuffers=buffers or (capacitybuffer(),), podtemplates=there, **fields)
    return inputs(snapshot=seen, ledger=known or ledger())


def read(**spec: Any) -> CapacityBuffer:
    parsed = parse_buffer(capacitybuffer(**spec))
    assert parsed.value is not None, parsed.problems
    return parsed.value


DEPLOYMENT: dict[str, Any] = {"scalableRef": {"kind": "Deployment", "name": "web"}}
ROLLOUT: dict[str, Any] = {"scalableRef": {"apiGroup": "argoproj.io", "kind": "Rollout", "name": "web"}}


@pytest.mark.parametrize(
    ("spec", "replicas", "count"),
    [
        ({**TEMPLATE, "replicas": 3}, 0, 3),
        ({**TEMPLATE, "replicas": 0}, 0, 0),
        ({**DEPLOYMENT, "percentage": 10}, 20, 2),
        ({**DEPLOYMENT, "percentage": 10}, 21, 3),
        ({**DEPLOYMENT, "percentage": 1}, 1, 1),
        ({**DEPLOYMENT, "percentage": 0}, 20, 0),
        ({**DEPLOYMENT, "percentage": 50}, 0, 0),
        ({**DEPLOYMENT, "percentage": 10, "replicas": 5}, 20, 5),
        ({**DEPLOYMENT, "percentage": 50, "replicas": 5}, 20, 10),
        ({**DEPLOYMENT, "percentage": 200}, 3, 6),
        ({**DEPLOYMENT}, 20, 0),
        ({**TEMPLATE, "limits": {"cpu": "3500m"}}, 0, 3),
        ({**TEMPLATE, "limits": {"cpu": "8", "memory": "2560Mi"}}, 0, 2),
        ({**TEMPLATE, "limits": {"pods": "4"}}, 0, 4),
        ({**TEMPLATE, "limits": {"nvidia.com/gpu": "4"}}, 0, 0),
        ({**TEMPLATE, "replicas": 5, "limits": {"cpu": "3"}}, 0, 3),
        ({**TEMPLATE, "replicas": 2, "limits": {"cpu": "3"}}, 0, 2),
        ({**TEMPLATE, "replicas": 5, "limits": {"cpu": "0"}}, 0, 0),
        ({**TEMPLATE, "replicas": 5, "limits": {"nvidia.com/gpu": "0"}}, 0, 5),
        ({**DEPLOYMENT, "percentage": 100, "limits": {"cpu": "7"}}, 20, 7),
    ],
)
def test_the_count_follows_replicas_percentage_and_limits(
    spec: Mapping[str, Any], replicas: int, count: int
) -> None:
    buffer = read(**spec)
    kind, _, name = buffer.reference.partition("/")
    assert count_of(buffer, template(kind=kind, name=name, replicas=replicas)) == count


@pytest.mark.parametrize(
    ("spec", "field", "remedy"),
    [
        ({**TEMPLATE, **DEPLOYMENT, "replicas": 1}, "spec.podTemplateRef", "leave out one of"),
        ({"replicas": 1}, "spec.podTemplateRef", "name one of them"),
        ({**TEMPLATE}, "spec.replicas", "set replicas or limits"),
        ({**TEMPLATE, "replicas": 1, "percentage": 5}, "spec.percentage", "needs a scalableRef"),
        ({**TEMPLATE, "limits": {"cpu": "1gb"}}, "spec.limits.cpu", "did you mean"),
        ({**TEMPLATE, "replicas": -1}, "spec.replicas", "at least 0"),
        (
            {"scalableRef": {"kind": "Deploymnt", "name": "web"}},
            "spec.scalableRef.kind",
            "did you mean 'Deployment'?",
        ),
        ({"scalableRef": {"kind": "Rollout", "name": "web"}}, "spec.scalableRef.kind", "set the apiGroup"),
        (
            {"scalableRef": {"kind": "Rollout", "apiGroup": "argoproj.io/v1alpha1", "name": "web"}},
            "spec.scalableRef.kind",
            "apiGroup must have no version: 'argoproj.io'",
        ),
        (
            {"scalableRef": {"kind": "<b>" * 4_000, "apiGroup": "argoproj.io", "name": "web"}},
            "spec.scalableRef.kind",
            "can be no kind",
        ),
        (
            {"scalableRef": {"kind": "Rollout", "apiGroup": "<b>.io", "name": "web"}},
            "spec.scalableRef.kind",
            "set the apiGroup of a custom resource",
        ),
        (
            {"scalableRef": {"kind": "ReplicationController", "apiGroup": "apps", "name": "web"}},
            "spec.scalableRef.kind",
            "leave out apiGroup 'apps'",
        ),
        (
            {"scalableRef": {"kind": "Job", "apiGroup": "apps", "name": "web"}},
            "spec.scalableRef.kind",
            "must be of the apiGroup batch, not 'apps'",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_field_and_remedy(
    spec: Mapping[str, Any], field: str, remedy: str
) -> None:
    (problem,) = parse_buffer(capacitybuffer(**spec)).problems
    assert problem.field == field
    assert remedy in problem.remedy
    assert len(str(problem)) < 400


def test_the_older_version_reads_the_same() -> None:
    older = {**capacitybuffer(), "apiVersion": "autoscaling.x-k8s.io/v1alpha1"}
    assert parse_buffer(older) == parse_buffer(capacitybuffer())


SCHEDULE = {
    "nodesmith.dev/buffer-schedule": "0 7 * * mon-fri",
    "nodesmith.dev/buffer-duration": "10h",
    "nodesmith.dev/buffer-timezone": "Europe/Berlin",
}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"nodesmith.dev/buffer-schedule": "0 25 * * *"}, "buffer-schedule"),
        ({"nodesmith.dev/buffer-duration": "ten hours"}, "buffer-duration"),
        ({"nodesmith.dev/buffer-timezone": "Europe/Berln"}, "buffer-timezone"),
    ],
)
def test_an_unreadable_schedule_keeps_no_room(changed: Mapping[str, str], field: str) -> None:
    buffer = capacitybuffer(annotations={**SCHEDULE, **changed})
    (problem,) = parse_buffer(buffer).problems
    assert field in problem.field
    assert decide(given(buffer)).nodes == ()


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("nodesmith.dev/buffer-schedul", "nodesmith.dev/buffer-schedule"),
        ("nodesmith.dev/buffer-limit-usd", "nodesmith.dev/buffer-limit-usd-per-hour"),
        ("nodesmith.dev/limit-usd-per-hour", "nodesmith.dev/buffer-limit-usd-per-hour"),
    ],
)
def test_a_misspelt_annotation_is_reported_with_the_one_that_was_meant(key: str, meant: str) -> None:
    parsed = parse_buffer(capacitybuffer(annotations={key: "1"}))
    (problem,) = parsed.problems
    assert parsed.value is not None
    assert problem.field == f"metadata.annotations[{key}]"
    assert f"did you mean '{meant}'?; it has no effect" in problem.remedy


@pytest.mark.parametrize(
    ("at", "count"),
    [("2026-11-23T05:59", 0), ("2026-11-23T06:00", 2), ("2026-11-23T15:59", 2), ("2026-11-23T16:01", 0)],
)
def test_a_buffer_on_a_schedule_keeps_room_in_its_window_only(at: str, count: int) -> None:
    now = datetime.fromisoformat(at).replace(tzinfo=UTC)  # Berlin is an hour ahead in winter
    (found,) = resolutions(given(capacitybuffer(annotations=SCHEDULE)).snapshot, now)
    assert (found.is_ready, found.count) == (True, count)


def test_provisioning_looks_again_when_a_window_begins_and_disruption_when_it_ends() -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)  # a Saturday
    asked = given(capacitybuffer(annotations=SCHEDULE))
    assert next_change(replace(asked, now=now)) == datetime(2026, 11, 23, 6, tzinfo=UTC)
    assert next_window(asked.snapshot, datetime(2026, 11, 23, 9, tzinfo=UTC)) == datetime(
        2026, 11, 23, 16, tzinfo=UTC
    )


def bought(plan: Plan) -> list[str]:
    return sorted(key for each in plan.nodes for key in each.claim.nominated)


def test_nodes_are_bought_for_a_buffers_room() -> None:
    plan = decide(given())
    assert bought(plan) == ["default/capacitybuffer~room~0", "default/capacitybuffer~room~1"]
    assert [(room.count, room.ready, room.bought) for room in plan.rooms] == [(2, 0, 2)]
    assert plan.room_hourly_usd == plan.price_hourly_usd > 0


def test_room_on_existing_and_launching_nodes_is_used_first() -> None:
    launching = claim("default-new", phase=Phase.LAUNCHED)
    ready, coming = (
        decide(known)
        for known in (given(nodes=(node("a", labels=READY),)), given(known=ledger(claims=(launching,))))
    )
    assert [(room.ready, room.launching, room.bought) for room in ready.rooms] == [(2, 0, 0)]
    assert [room.reason for room in (*ready.rooms, *coming.rooms)] == ["", ""], "no room is missing"
    assert [(room.ready, room.launching, room.bought) for room in coming.rooms] == [(0, 2, 0)]
    assert ready.is_idle
    assert coming.is_idle


def test_a_pod_that_takes_the_room_causes_a_refill() -> None:
    taken = pods(shape("3", "1Gi"), node="a")
    plan = decide(given(nodes=(node("a", labels=READY),), pods=taken))
    assert bought(plan) == ["default/capacitybuffer~room~1"]


def test_pods_come_first_and_their_plan_is_the_same_as_without_buffers() -> None:
    waiting = pods(shape("3", "6Gi"), 7)
    nodes = (node("a", labels=READY),)
    without = decide(inputs(snapshot=snapshot(pods=waiting, nodes=nodes)))
    plan = decide(given(pods=waiting, nodes=nodes))
    assert plan.nodes[: len(without.nodes)] == without.nodes
    assert plan.placed == without.placed
    assert not any(is_planned(key) for each in without.nodes for key in each.claim.nominated)
    assert all(is_planned(key) for each in plan.nodes[len(without.nodes) :] for key in each.claim.nominated)


def test_nodes_for_room_are_bought_after_those_for_pods() -> None:
    plan = decide(
        given(capacitybuffer(**TEMPLATE, replicas=40), pods=pods(shape("3", "6Gi", namespace="z"), 7))
    )
    kinds = [each.is_room for each in round_robin(tuple(reversed(plan.nodes)))]
    assert kinds == sorted(kinds)
    assert set(kinds) == {False, True}


def test_buffers_buy_nothing_beyond_the_limits_of_nodepools() -> None:
    pool = nodepool_manifest(limits={"cpu": "4"})
    plan = decide(given(capacitybuffer(**TEMPLATE, replicas=50), nodepools=(pool,)))
    (room,) = plan.rooms
    assert sum(each.claim.capacity.cpu_milli for each in plan.nodes) <= 4000
    assert room.bought < 50
    assert room.reason


def test_nodes_for_pods_and_for_room_share_the_limits_of_a_nodepool() -> None:
    pool = nodepool_manifest(limits={"cpu": "8"})
    plan = decide(
        given(capacitybuffer(**TEMPLATE, replicas=50), nodepools=(pool,), pods=pods(shape("3", "1Gi")))
    )
    assert {node.is_room for node in plan.nodes} == {False, True}
    assert sum(each.claim.capacity.cpu_milli for each in plan.nodes) <= 8000


def test_what_limits_leave_to_a_waiting_pod_is_not_taken_by_buffers() -> None:
    pool = nodepool_manifest(limits={"cpu": "4"})
    plan = decide(given(nodepools=(pool,), pods=pods(shape("6", "1Gi"))))
    assert plan.nodes == ()
    assert "pods come first" in plan.rooms[0].reason


def test_pods_that_wait_for_the_limit_of_a_nodepool_are_no_reason_for_room_elsewhere() -> None:
    theirs = nodepool_manifest("theirs", labels={"team": "blue"}, limits={"cpu": "4"})
    ours = nodepool_manifest("ours", labels={"team": "red"}, limits={"cpu": "1"})
    room = template(shape("1", "1Gi", app="room", nodeSelector={"team": "red"}))
    waiting = pods(shape("6", "1Gi", nodeSelector={"team": "blue"}))
    plan = decide(given(templates=[room], nodepools=(theirs, ours), pods=waiting))
    why = plan.rooms[0].reason
    assert why.startswith("no NodePool can provide more room now: ")
    assert "nearest is NodePool ours: its limit of 1 cpu is reached" in why
    assert why.endswith("for these 2 pods raise spec.limits.cpu to at least 4")
    for_all = decide(given(nodepools=(theirs,), pods=waiting))
    assert for_all.rooms[0].reason == "pods wait for the limits of NodePool theirs, and pods come first"


def test_room_that_waits_for_a_limit_a_month_is_bought_when_the_next_one_begins() -> None:
    pool = nodepool_manifest()
    pool["metadata"]["annotations"] = {"nodesmith.dev/limit-usd-per-month": "0.5"}
    plan = decide(given(nodepools=(pool,)))
    assert "the limit of 0.5 USD a month of NodePool default is reached" in plan.rooms[0].reason
    assert plan.due == month_end(NOW)


def test_the_templates_firm_rules_count_and_its_preferences_do_not() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "room"}}}
    firm = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    soft = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]
        }
    }
    apart, together = (
        decide(given(templates=[template(shape("1", "1Gi", app="room", affinity=affinity))]))
        for affinity in (firm, soft)
    )
    assert (len(apart.nodes), len(together.nodes)) == (2, 1)


def test_planned_pods_are_capped_for_each_buffer_and_for_the_cluster() -> None:
    small = template(shape("1m", "1Mi", app="room"))
    buffers = [capacitybuffer(f"room-{n}", **TEMPLATE, replicas=2_000_000_000) for n in range(5)]
    found = resolutions(given(*buffers, templates=[small]).snapshot, NOW)
    assert [each.count for each in found] == [1000, 1000, 1000, 0, 0]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({**TEMPLATE, "replicas": 1}, "Resolved"),
        ({"podTemplateRef": {"name": "other"}, "replicas": 1}, "PodTemplateNotFound"),
        ({**DEPLOYMENT, "replicas": 1}, "ScalableRefNotFound"),
        ({"replicas": 1}, "ResolutionFailed"),
    ],
)
def test_a_reference_is_resolved_or_the_reason_said(spec: Mapping[str, Any], reason: str) -> None:
    (found,) = resolutions(given(capacitybuffer(**spec)).snapshot, NOW)
    assert found.reason == reason
    assert found.key == "default/room"


def test_a_custom_resource_that_controls_nothing_is_told_what_must_name_it() -> None:
    of_rollout = template(kind="Rollout.argoproj.io", name="web", replicas=4)
    share = capacitybuffer(**ROLLOUT, percentage=50)
    (lacking,) = resolutions(given(share).snapshot, NOW)
    assert lacking.reason == "ScalableRefNotFound"
    assert "nothing in namespace default is controlled by Rollout.argoproj.io 'web'" in lacking.message
    (found,) = resolutions(given(share, templates=[of_rollout]).snapshot, NOW)
    assert (found.reason, found.count) == ("Resolved", 2)


def test_buffers_of_other_strategies_are_left_alone() -> None:
    other = capacitybuffer(**TEMPLATE, replicas=1, provisioningStrategy="example.com/warm")
    assert resolutions(given(other).snapshot, NOW) == []
    assert decide(given(other)).rooms == ()


def served(known: Inputs, plan: Plan, minutes: int) -> tuple[Inputs, NodeClaim]:
    """Return inputs some minutes later, in which the planned node has joined, too full for any planned pod."""
    (planned,) = plan.nodes
    there = replace(
        planned.claim,
        phase=Phase.INITIALIZED,
        provider_id=f"aws:///us-east-1a/i-{planned.claim.name}",
        phase_since=known.now + timedelta(minutes=1),
        initialized_at=known.now + timedelta(minutes=1),
    )
    full = node(there.name, cpu="500m", labels={**READY, **there.labels}, provider_id=there.provider_id)
    claims = (*known.ledger.claims, there)
    nodes = (*known.snapshot.nodes, full)
    later = replace(
        known,
        now=known.now + timedelta(minutes=minutes),
        decision=f"{known.decision}x",
        snapshot=replace(known.snapshot, nodes=nodes),
        ledger=replace(known.ledger, claims=claims),
    )
    return later, there


def test_nodes_on_which_the_room_never_is_are_not_bought_again_and_again() -> None:
    known = given(capacitybuffer(**TEMPLATE, replicas=1))
    bought_at = []
    for _ in range(31):
        plan = decide(known)
        if plan.nodes:
            bought_at.append((known.now - NOW) // timedelta(minutes=1))
            known, _ = served(known, plan, 2)
        else:
            known = replace(known, now=known.now + timedelta(minutes=2), decision=f"{known.decision}x")
    assert bought_at == [0, 2, 12]
    assert plan.due == NOW + timedelta(minutes=132)
    assert "bought 3 times" in plan.rooms[0].reason


def test_room_that_pods_use_up_is_bought_again_each_time() -> None:
    known = given(capacitybuffer(**TEMPLATE, replicas=1))
    for _ in range(6):
        plan = decide(known)
        assert len(plan.nodes) == 1
        known, there = served(known, plan, 2)
        user = pods(shape("1", "1Gi"), prefix=there.name, node=there.name)
        known = replace(known, snapshot=replace(known.snapshot, pods=(*known.snapshot.pods, *user)))


def test_the_cost_of_room_is_the_price_of_the_nodes_without_pods() -> None:
    known = of_one_type(pods=running(shape("2", "1Gi"), {"a": 1}))
    more = replace(known.snapshot, capacitybuffers=(capacitybuffer(**TEMPLATE, replicas=4),))
    (one,) = held_for_buffers(replace(known, snapshot=more))
    assert (one.claim.name, one.buffers) == ("claim-b", ("default/room",))
    assert one.price_hourly_usd == pytest.approx(0.192)
    assert held_for_buffers(known) == ()


def shown_of(known: Inputs) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition that the buffer should show, by type."""
    plan = decide(known)
    found = dict(due_statuses(known.snapshot, {room.buffer: room for room in plan.rooms}, known.now))
    return {c["type"]: (c["status"], c["reason"]) for c in found["default/room"]["conditions"]}


def test_the_conditions_follow_the_room() -> None:
    ready = {"ReadyForProvisioning": ("True", "Resolved"), "LimitedByQuotas": ("False", "NotLimited")}
    fits = shown_of(given(nodes=(node("a", labels=READY),)))
    assert fits == {**ready, "Provisioning": ("True", "FitsExistingCapacity")}
    assert shown_of(given()) == {**ready, "Provisioning": ("False", "RequiresNewCapacity")}
    coming = given(known=ledger(claims=(claim("default-new", phase=Phase.LAUNCHED),)))
    assert shown_of(coming)["Provisioning"] == ("False", "RequiresNewCapacity")
    empty = shown_of(given(capacitybuffer(**TEMPLATE, replicas=0)))
    assert empty == {**ready, "Provisioning": ("False", "BufferEmpty")}
    lost = shown_of(given(capacitybuffer(podTemplateRef={"name": "other"}, replicas=1)))
    assert lost["ReadyForProvisioning"] == ("False", "PodTemplateNotFound")
    assert lost["Provisioning"] == ("False", "NotReadyForProvisioning")
    capped = shown_of(given(capacitybuffer(**TEMPLATE, replicas=5000)))
    assert capped["LimitedByQuotas"] == ("True", "PlannedPodsCapped")


def test_the_message_counts_nodes_on_their_way_and_those_that_are_bought() -> None:
    known = given()
    (room,) = decide(known).rooms
    some = replace(room, ready=0, launching=1, bought=1, reason="")
    ((_, status),) = due_statuses(known.snapshot, {room.buffer: some}, NOW)
    (message,) = (c["message"] for c in status["conditions"] if c["type"] == "Provisioning")
    assert message == "there is room for 0 of 2 pods, and nodes for 2 are being launched"


def test_a_status_that_is_shown_is_not_written_again() -> None:
    known = given(nodes=(node("a", labels=READY),))
    found = {room.buffer: room for room in decide(known).rooms}
    ((_, status),) = due_statuses(known.snapshot, found, NOW)
    shown = reduce_buffer({**capacitybuffer(), "status": merged_status({}, status, NOW)})
    assert status["replicas"] == 2
    assert status["podTemplateRef"] == {"name": "room"}
    assert list(due_statuses(replace(known.snapshot, capacitybuffers=(shown,)), found, NOW)) == []


def of_one_type(**fields: Any) -> Inputs:
    """Return a fleet of nodes `a` and `b`, whose NodePool sells nothing cheaper, with a buffer for two pods."""
    expressions = {"node.kubernetes.io/instance-type": "m5.xlarge", "karpenter.sh/capacity-type": "on-demand"}
    only = [{"key": key, "operator": "In", "values": [value]} for key, value in expressions.items()]
    there = {each.key: each for each in [template(fields.pop("of", None))]}
    known = {"capacitybuffers": (capacitybuffer(),), "podtemplates": there, **fields}
    return fleet([worker("a"), worker("b")], pools=[pool(requirements=only)], **known)


def test_a_node_with_room_alone_is_not_removed_as_empty_and_is_once_the_buffer_is_gone() -> None:
    large = shape("3", "1Gi", app="room")
    kept, gone = of_one_type(of=large), of_one_type(of=large, capacitybuffers=())
    assert propose(kept).proposals == ()
    assert [each.reason for each in propose(gone).proposals] == [Reason.EMPTY, Reason.EMPTY]


def test_room_moves_to_nodes_with_pods_and_the_node_that_it_leaves_is_removed() -> None:
    found = propose(of_one_type(pods=running(shape("1", "1Gi"), {"b": 1})))
    assert [each.sources for each in found.proposals] == [("claim-a",)]


def test_a_pod_does_not_move_to_room_that_its_affinity_selects_since_no_pod_runs_there() -> None:
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "room"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    follower = shape("500m", "1Gi", app="follower", affinity=near)
    large = running(replace(shape("2", "1Gi"), annotations={DO_NOT_DISRUPT: "true"}), {"a": 1})
    alone = of_one_type(of=shape("500m", "1Gi", app="room"), pods=[*large, *running(follower, {"b": 1})])
    assert propose(alone).proposals == ()

    leader = running(shape("100m", "1Gi", app="room"), {"a": 1})
    led = replace(alone, snapshot=replace(alone.snapshot, pods=(*alone.snapshot.pods, *leader)))
    assert [each.sources for each in propose(led).proposals] == [("claim-b",)]


@pytest.mark.parametrize(("app", "moves"), [("other", False), ("room", True)])
def test_room_does_not_make_the_spread_of_pods_look_even(app: str, moves: bool) -> None:
    """Nodes `a` and `b` are in the first zone. If a pod of the spread is on `a`, that of `b` may leave the zone."""
    spread_shape = shape("1", "1Gi", app="room", topologySpreadConstraints=spread(hard=True, app="room"))
    there = [*running(shape("500m", "1Gi", app=app), {"a": 1}), *running(spread_shape, {"b": 1, "c": 1})]
    room = shape("1500m", "1Gi", app="room", nodeSelector={"example.com/rack": "7"})
    known = of_one_type(of=room).snapshot
    requirements = known.nodepools[0]["spec"]["template"]["spec"]["requirements"]
    two_zones = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": list(ZONES[:2])}
    pools = [pool(requirements=[*requirements, two_zones])]
    full = worker("a", annotations={DO_NOT_DISRUPT: "true"}, labels={"example.com/rack": "7"})
    workers = [full, worker("b"), worker("c", zone=ZONES[1])]
    fleet_with_room = fleet(
        workers, there, pools=pools, podtemplates=known.podtemplates, capacitybuffers=known.capacitybuffers
    )
    found = propose(fleet_with_room).proposals
    assert any("claim-b" in each.sources for each in found) is moves


def test_a_drifted_node_with_room_alone_is_replaced_and_not_just_removed() -> None:
    drifted = worker("a", claim={"drift": "AMIDrift", "drifted_at": NOW - HOUR})
    there = {each.key: each for each in [template()]}
    with_buffer = propose(fleet([drifted], capacitybuffers=(capacitybuffer(),), podtemplates=there)).proposals
    without = propose(fleet([drifted], podtemplates=there)).proposals
    assert [len(each.replacements) for each in without] == [0]
    assert [len(each.replacements) for each in with_buffer] == [1]


def test_disruption_budgets_of_the_templates_pods_do_not_guard_room() -> None:
    guard = parse_budget(
        {
            "metadata": {"namespace": "default", "name": "room"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "room"}}},
            "status": {"disruptionsAllowed": 0},
        }
    )
    blocked = propose(of_one_type(budgets=(guard,))).blocked
    assert "PodDisruptionBudget" not in {each.rule for each in blocked.values()}


def test_room_on_the_source_of_a_proposed_move_is_not_bought_again() -> None:
    there = {each.key: each for each in [template()]}
    busy = running(shape("3500m", "1Gi"), {"b": 1})
    known = fleet([worker("a"), worker("b")], busy, capacitybuffers=(capacitybuffer(),), podtemplates=there)
    moving = Move("m1", Reason.UNDERUTILIZED, ("claim-a",), Stage.PROPOSED, NOW, NOW)
    tainted = tuple(
        replace(each, taints=(DISRUPTED,)) if each.name == "a" else each for each in known.snapshot.nodes
    )
    seen = replace(
        known, snapshot=replace(known.snapshot, nodes=tainted), ledger=replace(known.ledger, moves=(moving,))
    )
    assert decide(seen).nodes == ()


def test_planned_pods_of_other_objects_are_no_room_of_a_buffer() -> None:
    assert is_room("default/capacitybuffer~web~0")
    assert not any(map(is_room, ("default/provisioningrequest~web~0", "default/capacitybuffer-0")))
