"""Hints: a concern's function is invoked at once, or after a while."""

from __future__ import annotations

from nodesmith.adapters.functions.delayedinvocations import SqsDelayedInvocations
from nodesmith.adapters.functions.invocations import LambdaInvocations
from nodesmith.errors import Rejected
from nodesmith.model.functions.hints import Concern, DelayedInvocation, Hint, hints_payload
from nodesmith.settings import function_vpc


class LambdaHints:
    """Wakes the concerns of clusters whose API server functions reach from one VPC; from none where that is empty.

    Without `delayed` it sends no hint after a delay.
    """

    def __init__(
        self,
        invocations: LambdaInvocations,
        delayed: SqsDelayedInvocations | None = None,
        reached_from: str = "",
    ) -> None:
        self._invocations, self._delayed = invocations, delayed
        self._reached_from = reached_from

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        """Send a hint, at once or after a delay of at most 15 minutes: it only says "look".

        Raises Transient, or Rejected where the function or the queue does not exist.
        """
        vpc, payload = function_vpc(concern, self._reached_from), hints_payload([hint])
        if delay_seconds <= 0:
            self._invocations.invoke(concern, vpc, payload)
        elif self._delayed is None:
            raise Rejected(f"hint for {concern}: there is no queue in which it could wait")
        else:
            self._delayed.put(DelayedInvocation(concern, vpc, payload), delay_seconds)
