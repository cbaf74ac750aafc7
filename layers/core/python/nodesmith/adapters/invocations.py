"""Lambda: functions of the deployment are invoked asynchronously, at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.awserrors import error_code
from nodesmith.errors import Rejected, Transient
from nodesmith.model.events import Concern
from nodesmith.settings import ALIAS, function_name


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
        try:
            self._client("lambda").invoke(
                FunctionName=name, Qualifier=alias, InvocationType="Event", Payload=body
            )
        except ClientError as error:
            code = error_code(error)
            if code == "ResourceNotFoundException":
                raise Rejected(f"the function {name} does not exist, or has no alias {alias}") from error
            raise Transient(f"lambda:InvokeFunction of {name}: {error}", code) from error
        except BotoCoreError as error:
            raise Transient(f"lambda:InvokeFunction of {name}: {error}") from error
