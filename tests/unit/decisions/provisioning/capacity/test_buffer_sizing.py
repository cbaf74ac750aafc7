"""Tests for buffers that the history of their workload sizes, and for limits in dollars of buffers."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.controllers.nodeclaims.observations import next_sizes, publish_buffer_status
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import decide
from nodesmith.decisions.provisioning.buffers.resolutions import due_statuses, resolutions
from nodesmith.decisions.provisioning.growth import (
    MOST_DAYS,
    STEP,
    History,
    history_item,
    noted,
    read_history,
    sizing,
    step_of,
)
from nodesmith.keys import growth_key
from nodesmith.model.karpenter.bufferannotations import Quantile
from nodesmith.model.karpenter.capacitybuffers import CapacityBuffer, parse_buffer
from nodesmith.model.ledger.moves import Reason
from tests.builders import CLUSTER, NOW, expression, ledger, nodepool_manifest
from tests.fakes.blobs import FakeBlobs
from tests.fakes.cluster import FakeCluster
from tests.objects.capacitybuffers import TEMPLATE, capacitybuffer
from tests.objects.fleets import fleet, pool, worker
from tests.unit.decisions.provisioning.capacity.test_capacitybuffers import (
    DEPLOYMENT,
    given,
    template,
)

BUFFER = CapacityBuffer("default", "room", "Deployment/web")
AS_ASKED = {"nodesmith.dev/buffer-quantile": "0.95"}
DAY = timedelta(days=1)


def lived(days: float, wanted: Any, until: datetime = NOW) -> History:
    """Return the history of a workload that has wanted this number of pods, a function of the time."""
    history, at = None, until - days * DAY
    while at < until:
        history = noted(history, wanted(at), at)
        at += STEP
    assert history is not None
    return history


def at_noon(moment: datetime) -> int:
    """Return 30 pods from noon to one o'clock, else 10."""
    return 30 if moment.hour == 12 else 10


def on_saturdays(moment: datetime) -> int:
    return at_noon(moment) if moment.weekday() == NOW.weekday() else 10


def test_room_is_there_when_the_workload_usually_grows_and_not_otherwise() -> None:
    history = lived(6, at_noon)
    assert sizing(BUFFER, Quantile(0.95), history, NOW - timedelta(minutes=5)).count == 20
    assert sizing(BUFFER, Quantile(0.95), history, NOW - timedelta(hours=3)).count == 0
    assert sizing(BUFFER, Quantile(0.5), history, NOW).count == 0


def test_days_of_the_week_are_reported_apart_after_two_weeks() -> None:
    early, late = lived(13, on_saturdays), lived(20, on_saturdays)
    on_friday = NOW - DAY
    assert sizing(BUFFER, Quantile(0.999), early, on_friday).count == 20
    assert sizing(BUFFER, Quantile(0.999), late, on_friday).count == 0
    assert sizing(BUFFER, Quantile(0.999), late, NOW).count == 20


@pytest.mark.parametrize(("minutes", "count"), [(5, 4), (20, 16), (60, 48)])
def test_the_horizon_is_how_far_growth_is_looked_ahead_for(minutes: int, count: int) -> None:
    history = lived(6, lambda at: 4 * ((at.hour * 60 + at.minute) // 5 % 144))
    at = NOW.replace(hour=6)
    quantile = Quantile(0.5, horizon_seconds=minutes * 60)
    assert sizing(BUFFER, quantile, history, at).count == count


def test_days_before_the_window_do_not_count() -> None:
    history = lived(13, lambda at: at_noon(at) if at < NOW - 8 * DAY else 10)
    assert sizing(BUFFER, Quantile(0.99), history, NOW).count == 20
    assert sizing(BUFFER, Quantile(0.99, window_days=7), history, NOW).count == 0


def test_too_little_history_says_how_much_is_recorded() -> None:
    found = sizing(BUFFER, Quantile(0.95), lived(2.5, at_noon), NOW)
    assert (found.count, "60 of 72 hours" in found.message) == (None, True)
    assert sizing(BUFFER, Quantile(0.95), None, NOW).count is None


def test_a_history_keeps_the_most_of_each_step_and_fills_short_gaps_only() -> None:
    first = noted(noted(None, 3, NOW), 2, NOW + timedelta(minutes=4))
    assert (first.end, first.values) == (step_of(NOW), (3,))
    assert noted(first, 5, NOW + 3 * STEP).values == (3, 3, 3, 5)
    assert noted(first, 5, NOW + 14 * STEP).values == (3, *[None] * 13, 5)
    assert noted(first, 5, NOW + 60 * DAY).values == (5,)


def test_a_history_is_bounded_and_survives_being_written() -> None:
    history = lived(MOST_DAYS + 2, at_noon)
    assert len(history.values) == MOST_DAYS * 288
    assert read_history(history_item(history)) == history


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("quantile", "95%", "greater than 0 and less than 1"),
        ("quantile", "1", "greater than 0 and less than 1"),
        ("quantile", "0", "greater than 0 and less than 1"),
        ("window-days", "29", "from 1 to 28"),
        ("window-days", "a week", "from 1 to 28"),
        ("horizon", "2m", "from 5m to 60m"),
        ("horizon", "2h", "from 5m to 60m"),
        ("limit-usd-per-hour", "$2", "a number of USD"),
    ],
)
def test_annotations_that_cannot_be_read_are_reported_with_the_remedy(
    key: str, value: str, remedy: str
) -> None:
    annotations = {**AS_ASKED, f"nodesmith.dev/buffer-{key}": value}
    read = parse_buffer(capacitybuffer(annotations=annotations, **DEPLOYMENT))
    assert read.value is None
    assert [remedy in each.remedy for each in read.problems] == [True]


