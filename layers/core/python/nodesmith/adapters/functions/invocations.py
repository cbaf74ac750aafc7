"""Lambda: asynchronous invocations of the deployment's functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from nodesmith.adapters.aws.errors import missing_errors
from nodesmith.model.functions.hints import Concern
from nodesmith.settings import ALIAS, function_name

_MISSING = frozenset({"ResourceNotFoundException"})


class LambdaInvocations:
    """Invokes functions by their alias. `client` returns the boto3 client of a service, here `lambda`."""

    def __init__(self, client: Callable[[str], Any]) -> None:
        self._client = client

    def invoke(self, concern: Concern, vpc: str, payload: Mapping[str, Any], alias: str = ALIAS) -> None:
        """Invoke a concern's function once with this event.

        `vpc` names the VPC that the function runs in, or is empty for the function outside any VPC.

        Lambda keeps the event until the function has run, and retries if the process dies. Raises Transient, or
        Rejected if the function or the alias does not exist.
        """
        name = function_name(concern, vpc)
        body = json.dumps(payload, separators=(",", ":")).encode()
        missing = f"the function {name} does not exist, or has no alias {alias}"
        with missing_errors(f"lambda:InvokeFunction of {name}", _MISSING, missing):
            self._client("lambda").invoke(
                FunctionName=name, Qualifier=alias, InvocationType="Event", Payload=body
            )
