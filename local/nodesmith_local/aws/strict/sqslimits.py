"""SQS's limits on messages, batches, delays and waits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nodesmith_local.aws.strict import servicelimits as limits
from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal, require

Parameters = Mapping[str, Any]
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBERS = {
    "DelaySeconds": limits.DELAY,
    "VisibilityTimeout": limits.VISIBILITY,
    "MaxNumberOfMessages": limits.RECEIVED,
    "WaitTimeSeconds": limits.WAIT,
}
_BATCHES = frozenset({"SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"})


def check_sqs(request: AwsRequest) -> None:
    """Raise Refusal for an SQS request that exceeds a limit."""
    if request.service != "sqs":
        return
    parameters = request.parameters
    _check_numbers(parameters)
    if request.operation == "SendMessage":
        _check_body(parameters)
    elif request.operation in _BATCHES:
        _check_batch(parameters)
    elif request.operation == "CreateQueue":
        require(limits.QUEUE_NAME, len(str(parameters.get("QueueName", ""))), "QueueName")


def _check_numbers(parameters: Parameters) -> None:
    for name, limit in _NUMBERS.items():
        if parameters.get(name) is not None:
            require(limit, int(parameters[name]), name)


def _check_body(message: Parameters) -> int:
    """Return the size of a message's body in bytes. Raises Refusal for a body that SQS does not accept."""
    body = str(message.get("MessageBody", ""))
    size = len(body.encode(errors="surrogatepass"))
    require(limits.MESSAGE, size, "MessageBody")
    if _FORBIDDEN.search(body):
        raise Refusal("InvalidMessageContents", "Invalid characters found in the message body.")
    return size


def _check_batch(parameters: Parameters) -> None:
    entries = parameters.get("Entries") or ()
    if not entries:
        raise Refusal("AWS.SimpleQueueService.EmptyBatchRequest", "There should be at least one entry.")
    require(limits.MESSAGE_BATCH, len(entries), "Entries")
    ids = [str(entry.get("Id", "")) for entry in entries]
    for id_ in ids:
        require(limits.BATCH_ENTRY_ID, len(id_), "Id of an entry")
    if len(set(ids)) < len(ids):
        raise Refusal("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", f"Ids repeat: {ids}.")
    if "MessageBody" in entries[0]:
        require(limits.MESSAGE_BATCH_BYTES, sum(map(_check_body, entries)), "Bodies of the batch")
    for entry in entries:
        _check_numbers(entry)
