"""Steps of many claims: several at once, and what fails for one is its own."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from nodesmith.controllers.runs import Spread, each, from_anywhere, in_turn
from nodesmith.errors import Conflict, Failures, Rejected, Transient
from nodesmith.model.commands import Release, Wait
from tests.builders import claim

STEPS = [Wait(claim(f"default-{number}")) for number in range(4)]


@pytest.mark.parametrize("spread", [in_turn, ThreadPoolExecutor(4).map], ids=["in turn", "at once"])
def test_what_fails_for_one_claim_is_noted_and_the_others_go_on(spread: Spread) -> None:
    errors = {"default-1": Conflict("moved on"), "default-2": Transient("503"), "default-3": Rejected("no")}

    def work(step: Wait) -> str:
        if step.claim.name in errors:
            raise errors[step.claim.name]
        return "told"

    done: Counter[str] = Counter()
    failures = Failures()
    came = each(spread, STEPS, work, done, failures)
    assert came == {"default-0": "told", **errors}
    assert done == {"Wait": 1, "Conflict": 1}
    assert str(failures) == "NodeClaim default-2: 503; NodeClaim default-3: no"


def test_steps_are_taken_at_the_same_time() -> None:
    """Each waits until all are there, which none of them would be if they came one after the other."""
    together = Barrier(len(STEPS), timeout=60)
    with ThreadPoolExecutor(len(STEPS)) as threads:
        came = each(threads.map, STEPS, lambda _: together.wait(), Counter(), Failures())
    assert set(came.values()) == {0, 1, 2, 3}


def test_what_is_no_error_of_ours_stops_everything() -> None:
    def bug(_: Release) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        each(in_turn, [Release(claim(), "n1")], bug, Counter(), Failures())


@pytest.mark.parametrize("first", [0, 1, 3])
def test_whoever_begins_anywhere_does_all_and_gives_it_in_order(first: int) -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        return 10 * number

    assert list(from_anywhere(in_turn, lambda _: first)(work, range(4))) == [0, 10, 20, 30]
    assert begun == [*range(first, 4), *range(first)]


def test_nothing_is_begun_where_there_is_nothing() -> None:
    assert list(from_anywhere(in_turn)(str, [])) == []
