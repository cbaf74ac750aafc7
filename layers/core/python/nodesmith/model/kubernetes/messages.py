"""What objects and Events say, no longer than Kubernetes and the ledger take."""

from __future__ import annotations

LONGEST_MESSAGE = 1024
"""characters of an Event's message, as of those of conditions: they quote what people have written"""
AWAITING = "AwaitingReconciliation", "object is awaiting reconciliation"
"""Reason and message of a condition of which nothing is known yet, in Karpenter's words."""


def shortened(message: str) -> str:
    """Return a message, its end cut off where it is too long."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"
