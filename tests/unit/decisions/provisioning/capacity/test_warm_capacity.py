"""Tests for warm capacity: stopped instances that CapacityBuffers keep, and which of them start for pods."""

from __future__ import annotations

import base64
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodesmith.adapters.ec2.instances import start
from nodesmith.controllers.lifecycle import note_cost
from nodesmith.decisions.disruption.interruption import answer
from nodesmith.decisions.launch.userdata.starting import full_name
from nodesmith.decisions.lifecycle import next_steps
from nodesmith.decisions.lifecycle.warmcapacity import LEAST_WARM_UP, LONGEST_WARM_UP, not_needed
from nodesmith.decisions.provisioning import Inputs, Plan, decide
from nodesmith.decisions.provisioning.buffers.resolutions import due_statuses
from nodesmith.decisions.provisioning.buffers.warmcapacity import warm_capacity
from nodesmith.decisions.provisioning.decide import next_change
from nodesmith.decisions.scheduling.existing import existing_nodes
from nodesmith.decisions.scheduling.workloads import Workloads
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.commands import Prepare, Register, Shelve, Stop
from nodesmith.model.ec2.launches import Instance, OfferingKey
from nodesmith.model.ec2.notices import InterruptionCause, Notice
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.karpenter.bufferannotations import WARM_CAPACITY
from nodesmith.model.karpenter.capacitybuffers import parse_buffer
from nodesmith.model.karpenter.nodeclaimobjects import manifest as object_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod, PodTemplate, Shape
from nodesmith.model.ledger.items import claim_from_item, claim_to_item
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.observation.reduction.objects import reduce_buffer
from nodesmith_cli.views.status import lines, report_of
from nodesmith_formats.nodeclaims import shown_claim
from tests.builders import (
    NOW,
    ZONES,
    claim,
    daemon,
    expression,
    inputs,
    ledger,
    node,
    nodeclass,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)
from tests.objects.capacitybuffers import warm_buffer

ROOM = "default/room"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
ON_DEMAND = [
    expression("karpenter.sh/capacity-type", "In", "on-demand"),
    expression("node.kubernetes.io/instance-type", "In", "m5.xlarge"),
]
BIG = shape("3", "4Gi")
IMAGES = ("web:1",)


def kept(name: str = "default-kept", phase: Phase = Phase.STOPPED, **fields: Any) -> NodeClaim:
    """Return a claim that keeps an on-demand m5.xlarge for one pod of three CPUs."""
    known: dict[str, Any] = {
        "buffer": ROOM,
        "images": IMAGES,
        "nominated": ("default/capacitybuffer~room~0",),
        "instance_id": f"i-{name}",
        "instance_type": "m5.xlarge",
        "zone": ZONES[0],
        "capacity_type": "on-demand",
        "price_hourly_usd": 0.192,
        "stopped_price_hourly_usd": 0.002,
        "requests": parse_resources({"cpu": "3", "memory": "4Gi", "pods": "1"}),
        "launched_at": NOW - HOUR,
        "created_at": NOW - HOUR,
        "labels": FrozenMap(
            {
                "karpenter.sh/nodepool": "default",
                "topology.kubernetes.io/zone": ZONES[0],
                "karpenter.sh/capacity-type": "on-demand",
                "node.kubernetes.io/instance-type": "m5.xlarge",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
            }
        ),
    }
    return claim(name, phase=phase, **(known | fields))


def given(
    claims: Sequence[NodeClaim] = (),
    waiting: Sequence[Pod] = (),
    *,
    room: Mapping[str, Any] | None = None,
    of: Shape = BIG,
    pool: Mapping[str, Any] | None = None,
    seen: Mapping[str, Any] | None = None,
    **known: Any,
) -> Inputs:
    """Return inputs with a buffer of stopped instances for pods of the shape `of`; keywords are of the ledger."""
    template = PodTemplate("PodTemplate", "room", of, 1, images=IMAGES)
    there = snapshot(
        pods=waiting,
        capacitybuffers=(room or warm_buffer(),),
        podtemplates={template.key: template},
        nodepools=(pool or nodepool_manifest(requirements=ON_DEMAND),),
        **(seen or {}),
    )
    return inputs(snapshot=there, ledger=ledger(claims=tuple(claims), **known))


