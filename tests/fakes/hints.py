"""Queues in memory, with delays and without a guaranteed order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from nodesmith.errors import Transient
from nodesmith.model.functions import Concern, Hint


@dataclass(frozen=True, slots=True)
class Message:
    """A hint in its queue, invisible before `due_at`."""

    concern: Concern
    hint: Hint
    due_at: datetime
    chain: Mapping[Concern, int] = field(default_factory=dict)
    """How often each function has run in the chain of messages that led here, including the sender's run."""
    sender: Concern | None = None


@dataclass(slots=True)
class FakeHints:
    """Hints by the time they are due. While `down`, sending fails; `sent` is everything ever sent.

    New hints are sent by a run of `sender`, at the end of `chain`.
    """

    clock: Callable[[], datetime] = lambda: datetime(2026, 11, 21, 8, tzinfo=UTC)
    down: bool = False
    sent: list[Message] = field(default_factory=list)
    waiting: list[Message] = field(default_factory=list)
    chain: Mapping[Concern, int] = field(default_factory=dict)
    sender: Concern | None = None

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        if self.down:
            raise Transient("the queue is down", "ServiceUnavailable")
        if not 0 <= delay_seconds <= 900:
            raise ValueError(f"delay_seconds {delay_seconds}: SQS holds a message for 0 to 900 seconds")
        due_at = self.clock() + timedelta(seconds=delay_seconds)
        message = Message(concern, hint, due_at, self.chain, self.sender)
        self.sent.append(message)
        self.waiting.append(message)

    def receive(self, concern: Concern) -> list[Message]:
        """Remove and return the due messages of a queue, oldest first."""
        now = self.clock()
        due = sorted(
            (m for m in self.waiting if m.concern == concern and m.due_at <= now), key=lambda m: m.due_at
        )
        self.waiting = [m for m in self.waiting if m not in due]
        return due

    def concerns(self) -> list[Concern]:
        """Return the concerns that were woken, in order."""
        return [message.concern for message in self.sent]
