"""Lambda: functions of the deployment are invoked asynchronously, at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from nodesmith.adapters.aws.errors import missing_errors
from nodesmith.model.functions.hints import Concern
from nodesmith.settings import ALIAS, function_name

_MISSING = frozenset({"ResourceNotFoundException"})


class LambdaInvocations:
    """Invokes functions by their alias. `client` gives boto3's client of a service, here of `lambda`."""

    def __init__(self, client: Callable[[str], Any]) -> None:
        self._client = client

    def invoke(self, concern: Concern, vpc: str, payload: Mapping[str, Any], alias: str = ALIAS) -> None:
        """Have a concern's function run once with this event, in a VPC where `vpc` names one.

        Lambda keeps the event until the function has run, and runs it again where its process dies. Raises Transient,
        or Rejected where there is no such function.
        """
        name = function_name(concern, vpc)
        body = json.dumps(payload, separators=(",", ":")).encode()
        missing = f"the function {name} does not exist, or has no alias {alias}"
        with missing_errors(f"lambda:InvokeFunction of {name}", _MISSING, missing):
            self._client("lambda").invoke(
                FunctionName=name, Qualifier=alias, InvocationType="Event", Payload=body
            )
