"""What Lambda writes of an asynchronous invocation that it has given up, for the destination on failure.

https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Condition = Literal["RetriesExhausted", "EventAgeExceeded", "RecursiveInvocation"]
"""Why an event was given up. AWS does not document what it writes where it has ended a chain: the last is ours."""
VERSION = "1"
"""Of the function, to which its alias leads."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to invoke the function of an ARN, which ends with the alias."""

    id: str
    arn: str
    payload: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """An event that is given up after so many `runs`; `error` is what the last one raised."""

    request: Request
    condition: Condition
    runs: int
    error: BaseException | None = None

    def to_json(self, at: datetime) -> str:
        """Write the message."""
        record: dict[str, Any] = {
            "version": "1.0",
            "timestamp": at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "requestContext": {
                "requestId": self.request.id,
                "functionArn": self.request.arn,
                "condition": self.condition,
                "approximateInvokeCount": self.runs,
            },
            "requestPayload": self.request.payload,
        }
        if self.error is not None:
            record["responseContext"] = {
                "statusCode": 200,
                "executedVersion": VERSION,
                "functionError": "Unhandled",
            }
            record["responsePayload"] = error_payload(self.error)
        return json.dumps(record)


def error_payload(error: BaseException) -> dict[str, str]:
    """Return what Lambda answers for a function that has raised."""
    return {"errorMessage": str(error), "errorType": type(error).__name__}
