"""Cost allocation of an hour: what nodes cost, whose pods bear it, what moves brought, and documents."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.allocations.division import (
    CPU_CORE_NANO_USD,
    GPU_NANO_USD,
    MEMORY_GIB_NANO_USD,
    Hour,
)
from nodesmith.decisions.allocations.nodes import (
    BookedNode,
    Price,
    Prices,
    View,
    billed_usage,
    ended_at,
    followed,
    new_outcome,
    nodes_of,
    price_key,
    priced,
    prices_of,
)
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.costs.allocations import (
    ALLOCATION_COLUMNS,
    DAY,
    HOUR,
    MOVE_COLUMNS,
    Allocation,
    Kind,
    MoveOutcome,
    Owner,
    cost_of,
    hour_of,
    merged,
    nano_usd,
    parse_label_keys,
    read_rows,
    write_rows,
)
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase, Transition
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.pods import reduce_pod
from nodesmith.registration import settings_faults
from tests import builders
from tests.builders import NOW, ZONES
from tests.smallworld.world import pod_manifest

START = hour_of(NOW)
END = START + HOUR
MINUTE = timedelta(minutes=1)
DIME = nano_usd(0.1)
SPOT_KEY = price_key("linux", "spot", "m5.large", ZONES[0])


def bought(name: str = "default-a", **fields: Any) -> NodeClaim:
    """Return a claim whose on-demand instance costs 10 cents an hour and has run since a day before the hour."""
    known: dict[str, Any] = {
        "instance_id": f"i-{name}",
        "node_name": f"node-{name}",
        "instance_type": "m5.large",
        "zone": ZONES[0],
        "capacity_type": "on-demand",
        "price_hourly_usd": 0.1,
        "launched_at": START - DAY,
    }
    return builders.claim(name, phase=fields.pop("phase", Phase.INITIALIZED), **(known | fields))


def view(*pods: Pod, start: timedelta = timedelta(0), end: timedelta = HOUR, **fields: Any) -> View:
    return View(START + start, START + end, builders.snapshot(pods=pods, **fields))


def booked(claim: NodeClaim, *views: View, prices: Prices | None = None) -> BookedNode:
    (node,) = nodes_of([claim], views, START, END)
    return priced(node, prices or Prices({}))


def cost(claim: NodeClaim, **how: Any) -> int:
    return sum(period.cost for period in booked(claim, **how).periods)


def divided(claim: NodeClaim, *views: View, labels: Sequence[str] = ()) -> dict[str, Allocation]:
    """Return the parts of a node's cost, by workload or kind."""
    rows = Hour(views, START, labels).allocations(booked(claim, *views))
    return {row.owner.workload or row.owner.kind: row for row in rows}


def test_a_node_that_runs_all_hour_costs_its_price() -> None:
    assert cost(bought()) == DIME


def test_a_partial_hour_is_paid_by_the_second() -> None:
    late = bought(launched_at=START + timedelta(seconds=1799))
    assert cost(late) == cost_of(DIME, timedelta(seconds=1801))


def test_a_node_bought_and_ended_within_the_hour_is_paid_for_between() -> None:
    short = bought(launched_at=START + 10 * MINUTE, terminated_at=START + 16 * MINUTE, phase=Phase.TERMINATED)
    assert cost(short) == DIME // 10


def test_a_node_outside_the_hour_costs_nothing() -> None:
    before = bought(terminated_at=START, phase=Phase.TERMINATED)
    after = bought(launched_at=END)
    assert [cost(before), cost(after)] == [0, 0]


def test_an_instance_that_ec2_took_is_paid_for_until_it_was_noticed() -> None:
    noticed = START + 30 * MINUTE
    lost = bought(cause=InterruptionCause.TERMINATED, terminating_at=noticed, terminated_at=noticed + MINUTE)
    assert ended_at(lost) == noticed
    assert ended_at(replace(lost, terminated_at=noticed - MINUTE)) == noticed - MINUTE, "EC2 has said when"


def test_a_claim_without_an_instance_is_not_booked() -> None:
    pending = builders.claim("default-b", phase=Phase.PENDING)
    assert nodes_of([pending], [], START, END) == []


