"""What would let a NodePool buy again, by the sentence that says why it cannot."""

from __future__ import annotations

import re

from nodesmith.decisions.scheduling.offerings.obstacles import NO_RESERVATION, NO_SUBNET, NOT_SOLD

_OBSTACLES = (
    ("no instance type meets", "loosen the requirement that removes most instance types"),
    (
        "none of its",
        "wait until EC2 has capacity again, raise the quota, or allow more types, zones or capacity types",
    ),
    ("its DaemonSets ask", "allow larger instance types, or let the DaemonSets ask for less"),
    ("no instance type can boot", "let its EC2NodeClass select images of an architecture that it may buy"),
    ("its EC2NodeClass", "fix what the status of that EC2NodeClass shows"),
    ("it has spec.replicas", "create a NodePool without spec.replicas"),
    ("its last launch was refused", "fix what EC2 reports; the launch is retried automatically"),
)

_CAUSES = (
    ("is missing or not valid", "create it, correct nodeClassRef, or fix the field that its status shows"),
    ("is being deleted", "let another NodePool take the pods, or create it again"),
    (NO_SUBNET, "let the NodePool allow one of these zones, or add a subnet"),
    (NO_RESERVATION, "let its EC2NodeClass select a capacity reservation, or allow another capacity type"),
    (NOT_SOLD, "allow more instance types, zones or capacity types"),
)
"""What an obstacle says anywhere, and the remedy."""
_MEANT = re.compile(r"did you mean '[^']*'\?")


def of_obstacle(why: str) -> str:
    """Return what would let a NodePool buy again; empty if unknown."""
    meant = _MEANT.search(why)
    named = next((fix for what, fix in _CAUSES if what in why), "")
    return meant[0] if meant else named or first_fix(_OBSTACLES, why)


def first_fix(rows: tuple[tuple[str, str], ...], text: str) -> str:
    """Return the remedy of the first row whose beginning begins `text`; empty if there is none."""
    return next((fix for beginning, fix in rows if text.startswith(beginning)), "")
