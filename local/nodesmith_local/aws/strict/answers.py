"""Answers that AWS gives now and then, produced on demand: partial success, and error codes.

A change receives moto's response object, with the request in its `params`, and the function that carries out the
request.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from moto.core.responses import ActionResult
from moto.dynamodb.exceptions import TransactionCanceledException

from nodesmith_local.aws.strict.refusals import Refusal

CarryOut = Callable[[], ActionResult]
Change = Callable[[Any, CarryOut], ActionResult]


class Answers:
    """The changes to the next calls of operations, in order. Threads may share it."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, deque[Change]] = defaultdict(deque)
        self._lock = threading.Lock()

    def change(self, operation: str, change: Change, times: int = 1) -> None:
        """Change the answers to the next calls of an operation such as `SendMessageBatch`."""
        with self._lock:
            self._waiting[operation].extend([change] * times)

    def next(self, operation: str) -> Change | None:
        """Return the change for this call, or None for an unchanged answer."""
        with self._lock:
            waiting = self._waiting.get(operation)
            return waiting.popleft() if waiting else None


def lost_answer(code: str) -> Change:
    """Return a change that carries the call out and then answers with an error."""

    def change(response: Any, carry_out: CarryOut) -> ActionResult:  # noqa: ARG001
        carry_out()
        raise Refusal(code, "Failed on demand, after it was carried out.")

    return change


def unprocessed_writes(count: int) -> Change:
    """Return a change that skips the last `count` requests of a BatchWriteItem call.

    The answer lists them as UnprocessedItems.
    """
    return _left_over("UnprocessedItems", lambda listed: (listed[:-count], listed[-count:]))


def unprocessed_keys(count: int) -> Change:
    """Return a change that skips the last `count` keys of a BatchGetItem call.

    The answer lists them as UnprocessedKeys.
    """

    def split(requested: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        keys = requested["Keys"]
        return {**requested, "Keys": keys[:-count]}, {**requested, "Keys": keys[-count:]}

    return _left_over("UnprocessedKeys", split)


def cancelled(*reasons: str) -> Change:
    """Return a change that cancels a transaction with one reason code for each item.

    The code of an item without fault is `None`.
    """
    listed = [(None, None, None) if reason == "None" else (reason, "On demand.", None) for reason in reasons]

    def change(response: Any, carry_out: CarryOut) -> ActionResult:  # noqa: ARG001
        raise TransactionCanceledException(listed)

    return change


def fleet_answer(*errors: Mapping[str, Any]) -> Change:
    """Return a change that answers CreateFleet with these Errors, a FleetId and no instance."""

    def change(response: Any, carry_out: CarryOut) -> ActionResult:  # noqa: ARG001
        return ActionResult({"FleetId": "fleet-on-demand", "Errors": list(errors), "Instances": []})

    return change


def _left_over(name: str, split: Callable[[Any], tuple[Any, Any]]) -> Change:
    def change(response: Any, carry_out: CarryOut) -> ActionResult:
        requested = response.params["RequestItems"]
        parts = {table: split(listed) for table, listed in requested.items()}
        response.params["RequestItems"] = {
            t: processed for t, (processed, _) in parts.items() if _filled(processed)
        }
        result: Any = carry_out().result if response.params["RequestItems"] else _nothing(requested)
        return ActionResult(
            {**result, name: {table: unprocessed for table, (_, unprocessed) in parts.items()}}
        )

    return change


def _filled(processed: Any) -> bool:
    return bool(processed["Keys"] if isinstance(processed, Mapping) else processed)


def _nothing(requested: Mapping[str, Any]) -> dict[str, Any]:
    return {"Responses": {table: [] for table in requested}}
