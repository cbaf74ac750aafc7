"""AWS's lists, which come in pages, read as one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def rows(client: Any, call: str, key: str, **asked: Any) -> Iterator[Any]:
    """Yield what all pages of a call (`describe_subnets`) hold under `key`, as they come. Raises botocore's errors."""
    for page in client.get_paginator(call).paginate(**asked):
        yield from page[key]
