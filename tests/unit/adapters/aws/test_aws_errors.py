"""AWS errors that are transient."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from nodesmith.adapters.aws.calls import all_errors, error_code, is_passing, transient_errors
from nodesmith.errors import Rejected, Transient


def refused(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "CreateFleet",
    )


@pytest.mark.parametrize(
    "error",
    [
        refused("RequestLimitExceeded", 503),
        refused("Throttling"),
        refused("ThrottlingException"),
        refused("InternalError", 500),
        refused("SomethingUnheardOf", 502),
        refused("TooManyRequests", 429),
        refused("RequestExpired"),
        refused("ExpiredToken", 403),
        refused("ExpiredTokenException"),
        EndpointConnectionError(endpoint_url="https://ec2"),
        ConnectTimeoutError(endpoint_url="https://ec2"),
        ReadTimeoutError(endpoint_url="https://ec2"),
    ],
)
def test_throttling_server_errors_network_errors_and_expired_credentials_are_transient(
    error: ClientError,
) -> None:
    assert is_passing(error)
    with pytest.raises(Transient, match="ec2:CreateFleet") as caught, transient_errors("ec2:CreateFleet"):
        raise error
    assert caught.value.code == error_code(error)


@pytest.mark.parametrize(
    "error",
    [refused("UnauthorizedOperation", 403), refused("InvalidSubnetID.NotFound"), NoCredentialsError()],
)
def test_other_errors_propagate_or_are_rejected(
    error: ClientError,
) -> None:
    assert not is_passing(error)
    with pytest.raises(type(error)), transient_errors("ec2:CreateFleet"):
        raise error
    with (
        pytest.raises(Rejected, match=f"ec2:CreateFleet: {error_code(error)}: "),
        all_errors("ec2:CreateFleet"),
    ):
        raise error
