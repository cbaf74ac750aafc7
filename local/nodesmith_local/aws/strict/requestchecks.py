"""Checks of each request before moto carries it out, in process and as a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from types import TracebackType
from typing import Any
from unittest.mock import patch

from moto.core.responses import ActionResult, BaseResponse
from moto.core.utils import camelcase_to_underscores
from moto.dynamodb.models.dynamo_type import LimitedSizeDict
from moto.ec2.responses import EC2Response
from moto.s3.exceptions import S3ClientError
from moto.s3.responses import S3Response

from nodesmith_local.aws.commitments import AccountCommitments
from nodesmith_local.aws.strict import placementgroups, reservations
from nodesmith_local.aws.strict import servicelimits as limits
from nodesmith_local.aws.strict.answers import Answers
from nodesmith_local.aws.strict.dynamodblimits import PartitionWrites, check_dynamodb, put_whole
from nodesmith_local.aws.strict.ec2buckets import Ec2Buckets
from nodesmith_local.aws.strict.ec2limits import check_ec2
from nodesmith_local.aws.strict.filternames import check_filters
from nodesmith_local.aws.strict.models import check_model
from nodesmith_local.aws.strict.protection import end_what_is_not_protected
from nodesmith_local.aws.strict.refusals import AwsRequest
from nodesmith_local.aws.strict.sqslimits import check_sqs
from nodesmith_local.aws.strict.visibility import Visibility
from nodesmith_local.aws.zonalshifts import ZonalShifts

_PARSED = frozenset({"ec2", "dynamodb", "sqs", "iam"})
"""Services whose requests moto itself parses by the model."""
_OF_JSON = frozenset({"ssm", "events"})
_underscored = cache(camelcase_to_underscores)


class StrictAws:
    """AWS's refusals, for all of moto in this process. A context manager.

    `now` is the clock of token buckets and of eventual consistency. `visibility` and `answers` may change at any time.
    """

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.visibility = Visibility(now)
        self.answers = Answers()
        self.buckets = Ec2Buckets(now)
        self.partitions = PartitionWrites(now)
        self.shifts = ZonalShifts(now)
        self.commitments = AccountCommitments()
        self.reservations: list[reservations.Reservation] = []
        """The account's capacity reservations, as DescribeCapacityReservations returns them."""
        self._limits_rates = True
        self._patches = ExitStack()

    def limit_rates(self, *, on: bool) -> None:
        """Turn the limits of rates on or off; callers that exceed them for unrelated reasons turn them off."""
        self._limits_rates = on

    def __enter__(self) -> StrictAws:
        call_action, key_response = BaseResponse.call_action, S3Response._key_response  # noqa: SLF001

        def checked_call(response: Any) -> Any:
            self._put_before(response)
            return call_action(response)

        def checked_key(response: Any, request: Any, full_url: str) -> Any:
            key = response.parse_key_name()
            if len(key.encode()) > limits.OBJECT_KEY.maximum:
                raise S3ClientError(limits.OBJECT_KEY.code, "Your key is too long")
            return key_response(response, request, full_url)

        def describe_reservations(response: Any) -> ActionResult:
            return reservations.describe(response.params, self.reservations)

        added = patch.object(
            EC2Response, "describe_capacity_reservations", describe_reservations, create=True
        )
        self._patches.enter_context(added)
        self._patches.enter_context(self.shifts.answering())
        self._patches.enter_context(self.commitments.answering())
        self._patches.enter_context(placementgroups.answering())
        self._patches.enter_context(patch.object(BaseResponse, "call_action", checked_call))
        self._patches.enter_context(patch.object(LimitedSizeDict, "__setitem__", put_whole))
        self._patches.enter_context(patch.object(S3Response, "_key_response", checked_key))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.close()

    def _put_before(self, response: Any) -> None:
        """Wrap the method that answers this request in the checks.

        moto turns errors that are raised there into answers.
        """
        operation = response._get_action()  # noqa: SLF001
        method = _underscored(operation) if operation else ""
        carry_out = getattr(response, method, None) if method else None
        parameters = _parameters(response)
        if carry_out is not None and parameters is not None:
            request = AwsRequest(response.boto3_service_name, operation, parameters)
            setattr(response, method, lambda: self._answer(request, response, carry_out))

    def _answer(self, request: AwsRequest, response: Any, carry_out: Callable[[], Any]) -> Any:
        check_model(request)
        check_filters(request)
        check_ec2(request)
        check_dynamodb(request, response.region)
        check_sqs(request)
        if self._limits_rates:
            self.buckets.check(request)
            self.partitions.check(request)
        if request.service == "ec2" and request.parameters.get("DryRun"):
            response.error_on_dryrun()
        change = self.answers.next(request.operation)
        if change:
            return change(response, carry_out)
        return self._seen(request, response, carry_out)

    def _seen(
        self, request: AwsRequest, response: Any, carry_out: Callable[[], ActionResult]
    ) -> ActionResult:
        if request.operation == "CreateFleet":
            self.visibility.check_fleet(request.parameters, response.ec2_backend)
            self.visibility.check_profiles(request.parameters, response.ec2_backend)
        if request.operation == "TerminateInstances":
            end_what_is_not_protected(request, response.ec2_backend)
        if request.operation == "DescribeInstances":
            return self.visibility.describe_instances(request.parameters, carry_out)
        return carry_out()


def _parameters(response: Any) -> Mapping[str, Any] | None:
    """Return the request's parameters by the model's names, or None for services that are not checked."""
    service = response.boto3_service_name
    if service in _PARSED:
        parameters: Mapping[str, Any] = response.params
        return parameters
    return json.loads(response.body or "{}") if service in _OF_JSON else None
