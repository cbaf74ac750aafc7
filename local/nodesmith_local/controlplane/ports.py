"""Loopback ports, chosen for all programs at once, so that no two programs get the same."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from dataclasses import dataclass

from nodesmith.errors import Rejected

# Below the range of outgoing connections (from 32768 on Linux). Otherwise, while the API server is away, a client that
# connects to its port may get that same port as its source, connect to itself, and keep the server from coming back.
_RANGE = (20_000, 32_000)
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Ports:
    """One port for each listener."""

    apiserver: int
    etcd: int
    peers: int
    controllers: int
    scheduler: int
    kwok: int


def free_ports(apiserver: int = 0) -> Ports:
    """Choose free ports, for the API server only if `apiserver` is 0. Raises Rejected if its port is not available."""
    with ExitStack() as stack:
        try:
            first = _bound(stack, apiserver) if apiserver else _any(stack)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Rejected(f"--port {apiserver}: {reason}: choose a free one, or 0 for any") from None
        return Ports(first, *(_any(stack) for _ in range(5)))


def _any(stack: ExitStack) -> int:
    for _ in range(_TRIES):
        try:
            return _bound(stack, random.randrange(*_RANGE))  # noqa: S311 to be free is enough
        except OSError:
            continue
    raise Rejected(f"found no free port from {_RANGE[0]} to {_RANGE[1]} on 127.0.0.1: end what listens there")


def _bound(stack: ExitStack, port: int) -> int:
    opened = stack.enter_context(socket.socket())
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the programs do
    opened.bind(("127.0.0.1", port))
    return port
