"""Ports of loopback: all programs' at once, so that no two get the same."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import dataclass

from nodesmith.errors import Rejected


@dataclass(frozen=True, slots=True)
class Ports:
    """One for each that listens."""

    apiserver: int
    etcd: int
    peers: int
    controllers: int
    scheduler: int
    kwok: int


def free_ports(apiserver: int = 0) -> Ports:
    """Choose free ports, the API server's own where 0. Raises Rejected where that one cannot be had."""
    with ExitStack() as stack:
        try:
            first = _bound(stack, apiserver)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise Rejected(f"--port {apiserver}: {why}: choose a free one, or 0 for any") from None
        return Ports(first, *(_bound(stack, 0) for _ in range(5)))


def _bound(stack: ExitStack, port: int) -> int:
    opened = stack.enter_context(socket.socket())
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the programs do
    opened.bind(("127.0.0.1", port))
    return int(opened.getsockname()[1])
