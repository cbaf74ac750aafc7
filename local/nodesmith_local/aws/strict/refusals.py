"""A request in the form that AWS parses, and the error with which AWS refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.core.exceptions import ServiceException

from nodesmith_local.aws.strict.servicelimits import Limit


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """One call: botocore's service name, the operation, and the parameters by the service model's names."""

    service: str
    operation: str
    parameters: Mapping[str, Any]


class Refusal(ServiceException):
    """The error that AWS answers with. moto formats it for the service's protocol."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


def require(limit: Limit, value: float, quantity: str) -> None:
    """Raise Refusal with the limit's code if `value` is outside the limit. `quantity` names it."""
    if value > limit.maximum:
        raise Refusal(
            limit.code, f"{quantity}: {value:g} is more than the {limit.maximum} {limit.unit} allowed."
        )
    if limit.minimum is not None and value < limit.minimum:
        raise Refusal(
            limit.code, f"{quantity}: {value:g} is less than the {limit.minimum} {limit.unit} required."
        )
