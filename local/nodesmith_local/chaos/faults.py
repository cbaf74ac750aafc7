"""The faults that `nodesmith chaos` can start in a local system, and that tests use."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.functions import Concern

Name = TypeVar("Name", bound=str)


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
    """The ways in which a service fails. Those after PARTITIONED are specific to one service."""

    SLOW = "slow"
    THROTTLED = "throttled"
    ERRORS = "errors"
    LATE = "late"
    PARTITIONED = "partitioned"
    CONCURRENCY = "concurrency"
    POISONED = "poisoned"
    SKEWED = "skewed"
    STALE = "stale"
    CORRUPTED = "corrupted"
    INTERRUPTED = "interrupted"


OF_ANY_SERVICE = (
    FaultKind.SLOW,
    FaultKind.THROTTLED,
    FaultKind.ERRORS,
    FaultKind.LATE,
    FaultKind.PARTITIONED,
)
FORWARDER = "forwarder"
"""The forwarder's name among the callers, beside the functions'."""
CALLERS = tuple(sorted([*map(str, Concern), FORWARDER]))
HALVES = frozenset(CALLERS[::2]), frozenset(CALLERS[1::2])
"""The two halves of the callers, of which a partition cuts off one."""
SLOW_SECONDS = 5.0
ANSWERED_OF = 3
"""Of so many calls of a throttled service, one is answered."""
SKEW = timedelta(minutes=4)
"""How far the clocks of one half of the functions are ahead, and those of the other half behind."""
DEFAULT_SECONDS, LONGEST_SECONDS = 30.0, 3600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one service. `callers` are the functions that it affects, and the forwarder; empty for all.

    `share` is the share of calls that it affects.
    """

    service: Service
    kind: FaultKind
    seconds: float
    callers: frozenset[str] = frozenset()
    share: float = 1.0

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
        """When the service works again."""
        return self.since + timedelta(seconds=self.fault.seconds)


# What `nodesmith chaos` offers

_CALLED_HERE = (
    Service.DYNAMODB,
    Service.S3,
    Service.SQS,
    Service.EC2,
    Service.API_SERVER,
    Service.SSM,
    Service.SCHEDULER,
    Service.EVENTS,
    Service.LAMBDA,
)
_NOT_CALLED = {
    Service.STS: "the functions of a local system have no sessions, so they do not call it",
    Service.PRICING: "the catalog function does not run in a local system, so nothing calls it",
}


@dataclass(frozen=True, slots=True)
class FaultType:
    """A fault that users can start: its effect, the services that it can hit, and where it shows.

    `share` is the usual share of calls that it affects, and `takes` the options that narrow it.
    """

    does: str
    shows: str
    services: Sequence[Service] = _CALLED_HERE
    share: float = 1.0
    takes: Sequence[str] = ("--function", "--share")


_LOG = "errors and retries in local.log, findings in `nodesmith status`"
FAULTS: Mapping[FaultKind, FaultType] = {
    FaultKind.SLOW: FaultType(
        f"each call takes {SLOW_SECONDS:g} seconds longer", "pods wait longer; the timeline of `local up`"
    ),
    FaultKind.THROTTLED: FaultType(
        "two of three calls are refused because of their rate", _LOG, share=1 - 1 / ANSWERED_OF
    ),
    FaultKind.ERRORS: FaultType("each call fails with an internal error", _LOG),
    FaultKind.LATE: FaultType(
        "each call takes effect, but its caller gets no answer", f"{_LOG}; nothing happens twice"
    ),
    FaultKind.PARTITIONED: FaultType("half of the functions cannot connect", _LOG),
    FaultKind.CONCURRENCY: FaultType(
        "Lambda has no concurrency left, so no function starts",
        "pods stay pending; nothing new in local.log",
        (Service.LAMBDA,),
    ),
    FaultKind.POISONED: FaultType(
        "functions get messages and events that cannot be read",
        "rejected messages in local.log, the dead-letter queue",
        (Service.LAMBDA,),
        takes=("--function",),
    ),
    FaultKind.SKEWED: FaultType(
        f"clocks of half of the functions are {SKEW.seconds // 60} minutes ahead, those of the others behind",
        "times in local.log; NodeClaims' conditions",
        (Service.LAMBDA,),
        takes=("--function",),
    ),
    FaultKind.STALE: FaultType(
        "functions read a snapshot as if it were an hour old",
        "pods stay pending, nothing is removed",
        (Service.S3,),
    ),
    FaultKind.CORRUPTED: FaultType(
        "functions read a snapshot that is cut in half", "rejected snapshots in local.log", (Service.S3,)
    ),
    FaultKind.INTERRUPTED: FaultType(
        "EC2 interrupts all spot instances in two minutes",
        "`nodesmith status`; replacements in the timeline",
        (Service.EC2,),
        takes=(),
    ),
}
"""The faults by kind."""


def faults_of(
    kind: str,
    services: Sequence[str] = (),
    functions: Sequence[str] = (),
    seconds: float = DEFAULT_SECONDS,
    share: float | None = None,
) -> tuple[Fault, ...]:
    """Return a fault of each of these services, of all that it can hit if there are none. Raises Rejected.

    `functions` are those that it affects. Without them it affects all, and a partition cuts off half of them.
    """
    fault_kind = _member(kind, FAULTS, "fault")
    for option, values in (("--function", functions), ("--share", share)):
        if values and option not in FAULTS[fault_kind].takes:
            raise Rejected(f"{option}: does not narrow {fault_kind}: leave it out")
    can_hit = FAULTS[fault_kind].services
    services_hit = (
        tuple(dict.fromkeys(_service(service, fault_kind, can_hit) for service in services)) or can_hit
    )
    if not 0 < seconds <= LONGEST_SECONDS:
        raise Rejected(
            f"a fault lasts more than 0 seconds and at most an hour, not {seconds:g} seconds: use --for 30s or the like"
        )
    part = FAULTS[fault_kind].share if share is None else share
    if not (math.isfinite(part) and 0 < part <= 1):
        raise Rejected(
            f"--share {part:g}: must be more than 0 and at most 1, such as 0.5 for half of the calls"
        )
    callers = frozenset(_member(function, CALLERS, "function") for function in functions)
    if fault_kind is FaultKind.PARTITIONED and not callers:
        callers = HALVES[0]
    fault = Fault(services_hit[0], fault_kind, seconds, callers, part)
    return tuple(replace(fault, service=service) for service in services_hit)


def _service(name: str, kind: FaultKind, can_hit: Collection[Service]) -> Service:
    service = _member(name, tuple(Service), "service")
    if service in _NOT_CALLED:
        raise Rejected(f"--service {name}: {_NOT_CALLED[service]}; there are {', '.join(_CALLED_HERE)}")
    if service not in can_hit:
        raise Rejected(f"--service {name}: {kind} is a fault of {', '.join(can_hit)}: leave out --service")
    return service


def _member(value: str, choices: Collection[Name], noun: str) -> Name:
    for name in choices:
        if value == name:
            return name
    hint = did_you_mean(value, [str(name) for name in choices]) or f": there are {', '.join(choices)}"
    raise Rejected(f"no {noun} is called {value!r}{hint}")