def test_stopped_warm_capacity_costs_its_volumes_only() -> None:
    steps = (
        Transition(Phase.STOPPED, START + 15 * MINUTE),
        Transition(Phase.STARTING, START + 45 * MINUTE),
    )
    warm = bought(history=steps, stopped_price_hourly_usd=0.01)
    assert cost(warm) == DIME // 2 + nano_usd(0.01) // 2
    parts = divided(warm)
    assert parts["stopped"].nano_usd == nano_usd(0.01) // 2
    assert parts["stopped"].seconds == 1800
    assert parts["__idle__"].nano_usd == DIME // 2


def test_the_cost_of_a_node_with_gpus_is_divided_by_how_long_pods_have_them() -> None:
    offered = parse_resources({"cpu": "4", "memory": "16Gi", "pods": "58", "nvidia.com/gpu": "2"})
    node = bought(capacity=offered, allocatable=offered)
    training = builders.shape("1", "1Gi", app="training", requests={"nvidia.com/gpu": "1"})
    (pod,) = builders.bind(training, "node-default-a")
    seen = builders.node("node-default-a", provider_id=node.provider_id)
    parts = divided(node, view(pod, nodes=(replace(seen, capacity=offered, allocatable=offered),)))
    idle = parts.pop("__idle__")
    (mine,) = parts.values()
    assert (mine.gpu_seconds, idle.gpu_seconds) == (3600, 3600)
    assert (mine.cpu_milli_seconds, idle.cpu_milli_seconds) == (3_600_000, 3 * 3_600_000)
    whole = 4 * CPU_CORE_NANO_USD + 16 * MEMORY_GIB_NANO_USD + 2 * GPU_NANO_USD
    assert mine.gpu_nano_usd == pytest.approx(DIME * GPU_NANO_USD / whole, abs=2)
    assert mine.cpu_nano_usd == pytest.approx(DIME * CPU_CORE_NANO_USD / whole, abs=2)
    assert mine.nano_usd == mine.cpu_nano_usd + mine.memory_nano_usd + mine.gpu_nano_usd
    assert mine.nano_usd + idle.nano_usd == DIME


def test_a_spot_price_that_changes_within_the_hour_counts_from_then_on() -> None:
    spot = bought(capacity_type="spot", price_hourly_usd=0.02)
    prices = Prices({SPOT_KEY: Price(nano_usd(0.06))}, {SPOT_KEY: Price(nano_usd(0.03))}, START + 20 * MINUTE)
    assert cost(spot, prices=prices) == nano_usd(0.03) // 3 + nano_usd(0.06) * 2 // 3


def test_a_spot_node_whose_price_was_not_known_before_the_change_has_that_of_its_launch() -> None:
    spot = bought(capacity_type="spot", price_hourly_usd=0.03)
    prices = Prices({SPOT_KEY: Price(nano_usd(0.06))}, {}, START + 30 * MINUTE)
    assert cost(spot, prices=prices) == nano_usd(0.03) // 2 + nano_usd(0.06) // 2


def test_on_demand_nodes_keep_the_price_of_their_launch() -> None:
    key = price_key("linux", "on-demand", "m5.large", ZONES[0])
    assert cost(bought(), prices=Prices({key: Price(nano_usd(7.0))})) == DIME


def test_reserved_capacity_has_the_on_demand_price_and_is_paid_for_already() -> None:
    reserved = bought(capacity_type="reserved", price_hourly_usd=0.0)
    key = price_key("linux", "reserved", "m5.large", ZONES[0])
    node = booked(reserved, prices=Prices({key: Price(DIME)}))
    (row,) = Hour([], START, ()).allocations(node)
    assert (row.nano_usd, row.committed_nano_usd, row.estimated) == (DIME, DIME, False)