def test_a_quantile_needs_a_workload_and_the_other_annotations_a_quantile() -> None:
    assert parse_buffer(capacitybuffer(annotations=AS_ASKED, **TEMPLATE, replicas=1)).value is None
    alone = parse_buffer(capacitybuffer(annotations={"nodesmith.dev/buffer-horizon": "5m"}, **DEPLOYMENT))
    assert alone.value is not None
    assert "has no effect without" in alone.problems[0].remedy


class Told:
    """A cluster with a buffer that is sized by history, as lifecycle sees it from run to run."""

    def __init__(self, wanted: int = 10, **spec: Any) -> None:
        self.blobs, self.cluster = FakeBlobs(), FakeCluster()
        self.cluster.capacitybuffers["default/room"] = capacitybuffer(
            annotations=AS_ASKED, **(spec or {**DEPLOYMENT, "replicas": 3})
        )
        self.wanted = wanted

    def known(self, now: datetime) -> Any:
        there = template(kind="Deployment", name="web", replicas=self.wanted)
        known = given(self.cluster.capacitybuffers["default/room"], templates=[there])
        return replace(known, now=now)

    def run(self, now: datetime) -> tuple[int, bool]:
        return publish_buffer_status(self.blobs, self.cluster, self.known(now).snapshot, now)

    def sized(self) -> tuple[str, str]:
        """Return status and reason of SizedFromHistory."""
        conditions = self.cluster.capacitybuffers["default/room"]["status"]["conditions"]
        return next((c["status"], c["reason"]) for c in conditions if c["type"] == "SizedFromHistory")

    def lived(self, days: float, wanted: Any) -> None:
        """Store the history of the workload until now."""
        document = {
            "format": 1,
            "workloads": {"Deployment/default/web": history_item(lived(days, wanted))},
        }
        self.blobs.put(growth_key(CLUSTER), gzip.compress(json.dumps(document).encode()))


def test_replicas_count_until_enough_is_recorded_and_then_the_size_that_the_status_shows() -> None:
    reported = Told()
    reported.run(NOW)
    assert reported.sized() == ("False", "TooLittleHistory")
    assert [each.count for each in resolutions(reported.known(NOW).snapshot, NOW)] == [3]
    reported.lived(6, at_noon)
    assert reported.run(NOW) == (1, True)
    assert reported.sized() == ("True", "Quantile")
    assert [each.count for each in resolutions(reported.known(NOW).snapshot, NOW)] == [20]
    assert reported.run(NOW + timedelta(minutes=1)) == (0, False)
    assert sum(room.count for room in decide(reported.known(NOW)).rooms) == 20


def test_provisioning_does_not_take_a_size_that_is_shown_for_news() -> None:
    reported = Told()
    reported.lived(2, at_noon)
    reported.run(NOW)
    known = reported.known(NOW)
    assert list(due_statuses(known.snapshot, {}, NOW)) == []


def test_the_limits_of_a_buffer_hold_for_a_size_by_history() -> None:
    reported = Told(**DEPLOYMENT, limits={"cpu": "7"})
    reported.lived(6, at_noon)
    reported.run(NOW)
    assert [each.count for each in resolutions(reported.known(NOW).snapshot, NOW)] == [7]


def test_a_size_of_an_earlier_spec_no_longer_counts() -> None:
    reported = Told()
    reported.lived(6, at_noon)
    reported.run(NOW)
    reported.cluster.capacitybuffers["default/room"]["metadata"]["generation"] = 2
    assert [each.count for each in resolutions(reported.known(NOW).snapshot, NOW)] == [3]


def test_damaged_histories_are_begun_anew() -> None:
    reported = Told()
    for damaged in (b"", b"x", b"\x1f\x8b\x08\x00"):
        reported.blobs.put(growth_key(CLUSTER), damaged)
        reported.run(NOW)
        assert reported.sized() == ("False", "TooLittleHistory")


