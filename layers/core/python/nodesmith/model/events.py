"""Messages between functions: hints, which say "look again", and events of EC2 that are passed on to a cluster.

A hint carries no state, so a lost or doubled one costs time only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

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
REGION_TICK_MINUTES = {Concern.DISPATCH: 1, Concern.ROUTING: 1, Concern.CATALOG: 360}
"""The concerns of a region, and how often a schedule invokes each: routing so that a notice finds it warm.

Prices of the catalogue are to rank what can be bought, and CreateFleet goes by those of the moment. Karpenter asks for
them every twelve hours.
"""
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


@dataclass(frozen=True, slots=True)
class Hint:
    """`cluster` says for whom, `why` is for people only."""

    cluster: str
    why: str = ""

    def to_json(self) -> str:
        """Write the message body."""
        return json.dumps({"cluster": self.cluster, "why": self.why}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class PassedEvent:
    """An event of EC2 or AWS Health, as EventBridge sent it (JSON), and the cluster that it concerns."""

    cluster: str
    event: str

    def to_json(self) -> str:
        """Write the message body."""
        return json.dumps({"cluster": self.cluster, "event": self.event}, separators=(",", ":"))


def parse_message(body: str) -> Hint | PassedEvent:
    """Read a message body. Raises Rejected with what was found."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"message body: expected a JSON object, found {body[:80]!r} ({error})") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("cluster"), str):
        raise Rejected(f"message body: expected an object with the text field 'cluster', found {body[:80]!r}")
    event = raw.get("event")
    if event is None:
        return Hint(raw["cluster"], str(raw.get("why", ""))[:200])
    if not isinstance(event, str):
        raise Rejected(
            f"message field 'event': expected the JSON of an event as text, found {str(event)[:80]!r}"
        )
    return PassedEvent(raw["cluster"], event)
