"""Drain times are learned, taken into account when time is short, and forgotten gradually."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from nodesmith.controllers.termination import Drains
from nodesmith.decisions.termination.evictions import PRESSING, Allowances, drain
from nodesmith.model.commands import Advance, Evict
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.evictions import PodOnNode
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.items import ledger_item, read_ledger
from nodesmith.model.ledger.learned import HALF_LIFE, MOST_SECONDS, DrainTime, learned_drain_time
from nodesmith.model.ledger.ledger import Ledger
from tests import builders
from tests.builders import NOW

GRACE = 20
KNOWN = DrainTime(40.0, NOW)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def pods(count: int) -> list[Pod]:
    return builders.pods(builders.shape(terminationGracePeriodSeconds=GRACE), count, node="node-1")


def test_a_drain_time_halves_with_every_half_life_until_it_is_less_than_a_second() -> None:
    assert KNOWN.left(NOW + HALF_LIFE) == seconds(20)
    assert KNOWN.left(NOW - HALF_LIFE) == seconds(40)
    assert KNOWN.left(KNOWN.forgotten_at) == pytest.approx(seconds(1), abs=seconds(0.01))


def test_only_drains_that_took_longer_than_expected_are_learned_and_at_most_half_a_notice() -> None:
    assert learned_drain_time(None, seconds(-3), NOW) is None
    assert learned_drain_time(KNOWN, seconds(40), NOW) is None
    assert learned_drain_time(KNOWN, seconds(41), NOW) == DrainTime(41.0, NOW)
    later = NOW + HALF_LIFE
    assert learned_drain_time(KNOWN, seconds(30), later) == DrainTime(30.0, later)
    assert learned_drain_time(KNOWN, timedelta(hours=3), NOW) == DrainTime(MOST_SECONDS, NOW)


@pytest.mark.parametrize("usual", [0.0, 5.0, 40.0])
def test_pods_that_wait_for_a_replacement_are_evicted_sooner_by_the_drain_time(usual: float) -> None:
    deadline = NOW + timedelta(minutes=2)
    asked_from = deadline - seconds(GRACE) - max(PRESSING, seconds(usual))

    def asked(later: float) -> int:
        now = asked_from + seconds(later)
        found = drain(pods(1), Allowances(()), deadline, now, patient=True, usual=seconds(usual))
        return len(found.evict)

    assert (asked(-1), asked(0)) == (0, 1)


def test_a_drain_is_measured_from_the_first_eviction_beyond_the_longest_grace() -> None:
    claim, drains = builders.claim(phase=Phase.TERMINATING), Drains()
    snapshot = builders.snapshot(pods=pods(2))
    first, second = (
        Evict(claim, (PodOnNode(pod.key, "node-1"),)) for pod in sorted(snapshot.pods, key=lambda p: p.key)
    )
    assert list(drains.ended([first], snapshot, NOW)) == []
    assert list(drains.ended([second], snapshot, NOW + seconds(30))) == []
    end = NOW + seconds(55)
    drained = Advance(claim.advanced(Phase.DRAINED, end))
    assert list(drains.ended([drained], snapshot, end)) == [("default", seconds(55 - GRACE))]
    assert drains.begun == {}


def test_drain_times_come_back_from_the_ledgers_data_as_they_were() -> None:
    ledger = Ledger(drain_times={"default": KNOWN})
    assert read_ledger(json.loads(json.dumps(ledger_item(ledger)))).drain_times == ledger.drain_times
