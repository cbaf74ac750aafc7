"""Faults of the services that functions call, or that call functions: one description for tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from nodesmith.model.functions import Concern


class Service(StrEnum):
    """The services."""

    DYNAMODB = "dynamodb"
    S3 = "s3"
    SQS = "sqs"
    EC2 = "ec2"
    API_SERVER = "apiserver"
    STS = "sts"
    PRICING = "pricing"
    SSM = "ssm"
    SCHEDULER = "scheduler"
    EVENTS = "events"
    LAMBDA = "lambda"


class FaultKind(StrEnum):
    """The ways in which a service fails."""

    SLOW = "slow"
    """Each call takes five seconds."""
    THROTTLED = "throttled"
    """Two of three calls are refused because of their rate."""
    ERRORS = "errors"
    """Each call fails with an internal error."""
    LATE = "late"
    """Each call takes effect, but its caller gets no answer."""
    PARTITIONED = "partitioned"
    """Half of the functions cannot connect."""


FORWARDER = "forwarder"
"""The forwarder's name among the callers, beside the functions'."""
CALLERS = tuple(sorted([*map(str, Concern), FORWARDER]))
HALVES = frozenset(CALLERS[::2]), frozenset(CALLERS[1::2])
"""The two halves of the callers, of which a partition cuts off one."""
SLOW_SECONDS = 5.0
ANSWERED_OF = 3
"""Of so many calls of a throttled service, one is answered."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one service. `callers` are the functions that it affects, and the forwarder; empty for all."""

    service: Service
    kind: FaultKind
    seconds: float
    callers: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Its service and kind."""
        return f"{self.service}-{self.kind}"

    def affects(self, service: str, caller: str) -> bool:
        """Return whether a caller's call of a service meets the fault."""
        return service == self.service and (not self.callers or caller in self.callers)


@dataclass(frozen=True, slots=True)
class Lasting:
    """A fault, and since when it lasts."""

    fault: Fault
    since: datetime

    @property
    def until(self) -> datetime:
        """When the service is well again."""
        return self.since + timedelta(seconds=self.fault.seconds)
