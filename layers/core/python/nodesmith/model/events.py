"""Hints: messages that say "look again". They carry no state, so a lost or doubled one costs time only."""

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


def parse_hint(body: str, cluster: str) -> Hint:
    """Read a message body that must be meant for `cluster`. Raises Rejected with what was found."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"message body: expected a JSON object, found {body[:80]!r} ({error})") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("cluster"), str):
        raise Rejected(f"message body: expected an object with the text field 'cluster', found {body[:80]!r}")
    if raw["cluster"] != cluster:
        raise Rejected(
            f"message field 'cluster': this queue serves {cluster!r}, found {raw['cluster'][:80]!r}"
        )
    return Hint(cluster, str(raw.get("why", ""))[:200])
