from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ledger.items import ledger_item, read_ledger
from nodesmith.model.ledger.learned import Backoff, Boot, Ending, Offered, RegistrationHealth, next_backoff
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import MoveKind
from nodesmith.model.nodeclasses.status import StatusCondition
from tests.builders import NOW, claim, cluster_info, ledger, nodeclass_status

OFFERING = OfferingKey("spot", "m5.large", "us-east-1a")


def test_the_wait_starts_at_three_minutes_and_doubles_to_thirty() -> None:
    now, backoff, waits = NOW, None, []
    for _ in range(7):
        backoff = next_backoff(backoff, "InsufficientInstanceCapacity", now)
        waits.append((backoff.until - now).total_seconds() / 60)
        now = backoff.until

    assert waits == [3, 6, 12, 24, 30, 30, 30]
    assert backoff is not None
    assert backoff.failures == 7


def test_very_many_failures_still_wait_thirty_minutes() -> None:
    backoff = next_backoff(Backoff(NOW, 10_000), "x", NOW)

    assert backoff.until == NOW + timedelta(minutes=30)


def test_a_failure_seen_again_while_it_is_known_changes_nothing() -> None:
    first = next_backoff(None, "InsufficientInstanceCapacity", NOW)

    assert next_backoff(first, "other", NOW + timedelta(minutes=2)) is first


def test_a_backoff_holds_up_to_its_end_and_no_longer() -> None:
    backoff = Backoff(NOW, 1)

    assert backoff.holds(NOW - timedelta(microseconds=1))
    assert not backoff.holds(NOW)


def test_after_a_success_the_wait_starts_over() -> None:
    twice = next_backoff(next_backoff(None, "x", NOW), "x", NOW + timedelta(minutes=3))
    cleared = None

    assert twice.failures == 2
    assert next_backoff(cleared, "x", NOW).until == NOW + timedelta(minutes=3)


def full_ledger() -> Ledger:
    status = nodeclass_status(
        conditions=(
            StatusCondition("SubnetsReady", "True", "SubnetsReady", since=NOW),
            StatusCondition("AMIsReady", "False", "AMINotFound", "no image matches"),
        )
    )
    return ledger(
        version=7,
        claims=(claim("b", nominated=("default/web-1",)), claim("a", launched_at=NOW)),
        nodeclasses={"default": status, "another": nodeclass_status("another")},
        cluster=replace(cluster_info(), ip_family="ipv6"),
        unavailable={OFFERING: Backoff(NOW, 3, "InsufficientInstanceCapacity")},
        nodepool_backoffs={"default": Backoff(NOW, 1, "UnauthorizedOperation")},
        health={
            "default": RegistrationHealth(
                "b", NOW, (Ending("a", False),), offerings={OFFERING: Backoff(NOW, 1)}
            )
        },
        move_backoffs={MoveKind("default", "Drifted"): Backoff(NOW, 2, "not ready")},
        learned={Boot("m5.large", "ami-1"): Offered(7, {"hash": Resources({"cpu": 1})})},
    )


def test_a_ledger_comes_back_as_it_was_written_its_claims_by_name() -> None:
    whole = full_ledger()

    read = read_ledger(json.loads(json.dumps(ledger_item(whole))))

    assert read == replace(whole, claims=tuple(sorted(whole.claims, key=lambda c: c.name)))


def test_what_a_newer_version_wrote_about_the_cluster_is_passed_over() -> None:
    item = {**ledger_item(full_ledger()), "cluster": {**ledger_item(full_ledger())["cluster"], "tags": {}}}

    assert read_ledger(item).cluster == full_ledger().cluster


def test_equal_ledgers_are_written_alike_whatever_order_they_are_in() -> None:
    whole = full_ledger()
    turned = replace(
        whole,
        claims=whole.claims[::-1],
        nodeclasses=dict(reversed(list(whole.nodeclasses.items()))),
    )

    assert json.dumps(ledger_item(whole)) == json.dumps(ledger_item(turned))


@pytest.mark.parametrize("empty", [Ledger(), Ledger(version=3)])
def test_an_empty_ledger_comes_back(empty: Ledger) -> None:
    assert read_ledger(json.loads(json.dumps(ledger_item(empty)))) == empty
