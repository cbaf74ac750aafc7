"""NodePools that have nodes only within the windows of a schedule."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nodesmith.decisions.budgets import closed_obstacle, is_open, next_turn, opens_from
from nodesmith.decisions.disruption.expiration import expired, next_change, out_of_schedule
from nodesmith.decisions.provisioning import Plan, decide, replicas
from nodesmith.decisions.provisioning.nodepools.static import surplus
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.times import last_hit, next_hit, parse_cron
from nodesmith.model.karpenter.disruption import SCHEDULE, Window
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parse_nodepool
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.kubernetes.provisioningrequests import Gang, GangStage
from nodesmith.model.ledger.ledger import Ledger, Pause
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.planning.inputs import plan_inputs
from nodesmith_cli.planning.manifests import read_manifests
from nodesmith_formats.manifests.manifests import Document
from tests import builders
from tests.builders import NOW, READY
from tests.goparsers import kept

BERLIN = "Europe/Berlin"
WEEKDAYS = {"schedule": "0 7 * * mon-fri", "duration": "13h", "timeZone": BERLIN}
SATURDAY = NOW
"""NOW is 12:00 UTC on Saturday, 21 November 2026. In winter, Berlin is an hour ahead of UTC."""
MONDAY = datetime(2026, 11, 23, 6, tzinfo=UTC)
FRIDAY_EVENING = datetime(2026, 11, 20, 19, tzinfo=UTC)
EARLIER = timedelta(seconds=1)


def manifest(schedule: Any, name: str = "default", **spec: Any) -> dict[str, Any]:
    """Return a NodePool with this schedule; keywords are fields of its spec, or `budgets`."""
    made = builders.nodepool_manifest(name)
    budgets = spec.pop("budgets", None)
    made["spec"] |= spec if budgets is None else {**spec, "disruption": {"budgets": budgets}}
    text = schedule if isinstance(schedule, str) else json.dumps(schedule)
    made["metadata"]["annotations"] = {**made["metadata"].get("annotations", {}), SCHEDULE: text}
    return made


def pool(schedule: Any, **spec: Any) -> NodePool:
    parsed = parse_nodepool(manifest(schedule, **spec))
    assert parsed.value is not None
    return parsed.value


# Reading
def test_a_schedule_is_read_with_its_time_zone() -> None:
    assert pool([WEEKDAYS, {"schedule": "@daily", "duration": "1h30m"}]).windows == (
        Window("0 7 * * mon-fri", 13 * 3600, BERLIN),
        Window("@daily", 5400),
    )


@pytest.mark.parametrize(
    ("schedule", "place", "remedy"),
    [
        ("[", "", "must be a JSON list of 1 to 20 windows"),
        ("[]", "", "must be a JSON list"),
        ("[" * 5000, "", "must be a JSON list"),
        ("[" * 4000, "", "must be a JSON list"),
        ({"schedule": "@daily"}, "", "must be a JSON list"),
        ([7], "[0]", "must be an object"),
        ([WEEKDAYS, {**WEEKDAYS, "duration": "1d"}], "[1].duration", "such as 13h or 8h30m"),
        ([{**WEEKDAYS, "duration": "0h"}], "[0].duration", "such as 13h"),
        ([{**WEEKDAYS, "duration": 13}], "[0].duration", "such as 13h"),
        ([{**WEEKDAYS, "schedule": "7:00"}], "[0].schedule", "must have five fields"),
        ([{**WEEKDAYS, "schedule": "0 25 * * *"}], "[0].schedule", "the hour '25' must be a number from 0"),
        ([{**WEEKDAYS, "schedule": "0 7 * * 1-7"}], "[0].schedule", "the day of the week '7' must be"),
        ([{**WEEKDAYS, "schedule": "0 7 30 2 *"}], "[0].schedule", "none of its months has a day 30"),
        ([{**WEEKDAYS, "schedule": None}], "[0].schedule", "five fields"),
        ([{**WEEKDAYS, "timeZone": "Berlin"}], "[0].timeZone", "such as Europe/Berlin"),
        ([{**WEEKDAYS, "timezone": "UTC"}], "[0].timezone", "did you mean 'timeZone'"),
    ],
)
def test_a_schedule_that_cannot_be_read_is_reported_and_the_nodepool_is_used_at_all_times(
    schedule: Any, place: str, remedy: str
) -> None:
    parsed = parse_nodepool(manifest(schedule))
    assert parsed.value is not None
    assert parsed.value.windows is None
    assert is_open(parsed.value, SATURDAY)
    (problem,) = parsed.problems
    assert problem.field == f"metadata.annotations[{SCHEDULE}]{place}"
    assert remedy in problem.remedy
    assert "used at all times" in problem.remedy
    assert not problem.fatal


def test_every_fault_of_a_schedule_is_reported() -> None:
    problems = parse_nodepool(manifest([{"schedule": "x"}, {"schedule": "@daily", "duration": "x"}])).problems
    places = [problem.field.rpartition("]")[2] for problem in problems]
    assert places == [".schedule", ".duration", ".duration"]


# Time
@pytest.mark.parametrize(
    ("now", "opened", "turn"),
    [
        (SATURDAY, False, MONDAY),
        (MONDAY - EARLIER, False, MONDAY),
        (MONDAY, True, MONDAY + timedelta(hours=13)),
        (FRIDAY_EVENING - EARLIER, True, FRIDAY_EVENING),
        (FRIDAY_EVENING, False, MONDAY),
    ],
)
def test_a_nodepool_opens_and_closes_by_the_clock_of_its_time_zone(
    now: datetime, opened: bool, turn: datetime
) -> None:
    weekdays = pool([WEEKDAYS])
    assert is_open(weekdays, now) is opened
    assert next_turn([weekdays], now) == turn
    assert (closed_obstacle(weekdays, now) == "") is opened


def test_a_nodepool_without_a_schedule_never_closes() -> None:
    always = parse_nodepool(builders.nodepool_manifest()).value
    assert always is not None
    assert is_open(always, SATURDAY)
    assert next_turn([always], SATURDAY) is None
    assert opens_from(always, SATURDAY) is None


@pytest.mark.parametrize(
    "text", ["0 7 * * mon-fri", "30 2 * * *", "*/7 3 1,15 * *", "0 0 29 2 *", "15 2 29 3 *"]
)
@pytest.mark.parametrize("zone", ["UTC", BERLIN, "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    "after", [NOW, datetime(2026, 3, 28, 20, tzinfo=UTC), datetime(2026, 10, 24, 23, 45, tzinfo=UTC)]
)
def test_the_next_moment_of_a_schedule_is_the_last_one_of_the_time_until_then(
    text: str, zone: str, after: datetime
) -> None:
    schedule, where = parse_cron(text), ZoneInfo(zone)
    found = next_hit(schedule, after, where)
    assert found is not None
    assert last_hit(schedule, after, found, where) == found
    assert last_hit(schedule, after, found - EARLIER, where) is None


def test_the_next_moment_agrees_with_the_last_one_for_the_schedules_that_go_has_read() -> None:
    kinds = [each.case.given for each in kept() if each.case.kind == "schedule" and each.found]
    assert len(kinds) > 100
    for given in kinds:
        schedule, after = parse_cron(given["schedule"]), datetime.fromisoformat(given["until"])
        found = next_hit(schedule, after)
        assert found is not None, given
        assert last_hit(schedule, after, found) == found
        assert last_hit(schedule, after, found - EARLIER) is None


# Buying
def planned(now: datetime, *manifests: dict[str, Any], **fields: Any) -> Plan:
    seen = builders.snapshot(pods=builders.pods(builders.shape()), nodepools=manifests, **fields)
    contents = {f"NodePool/{m['metadata']['name']}": builders.content_of(m) for m in manifests}
    return decide(builders.inputs(snapshot=seen, ledger=builders.ledger(contents=contents), now=now))


def test_outside_its_windows_a_nodepool_buys_nothing_and_its_pods_wake_when_it_opens() -> None:
    plan = planned(SATURDAY, manifest([WEEKDAYS]))
    assert not plan.nodes
    assert plan.due == MONDAY
    (group,) = plan.unplaced
    assert "closed until Mon 2026-11-23 06:00 UTC" in str(group.cause)
    assert len(planned(MONDAY, manifest([WEEKDAYS])).nodes) == 1


def test_another_nodepool_that_is_open_serves_the_pods_and_nothing_is_due() -> None:
    plan = planned(SATURDAY, manifest([WEEKDAYS]), builders.nodepool_manifest("nightly"))
    assert [node.claim.nodepool for node in plan.nodes] == ["nightly"]
    assert plan.due is None


def test_nodes_of_a_closed_nodepool_take_no_more_pods() -> None:
    node = builders.node(labels=READY)
    assert planned(MONDAY, manifest([WEEKDAYS]), nodes=(node,)).placed == {"node-1": ("default/web-0000",)}
    assert not planned(SATURDAY, manifest([WEEKDAYS]), nodes=(node,)).placed


# Draining
def fleet(count: int, **fields: Any) -> tuple[list[NodeClaim], Snapshot]:
    """Return claims in service and a snapshot with their Nodes, node-0 and so on, and with the given `pods`."""
    claims = [
        builders.claim(f"default-{n}", phase=Phase.INITIALIZED, node_name=f"node-{n}", initialized_at=NOW)
        for n in range(count)
    ]
    nodes = [builders.node(c.node_name, provider_id=c.provider_id, labels=READY) for c in claims]
    return claims, builders.snapshot(nodes=tuple(nodes), **fields)


def ended(count: int, of: NodePool, now: datetime = SATURDAY, **fields: Any) -> list[str]:
    known = {name: fields.pop(name) for name in ("paused", "gangs") if name in fields}
    claims, seen = fleet(count, **fields)
    ends = out_of_schedule(Ledger(claims=tuple(claims), **known), seen, {"default": of}, now)
    assert {end.claim.cause for end in ends} <= {"ScheduleClosed"}
    return [end.claim.name for end in ends]


def test_the_nodes_of_a_closed_nodepool_end_within_its_budgets() -> None:
    assert ended(3, pool([WEEKDAYS], budgets=[{"nodes": "2"}])) == ["default-0", "default-1"]
    assert ended(3, pool([WEEKDAYS], budgets=[])) == ["default-0", "default-1", "default-2"]
    assert ended(3, pool([WEEKDAYS], budgets=[{"nodes": "0"}])) == []


def test_the_nodes_of_an_open_nodepool_stay() -> None:
    assert ended(3, pool([WEEKDAYS], budgets=[]), MONDAY) == []


def test_nodes_whose_pods_refuse_disruption_stay_and_so_do_all_while_disruption_is_paused() -> None:
    shape = replace(builders.shape(), annotations={DO_NOT_DISRUPT: "true"})
    pods: list[Pod] = builders.bind(shape, "node-0")
    assert ended(2, pool([WEEKDAYS], budgets=[]), pods=pods) == ["default-1"]
    assert ended(2, pool([WEEKDAYS], budgets=[]), paused=Pause(NOW)) == []


def test_a_node_with_room_for_a_provisioning_request_stays_while_the_room_is_kept() -> None:
    gang = Gang("uid", "default/job", GangStage.PROVISIONED, NOW, NOW, places={"default-0": (1,)})
    until = SATURDAY + timedelta(minutes=10)
    kept = replace(gang, booked_until=until)
    assert ended(2, pool([WEEKDAYS], budgets=[]), gangs=(kept,)) == ["default-1"]
    assert ended(2, pool([WEEKDAYS], budgets=[]), until, gangs=(kept,)) == ["default-0", "default-1"]


def test_no_node_ends_twice() -> None:
    claims, seen = fleet(1)
    old = replace(claims[0], expire_after="1m")
    ledger, pools = Ledger(claims=(old,)), {"default": pool([WEEKDAYS], budgets=[])}
    ends = expired(ledger, seen, pools, SATURDAY)
    assert [end.claim.cause for end in ends] == ["Expired"]
    assert out_of_schedule(ledger, seen, pools, SATURDAY, ends) == []


def test_lifecycle_is_due_when_a_nodepool_with_nodes_closes() -> None:
    claims, seen = fleet(1)
    ledger, pools = Ledger(claims=tuple(claims)), {"default": pool([WEEKDAYS])}
    assert next_change(ledger, seen, pools, FRIDAY_EVENING - EARLIER) == FRIDAY_EVENING
    assert next_change(Ledger(), seen, pools, FRIDAY_EVENING - EARLIER) is None


# Static NodePools
def test_a_static_nodepool_has_no_replicas_outside_its_windows() -> None:
    made = manifest([WEEKDAYS], replicas=2)
    contents = {"NodePool/default": builders.content_of(made)}

    def bought(now: datetime) -> int:
        seen = builders.snapshot(nodepools=(made,))
        inputs = builders.inputs(snapshot=seen, ledger=builders.ledger(contents=contents), now=now)
        return len(replicas(inputs)[0])

    assert (bought(SATURDAY), bought(MONDAY)) == (0, 2)
    claims, seen = fleet(2)
    static = pool([WEEKDAYS], replicas=2)
    ends = surplus(claims, seen, {"default": static}, SATURDAY)
    assert [end.claim.cause for end in ends] == ["ScaledDown", "ScaledDown"]
    assert surplus(claims, seen, {"default": static}, MONDAY) == []
    assert out_of_schedule(Ledger(claims=tuple(claims)), seen, {"default": static}, SATURDAY) == []


# Planning
def test_a_plan_shows_what_a_nodepool_buys_while_it_is_open_and_keeps_a_faulty_schedule_for_its_report() -> (
    None
):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]},
    }

    def plan(schedule: Any) -> Plan:
        documents = [Document(m, "a.yaml", n) for n, m in enumerate((manifest(schedule), pod))]
        return decide(plan_inputs(read_manifests((), documents), builders.catalog(), now=SATURDAY))

    assert len(plan([WEEKDAYS]).nodes) == 1
    faulty = plan("nights")
    assert len(faulty.nodes) == 1
    assert any(SCHEDULE in problem for problem in faulty.problems)
