"""Faults of the services that the functions call: one description for `nodesmith chaos`, tests and benchmarks.

A running local system keeps its faults in parameters of its Parameter Store, where other processes start and stop them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.functions.hints import Concern

FAULT_PARAMETERS = "/local/faults"
"""The path of the parameters that hold a local system's faults, each under the fault's name."""


class Service(StrEnum):
    """The services that functions and forwarder call, or that call functions."""

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
    THROTTLED = "throttled"
    ERRORS = "errors"
    LATE = "late"
    PARTITIONED = "partitioned"


MEANINGS = {
    FaultKind.SLOW: "each call takes five seconds",
    FaultKind.THROTTLED: "two of three calls are refused because of their rate",
    FaultKind.ERRORS: "each call fails with an internal error",
    FaultKind.LATE: "each call takes effect, but its caller gets no answer",
    FaultKind.PARTITIONED: "half of the functions cannot connect",
}
FORWARDER = "forwarder"
"""The forwarder's name among the callers, beside the functions'."""
CALLERS = tuple(sorted([*map(str, Concern), FORWARDER]))
HALVES = frozenset(CALLERS[::2]), frozenset(CALLERS[1::2])
"""The callers that a partition cuts off, and the others."""
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
        """The name by which users start and stop it."""
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

    def to_json(self) -> str:
        """Write the fault as the value of its parameter."""
        fault = self.fault
        return json.dumps(
            {
                "service": fault.service,
                "kind": fault.kind,
                "seconds": fault.seconds,
                "callers": sorted(fault.callers),
                "since": format_time(self.since),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Lasting:
        """Read what `to_json` wrote."""
        raw = json.loads(text)
        callers = frozenset(raw["callers"])
        fault = Fault(Service(raw["service"]), FaultKind(raw["kind"]), float(raw["seconds"]), callers)
        return cls(fault, parse_time(raw["since"]))


def faults() -> Iterator[Fault]:
    """Yield every fault that has a name, without a duration."""
    for service in Service:
        for kind in FaultKind:
            yield Fault(service, kind, 0.0, HALVES[0] if kind is FaultKind.PARTITIONED else frozenset())


def fault_named(name: str, seconds: float = 0.0) -> Fault:
    """Return the fault with this name. Raises Rejected for an unknown name, with the most similar one."""
    known = {fault.name: fault for fault in faults()}
    if name not in known:
        hint = did_you_mean(name, known) or ": `nodesmith chaos --list` names all faults"
        raise Rejected(f"{name[:100]!r}: there is no fault of this name{hint}")
    return replace(known[name], seconds=seconds)