def test_a_history_is_written_once_in_five_minutes() -> None:
    reported = Told()
    reported.run(NOW)
    first = reported.blobs.get(growth_key(CLUSTER))
    reported.run(NOW + timedelta(minutes=4))
    assert reported.blobs.get(growth_key(CLUSTER)) == first
    reported.run(NOW + timedelta(minutes=5))
    assert reported.blobs.get(growth_key(CLUSTER)) != first


def test_lifecycle_is_due_when_a_size_may_change() -> None:
    at = NOW + timedelta(minutes=7)
    assert next_sizes(Told().known(at).snapshot, at) == NOW + timedelta(minutes=30)
    opens = {
        "nodesmith.dev/buffer-schedule": "15 12 * * *",
        "nodesmith.dev/buffer-duration": "1h",
    }
    scheduled = given(capacitybuffer(annotations={**AS_ASKED, **opens}, **DEPLOYMENT)).snapshot
    assert next_sizes(scheduled, at) == NOW + timedelta(minutes=15)
    assert next_sizes(given(capacitybuffer(annotations=opens)).snapshot, at) is None


def limited(usd: str, replicas: int = 40) -> dict[str, Any]:
    return capacitybuffer(
        annotations={"nodesmith.dev/buffer-limit-usd-per-hour": usd}, **TEMPLATE, replicas=replicas
    )


def test_room_is_bought_within_the_limit_in_dollars() -> None:
    free = decide(given(capacitybuffer(**TEMPLATE, replicas=40)))
    usd = round(free.price_hourly_usd / 2, 4)
    plan = decide(given(limited(f"{usd:.4f}")))
    assert 0 < plan.price_hourly_usd <= usd
    (room,) = plan.rooms
    assert 0 < room.bought < 40
    assert "limit in dollars" in room.reason
    assert decide(given(limited("0.0001"))).nodes == ()


def test_the_limit_in_dollars_holds_whichever_offering_ec2_picks() -> None:
    (found,) = decide(given()).nodes
    dearest, cheapest = found.request.most_hourly_usd, found.price_hourly_usd
    usd = (cheapest + dearest) / 2
    (node,) = decide(given(limited(f"{usd:.4f}", replicas=2))).nodes
    assert (node.price_hourly_usd, len(node.claim.nominated)) == (cheapest, 2)
    assert cheapest < node.request.most_hourly_usd <= usd < dearest


def test_a_limit_in_dollars_is_used_up_by_as_many_nodes_as_it_pays_for() -> None:
    large = [{"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["2"]}]
    (node,) = decide(
        given(capacitybuffer(**TEMPLATE, replicas=1), nodepools=(pool(requirements=large),))
    ).nodes
    assert node.request.most_hourly_usd > 1.5 * node.price_hourly_usd
    buffer = limited(f"{7.6 * node.price_hourly_usd:.4f}", replicas=8)
    assert len(decide(given(buffer, nodepools=(pool(requirements=large),))).nodes) == 7


def test_nodes_whose_min_values_need_dearer_offerings_are_bought_only_if_the_limit_pays_for_those() -> None:
    demanding = nodepool_manifest(
        requirements=[
            expression("karpenter.sh/capacity-type", "In", "on-demand"),
            expression("node.kubernetes.io/instance-type", "In", "c5.xlarge", "c5.2xlarge", minValues=2),
        ]
    )
    low, high = (given(limited(usd, replicas=2), nodepools=(demanding,)) for usd in ("0.20", "0.40"))
    assert decide(low).nodes == ()
    (node,) = decide(high).nodes
    assert {each.instance_type for each in node.request.overrides} == {"c5.xlarge", "c5.2xlarge"}


def test_a_launch_in_progress_counts_against_the_limit_with_its_dearest_offering() -> None:
    (bought,) = decide(given()).nodes
    coming = replace(bought.claim, launch=bought.request.to_item())
    usd = 2.5 * bought.request.most_hourly_usd
    plan = decide(given(limited(f"{usd:.4f}"), known=ledger(claims=(coming,))))
    assert plan.rooms[0].launching > 0
    assert plan.nodes
    assert sum(node.request.most_hourly_usd for node in plan.nodes) <= usd - bought.request.most_hourly_usd


def test_nodes_that_cost_a_buffer_more_than_its_limit_are_given_back() -> None:
    there = {each.key: each for each in [template()]}
    on_demand = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
    known = fleet(
        [worker(name, claim={"price_hourly_usd": 0.192}) for name in "ab"],
        pools=[pool(requirements=on_demand)],
        capacitybuffers=(limited("0.2"),),
        podtemplates=there,
    )
    assert decide(known).nodes == ()
    assert decide(known).rooms[0].ready == 4
    gone = [each for each in propose(known).proposals if each.reason is Reason.EMPTY]
    assert [len(each.sources) for each in gone] == [1]


def test_history_steps_are_numbered_in_utc() -> None:
    assert step_of(datetime(1970, 1, 1, 1, tzinfo=UTC)) == 12
