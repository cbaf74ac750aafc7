"""Read calls to AWS that collect missing permissions instead of failing on the first one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from nodesmith_cli.access.awssession import Client, Denied, asking
from nodesmith_cli.connecting.observed import MADE_TAG

Found = TypeVar("Found")


class Asker:
    """Makes AWS calls in one region. `denied` collects the calls that the caller may not make."""

    def __init__(self, client: Client, region: str) -> None:
        self.client, self.region = client, region
        self.denied: list[str] = []

    def ask(self, action: str, resource: str, read: Callable[[], Found], without: Found) -> Found:
        """Return the result of `read`, or `without` if access is denied. Raises Transient, Rejected."""
        try:
            with asking(action, resource):
                return read()
        except Denied as error:
            self.denied.append(str(error))
            return without


def is_made(tags: Mapping[str, str] | None, cluster: str) -> bool:
    """Return whether `connect` created the resource with these tags."""
    return (tags or {}).get(MADE_TAG) == cluster
