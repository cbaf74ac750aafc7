"""Retrying requests to an API server that declares a failure temporary.

It does so with a Retry-After header on a 429 or a 5xx, which client-go retries as well, including writes. Without the
header, a 503 is retried, and so is a kind whose watch cache is being filled ("storage is (re)initializing"). A 429
without the header is not temporary: it is how a disruption budget refuses an eviction.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

from urllib3 import BaseHTTPResponse

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 2.0
_INITIALIZING = b"storage is (re)initializing"


def send_patiently(send: Callable[[], BaseHTTPResponse], patience_seconds: float) -> BaseHTTPResponse:
    """Return the response to a request, retrying temporary failures for up to `patience_seconds`.

    `send` sends the request once; its errors propagate. If the next wait would exceed the limit, the last response is
    returned at once.
    """
    until, pause = monotonic() + patience_seconds, _FIRST_PAUSE_SECONDS
    while True:
        response = send()
        if not passes(response):
            return response
        wait = max(pause, _asked_seconds(response))
        if monotonic() + wait > until:
            return response
        response.read()  # so that the connection can be reused
        sleep(wait)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def passes(response: BaseHTTPResponse) -> bool:
    """Return whether a response is a failure that the server declares temporary."""
    if response.status != 429 and response.status < 500:
        return False
    is_said = response.status == 503 or _asked_seconds(response) > 0
    return bool(is_said or _INITIALIZING in response.data)


def _asked_seconds(response: BaseHTTPResponse) -> float:
    """Return the seconds in Retry-After, or 0 if it is missing or a date, which no API server sends."""
    told = str(response.headers.get("Retry-After") or "")
    return float(told) if told.isascii() and told.isdigit() else 0.0
