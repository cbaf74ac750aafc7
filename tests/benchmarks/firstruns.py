"""One process of a function: the processor time of its start with the first run, and of later ones, as JSON.

    python -P tests/benchmarks/firstruns.py express other

Looks at the cluster `express`, a few times again, and then at `other`. The environment is the function's, and `handler`
on the path. Without SESSION_ROLE_ARN the function works for all clusters with its own clients.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from functools import cache
from typing import Any

from botocore.session import get_session

from nodesmith import parts
from nodesmith.model.functions.hints import Hint, hints_payload

AGAIN = 5


class OwnClients:
    """As much of a botocore session as functions use, that makes the client of a service once for all clusters."""

    def __init__(self) -> None:
        self._session: Any = get_session()
        self._made = cache(self._make)

    def create_client(self, service: str, *, region_name: str, config: Any) -> Any:
        """Return the client of a service; none of STS, which nobody asks but for a session."""
        return None if service == "sts" else self._made(service, region_name, config)

    def get_component(self, name: str) -> Any:
        """Return what the session has by this name."""
        return self._session.get_component(name)

    def get_credentials(self) -> Any:
        """Return what requests are signed with."""
        return self._session.get_credentials()

    def _make(self, service: str, region: str, config: Any) -> Any:
        return self._session.create_client(service, region_name=region, config=config)


def main(first: str, further: str) -> None:
    """Look at both clusters, and write what that took, in ms of processor time."""
    if "SESSION_ROLE_ARN" not in os.environ:
        own = OwnClients()
        parts.set_session(lambda concern, cluster: own)  # noqa: ARG005 the same for all
    handler = importlib.import_module("handler")

    def look(cluster: str) -> float:
        started = time.process_time()
        handler.handler(hints_payload([Hint(cluster, "benchmark")]), None)
        return (time.process_time() - started) * 1000

    look(first)
    start = time.process_time() * 1000
    told = {"start": start, "again": min(look(first) for _ in range(AGAIN)), "further": look(further)}
    print(json.dumps(told), file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:3])
