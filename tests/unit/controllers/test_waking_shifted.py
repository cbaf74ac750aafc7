"""Routing and zonal shifts: which clusters' readiness is woken, by events and every minute."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from nodesmith.controllers.region.routing import Shifts, is_of_shifts, wake_shifted
from nodesmith.errors import Rejected, Transient
from nodesmith.model.functions import Concern
from nodesmith.registration import Registration
from tests import builders


@dataclass(slots=True)
class Region:
    """A region with registered clusters, some of which are shifted. `refusing` is raised by Application Recovery."""

    registered: Collection[str]
    shifted: Collection[str] = ()
    refusing: Exception | None = None
    woken: list[str] = field(default_factory=list)
    listed: int = 0

    def clusters(self) -> Collection[str]:
        if self.refusing:
            raise self.refusing
        return self.shifted

    def all(self) -> tuple[Sequence[Registration], Mapping[str, str]]:
        self.listed += 1
        return [Registration(name, "vpc-1", ("role",)) for name in self.registered], {}

    def get(self, cluster: str) -> Registration:
        raise AssertionError(cluster)

    def send(self, concern: Concern, clusters: Sequence[Registration]) -> None:
        assert concern is Concern.READINESS
        self.woken += [each.cluster for each in clusters]

    def wake(self, concern: Concern) -> None:
        raise AssertionError(concern)

    def run(self, event: str = "") -> Mapping[str, int]:
        return wake_shifted(Shifts(self, self, self), event).counts


def event(*resources: object) -> str:
    body = json.loads(builders.ec2_event("Autoshift Completed", {}))
    return json.dumps({**body, "source": "aws.arc-zonal-shift", "resources": list(resources)})


def test_only_registered_clusters_with_a_shift_are_woken() -> None:
    region = Region(["bank", "shop"], shifted=["shop", "of-another-tool"])
    region.run()
    assert region.woken == ["shop"]


def test_registrations_are_not_listed_while_no_cluster_is_shifted() -> None:
    region = Region(["shop"])
    assert region.run() == {}
    assert (region.woken, region.listed) == ([], 0)


def test_an_event_wakes_the_clusters_that_it_names_even_if_their_shift_is_over() -> None:
    region = Region(["bank", "shop"])
    region.run(event("arn:aws:eks:us-east-1:123456789012:cluster/shop", "arn:aws:x", 7))
    assert region.woken == ["shop"]


def test_an_event_that_names_no_cluster_wakes_all() -> None:
    region = Region(["bank", "shop"], shifted=["shop"])
    region.run(event())
    assert region.woken == ["bank", "shop"]


def test_a_tick_that_cannot_read_shifts_is_counted_and_an_event_needs_none() -> None:
    for error in (Transient("slow"), Rejected("denied")):
        region = Region(["shop"], ["shop"], refusing=error)
        assert region.run() == {"ZonalShiftsNotRead": 1}
        assert region.woken == []
        region.run(event())
        assert region.woken == ["shop"]


@pytest.mark.parametrize("body", ["", "{", "[]", "7", builders.spot_warning("i-0123456789abcdef0")])
def test_other_events_are_not_of_zonal_shifts(body: str) -> None:
    assert not is_of_shifts(body)
    assert is_of_shifts(event())
