"""Ticks on SQS: one hint for each cluster, ten in a request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from nodesmith.adapters.messages import send_batches
from nodesmith.errors import Rejected, Transient
from nodesmith.model.events import TALKING, Concern, Hint
from nodesmith.registration import Registration
from nodesmith.settings import function_name


class SqsTicks:
    """The queues of all concerns, with the VPCs'. Their URLs begin with `queues_url`."""

    def __init__(self, client: Any, queues_url: str) -> None:
        self._client, self._queues_url = client, queues_url

    def send(self, concern: Concern, clusters: Sequence[Registration]) -> None:
        """Send each of these clusters a hint. Raises Transient.

        Raises Rejected for a VPC that is not deployed, once all other clusters have been told.
        """
        queues: dict[str, list[str]] = defaultdict(list)
        for cluster in clusters:
            vpc = cluster.reached_from if concern in TALKING else ""
            queues[f"{self._queues_url}/{function_name(concern, vpc)}"].append(
                Hint(cluster.cluster, "tick").to_json()
            )
        lost, missing = 0, list[Rejected]()
        for url, bodies in queues.items():
            try:
                lost += len(send_batches(self._client, url, bodies))
            except Rejected as error:
                missing.append(error)
        if missing:
            raise missing[0]
        if lost:
            raise Transient(f"sqs:SendMessage for {concern}: {lost} ticks were not taken")
