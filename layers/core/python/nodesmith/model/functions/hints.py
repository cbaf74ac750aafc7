"""Messages between functions: hints, which say "look again", and invocations that wait.

A hint carries no state, so a lost or doubled one costs time only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nodesmith.errors import Rejected


class Concern(StrEnum):
    """The concerns that can be woken."""

    PROVISIONING = "provisioning"
    LIFECYCLE = "lifecycle"
    READINESS = "readiness"
    TERMINATION = "termination"
    CATALOG = "catalog"
    OBSERVATION = "observation"
    GARBAGECOLLECTION = "garbagecollection"
    REPAIR = "repair"
    INTERRUPTION = "interruption"
    ROUTING = "routing"
    DISRUPTION = "disruption"
    DISPATCH = "dispatch"


TICK_MINUTES = {
    Concern.PROVISIONING: 1,
    Concern.INTERRUPTION: 1,
    Concern.DISRUPTION: 1,
    Concern.LIFECYCLE: 1,
    Concern.TERMINATION: 1,
    Concern.READINESS: 5,
    Concern.OBSERVATION: 1,
    Concern.REPAIR: 1,
    Concern.GARBAGECOLLECTION: 2,
}
"""The concerns of a cluster, and how often dispatch wakes each, whatever was lost."""
REGION_TICK_MINUTES = {Concern.DISPATCH: 1, Concern.ROUTING: 1, Concern.CATALOG: 720}
"""The concerns of a region, and how often each is woken: routing so that a notice finds it warm.

Prices of the catalogue are to rank what can be bought, and CreateFleet goes by those of the moment. Karpenter asks for
them every twelve hours as well.
"""
SCHEDULED = (Concern.DISPATCH, Concern.CATALOG)
"""The concerns that a schedule invokes. Dispatch wakes routing, which costs less than a schedule of its own."""
TALKING = (
    Concern.DISRUPTION,
    Concern.LIFECYCLE,
    Concern.TERMINATION,
    Concern.READINESS,
    Concern.OBSERVATION,
    Concern.REPAIR,
    Concern.GARBAGECOLLECTION,
)
"""Those that talk to the API server: their functions may have to run in the cluster's VPC."""
INFORMED = (Concern.PROVISIONING, Concern.LIFECYCLE, Concern.READINESS, Concern.TERMINATION)
"""Those that are woken when observation has written a snapshot."""
WOKEN = (*INFORMED, Concern.DISRUPTION)
"""Those that the forwarder wakes, and that wake each other."""
MEASURED = (
    Concern.PROVISIONING,
    Concern.INTERRUPTION,
    Concern.DISRUPTION,
    Concern.LIFECYCLE,
    Concern.TERMINATION,
    Concern.READINESS,
    Concern.REPAIR,
    Concern.GARBAGECOLLECTION,
)
"""Those whose functions have metrics for Prometheus; each has an object for them."""


RETRY_SECONDS = (5, 5, 5, 10, 20, 40, 80, 160, 320)
"""How long a run that failed is put off, by how many have failed before it; the last one from then on.

EC2 gives two minutes before it takes a spot instance, so the first attempts come fast.
"""
MOST_ATTEMPTS = 15
"""Runs for one hint. They outlast an outage of half an hour."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Asks a concern to look at a cluster. `why` is for people only; `attempt` counts runs for it that have failed."""

    cluster: str
    why: str = ""
    attempt: int = 0

    def to_document(self) -> dict[str, Any]:
        """Write it as JSON."""
        attempt = {"attempt": self.attempt} if self.attempt else {}
        return {"cluster": self.cluster, "why": self.why, **attempt}

    @classmethod
    def from_document(cls, raw: object) -> Hint:
        """Read what `to_document` wrote. Raises Rejected with what was found."""
        if not isinstance(raw, dict) or not isinstance(raw.get("cluster"), str):
            raise Rejected(f"hint: expected an object with the text field 'cluster', found {_shown(raw)}")
        return cls(raw["cluster"], str(raw.get("why", ""))[:200], _attempt(raw))


@dataclass(frozen=True, slots=True)
class DelayedInvocation:
    """What a function is to be invoked with later: it waits in the region's queue.

    `vpc` is what cdk.json calls the VPC in which the function runs, empty for none. `payload` is the function's event.
    """

    concern: Concern
    vpc: str
    payload: Mapping[str, Any]

    def to_json(self) -> str:
        """Write the message body."""
        raw = {"concern": self.concern, "vpc": self.vpc, "payload": self.payload}
        return json.dumps(raw, separators=(",", ":"))

    @classmethod
    def from_json(cls, body: str) -> DelayedInvocation:
        """Read a message body. Raises Rejected with what was found."""
        try:
            raw = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Rejected(f"message body: expected a JSON object, found {body[:80]!r} ({error})") from None
        fields = raw if isinstance(raw, dict) else {}
        concern, vpc, payload = (fields.get(name) for name in ("concern", "vpc", "payload"))
        if concern not in list(Concern) or not isinstance(vpc, str) or not isinstance(payload, dict):
            raise Rejected(
                f"message body: expected the fields 'concern', 'vpc' and 'payload', found {body[:80]!r}"
            )
        return cls(Concern(concern), vpc, payload)


def hints_payload(hints: Sequence[Hint]) -> Mapping[str, Any]:
    """Return the event with which the function of a concern is asked to look at clusters."""
    return {"messages": [hint.to_document() for hint in hints]}


def hints_of(event: Mapping[str, Any]) -> tuple[list[Hint], list[str]]:
    """Read the hints of an event, and say of each message that cannot be read why not."""
    messages = event.get("messages")
    if not isinstance(messages, list):
        return [], [f"event: expected a list 'messages', found {_shown(event)}"]
    hints, faults = [], []
    for message in messages:
        try:
            hints.append(Hint.from_document(message))
        except Rejected as error:
            faults.append(str(error))
    return hints, faults


def retry_seconds(attempt: int) -> int | None:
    """Return how long to wait before a run that has failed `attempt` + 1 times is tried again; None: not at all."""
    if attempt + 1 >= MOST_ATTEMPTS:
        return None
    return RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]


def _attempt(raw: Mapping[str, Any]) -> int:
    attempt = raw.get("attempt", 0)
    return attempt if isinstance(attempt, int) and 0 <= attempt < MOST_ATTEMPTS else 0


def _shown(raw: object) -> str:
    return repr(str(raw)[:80])