def test_the_part_that_commitments_pay_for_is_reported_apart() -> None:
    hour = Hour([], START, (), lambda kind, zone: 0.25 if (kind, zone) == ("m5.large", ZONES[0]) else 0.0)
    (row,) = hour.allocations(booked(bought()))
    (spot,) = hour.allocations(booked(bought(capacity_type="spot")))
    assert (row.nano_usd, row.committed_nano_usd) == (DIME, DIME // 4)
    assert spot.committed_nano_usd == 0


def test_usage_for_commitments_is_a_fraction_of_an_instance_for_a_part_of_the_hour() -> None:
    nodes = nodes_of([bought("a"), bought("b", launched_at=START + 45 * MINUTE)], [], START, END)
    assert billed_usage(nodes) == {("m5.large", ZONES[0]): 1.25}


def test_an_unknown_price_counts_as_nothing_and_says_so() -> None:
    (row,) = Hour([], START, ()).allocations(booked(bought(price_hourly_usd=0.0)))
    assert (row.nano_usd, row.estimated) == (0, True)


def test_pods_bear_the_share_that_they_request_and_the_rest_is_idle() -> None:
    pods = builders.bind(builders.shape(cpu="2", memory="8Gi"), "node-default-a")
    parts = divided(bought(), view(*pods))
    half = parts["ReplicaSet/web"]
    assert half.nano_usd == pytest.approx(DIME // 2, abs=2)
    assert half.nano_usd + parts["__idle__"].nano_usd == DIME
    assert (half.pods, half.seconds, half.cpu_milli_seconds) == (1, 3600, 2000 * 3600)
    assert half.memory_mib_seconds == 8192 * 3600


def test_cpu_and_memory_have_the_ratio_of_opencosts_prices() -> None:
    (row,) = Hour([], START, ()).allocations(booked(bought()))
    cpu, memory = 4 * 31_611, 16 * 4_237
    assert row.cpu_nano_usd == pytest.approx(DIME * cpu / (cpu + memory), abs=2)
    assert row.cpu_nano_usd + row.memory_nano_usd == DIME


def test_a_pod_bears_cost_for_as_long_as_it_was_there() -> None:
    pods = builders.bind(builders.shape(cpu="4", memory="16Gi"), "node-default-a")
    parts = divided(bought(), view(*pods, end=15 * MINUTE), view(start=15 * MINUTE))
    assert parts["ReplicaSet/web"].nano_usd == pytest.approx(DIME // 4, abs=2)
    assert parts["ReplicaSet/web"].seconds == 900


def test_pods_that_request_more_than_the_node_has_share_its_cost() -> None:
    pods = builders.bind(builders.shape(cpu="3", memory="12Gi"), "node-default-a", 2)
    parts = divided(bought(), view(*pods))
    assert parts["ReplicaSet/web"].nano_usd == DIME
    assert parts["__idle__"].nano_usd == 0


def test_daemonsets_are_reported_apart() -> None:
    parts = divided(bought(), view(*builders.bind(builders.daemon(), "node-default-a")))
    assert parts["DaemonSet/agent"].owner.kind is Kind.DAEMONSET


def test_owners_are_namespace_workload_and_the_chosen_labels() -> None:
    labels = {"app": "web", "team": "shop"}
    shape = replace(builders.shape(), owner="ReplicaSet/web-5d4f8", labels=labels)
    parts = divided(bought(), view(*builders.bind(shape, "node-default-a")), labels=("team", "cost-centre"))
    assert parts["Deployment/web"].owner == Owner(
        Kind.WORKLOAD, "default", "Deployment/web", FrozenMap({"team": "shop"})
    )


def test_a_label_of_ten_kilobytes_is_cut() -> None:
    shape = replace(builders.shape(), labels={"team": "x" * 10_000})
    parts = divided(bought(), view(*builders.bind(shape, "node-default-a")), labels=("team",))
    assert len(parts["ReplicaSet/web"].owner.labels["team"]) == 253


def test_foreign_nodes_are_booked_from_their_creation_until_they_are_gone() -> None:
    labels = {
        "karpenter.sh/nodepool": "theirs",
        "karpenter.sh/capacity-type": "spot",
        "node.kubernetes.io/instance-type": "m5.large",
    }
    node = builders.node("other", labels=labels)
    node = replace(node, created_at=START + 10 * MINUTE)
    views = [view(nodes=(node,), end=40 * MINUTE), view(start=40 * MINUTE)]
    (found,) = nodes_of([], views, START, END)
    found = priced(found, Prices({SPOT_KEY: Price(DIME)}))
    assert (found.manager, found.nodepool, found.capacity_type) == ("karpenter", "theirs", "spot")
    assert sum(period.cost for period in found.periods) == DIME // 2


@pytest.mark.parametrize(
    ("labels", "manager", "pool"),
    [
        (
            {"eks.amazonaws.com/nodegroup": "system", "eks.amazonaws.com/capacityType": "ON_DEMAND"},
            "node-group",
            "system",
        ),
        (
            {"eks.amazonaws.com/compute-type": "auto", "karpenter.sh/nodepool": "general"},
            "eks-auto-mode",
            "general",
        ),
        ({}, "other", ""),
    ],
)
def test_the_manager_of_a_foreign_node_shows_in_its_labels(
    labels: dict[str, str], manager: str, pool: str
) -> None:
    (found,) = nodes_of([], [view(nodes=(builders.node("other", labels=labels),))], START, END)
    assert (found.manager, found.nodepool, found.capacity_type) == (manager, pool, "on-demand")


def test_the_node_of_a_claim_is_not_booked_twice() -> None:
    claim = bought()
    node = builders.node("node-default-a", provider_id=claim.provider_id)
    assert [each.claim for each in nodes_of([claim], [view(nodes=(node,))], START, END)] == [claim.name]


def test_prices_come_from_the_catalogue() -> None:
    catalog: Catalog = builders.catalog()
    key = price_key("linux", "on-demand", "m5.large", ZONES[0])
    assert prices_of(catalog, [key, "linux/spot/q9.huge/nowhere-1a"]) == {key: Price(nano_usd(0.096))}


MOVE = Move(
    "m-1",
    Reason.UNDERUTILIZED,
    ("default-a",),
    Stage.ENDING,
    START + 30 * MINUTE,
    START,
    replacements=("default-b",),
    saving_hourly_usd=0.06,
    message="cheaper",
)


def test_a_move_is_booked_with_what_it_promised_and_settled_a_day_later() -> None:
    claims = {"default-a": bought(), "default-b": bought("default-b", price_hourly_usd=0.04)}
    move = new_outcome(MOVE, claims)
    assert (move.promised_hourly_nano_usd, move.sources_hourly_nano_usd) == (nano_usd(0.06), DIME)
    ended = bought(terminated_at=START + 45 * MINUTE, phase=Phase.TERMINATED)
    for hour in range(25):
        start = START + HOUR * hour
        nodes = {n.claim: n for n in nodes_of([ended, claims["default-b"]], [], start, start + HOUR)}
        assert move.settled_at is None
        move = followed(move, nodes, claims, start)
    assert move.settled_at == MOVE.stage_since + DAY
    assert move.sources_nano_usd == 24 * DIME
    # the source cost another quarter of an hour while it drained, the replacement a day
    assert move.replacements_nano_usd == DIME // 4 + 24 * nano_usd(0.04)
    assert move.saved_nano_usd == 24 * nano_usd(0.06) - DIME // 4
    assert followed(move, {}, claims, START + 25 * HOUR) == move


def test_a_replacement_that_ends_again_within_the_day_is_reported_with_its_cause() -> None:
    again = bought("default-b", cause="Underutilized", terminating_at=START + 40 * MINUTE)
    move = followed(new_outcome(MOVE, {}), {}, {"default-b": again}, START)
    assert (move.moved_again, move.causes) == (("default-b",), ("Underutilized",))


def test_a_source_that_is_no_longer_known_has_the_price_that_the_move_implies() -> None:
    move = new_outcome(MOVE, {"default-b": bought("default-b", price_hourly_usd=0.04)})
    assert move.sources_hourly_nano_usd == DIME


def rows() -> list[Allocation]:
    pods = builders.bind(builders.shape(), "node-default-a")
    return Hour([view(*pods)], START, ("app",)).allocations(booked(bought(), view(*pods)))


def test_documents_keep_every_row() -> None:
    data = write_rows(row.to_row() for row in rows())
    assert data == write_rows(row.to_row() for row in rows())
    assert read_rows(data, "hour", Allocation.from_row) == (rows(), [])
    move = followed(new_outcome(MOVE, {}), {}, {}, START)
    assert read_rows(write_rows([move.to_row()]), "moves", MoveOutcome.from_row) == ([move], [])


def test_rows_have_the_columns_of_the_tables() -> None:
    assert [*rows()[0].to_row()] == [name for name, _ in ALLOCATION_COLUMNS]
    assert [*new_outcome(MOVE, {}).to_row()] == [name for name, _ in MOVE_COLUMNS]


def test_the_types_of_the_columns_are_those_of_the_rows() -> None:
    types = {"string": str, "bigint": int, "boolean": bool, "map<string,string>": dict, "array<string>": list}
    for row, columns in (
        (rows()[0].to_row(), ALLOCATION_COLUMNS),
        (new_outcome(MOVE, {}).to_row(), MOVE_COLUMNS),
    ):
        for name, type_ in columns:
            assert type(row[name]) is types[type_], name


def test_merged_hours_have_the_sum_of_their_costs() -> None:
    later = [replace(row, window_start=END, window_end=END + HOUR, pods=3) for row in rows()]
    day = merged([*rows(), *later], START, START + DAY)
    assert len(day) == len(rows())
    assert sum(row.nano_usd for row in day) == 2 * sum(row.nano_usd for row in rows())
    assert {(row.window_start, row.window_end, row.pods) for row in day} == {(START, START + DAY, 3)}


def test_a_row_that_cannot_be_read_is_reported_and_left_out() -> None:
    good = json.dumps(rows()[0].to_row())
    data = gzip.compress(f"{good}\n{{}}\n[]\n{good.replace('nano_usd', 'x')}\n{good}\n".encode())
    found, faults = read_rows(data, "hours/13", Allocation.from_row)
    assert found == [rows()[0]] * 2
    assert [fault[: len("hours/13, line 2")] for fault in faults] == [
        f"hours/13, line {n}" for n in (2, 3, 4)
    ]
    assert faults[0].endswith("it is left out")


def test_of_a_document_that_is_cut_off_the_rows_before_are_used() -> None:
    data = write_rows(replace(rows()[0], node=f"node-{n}").to_row() for n in range(2000))
    found, faults = read_rows(data[: len(data) // 2], "hours/13", Allocation.from_row)
    assert 0 < len(found) < 2000
    assert faults == [f"hours/13: it is cut off; the {len(found)} rows before that are used"]


def test_a_document_that_is_not_compressed_or_unpacks_to_too_much_is_reported() -> None:
    assert read_rows(b"{}", "x", Allocation.from_row)[1][0].startswith("x: not gzip-compressed (")
    bomb = gzip.compress(b" " * 100_000)
    assert read_rows(bomb, "x", Allocation.from_row, 1000)[1] == [
        "x: it has more than 1000 bytes; the 0 rows before that are used"
    ]


def test_label_keys_are_checked() -> None:
    assert parse_label_keys(" team, app.kubernetes.io/part-of ,team") == ("team", "app.kubernetes.io/part-of")
    with pytest.raises(
        ValueError, match=r"must be label keys such as team or example\.com/team; 'a b' is not one"
    ):
        parse_label_keys("team,a b")
    with pytest.raises(ValueError, match="must be at most 10 label keys"):
        parse_label_keys(",".join(f"l{n}" for n in range(11)))


def test_a_registration_with_a_wrong_label_key_is_refused_with_what_would_be_right() -> None:
    faults = list(settings_faults("settings", {"ALLOCATION_LABELS": "team,=cmd"}))
    (fault,) = faults
    assert fault.startswith(
        "settings.ALLOCATION_LABELS: must be label keys such as team or example.com/team; '=cmd' is not one, found"
    )
    assert list(settings_faults("settings", {"ALLOCATION_LABELS": "team"})) == []


@pytest.mark.parametrize(
    ("owner", "workload"),
    [
        ("ReplicaSet/web-8589d557dd", "Deployment/web"),
        ("ReplicaSet/web-api", "ReplicaSet/web-api"),
        ("StatefulSet/db-8589d557dd", "StatefulSet/db-8589d557dd"),
    ],
)
def test_the_replicaset_of_a_deployment_shows_in_its_name(owner: str, workload: str) -> None:
    shape = replace(builders.shape(), owner=owner)
    assert workload in divided(bought(), view(*builders.bind(shape, "node-default-a")))


def test_the_snapshot_keeps_the_labels_that_costs_are_grouped_by() -> None:
    manifest = pod_manifest("web-1")
    manifest["metadata"]["labels"] = {"team": "shop", "other": "x"}
    pod = reduce_pod(manifest)
    assert pod is not None
    found = {}
    for kept in ((), ("team",)):
        observed = Observed([pod], [], (), [], [], [], labels_kept=kept)
        (read,) = decode(encode(builders.CLUSTER, NOW, observed)).pods
        found[kept] = dict(read.shape.labels)
    assert found == {(): {}, ("team",): {"team": "shop"}}
