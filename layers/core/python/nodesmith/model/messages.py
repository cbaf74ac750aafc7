"""What objects and Events say, no longer than Kubernetes and the ledger take."""

from __future__ import annotations

LONGEST_MESSAGE = 1024
"""characters of an Event's message, as of those of conditions: they quote what people have written"""


def shortened(message: str) -> str:
    """Give a message, its end cut off where it is too long."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"
