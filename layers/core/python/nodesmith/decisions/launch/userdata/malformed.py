"""The error for user data that cannot be merged."""

from __future__ import annotations


class MalformedUserData(ValueError):
    """User data that cannot be merged with what the node needs.

    `line` is the first wrong line of `spec.userData`, counted from 1; 0 if the fault is in no single line.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.line = line


def line_at(text: str, position: int) -> int:
    """Return the number of the line that contains a position, counted from 1."""
    return text.count("\n", 0, position) + 1
