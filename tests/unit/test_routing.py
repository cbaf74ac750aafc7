"""Routing: whose an event is, who hears of it, and what becomes of one that cannot be passed on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from nodesmith.controllers.letters import Letter, Report
from nodesmith.controllers.routing import Routing, route
from nodesmith.errors import Rejected, Transient
from tests import builders
from tests.builders import NOW

OURS, THEIRS, NOBODYS = (f"i-{number:017x}" for number in range(3))
BLOCK = "cr-0123456789abcdef0"


@dataclass(slots=True)
class Region:
    """What routing sees of a region, as Routes and as Post. `away` are instances that cannot be looked up."""

    instances: Mapping[str, str]
    reservations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    away: Collection[str] = ()
    refusing: Mapping[str, Exception] = field(default_factory=dict)
    lost: Collection[int] = ()
    looks: list[str] = field(default_factory=list)
    delivered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def of_instance(self, instance_id: str) -> frozenset[str]:
        self.looks.append(instance_id)
        if instance_id in self.away:
            raise Transient("the table is away")
        return frozenset({self.instances[instance_id]} if instance_id in self.instances else ())

    def of_reservation(self, reservation_id: str) -> frozenset[str]:
        return self.reservations.get(reservation_id, frozenset())

    def deliver(self, cluster: str, bodies: Sequence[str]) -> Collection[int]:
        if cluster in self.refusing:
            raise self.refusing[cluster]
        self.delivered[cluster] += [body for n, body in enumerate(bodies) if n not in self.lost]
        return self.lost

    def route(self, *bodies: str) -> Report:
        letters = [Letter(f"m-{n}", body, builders.ACCOUNT) for n, body in enumerate(bodies)]
        return route(Routing(self, self, lambda: NOW), letters)


def region(**more: object) -> Region:
    return Region({OURS: "shop", THEIRS: "bank"}, **more)  # type: ignore[arg-type]


def test_each_event_reaches_the_cluster_whose_instance_it_names_and_no_other_as_it_is() -> None:
    here = region()
    shops, banks = builders.spot_warning(OURS), builders.spot_warning(THEIRS)
    report = here.route(shops, banks)
    assert here.delivered == {"shop": [shops], "bank": [banks]}
    assert report == Report(counts=report.counts)
    assert report.counts == {"NoticesRouted": 2}


def test_an_event_of_an_instance_that_no_cluster_has_costs_one_look_and_is_counted() -> None:
    here = region()
    report = here.route(builders.spot_warning(NOBODYS))
    assert (here.looks, here.delivered, report.failed) == ([NOBODYS], {}, [])
    assert report.counts == {"NoticesOfOthers": 1}


def test_what_ends_a_reservation_reaches_all_that_have_instances_in_it() -> None:
    here = region(reservations={BLOCK: frozenset({"shop", "bank"})})
    event = builders.ec2_event("Capacity Block Expiration Warning", {"capacity-reservation-id": BLOCK})
    here.route(event)
    assert here.delivered == {"shop": [event], "bank": [event]}


def test_an_event_of_several_clusters_instances_reaches_each_once() -> None:
    here = region()
    named = [{"entityValue": instance} for instance in (OURS, THEIRS, OURS)]
    detail = {"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": named}
    event = builders.ec2_event("AWS Health Event", detail, source="aws.health")
    report = here.route(event)
    assert here.delivered == {"shop": [event], "bank": [event]}
    assert report.counts == {"NoticesRouted": 1}


def test_an_event_that_cannot_be_looked_up_comes_again_alone() -> None:
    here = region(away=[THEIRS])
    report = here.route(builders.spot_warning(THEIRS), builders.spot_warning(OURS))
    assert report.failed == ["m-0"]
    assert list(here.delivered) == ["shop"]


def test_what_a_queue_does_not_take_comes_again_alone() -> None:
    here = region(lost=[1])
    report = here.route(builders.spot_warning(OURS), builders.spot_warning(OURS))
    assert report.failed == ["m-1"]


def test_a_queue_that_is_away_holds_up_its_own_cluster_alone() -> None:
    here = region(refusing={"bank": Transient("SQS is away")})
    report = here.route(builders.spot_warning(THEIRS), builders.spot_warning(OURS))
    assert report.failed == ["m-0"]
    assert list(here.delivered) == ["shop"]


def test_events_of_a_cluster_whose_queue_is_gone_are_rejected_and_never_given_again() -> None:
    here = region(refusing={"bank": Rejected("the queue does not exist")})
    report = here.route(builders.spot_warning(THEIRS))
    assert (report.failed, report.rejected) == ([], ["the queue does not exist"])


def test_what_cannot_be_read_is_rejected_without_a_look() -> None:
    here = region()
    report = here.route("no JSON", builders.spot_warning("not-an-instance"))
    assert len(report.rejected) == 2
    assert (here.looks, here.delivered, report.failed) == ([], {}, [])
