"""Messages of objects and Events, limited to the length that Kubernetes and the ledger allow."""

from __future__ import annotations

LONGEST_MESSAGE = 1024
"""maximum number of characters in the message of an Event or a condition, which may quote user input"""
AWAITING = "AwaitingReconciliation", "object is awaiting reconciliation"
"""Karpenter's reason and message for a condition whose status is not known yet."""


def shortened(message: str) -> str:
    """Return a message, truncated if it is too long."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"
