"""Hints: invocations of a concern's function, at once or after a delay."""

from __future__ import annotations

from nodesmith.adapters.functions.delayedinvocations import SqsDelayedInvocations
from nodesmith.adapters.functions.invocations import LambdaInvocations
from nodesmith.errors import Rejected
from nodesmith.model.functions.hints import Concern, DelayedInvocation, Hint, hints_payload
from nodesmith.settings import function_vpc


class LambdaHints:
    """Sends hints to the concerns of clusters.

    `reached_from` names the VPC in which functions reach the clusters' API servers; it is empty if they need none.
    Without `delayed`, hints cannot have a delay.
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
        """Send a hint, at once or after a delay of at most 15 minutes. A hint only tells the concern to look again.

        Raises Transient, or Rejected if the function or the queue does not exist.
        """
        vpc, payload = function_vpc(concern, self._reached_from), hints_payload([hint])
        if delay_seconds <= 0:
            self._invocations.invoke(concern, vpc, payload)
        elif self._delayed is None:
            raise Rejected(f"hint for {concern}: no queue is configured for delayed hints")
        else:
            self._delayed.put(DelayedInvocation(concern, vpc, payload), delay_seconds)
