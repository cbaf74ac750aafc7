"""Answers that AWS gives now and then, on demand: calls that succeed in part, and errors of a code.

A change gets the response object of moto, with the request in its `params`, and the way to carry the request out.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from moto.core.responses import ActionResult
from moto.dynamodb.exceptions import TransactionCanceledException

from nodesmith_cli.local.cloud.strict.refusals import Refusal

CarryOut = Callable[[], ActionResult]
Change = Callable[[Any, CarryOut], ActionResult]


class Answers:
    """The changes that wait for the next calls of operations, first come first served. Safe to share."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, deque[Change]] = defaultdict(deque)
        self._lock = threading.Lock()

    def change(self, operation: str, change: Change, times: int = 1) -> None:
        """Change the answers to the next calls of an operation (`SendMessageBatch`)."""
        with self._lock:
            self._waiting[operation].extend([change] * times)

    def next(self, operation: str) -> Change | None:
        """Return the change of this call, None for an answer that stays as it is."""
        with self._lock:
            waiting = self._waiting.get(operation)
            return waiting.popleft() if waiting else None


def refused(code: str, message: str = "Failed on demand.") -> Change:
    """Fail the whole call."""

    def change(response: Any, carry_out: CarryOut) -> ActionResult:  # noqa: ARG001
        raise Refusal(code, message)

    return change


def lost_answer(code: str) -> Change:
    """Carry the call out and answer with an error all the same."""

    def change(response: Any, carry_out: CarryOut) -> ActionResult:  # noqa: ARG001
        carry_out()
        raise Refusal(code, "Failed on demand, after it was carried out.")

    return change


def unprocessed_writes(count: int) -> Change:
    """Leave the last `count` requests of a BatchWriteItem call undone, and answer with them as UnprocessedItems."""
    return _left_over("UnprocessedItems", lambda listed: (listed[:-count], listed[-count:]))


def unprocessed_keys(count: int) -> Change:
    """Leave the last `count` keys of a BatchGetItem call unread, and answer with them as UnprocessedKeys."""

    def split(asked: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        keys = asked["Keys"]
        return {**asked, "Keys": keys[:-count]}, {**asked, "Keys": keys[-count:]}

    return _left_over("UnprocessedKeys", split)


def cancelled(*reasons: str) -> Change:
    """Cancel a transaction, with a reason's code for each of its items; `None` is the code of one without fault."""
    listed = [(None, None, None) if each == "None" else (each, "On demand.", None) for each in reasons]

    def change(response: Any, carry_out: CarryOut) -> ActionResult:  # noqa: ARG001
        raise TransactionCanceledException(listed)

    return change


def failed_messages(*ids: str, code: str = "InternalError") -> Change:
    """Do not take these entries of a batch call of SQS: the answer names them in Failed."""

    def change(response: Any, carry_out: CarryOut) -> ActionResult:
        entries = response.params["Entries"]
        response.params["Entries"] = [entry for entry in entries if entry["Id"] not in ids]
        result: Any = carry_out().result if response.params["Entries"] else {"Successful": []}
        failed = [{"Id": id_, "SenderFault": False, "Code": code, "Message": "On demand."} for id_ in ids]
        return ActionResult({**result, "Failed": [*(result.get("Failed") or ()), *failed]})

    return change


def fleet_answer(*errors: Mapping[str, Any]) -> Change:
    """Answer CreateFleet with these entries of Errors, a FleetId and no instance."""

    def change(response: Any, carry_out: CarryOut) -> ActionResult:  # noqa: ARG001
        return ActionResult({"FleetId": "fleet-on-demand", "Errors": list(errors), "Instances": []})

    return change


def _left_over(name: str, split: Callable[[Any], tuple[Any, Any]]) -> Change:
    def change(response: Any, carry_out: CarryOut) -> ActionResult:
        asked = response.params["RequestItems"]
        parts = {table: split(listed) for table, listed in asked.items()}
        response.params["RequestItems"] = {t: done for t, (done, _) in parts.items() if _filled(done)}
        result: Any = carry_out().result if response.params["RequestItems"] else _nothing(asked)
        return ActionResult({**result, name: {table: left for table, (_, left) in parts.items()}})

    return change


def _filled(done: Any) -> bool:
    return bool(done["Keys"] if isinstance(done, Mapping) else done)


def _nothing(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"Responses": {table: [] for table in asked}}
