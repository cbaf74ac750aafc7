"""Requests to an API server, sent again where it says that what stands in their way will pass.

It says so by a Retry-After header, with 429 or a status of 500 and more: client-go repeats those, writes too. Also
waited for without the header are a 503, and a kind whose watch cache is being filled ("storage is (re)initializing").
A 429 without it is no such word: thus an eviction is refused that a disruption budget does not allow.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 2.0
_INITIALIZING = b"storage is (re)initializing"


def send_patiently(send: Callable[[], Any], patience_seconds: float) -> Any:
    """Return the client's response to a request: the last one after `patience_seconds` of what passes.

    `send` sends it once, and what it raises is raised. A wait that would outlast the patience is not begun.
    """
    until, pause = monotonic() + patience_seconds, _FIRST_PAUSE_SECONDS
    while True:
        response = send()
        if not passes(response):
            return response
        wait = max(pause, _asked_seconds(response))
        if monotonic() + wait > until:
            return response
        response.read()  # so that its connection can be used again
        sleep(wait)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def passes(response: Any) -> bool:
    """Return whether the server says of a refusal that it will pass."""
    if response.status != 429 and response.status < 500:
        return False
    is_said = response.status == 503 or _asked_seconds(response) > 0
    return bool(is_said or _INITIALIZING in response.read())


def _asked_seconds(response: Any) -> float:
    """Return what Retry-After says; 0 where it says nothing, or names a date, which no API server does."""
    told = str(response.getheader("Retry-After") or "")
    return float(told) if told.isascii() and told.isdigit() else 0.0
