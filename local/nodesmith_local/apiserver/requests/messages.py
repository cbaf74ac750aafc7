"""Requests and replies, independent of HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from nodesmith_formats.kubernetes.errors import ApiError, bad_request
from nodesmith_local.apiserver.requests import protobuf


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `path` is decoded and has no query."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = "application/json"
    content_type: str = "application/json"
    user_agent: str = ""
    body: bytes = b""

    def flag(self, name: str) -> bool:
        """Return a boolean parameter, parsed as Go does."""
        return self.query.get(name, "") in ("1", "t", "true", "True", "TRUE")

    def number(self, name: str) -> int | None:
        """Return an integer parameter, or None if it is absent. Raises ApiError 400."""
        text = self.query.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError as error:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax ({name})') from error

    def decoded(self) -> Any:
        """Return the parsed body: JSON, YAML or protobuf by its content type. Raises ApiError 400 or 415."""
        kind = self.content_type.partition(";")[0].strip()
        if kind == protobuf.MEDIA_TYPE:
            return protobuf.decoded(self.body)
        if "cbor" in kind:
            accepted = f"application/json, application/yaml, {protobuf.MEDIA_TYPE}"
            message = (
                f"the body of the request was in an unknown format - accepted media types include: {accepted}"
            )
            raise ApiError(415, "UnsupportedMediaType", message)
        try:
            return (
                yaml.safe_load(self.body)
                if "yaml" in kind and not _is_json(self.body)
                else json.loads(self.body)
            )
        except (ValueError, yaml.YAMLError) as error:
            raise bad_request(f"the object provided is unrecognized: {error}") from error


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer."""

    body: bytes
    code: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


NO_SUCH_PAGE = Reply(b"404 page not found\n", 404, "text/plain; charset=utf-8")  # for paths outside any API


@dataclass(frozen=True, slots=True)
class Stream:
    """A streamed answer: frames until the iterator ends. An empty frame checks whether the client still listens."""

    frames: Iterator[bytes]


def reply(value: Any, code: int = 200, warnings: tuple[str, ...] = ()) -> Reply:
    """Return an answer with a JSON body."""
    return Reply(json.dumps(value, separators=(",", ":")).encode(), code, warnings=warnings)


def _is_json(body: bytes) -> bool:
    return body.lstrip()[:1] in (b"{", b"[")
