"""Iteration over the paginated lists of AWS APIs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def rows(client: Any, call: str, key: str, **asked: Any) -> Iterator[Any]:
    """Yield the items under `key` from all pages of a call such as `describe_subnets`. Raises botocore's errors."""
    for page in client.get_paginator(call).paginate(**asked):
        yield from page[key]
