"""A request as AWS reads it, and the error by which AWS refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.core.exceptions import ServiceException

from nodesmith_cli.local.cloud.strict.servicelimits import Limit


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """One call: botocore's name of the service, the operation, and its parameters as the service model names them."""

    service: str
    operation: str
    parameters: Mapping[str, Any]


class Refusal(ServiceException):
    """The error that AWS answers with. moto writes it as the service's protocol wants it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


def require(limit: Limit, found: float, what: str) -> None:
    """Raise Refusal, with the limit's own code, where `found` is beyond the limit. `what` names what was counted."""
    if found > limit.maximum:
        raise Refusal(limit.code, f"{what}: {found:g} is more than the {limit.maximum} {limit.unit} allowed.")
    if limit.minimum is not None and found < limit.minimum:
        raise Refusal(
            limit.code, f"{what}: {found:g} is less than the {limit.minimum} {limit.unit} required."
        )
