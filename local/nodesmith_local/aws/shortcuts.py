"""Faster versions of code that moto runs for every request; the responses stay the same."""

from __future__ import annotations

import copy
import string
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from random import Random
from typing import Any
from unittest.mock import patch

from moto import backends
from moto.core import responses, serialize
from moto.dynamodb.models import table as tables
from moto.dynamodb.models.dynamo_type import Item
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.tags import EC2_PREFIX_TO_RESOURCE, get_prefix
from moto.eks import utils as eks
from moto.moto_api._internal.moto_random import MotoRandom
from moto.moto_server import werkzeug_app
from moto.sqs import models as queues

_FROM_NAMES_ALONE = (
    (responses, "camelcase_to_underscores"),
    (queues, "camelcase_to_underscores"),
    (eks, "Session"),  # whose partitions it lists for each cluster
    (serialize.xmltodict, "_validate_name"),  # of each element of an answer
)
_NONE = object()


@contextmanager
def shortcuts() -> Iterator[None]:
    """Let moto in this process use the faster versions until the end of the block."""
    # moto lists its own folder hundreds of times.
    modules = frozenset(backends.list_of_moto_modules())
    with ExitStack() as stack:
        stack.enter_context(patch.object(backends, "list_of_moto_modules", lambda: modules))
        for module, function in _FROM_NAMES_ALONE:
            stack.enter_context(patch.object(module, function, cache(getattr(module, function))))
        names = _once_a_class(responses.method_names_from_class)
        stack.enter_context(patch.object(responses, "method_names_from_class", names))
        stack.enter_context(patch.object(TaggedEC2Resource, "get_tags", _own_tags))
        stack.enter_context(patch.object(Item, "project", _projected(Item.project)))
        stack.enter_context(patch.object(tables.Table, "all_items", _in_order))
        stack.enter_context(patch.object(tables, "copy", _Copies))
        for picker in (serialize.AttributePicker, serialize.XFormedAttributePicker):
            stack.enter_context(
                patch.object(picker, "get_possible_keys", _once_a_shape(picker.get_possible_keys))
            )
        stack.enter_context(patch.object(serialize.AttributePicker, "__call__", _picked))
        stack.enter_context(patch.object(MotoRandom, "get_random_string", _random_string))
        # No browser calls this server, so answers need no CORS headers.
        stack.enter_context(patch.object(werkzeug_app, "DISABLE_GLOBAL_CORS", True))
        enriched = staticmethod(_enriched(responses.BaseResponse._enrich_response))  # noqa: SLF001
        stack.enter_context(patch.object(responses.BaseResponse, "_enrich_response", enriched))
        yield


def _own_tags(resource: Any) -> list[dict[str, str]]:
    """Return a resource's tags as `describe_tags` does, but without searching the tags of all resources."""
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(resource.id), "") if resource.id else ""
    return [
        {"resource_id": resource.id, "key": key, "value": value, "resource_type": kind}
        for key, value in list(resource.ec2_backend.tags.get(resource.id, {}).items())
    ]


def _in_order(table: tables.Table) -> list[Item]:
    """Return a table's items sorted by key; each key is converted once instead of at each comparison."""
    partitions: list[Any] = list(table.items.values())
    items: list[Item] = (
        [item for partition in partitions for item in partition.values()]
        if table.range_key_attr
        else partitions
    )

    def keys(item: Item) -> tuple[Any, ...]:
        own = item.hash_key.cast_value
        return (own, item.range_key.cast_value) if item.range_key else (own,)

    return sorted(items, key=keys)


class _Copies:
    """A stand-in for `copy` in a table: it copies a list of items only shallowly.

    A query's result is serialized before another request runs.
    """

    copy = staticmethod(copy.copy)

    @staticmethod
    def deepcopy(value: Any) -> Any:
        is_found = isinstance(value, list) and all(isinstance(item, Item) for item in value)
        return list(value) if is_found else copy.deepcopy(value)


def _projected(project: Callable[[Item, list[list[str]]], Item]) -> Callable[[Item, list[list[str]]], Item]:
    """Project attributes without conversion; moto converts the whole item to Python and back to resolve paths."""

    def projected(item: Item, paths: list[list[str]]) -> Item:
        if any(len(path) > 1 or "[" in path[0] for path in paths):
            return project(item, paths)
        part = Item(item.hash_key, item.range_key, {})
        attributes = {name: item.attrs[name] for (name,) in paths if name in item.attrs}
        dict.update(part.attrs, attributes)  # sizes were measured when the item was put
        return part

    return projected


def _once_a_class(names: Callable[[type], list[str]]) -> Callable[[type], list[str]]:
    """List the methods of a class once, and again when it has got or lost some: `eks.access` adds methods."""
    cached: dict[tuple[Any, ...], list[str]] = {}

    @wraps(names)
    def method_names(kind: type) -> list[str]:
        cache_key = (kind, *(len(vars(base)) for base in kind.__mro__))
        method_list = cached.get(cache_key)
        if method_list is None:
            method_list = cached[cache_key] = names(kind)
        return method_list

    return method_names


def _once_a_shape(possible: Callable[[Any, Any], Iterable[str]]) -> Callable[[Any, Any], Iterable[str]]:
    """Compute the possible attribute names of a shape's member once; most classes lack most members."""
    cached: dict[tuple[Any, ...], tuple[str, ...]] = {}

    @wraps(possible)
    def possible_keys(picker: Any, context: Any) -> Iterable[str]:
        cache_key = (type(picker), context.shape, type(context.obj), context.key)
        keys = cached.get(cache_key)
        if keys is None:
            keys = cached[cache_key] = tuple(dict.fromkeys(possible(picker, context)))
        return keys

    return possible_keys


def _picked(picker: serialize.AttributePicker, context: serialize.AttributePickerContext) -> Any:
    """Return the value of a shape's member; most have no transformer, which one comparison tells."""
    value = None
    for key in picker.get_possible_keys(context):
        picked = serialize.get_value(context.obj, key, _NONE)
        if picked is not _NONE:
            value = picked
            break
    path, transformers = f"{context.key_path}.{context.key}", picker.response_transformers
    if path.endswith(tuple(transformers)):
        return next(change for end, change in transformers.items() if path.endswith(end))(value)
    return value


def _random_string(
    luck: Random, length: int = 20, include_digits: bool = True, lower_case: bool = False
) -> str:
    """Draw all characters at once: every answer of DynamoDB has a request id of 52 characters."""
    pool = string.ascii_letters + (string.digits if include_digits else "")
    drawn = "".join(luck.choices(pool, k=length))
    return drawn.lower() if lower_case else drawn


def _enriched(enrich: Callable[[dict[str, str], Any], Any]) -> Callable[[dict[str, str], Any], Any]:
    """Search for a request id only in answers that have one."""

    def enriched(headers: dict[str, str], body: Any) -> Any:
        if isinstance(body, str) and "<RequestId>" not in body:
            return enrich(headers, "")[0], body
        return enrich(headers, body)

    return enriched
