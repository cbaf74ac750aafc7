"""Requests of a moto service that wait for each other."""

from __future__ import annotations

import contextlib
import threading

from nodesmith_cli.local.cloud.turns import in_turns


class Responses:
    """Notices when two requests are inside at once."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.both = threading.Barrier(2, timeout=0.3)

    def call_action(self) -> str:
        self.inside += 1
        self.most = max(self.most, self.inside)
        with contextlib.suppress(threading.BrokenBarrierError):
            self.both.wait()
        self.inside -= 1
        return "answer"


def two_requests(responses: Responses) -> None:
    threads = [threading.Thread(target=responses.call_action) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_requests_meet_unless_they_take_turns() -> None:
    free = Responses()
    two_requests(free)

    in_order = Responses()
    with in_turns(Responses):
        two_requests(in_order)

    assert (free.most, in_order.most) == (2, 1)


def test_the_class_is_as_it_was_afterwards() -> None:
    before = Responses.call_action

    with in_turns(Responses):
        assert Responses.call_action is not before

    assert Responses.call_action is before
