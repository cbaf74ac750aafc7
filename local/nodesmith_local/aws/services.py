"""What moto lacks, added to both its server and `mock_aws`: services, and the clock of a local system."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from moto import backend_index, backends

Answer = tuple[int, Mapping[str, str], str]
"""The status, headers and body of an answer."""


@contextmanager
def timed_by(now: Callable[[], datetime]) -> Iterator[None]:
    """Let instances and objects have the times of a clock during the block. It may run faster than the machine's."""
    # Not at the top: strict accounts import this module before they say which images moto must not load.
    from moto.ec2.models import instances
    from moto.s3 import models as s3

    def utcnow() -> datetime:
        return now().replace(tzinfo=None)

    with patch.object(instances, "utcnow", utcnow), patch.object(s3, "utcnow", utcnow):
        yield


@contextmanager
def serving(
    service: str,
    host: re.Pattern[str],
    urls: Iterable[str],
    routes: Iterable[str],
    answer: Callable[[str, str, bytes], Answer],
) -> Iterator[None]:
    """Let moto answer a service's calls during the block.

    `host` matches the service's addresses, `urls` are patterns of the addresses of its calls, and `routes` are Flask's
    rules for their paths. `answer` gets the method, the path or address, and the body of a request.
    """
    get_backend = backends.get_backend

    def answered(request: Any, url: str, headers: Any) -> Answer:
        del headers
        body = request.get_data() if hasattr(request, "get_data") else request.body
        return answer(request.method, str(getattr(request, "path", "") or url), body or b"")

    backend = SimpleNamespace(urls=dict.fromkeys(urls, answered), flask_paths=dict.fromkeys(routes, answered))

    def with_ours(name: Any) -> Any:
        return {"global": backend} if name == service else get_backend(name)

    entry = (service, host)
    with patch.object(backends, "get_backend", with_ours):
        backend_index.backend_url_patterns.append(entry)
        try:
            yield
        finally:
            backend_index.backend_url_patterns.remove(entry)
