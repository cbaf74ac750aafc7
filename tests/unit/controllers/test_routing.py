"""Routing: which clusters an event concerns, where it is stored, what is woken, and how failures are handled."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from nodesmith.controllers.region.routing import Routing, route, wake_warned
from nodesmith.controllers.runs import Report
from nodesmith.errors import Rejected, Transient
from nodesmith.model.functions import Concern, Hint
from tests import builders
from tests.builders import NOW
from tests.fakes.notices import FakeNotices

OURS, THEIRS, NOBODYS = (f"i-{number:017x}" for number in range(3))
BLOCK = "cr-0123456789abcdef0"


@dataclass(slots=True)
class Region:
    """A region for routing. `away` are instances that cannot be looked up, `refusing` clusters that cannot be woken."""

    instances: Mapping[str, str]
    reservations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    away: Collection[str] = ()
    marked: Collection[str] = ()
    refusing: Mapping[str, Exception] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)
    woken: list[tuple[str, int]] = field(default_factory=list)
    notices: FakeNotices = field(default_factory=FakeNotices)

    def of_instance(self, instance_id: str) -> frozenset[str]:
        self.looks.append(instance_id)
        if instance_id in self.away:
            raise Transient("the table is away")
        return frozenset({self.instances[instance_id]} if instance_id in self.instances else ())

    def of_reservation(self, reservation_id: str) -> frozenset[str]:
        return self.reservations.get(reservation_id, frozenset())

    def ids(self) -> Collection[str]:
        return self.marked

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        assert concern is Concern.INTERRUPTION
        if hint.cluster in self.refusing:
            raise self.refusing[hint.cluster]
        self.woken.append((hint.cluster, delay_seconds))

    def routing(self) -> Routing:
        return Routing(self, self.notices, self, self, lambda: NOW)

    def route(self, event: str) -> Report:
        return route(self.routing(), event, builders.ACCOUNT)

    def kept(self) -> dict[str, list[str]]:
        """Return the stored events, by cluster."""
        return {cluster: [k.event for k in kept.values()] for cluster, kept in self.notices.kept.items()}


def region(**more: object) -> Region:
    return Region({OURS: "shop", THEIRS: "bank"}, **more)  # type: ignore[arg-type]


def block_event() -> str:
    return builders.ec2_event("Capacity Block Expiration Warning", {"capacity-reservation-id": BLOCK})


def test_an_event_is_stored_unchanged_for_the_cluster_whose_instance_it_names_only() -> None:
    here = region()
    event = builders.spot_warning(OURS)
    report = here.route(event)
    assert here.kept() == {"shop": [event]}
    assert report == Report(counts=report.counts)
    assert report.counts == {"NoticesRouted": 1}


def test_interruption_is_woken_at_once_and_half_a_minute_later() -> None:
    here = region()
    here.route(builders.spot_warning(OURS))
    assert here.woken == [("shop", 0), ("shop", 30)]


def test_an_event_is_stored_before_interruption_is_woken() -> None:
    here = region(refusing={"shop": Transient("Lambda is away")})
    with pytest.raises(Transient, match="Lambda is away"):
        here.route(builders.spot_warning(OURS))
    assert list(here.kept()) == ["shop"]


def test_an_event_that_is_routed_twice_is_stored_once_and_another_of_the_same_instance_separately() -> None:
    here = region()
    warning, news = builders.spot_warning(OURS), builders.state_change(OURS, "shutting-down")
    for event in (warning, warning, news):
        here.route(event)
    assert sorted(here.kept()["shop"]) == sorted([warning, news])


def test_an_event_of_an_instance_without_a_cluster_takes_one_look_up_and_is_counted() -> None:
    here = region()
    report = here.route(builders.spot_warning(NOBODYS))
    assert (here.looks, here.kept(), here.woken) == ([NOBODYS], {}, [])
    assert report.counts == {"NoticesOfOthers": 1}


def test_the_end_of_a_reservation_is_stored_for_all_clusters_with_instances_in_it() -> None:
    here = region(reservations={BLOCK: frozenset({"shop", "bank"})})
    here.route(block_event())
    assert here.kept() == {"shop": [block_event()], "bank": [block_event()]}


def test_an_event_about_instances_of_several_clusters_is_stored_once_for_each() -> None:
    here = region()
    named = [{"entityValue": instance} for instance in (OURS, THEIRS, OURS)]
    detail = {"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": named}
    event = builders.ec2_event("AWS Health Event", detail, source="aws.health")
    report = here.route(event)
    assert here.kept() == {"shop": [event], "bank": [event]}
    assert sorted(here.woken) == [("bank", 0), ("bank", 30), ("shop", 0), ("shop", 30)]
    assert report.counts == {"NoticesRouted": 1}


def test_an_event_whose_look_up_fails_must_be_routed_again() -> None:
    here = region(away=[THEIRS])
    with pytest.raises(Transient, match="the table is away"):
        here.route(builders.spot_warning(THEIRS))
    assert here.kept() == {}


def test_an_event_that_cannot_be_stored_must_be_routed_again_and_wakes_no_concern() -> None:
    def refuse(method: str) -> None:
        raise Transient(f"{method}: the table is away")

    here = region(notices=FakeNotices(raise_before=refuse))
    with pytest.raises(Transient, match="keep: the table is away"):
        here.route(builders.spot_warning(OURS))
    assert here.woken == []


@pytest.mark.parametrize("error", [Transient("Lambda is away"), Rejected("no such function")])
def test_a_cluster_that_cannot_be_woken_does_not_delay_others(error: Exception) -> None:
    both = frozenset({"bank", "shop"})
    here = region(reservations={BLOCK: both}, refusing={"bank": error})
    if isinstance(error, Transient):
        with pytest.raises(Transient, match="bank: Lambda is away"):
            here.route(block_event())
    else:
        assert here.route(block_event()).rejected == ["bank: no such function"]
    assert here.kept().keys() == both
    assert here.woken == [("shop", 0), ("shop", 30)]


@pytest.mark.parametrize(
    "event",
    [
        "no JSON",
        builders.spot_warning("not-an-instance"),
        json.dumps({**json.loads(builders.spot_warning(OURS)), "account": "999999999999"}),
        json.dumps({**json.loads(builders.spot_warning(OURS)), "id": {"of": "nothing"}}),
        json.dumps({**json.loads(builders.spot_warning(OURS)), "id": "x" * 2000}),
    ],
)
def test_an_unreadable_event_is_rejected_without_a_look_up(event: str) -> None:
    here = region()
    with pytest.raises(Rejected):
        here.route(event)
    assert (here.looks, here.kept(), here.woken) == ([], {}, [])


def test_each_cluster_with_marked_spot_instances_is_woken_once_and_foreign_instances_wake_none() -> None:
    here = region(marked=[OURS, THEIRS, NOBODYS])
    here.instances = {OURS: "shop", THEIRS: "shop"}
    report = wake_warned(here.routing())
    assert here.woken == [("shop", 0)]
    assert report.counts == {"InstancesMarked": 2}


def test_while_no_spot_instance_is_marked_nothing_is_looked_up_and_no_cluster_is_woken() -> None:
    here = region()
    assert wake_warned(here.routing()) == Report()
    assert (here.looks, here.woken) == ([], [])


def test_a_marked_instance_that_cannot_be_looked_up_does_not_delay_others() -> None:
    here = region(marked=[OURS, THEIRS], away=[OURS])
    with pytest.raises(Transient, match="the table is away"):
        wake_warned(here.routing())
    assert here.woken == [("bank", 0)]