def shown_provisioning(there: Inputs) -> dict[str, Any]:
    """Return the condition Provisioning of the buffer after a decision."""
    rooms = {room.buffer: room for room in decide(there).rooms}
    ((_, status),) = due_statuses(there.snapshot, rooms, NOW)
    condition: dict[str, Any] = {each["type"]: each for each in status["conditions"]}["Provisioning"]
    return condition


def started(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {each.name: each.nominated for each in plan.starts}


@pytest.mark.parametrize(
    ("annotations", "remedy"),
    [
        ({"nodesmith.dev/warm-state": "hibernated"}, "hibernated nodes are not supported"),
        ({"nodesmith.dev/warm-expire-after": "30m"}, "at least an hour"),
        ({"nodesmith.dev/warm-expire-after": "a week"}, "such as 168h"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused_with_a_remedy(
    annotations: Mapping[str, str], remedy: str
) -> None:
    (problem,) = parse_buffer(warm_buffer(annotations=annotations)).fatal
    assert remedy in str(problem)


def test_settings_of_stopped_instances_on_a_buffer_of_running_nodes_are_pointed_out() -> None:
    annotations = {"nodesmith.dev/warm-expire-after": "24h"}
    active = warm_buffer(annotations=annotations, provisioningStrategy="buffer.x-k8s.io/active-capacity")
    parsed = parse_buffer(active)
    assert parsed.value is not None
    assert "has no effect without" in str(parsed.problems[0])


def test_the_forwarder_keeps_the_settings() -> None:
    annotations = {"nodesmith.dev/warm-expire-after": "24h", "other": "secret"}
    reduced = reduce_buffer(warm_buffer(annotations=annotations))
    parsed = parse_buffer(reduced).value
    assert parsed is not None
    assert parsed.expire_after == DAY
    assert "other" not in reduced["metadata"]["annotations"]


def test_instances_are_bought_on_demand_with_the_images_of_the_template_and_marked() -> None:
    cheap = nodepool_manifest(
        requirements=[expression("karpenter.sh/capacity-type", "In", "spot", "on-demand")]
    )
    plan = decide(given(room=warm_buffer(2), pool=cheap))
    assert {each.claim.capacity_type for each in plan.nodes} == {"on-demand"}
    assert {each.claim.buffer for each in plan.nodes} == {ROOM}
    assert {each.claim.images for each in plan.nodes} == {IMAGES}
    (user_data,) = {base64.b64decode(t.data["UserData"]).decode() for n in plan.nodes for t in n.templates}
    assert "pull 'docker.io/library/web:1' ''" in user_data
    marks = plan.nodes[0].claim.annotations
    assert marks[WARM_CAPACITY] == ROOM
    assert float(marks["nodesmith.dev/stopped-hourly-usd"]) == pytest.approx(20 * 0.08 / 730, rel=0.01)
    assert sum(len(each.claim.nominated) for each in plan.nodes) == 2


def test_nothing_is_bought_for_later_while_nodes_for_pods_are_bought() -> None:
    plan = decide(given(waiting=pods(shape("1"), prefix="other", count=1)))
    assert [each.claim.buffer for each in plan.nodes] == [""]
    assert plan.due is not None
    assert "after the nodes for pods" in plan.rooms[0].reason


def test_what_is_kept_is_not_bought_again_and_is_no_room_for_pods() -> None:
    for phase in (Phase.LAUNCHED, Phase.WARMING, Phase.STOPPING, Phase.STOPPED):
        assert decide(given([kept(phase=phase)])).nodes == ()
    warming = kept(phase=Phase.WARMING)
    its_node = node("warming", provider_id=warming.provider_id)
    assert existing_nodes(snapshot(nodes=(its_node,)), [warming]) == []
    starting = existing_nodes(snapshot(), [kept(phase=Phase.STARTING)])
    assert [(each.name, each.in_flight) for each in starting] == [("default-kept", True)]


def test_a_pod_like_those_of_the_buffer_starts_an_instance_and_nothing_is_bought() -> None:
    plan = decide(given([kept()], pods(BIG)))
    assert started(plan) == {"default-kept": ("default/web-0000",)}
    assert plan.nodes == ()
    (start,) = plan.starts
    assert (start.phase, start.started_at) == (Phase.STARTING, NOW)
    assert start.attempts == {Workloads().of(pods(BIG)[0]): 1}


def test_more_pods_than_instances_get_the_instances_and_new_nodes() -> None:
    plan = decide(given([kept()], pods(BIG, 2)))
    assert len(started(plan)) == 1
    assert [len(each.claim.nominated) for each in plan.nodes] == [1]


def test_small_pods_and_pods_of_other_namespaces_start_an_instance_only_if_it_is_not_dearer() -> None:
    for other in (shape("1"), replace(BIG, namespace="batch")):
        same_price = decide(given([kept()], pods(other)))
        assert len(started(same_price)) == 1
        dearer = decide(given([kept(price_hourly_usd=0.3)], pods(other)))
        assert (started(dearer), len(dearer.nodes)) == ({}, 1)


def test_a_small_pod_shares_an_instance_that_starts_anyway() -> None:
    plan = decide(given([kept(price_hourly_usd=0.3)], [*pods(BIG), *pods(shape("500m"), prefix="small")]))
    assert started(plan) == {"default-kept": ("default/small-0000", "default/web-0000")} or started(plan) == {
        "default-kept": ("default/web-0000", "default/small-0000")
    }
    assert plan.nodes == ()


@pytest.mark.parametrize(
    "why",
    [
        {"claims": [kept(drift="AMIDrift")]},
        {"claims": [kept(phase=Phase.STOPPING)]},
        {
            "claims": [kept()],
            "unavailable": {
                OfferingKey("on-demand", "m5.xlarge", ZONES[0]): Backoff(
                    NOW + HOUR, 1, "InsufficientInstanceCapacity"
                )
            },
        },
    ],
)
def test_instances_that_must_not_or_cannot_start_stay_and_the_pods_get_new_nodes(why: Any) -> None:
    plan = decide(given(waiting=pods(BIG), **why))
    assert started(plan) == {}
    assert [each.claim.buffer for each in plan.nodes] == [""]


def test_what_is_kept_in_a_zone_that_is_shifted_away_is_replaced_meanwhile_and_stays() -> None:
    away = ZonalShift(ZONES[0], "z-1", NOW + HOUR, "zonal shift")
    there = given([kept()], zonal_shifts=(away,))
    plan = decide(there)
    assert [each.claim.buffer for each in plan.nodes] == [ROOM]
    assert ZONES[0] not in plan.nodes[0].claim.requirements["topology.kubernetes.io/zone"].values
    ((_, status),) = due_statuses(there.snapshot, {room.buffer: room for room in plan.rooms}, NOW)
    shown = {each["type"]: each for each in status["conditions"]}["Provisioning"]
    assert (shown["status"], shown["message"]) == (
        "False",
        "0 stopped instances for 0 of 1 pods; more are bought for 1 pods",
    )
    second = kept("default-second", zone=ZONES[1])
    both = given([kept(), second], zonal_shifts=(away,))
    assert decide(both).nodes == ()
    assert not_needed(both.ledger, both.snapshot, NOW) == []
    later = NOW + 2 * HOUR
    (end,) = not_needed(both.ledger, both.snapshot, later)
    assert end.claim.reason == "WarmCapacityNotNeeded"


def test_a_stopped_instance_counts_against_the_limits_of_its_nodepool() -> None:
    limited = nodepool_manifest(requirements=ON_DEMAND, limits={"cpu": "4"})
    other = [*pods(replace(BIG, namespace="batch"))]
    assert decide(given([kept(price_hourly_usd=0.5)], other, pool=limited)).nodes == ()
    assert len(decide(given([], other, pool=limited, room=warm_buffer(0))).nodes) == 1


def test_an_instance_without_the_room_it_was_bought_for_is_replaced_ever_more_seldom() -> None:
    planned = warm_capacity(given().snapshot, (), NOW)[0].resolution.pods()[0]
    attempts = FrozenMap({Workloads().of(planned): 3})
    tiny = parse_resources({"cpu": "2", "memory": "16Gi", "pods": "58"})
    vain = kept(allocatable=tiny, attempts=attempts, created_at=NOW - timedelta(minutes=3))
    plan = decide(given([vain], room=warm_buffer(3)))
    assert plan.nodes == ()
    assert "has no room" in plan.rooms[0].reason
    assert plan.due == vain.created_at + timedelta(hours=2)
    later = replace(vain, created_at=NOW - timedelta(minutes=121))
    (again,) = decide(given([later], room=warm_buffer(3))).nodes
    assert (len(again.claim.nominated), [*again.claim.attempts.values()]) == (1, [4])


@pytest.mark.parametrize(("seconds", "buys"), [(59, False), (60, True)])
def test_after_the_first_instance_without_room_the_next_is_bought_a_minute_later(
    seconds: int, buys: bool
) -> None:
    planned = warm_capacity(given().snapshot, (), NOW)[0].resolution.pods()[0]
    tiny = parse_resources({"cpu": "2", "memory": "16Gi", "pods": "58"})
    known: dict[str, Any] = {"allocatable": tiny, "attempts": FrozenMap({Workloads().of(planned): 1})}
    vain = kept(created_at=NOW - timedelta(seconds=seconds), **known)
    plan = decide(given([vain], room=warm_buffer(3)))
    assert len(plan.nodes) == buys
    assert buys or plan.due == vain.created_at + timedelta(minutes=1)


def test_instances_are_started_in_vain_ever_more_seldom_however_long_they_were_kept() -> None:
    (pod,) = pods(BIG)
    used = kept(
        "default-used",
        Phase.INITIALIZED,
        created_at=NOW - 5 * DAY,
        started_at=NOW - timedelta(minutes=3),
        initialized_at=NOW - timedelta(minutes=2),
        attempts=FrozenMap({Workloads().of(pod): 3}),
        nominated=(pod.key,),
    )
    plan = decide(given([kept(), used], [pod]))
    assert (plan.starts, plan.nodes, plan.backed_off) == ((), (), 1)


def surplus(*claims: NodeClaim, room: Mapping[str, Any] | None = None) -> dict[str, str]:
    there = given(claims, room=room)
    return {each.claim.name: each.claim.reason for each in not_needed(there.ledger, there.snapshot, NOW)}


def test_instances_beyond_the_count_are_given_up_and_those_not_yet_stopped_go_first() -> None:
    warming = kept("default-warming", Phase.WARMING)
    assert surplus(kept(), warming) == {"default-warming": "WarmCapacityNotNeeded"}
    assert surplus(kept(), room=warm_buffer(0)) == {"default-kept": "WarmCapacityNotNeeded"}
    assert surplus(kept(), kept("default-stopping", Phase.STOPPING)) == {}


def test_an_instance_of_a_buffer_that_is_gone_is_given_up() -> None:
    there = snapshot(nodepools=(nodepool_manifest(),))
    (end,) = not_needed(ledger(claims=(kept(),)), there, NOW)
    assert (end.claim.phase, end.claim.was_not_needed) == (Phase.GIVEN_UP, True)


def test_an_instance_that_is_newer_than_the_snapshot_is_kept() -> None:
    new = kept(phase=Phase.LAUNCHED, created_at=NOW)
    there = replace(snapshot(nodepools=(nodepool_manifest(),)), taken_at=NOW - timedelta(seconds=1))
    assert not_needed(ledger(claims=(new,)), there, NOW) == []
    assert not_needed(ledger(claims=(new,)), replace(there, taken_at=NOW), NOW)


@pytest.mark.parametrize(
    ("old", "reason"),
    [
        ({"created_at": NOW - 8 * DAY}, "Expired"),
        ({"images": ("web:0",)}, "ImagesChanged"),
    ],
)
def test_an_old_instance_stays_usable_until_a_stopped_one_has_taken_its_place(
    old: Mapping[str, Any], reason: str
) -> None:
    stale = kept("default-stale", **old)
    assert [each.claim.buffer for each in decide(given([stale])).nodes] == [ROOM]
    assert surplus(stale, kept(phase=Phase.WARMING)) == {}
    assert surplus(stale, kept()) == {"default-stale": reason}
    assert len(started(decide(given([stale], pods(BIG))))) == 1


def test_an_instance_whose_images_change_while_it_is_prepared_is_given_up_at_once() -> None:
    assert surplus(kept(phase=Phase.WARMING, images=("web:0",))) == {"default-kept": "ImagesChanged"}


def test_a_drifted_instance_is_given_up_at_once() -> None:
    assert surplus(kept(drift="AMIDrift")) == {"default-kept": "AMIDrift"}


def test_the_status_tells_how_many_instances_are_stopped_and_being_prepared() -> None:
    shown = shown_provisioning(given([kept(), kept("default-warming", Phase.WARMING)], room=warm_buffer(3)))
    assert (shown["status"], shown["reason"]) == ("False", "WarmingUp")
    expected = "1 stopped instance for 1 of 3 pods; 1 being prepared; more are bought for 1 pods"
    assert shown["message"] == expected


def test_the_status_names_the_limit_that_prevents_more_instances() -> None:
    there = given(pool=nodepool_manifest(requirements=ON_DEMAND, limits={"cpu": "1"}))
    assert shown_provisioning(there)["message"] == (
        "0 stopped instances for 0 of 1 pods; no NodePool can provide more room now: NodePool default: its limit of 1"
        " cpu is reached (0 used, the smallest suitable node takes 4); for this pod raise spec.limits.cpu to at least 4"
    )


SOLD_OUT = {OfferingKey("on-demand", "m5.xlarge", ZONES[0]): Backoff(NOW + HOUR, 1, "InsufficientCapacity")}


@pytest.mark.parametrize(
    ("closed", "known", "why"),
    [
        (
            True,
            {},
            "NodePool default: its schedule (nodesmith.dev/schedule) is closed until Mon 2026-11-23 07:00 UTC",
        ),
        (False, {"unavailable": SOLD_OUT}, "EC2 lately had no capacity to start m5.xlarge in us-east-1a"),
    ],
    ids=["its NodePool is closed", "EC2 lacks capacity"],
)
def test_instances_that_cannot_start_are_no_room(closed: bool, known: Mapping[str, Any], why: str) -> None:
    pool = nodepool_manifest(requirements=ON_DEMAND)
    if closed:
        windows = [{"schedule": "0 7 * * mon-fri", "duration": "13h"}]
        pool["metadata"]["annotations"] = {"nodesmith.dev/schedule": json.dumps(windows)}
    there = given([kept()], pool=pool, **known)
    shown = shown_provisioning(there)
    assert (shown["status"], shown["reason"]) == ("False", "WarmingUp")
    assert shown["message"].startswith(f"1 stopped instance for 0 of 1 pods; {why}")
    assert next_change(there) == (NOW + timedelta(hours=43) if closed else NOW + HOUR)


def test_the_first_join_closes_the_node_and_the_second_one_registers_it() -> None:
    launched, starting = kept(phase=Phase.LAUNCHED), kept(phase=Phase.STARTING, started_at=NOW - HOUR)
    its_node = node("n1", provider_id=launched.provider_id)
    there = snapshot(nodes=(its_node,))
    assert any(isinstance(c, Prepare) for c in next_steps([launched], there, {}, (), NOW))
    assert any(isinstance(c, Register) for c in next_steps([starting], there, {}, (), NOW))
    marked = {**its_node.labels, "nodesmith.dev/preparing": "true"}
    before = snapshot(nodes=(replace(its_node, labels=marked),))
    assert not any(isinstance(c, Register) for c in next_steps([starting], before, {}, (), NOW))


def warmed(since: timedelta, *on_it: Pod, agents: Sequence[Shape] = ()) -> Stop | None:
    """Return the stop of a node that has prepared for so long, if it is stopped now."""
    warming = kept(phase=Phase.WARMING, phase_since=NOW - since, node_name="n1")
    its_node = node("n1", provider_id=warming.provider_id)
    there = snapshot(nodes=(its_node,), pods=on_it, daemonsets=tuple(agents))
    found = [c for c in next_steps([warming], there, {}, (), NOW) if isinstance(c, Stop)]
    return found[0] if found else None


def test_a_node_is_stopped_once_daemonsets_and_images_are_there_or_after_a_while() -> None:
    agent = daemon()
    running = Pod("kube-system/agent-1", agent, NOW, node="n1")
    puller = Pod("kube-system/nodesmith-images-n1", shape("0", owner="Node/n1"), NOW, node="n1")
    assert warmed(timedelta(seconds=5)) is None
    assert warmed(LEAST_WARM_UP) is not None
    assert warmed(LEAST_WARM_UP, agents=[agent]) is None
    assert warmed(LEAST_WARM_UP, running, agents=[agent]) is not None
    assert warmed(LEAST_WARM_UP, replace(running, ready=False), agents=[agent]) is None
    assert warmed(LEAST_WARM_UP, puller) is None
    assert warmed(LONGEST_WARM_UP, puller, agents=[agent]) is not None


def ec2(claim: NodeClaim, state: str) -> Mapping[str, tuple[Instance, ...]]:
    sold = claim.instance_type, claim.zone, claim.capacity_type
    return {claim.name: (Instance(claim.instance_id, claim.name, *sold, "ami-1", state, NOW - HOUR),)}


def test_the_node_of_an_instance_is_deleted_only_once_it_is_stopped() -> None:
    stopping = kept(phase=Phase.STOPPING, node_name="n1")
    steps = {
        state: next_steps([stopping], snapshot(), ec2(stopping, state), [stopping.name], NOW)
        for state in ("running", "stopping", "stopped")
    }
    kinds = {
        state: [type(c) for c in found if isinstance(c, Stop | Shelve)] for state, found in steps.items()
    }
    assert kinds == {"running": [Stop], "stopping": [], "stopped": [Shelve]}


def test_an_instance_that_somebody_else_starts_is_stopped_again() -> None:
    found = next_steps([kept()], snapshot(), ec2(kept(), "running"), ["default-kept"], NOW)
    assert [(type(c), c.is_new) for c in found if isinstance(c, Stop)] == [(Stop, False)]


def test_a_late_event_of_its_own_stop_does_not_end_a_started_node() -> None:
    running = kept(phase=Phase.INITIALIZED, started_at=NOW - HOUR)

    def ended(occurred_at: Any) -> bool:
        notice = Notice(
            InterruptionCause.STOPPED, running.instance_id, occurred_at, "stopped", occurred_at=occurred_at
        )
        return bool(answer([notice], ledger(claims=(running,)), {}, None, NOW).changed)

    assert not ended(NOW - 2 * HOUR)
    assert ended(NOW - timedelta(minutes=1))


@pytest.mark.parametrize("phase", [Phase.WARMING, Phase.STOPPING, Phase.STOPPED, Phase.STARTING])
def test_a_claim_is_read_back_and_older_releases_read_phases_that_they_know(phase: Phase) -> None:
    written = claim_to_item(replace(kept(phase=Phase.LAUNCHED), history=()).advanced(Phase.WARMING, NOW))
    assert "Warming" not in json.dumps({k: v for k, v in written.items() if not k.startswith("true_")})
    whole = kept(phase=phase)
    assert claim_from_item(claim_to_item(whole)) == whole
    older = {k: v for k, v in claim_to_item(whole).items() if not k.startswith("true_")}
    assert older["phase"] == ("Launched" if phase is Phase.STARTING else "GivenUp")


@pytest.mark.parametrize(
    ("phase", "reason"),
    [(Phase.LAUNCHED, "NodeNotFound"), (Phase.STOPPED, "Stopped"), (Phase.STARTING, "Starting")],
)
def test_the_nodeclaim_object_shows_the_state_of_warm_capacity(phase: Phase, reason: str) -> None:
    annotations = {WARM_CAPACITY: ROOM, "nodesmith.dev/stopped-hourly-usd": "0.002000"}
    before = kept(phase=phase, reason=reason, message="why", annotations=FrozenMap(annotations))
    found = shown_claim(object_of(before), NOW).value
    assert found is not None
    assert (found.phase, found.buffer, found.is_warm) == (phase, ROOM, phase is not Phase.STARTING)
    assert found.paid_hourly_usd == (0.002 if phase is Phase.STOPPED else 0.0)


def test_status_and_metrics_count_a_stopped_instance_at_the_price_of_its_volumes() -> None:
    annotations = {WARM_CAPACITY: ROOM, "nodesmith.dev/stopped-hourly-usd": "0.002000"}
    stopped = kept(reason="Stopped", message="why", annotations=FrozenMap(annotations))
    there = replace(given().snapshot, nodeclaims=(object_of(stopped),))
    reported = report_of(there, NOW)
    assert reported["warmCapacity"] == {"stopped": 1, "preparing": 0, "stoppedHourly": 0.002}
    assert reported["coming"] == 0
    assert "warm capacity: 1 stopped instance at $0.0020/hour, 0 being prepared" in list(lines(reported))
    metrics = Metrics()
    note_cost(metrics, [stopped, kept("default-warming", Phase.WARMING)], (), NOW)
    shown = [value for each in metrics.take().gauges.values() for value in each.series.values()]
    assert shown == pytest.approx([0.002 + 0.192])


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("team/web:1.2", "docker.io/team/web:1.2"),
        ("public.ecr.aws/x/y", "public.ecr.aws/x/y:latest"),
        ("localhost:5000/a:b", "localhost:5000/a:b"),
        (f"web@sha256:{'a' * 64}", f"docker.io/library/web@sha256:{'a' * 64}"),
        ("web'; rm -rf /", ""),
        ("$(id)", ""),
        ("web\nreboot", ""),
        ("Web", ""),
        ("-h", ""),
        ("a" * 500, ""),
    ],
)
def test_image_names_are_completed_and_anything_else_is_left_out(image: str, name: str) -> None:
    assert full_name(image) == name


def user_data(of: EC2NodeClass, *images: str) -> str:
    from nodesmith.decisions.launch.userdata.configurations import al2023_user_data, bottlerocket_user_data
    from nodesmith.decisions.launch.userdata.starting import Start
    from tests.builders import cluster_info

    start = Start(kept(images=images), "on-demand", 58, of, cluster_info())
    family = bottlerocket_user_data if of.ami_family == "Bottlerocket" else al2023_user_data
    return family(start)


def test_a_private_registry_of_aws_gets_a_login_for_its_own_region() -> None:
    text = user_data(nodeclass(), "123456789012.dkr.ecr.eu-west-1.amazonaws.com/web:1", "$(reboot)")
    assert "pull '123456789012.dkr.ecr.eu-west-1.amazonaws.com/web:1' 'eu-west-1' &" in text
    assert "reboot" not in text
    assert "pull " not in user_data(nodeclass())


def test_bottlerocket_pulls_images_with_a_static_pod_that_runs_nothing_of_them() -> None:
    alias = [{"alias": "bottlerocket@latest"}]
    settings = tomllib.loads(user_data(nodeclass(amiSelectorTerms=alias), "web:1"))["settings"]
    pod = settings["kubernetes"]["static-pods"]["nodesmith-images"]
    made = json.loads(base64.b64decode(pod["manifest"]))
    (container,) = made["spec"]["containers"]
    assert (made["apiVersion"], made["kind"]) == ("v1", "Pod")
    assert made["metadata"] == {"name": "nodesmith-images", "namespace": "kube-system"}
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert (pod["enabled"], made["spec"]["restartPolicy"]) == (True, "Never")
    assert container["image"] == "docker.io/library/web:1"
    assert container["command"] == ["/nodesmith.dev/no-such-command"]
    assert container["securityContext"]["runAsNonRoot"]


class Refusing:
    """An EC2 that answers every StartInstances with an error."""

    def __init__(self, code: str, status: int) -> None:
        self._code, self._status = code, status

    def start_instances(self, **_: object) -> None:
        answer = {
            "Error": {"Code": self._code, "Message": "no"},
            "ResponseMetadata": {"HTTPStatusCode": self._status},
        }
        raise ClientError(answer, "StartInstances")  # type: ignore[arg-type]


def test_a_lack_of_capacity_is_an_answer_although_ec2_sends_it_as_its_own_failure() -> None:
    def refusal(code: str, status: int) -> tuple[bool, bool]:
        found = start(Refusing(code, status), ["i-1"])
        assert found is not None
        return found.is_short, found.passes

    assert refusal("InsufficientInstanceCapacity", 500) == (True, False)
    assert refusal("InternalError", 500) == (False, True)
    assert refusal("RequestLimitExceeded", 503) == (False, True)
    assert refusal("IncorrectInstanceState", 400) == (False, False)
