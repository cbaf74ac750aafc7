"""AWS clients with the caller's own credentials, retries when throttled, and readable errors."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError, ProfileNotFound

from nodesmith.adapters.aws.calls import DENIED, all_errors, error_code, error_message
from nodesmith.errors import Rejected

Client = Callable[[str], Any]
Found = TypeVar("Found")
_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 8}, connect_timeout=5, read_timeout=30)
_NOT_THERE = frozenset({"NoSuchEntity", "ParameterNotFound", "ResourceNotFoundException", "404", "NoSuchKey"})
_DENIED_WORDS = re.compile(
    r"not authorized to perform: (?P<action>[\w-]+:\w+)(?: on resource: (?P<arn>\S+))?"
)
_DENIED = DENIED | {"403"}


class Denied(Rejected):
    """The caller may not make a call. The message names the action and the resource."""


class AwsSession:
    """The caller's AWS session. Raises Rejected if the profile does not exist, or if no region is set."""

    def __init__(self, region: str = "", profile: str = "") -> None:
        import boto3

        try:
            self.session = boto3.Session(
                profile_name=profile or None, region_name=region or os.environ.get("AWS_REGION") or None
            )
        except ProfileNotFound as error:
            profiles = ", ".join(boto3.Session().available_profiles) or "none"
            raise Rejected(f"--profile {profile!r}: {error}; profiles: {profiles}") from None
        self.region = str(self.session.region_name or "")
        if not self.region:
            raise Rejected("no AWS region is set: use --region, or set AWS_REGION")
        self._made: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """Return the client of a service."""
        if service not in self._made:
            try:
                self._made[service] = self.session.client(service, config=_CONFIG)
            except (BotoCoreError, NoRegionError) as error:
                raise Rejected(f"AWS configuration: {error}") from None
        return self._made[service]

    def credentials(self) -> Any:
        """Return the caller's credentials. Raises Rejected without any."""
        session_credentials = self.session.get_credentials()
        if session_credentials is None:
            raise Rejected(
                "no AWS credentials found: log in (aws sso login), use --profile, or set AWS_PROFILE"
            )
        return session_credentials


@contextmanager
def asking(action: str, resource: str) -> Iterator[None]:
    """Translate the errors of one AWS call. `action` is the IAM action, such as `eks:DescribeCluster`.

    Raises Denied, Transient, Rejected.
    """
    with all_errors(f"{action} ({resource})"):
        try:
            yield
        except NoCredentialsError:
            raise Rejected(
                "no AWS credentials found: log in (aws sso login), use --profile, or set AWS_PROFILE"
            ) from None
        except ClientError as error:
            if error_code(error) not in _DENIED:
                raise
            raise Denied(_denied(action, resource, error_message(error))) from None


def if_there(call: Callable[[], Any]) -> Any:
    """Return the response of a call, or None if its resource does not exist."""
    try:
        return call()
    except ClientError as error:
        if error_code(error) not in _NOT_THERE:
            raise
        return None


def _denied(action: str, resource: str, message: str) -> str:
    match = _DENIED_WORDS.search(message)
    named, arn = (match["action"], match["arn"]) if match else (action, None)
    return f"you are not allowed to call {named} on {arn or resource}"


class AwsCaller:
    """Makes AWS calls in one region. `denied` collects the calls that the caller may not make."""

    def __init__(self, client: Client, region: str) -> None:
        self.client, self.region = client, region
        self.denied: list[str] = []

    def ask(self, action: str, resource: str, read: Callable[[], Found], without: Found) -> Found:
        """Return the result of `read`, or `without` if access is denied. Raises Transient, Rejected."""
        try:
            with asking(action, resource):
                return read()
        except Denied as error:
            self.denied.append(str(error))
            return without
