"""Serialized requests of a moto service."""

from __future__ import annotations

import contextlib
import threading

from nodesmith_local.aws.locking import in_turns


class Responses:
    """Notices when two requests run at once."""

    def __init__(self, patience_seconds: float) -> None:
        self.inside = 0
        self.most = 0
        self.both = threading.Barrier(2, timeout=patience_seconds)

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
    free = Responses(patience_seconds=30)  # they meet at once, however busy the machine is
    two_requests(free)

    in_order = Responses(patience_seconds=0.3)  # they never meet, so this time passes
    with in_turns(Responses):
        two_requests(in_order)

    assert (free.most, in_order.most) == (2, 1)


def test_the_class_is_restored_afterwards() -> None:
    before = Responses.call_action

    with in_turns(Responses):
        assert Responses.call_action is not before

    assert Responses.call_action is before
