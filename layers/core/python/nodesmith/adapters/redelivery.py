"""Messages that failed: SQS shows them again within seconds, not only when the queue's visibility time-out is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from nodesmith.adapters.messages import sending
from nodesmith.errors import Rejected, Transient

RETRY_SECONDS = (5, 5, 5, 10, 20, 40, 80, 160, 320)
"""Until a message is visible again, by how often it has been received; after that the queue's time-out decides.

EC2 gives two minutes, so the first attempts come fast. An outage of minutes does not use up a queue's ten receives.
"""
_AGAIN = "-again"
"""How the name of a queue ends that gives failed messages a second chance: it waits its visibility time-out."""
_BATCH = 10

Record = Mapping[str, Any]


class SqsRedelivery:
    """The queues that wake a function; their URLs begin with `queues_url`."""

    def __init__(self, client: Any, queues_url: str) -> None:
        self._client, self._queues_url = client, queues_url

    @contextmanager
    def if_failed(self, records: Sequence[Record]) -> Iterator[None]:
        """Show all records of a batch again soon where the block raises."""
        with ExitStack() as on_failure:
            on_failure.callback(self.soon, records)
            yield
            on_failure.pop_all()

    def soon(self, records: Sequence[Record]) -> None:
        """Show these records of an event again soon. One that is not reached waits its visibility time-out."""
        queues: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in records:
            queue = record["eventSourceARN"].rpartition(":")[2]
            received = int(record["attributes"]["ApproximateReceiveCount"])
            if received <= len(RETRY_SECONDS) and not queue.endswith(_AGAIN):
                entry = {"ReceiptHandle": record["receiptHandle"], "Id": str(len(queues[queue]))}
                queues[queue].append({**entry, "VisibilityTimeout": RETRY_SECONDS[received - 1]})
        for queue, entries in queues.items():
            for start in range(0, len(entries), _BATCH):
                self._change(queue, entries[start : start + _BATCH])

    def _change(self, queue: str, entries: Sequence[Mapping[str, Any]]) -> None:
        url = f"{self._queues_url}/{queue}"
        # The run has failed already, and its error is the one to tell.
        with (
            suppress(Transient, Rejected),
            sending(f"sqs:ChangeMessageVisibility of {url}", f"no queue {url}"),
        ):
            self._client.change_message_visibility_batch(QueueUrl=url, Entries=entries)
