"""The records that Lambda writes to the destination on failure of an asynchronous invocation.

https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Condition = Literal["RetriesExhausted", "EventAgeExceeded", "RecursiveInvocation"]
"""The reason for giving up. AWS documents no value for an ended recursive loop; the last one is our own."""
VERSION = "1"
"""The function version behind the alias."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to invoke the function whose ARN, including the alias, is `arn`."""

    id: str
    arn: str
    payload: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """An event that is given up after `runs` runs; `error` is the last run's."""

    request: Request
    condition: Condition
    runs: int
    error: BaseException | None = None

    def to_json(self, time: datetime) -> str:
        """Return the record as JSON."""
        record: dict[str, Any] = {
            "version": "1.0",
            "timestamp": time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
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
    """Return the payload with which Lambda answers for a function that has raised."""
    return {"errorMessage": str(error), "errorType": type(error).__name__}
