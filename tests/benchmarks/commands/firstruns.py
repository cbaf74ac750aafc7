"""Measure one process of a function: the processor time of its start with the first run, and of later runs, as JSON.

    python -P tests/benchmarks/commands/firstruns.py express other

Runs for the cluster `express`, a few times again, and then for `other`. The environment is the function's, and
`handler` is on the path. Without SESSION_ROLE_ARN, the function uses its own clients for all clusters.
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

from nodesmith.composition import parts
from nodesmith.model.functions import Hint, hints_payload

AGAIN = 5


class OwnClients:
    """The parts of a botocore session that functions use; it creates each service's client once for all clusters."""

    def __init__(self) -> None:
        self._session: Any = get_session()
        self._made = cache(self._make)

    def create_client(self, service: str, *, region_name: str, config: Any) -> Any:
        """Return a service's client, but None for STS, which is only needed for sessions."""
        return None if service == "sts" else self._made(service, region_name, config)

    def get_component(self, name: str) -> Any:
        """Return a component of the session."""
        return self._session.get_component(name)

    def get_credentials(self) -> Any:
        """Return the credentials for signing requests."""
        return self._session.get_credentials()

    def _make(self, service: str, region: str, config: Any) -> Any:
        return self._session.create_client(service, region_name=region, config=config)


def main(first: str, further: str) -> None:
    """Run for both clusters, and write the processor time in ms."""
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
    reported = {"start": start, "again": min(look(first) for _ in range(AGAIN)), "further": look(further)}
    print(json.dumps(reported), file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:3])
