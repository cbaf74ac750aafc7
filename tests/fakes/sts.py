"""A fake STS that has its own clock, for the sessions of clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.session import Session, get_session

from nodesmith.adapters.aws.registrations import cluster_session
from nodesmith.registration import Registration
from tests.builders import NOW

ROLE = "arn:aws:iam::123456789012:role/nodesmith-provisioning-us-east-1"


@dataclass(slots=True)
class FakeSts:
    """An STS client that returns credentials for an hour, STS's default.

    `asked` has the arguments of each AssumeRole call. Calls fail while `is_away` is set, and are denied while `denies`
    is.
    """

    clock: Callable[[], datetime]
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    is_away: bool = False
    denies: bool = False

    def assume_role(self, **named: Any) -> Mapping[str, Any]:
        if self.is_away:
            raise EndpointConnectionError(endpoint_url="https://sts.us-east-1.amazonaws.com")
        if self.denies:
            message = f"User is not authorized to perform: sts:AssumeRole on resource: {named['RoleArn']}"
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": message}}, "AssumeRole")
        self.asked.append(named)
        number = len(self.asked)
        given = {
            "AccessKeyId": f"key-{number}",
            "SecretAccessKey": "secret",
            "SessionToken": f"token-{number}",
        }
        return {"Credentials": {**given, "Expiration": self.clock() + timedelta(hours=1)}}


@dataclass(slots=True)
class Process:
    """The sessions of one function process."""

    now: datetime = NOW
    sts: FakeSts = field(init=False)
    base: Session = field(default_factory=get_session)

    def __post_init__(self) -> None:
        self.sts = FakeSts(lambda: self.now)

    def session(self, cluster: str) -> Session:
        """Return a session for a cluster."""
        registration = Registration(cluster, f"vpc-{cluster}", ("nodes",))
        return cluster_session(self.base, self.sts, ROLE, registration, lambda: self.now)


def key_id(session: Any) -> str:
    """Return the access key that currently signs a session's requests."""
    return str(session.get_credentials().get_frozen_credentials().access_key)


def asked_in(span: timedelta, *clusters: str, every: timedelta) -> int:
    """Return the number of AssumeRole calls of a process that runs for these clusters (default: one) repeatedly."""
    process = Process()
    sessions = [process.session(cluster) for cluster in clusters or ("express",)]
    for _ in range(span // every):
        for session in sessions:
            key_id(session)
        process.now += every
    return len(process.sts.asked)
