"""Errors by what we do about them, never by what caused them.

NodesmithError
├── Rejected      the message or object is wrong and will stay wrong: count it, say why, acknowledge it
├── Transient     the outside failed for now: raise, be redelivered, carry on from the committed intent
└── Conflict      somebody decided first: look again

No capacity is not here: it is knowledge (`model.launches.NoCapacity`), recorded with a growing back-off.
"""


class NodesmithError(Exception):
    """Base of all errors that nodesmith raises on purpose."""


class Rejected(NodesmithError):
    """Input that no retry can mend. The message names object, field, value and remedy."""


class Transient(NodesmithError):
    """A call that may succeed later: throttling, time-outs, 5xx. `code` is the provider's own word."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class Conflict(NodesmithError):
    """A conditional write lost: the state it was decided on is no longer the newest."""
