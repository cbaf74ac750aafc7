"""Ticks: one invocation for each cluster and concern, so that no cluster waits for another."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from nodesmith.adapters.functions.invocations import LambdaInvocations
from nodesmith.errors import Rejected, Transient
from nodesmith.model.functions.hints import Concern, Hint, hints_payload
from nodesmith.registration import Registration
from nodesmith.settings import function_vpc

_AT_ONCE = 8


class LambdaTicks:
    """Sends ticks to the functions of all concerns, including those in VPCs."""

    def __init__(self, invocations: LambdaInvocations) -> None:
        self._invocations = invocations

    def send(self, concern: Concern, clusters: Sequence[Registration]) -> None:
        """Send a hint for each of these clusters.

        After all have been tried, raises Transient if one could not be sent, or else Rejected if the functions of a VPC
        are not deployed.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            errors = [
                each for each in pool.map(lambda cluster: self._send(concern, cluster), clusters) if each
            ]
        errors.sort(key=lambda error: isinstance(error, Rejected))
        if errors:
            raise errors[0]

    def wake(self, concern: Concern) -> None:
        """Invoke a function of the region with a tick. Raises Transient, or Rejected if it is not deployed."""
        self._invocations.invoke(concern, "", {"why": "tick"})

    def _send(self, concern: Concern, cluster: Registration) -> Transient | Rejected | None:
        vpc = function_vpc(concern, cluster.reached_from)
        try:
            self._invocations.invoke(concern, vpc, hints_payload([Hint(cluster.cluster, "tick")]))
        except (Transient, Rejected) as error:
            return error
        return None
