"""Asking AWS, one call after the other, and gathering what the caller may not ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from nodesmith_cli.connecting.clients import Client, Denied, asking
from nodesmith_cli.connecting.observed import MADE_TAG

Found = TypeVar("Found")


class Asker:
    """Asks AWS in one region. What the caller has no right to is gathered in `denied`, to be told at once."""

    def __init__(self, client: Client, region: str) -> None:
        self.client, self.region = client, region
        self.denied: list[str] = []

    def ask(self, action: str, resource: str, read: Callable[[], Found], without: Found) -> Found:
        """Return what is read, or `without` where that is refused. Raises Transient, Rejected."""
        try:
            with asking(action, resource):
                return read()
        except Denied as error:
            self.denied.append(str(error))
            return without


def is_made(tags: Mapping[str, str] | None, cluster: str) -> bool:
    """Return whether `connect` has made what has these tags."""
    return (tags or {}).get(MADE_TAG) == cluster
