"""What a NodeClass asks for and the account does not have."""

from __future__ import annotations


class Unresolved(Exception):
    """Becomes a condition of the NodeClass: `reason` in one word, the message with what was found and what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
