"""Objects that functions in one process share: AWS's API models, and clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any
from unittest.mock import patch

from botocore import useragent
from botocore.loaders import JSONFileLoader, Loader
from botocore.session import get_session

from nodesmith_local.functions.loopdetection import add_header

_read = cache(JSONFileLoader().load_file)


def _load(path: str) -> Any:
    """Read a model once, and copy the part that botocore changes: an S3 client rewrites its operations' paths."""
    model = _read(path)
    if not model or "operations" not in model:
        return model
    operations = model["operations"].items()
    return {
        **model,
        "operations": {name: {**op, "http": dict(op.get("http", {}))} for name, op in operations},
    }


_list_services = Loader.list_available_services


@cache
def _services(type_name: str, *search_paths: str) -> list[str]:
    loader = Loader(list(search_paths), include_default_search_paths=False)
    return list(_list_services(loader, type_name))


def _listed(loader: Loader, type_name: str) -> list[str]:
    """List the services that have a model of this type once, since that walks through four hundred folders."""
    return list(_services(type_name, *loader.search_paths))


@contextmanager
def models_are_shared() -> Iterator[None]:
    """Share the models between sessions that are opened in the block; saves a third of the start-up time.

    Each call composes its user agent twice of forty strings, which are checked character by character once.
    """
    clean = cache(useragent.sanitize_user_agent_string_component)
    with (
        patch.object(useragent, "sanitize_user_agent_string_component", clean),
        patch.object(JSONFileLoader, "load_file", staticmethod(_load)),
        patch.object(Loader, "list_available_services", _listed),
    ):
        yield


class SharedClients:
    """The part of a botocore session that functions use; it creates each client once, for all threads."""

    def __init__(self) -> None:
        self._session = get_session()
        for service in ("lambda", "sqs"):  # the called services through which Lambda follows chains
            self._session.register(f"before-call.{service}", add_header)  # as botocore does in Lambda
        self._lock = Lock()
        self._made: dict[tuple[str, str, object], Any] = {}

    def create_client(self, service: str, *, region_name: str, config: Any) -> Any:
        """Return the client of a service with exactly this configuration."""
        key = service, region_name, config
        with self._lock:
            if key not in self._made:
                self._made[key] = self._session.create_client(service, region_name=region_name, config=config)
            return self._made[key]

    def get_credentials(self) -> Any:
        """Return the credentials that sign requests."""
        with self._lock:
            return self._session.get_credentials()
