"""The error for a NodeClass that selects what the account does not have."""

from __future__ import annotations


class Unresolved(Exception):
    """An error that becomes a condition of the NodeClass.

    `reason` is a single word. `message` describes what was found and how to fix it.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
