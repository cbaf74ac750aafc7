"""Decoder for Kubernetes' protobuf format, which newer kubectl versions send for built-in kinds.

There is no encoder: every client that sends this format accepts JSON answers.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from struct import error as StructError  # noqa: N812 a class, named as one
from struct import unpack
from typing import Any

from nodesmith_formats.kubernetes.builtin import Field, fields_of, type_of
from nodesmith_formats.kubernetes.errors import bad_request
from nodesmith_formats.kubernetes.objects import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decoded(body: bytes) -> Object:
    """Return the object in a protobuf body with its envelope (runtime.Unknown). Raises ApiError 400."""
    if not body.startswith(_MAGIC):
        raise bad_request(
            "the object provided is unrecognized: a protobuf body must begin with k8s and a zero byte"
        )
    try:
        envelope = dict(_parts(body[len(_MAGIC) :]))
        names = dict(_parts(envelope.get(1, b"")))
        api_version, kind = names.get(1, b"").decode(), names.get(2, b"").decode()
        struct = type_of(api_version.rpartition("/")[0], kind)
        if not fields_of(struct):
            raise bad_request(f'no kind "{kind}" is registered for version "{api_version}"')
        return {"apiVersion": api_version, "kind": kind, **_message(envelope.get(2, b""), struct)}
    except (IndexError, StructError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise bad_request(f"the object provided is unrecognized: protobuf: {error}") from error


def _message(body: bytes, struct: str) -> Object:
    fields = {field.number: (name, field) for name, field in fields_of(struct).items()}
    message: Object = {}
    for number, encoded in _parts(body):
        if number not in fields:
            continue
        name, field = fields[number]
        if "inline" in field.words:
            message |= _message(encoded, field.type)
        elif field.type.startswith("[]"):
            message.setdefault(name, []).append(_value(encoded, field.type[2:]))
        elif field.type.startswith("map[string]"):
            entry = dict(_parts(encoded))
            message.setdefault(name, {})[entry.get(1, b"").decode()] = _value(
                entry.get(2, b""), field.type[11:]
            )
        else:
            message |= _single(name, field, _value(encoded, field.type))
    return message


def _single(name: str, field: Field, value: Any) -> Object:
    """Return the field, or nothing for a zero value that Go encodes only because it cannot omit the field."""
    return {name: value} if value not in ("", 0, False, {}, None) or "*" in field.words else {}


def _value(encoded: Any, kind: str) -> Any:
    match kind:
        case "string":
            return encoded.decode()
        case "bytes":
            return b64encode(encoded).decode()
        case "bool":
            return bool(encoded)
        case "int32" | "int64":
            return encoded - (1 << 64) if encoded >= 1 << 63 else encoded
        case "float64":
            return unpack("<d", encoded)[0]
        case "Quantity":
            return dict(_parts(encoded)).get(1, b"0").decode()
        case "IntOrString":
            parts = dict(_parts(encoded))
            return parts.get(3, b"").decode() if parts.get(1) else _value(parts.get(2, 0), "int64")
        case "Time" | "MicroTime":
            return _time(encoded, "microseconds" if kind == "MicroTime" else "seconds")
        case "any":
            inner = dict(_parts(encoded)).get(1, b"")
            return json.loads(inner) if inner[:1] in (b"{", b"[", b'"') else None
        case _:
            return _message(encoded, kind)


def _time(encoded: bytes, precision: str) -> str | None:
    parts = dict(_parts(encoded))
    if not parts:
        return None
    moment = _EPOCH + timedelta(
        seconds=_value(parts.get(1, 0), "int64"), microseconds=parts.get(2, 0) // 1000
    )
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _parts(body: bytes) -> Iterator[tuple[int, Any]]:
    """Yield field numbers with raw values: integers for varints, bytes for anything else."""
    position = 0
    while position < len(body):
        key, position = _varint(body, position)
        match key & 7:
            case 0:
                value, position = _varint(body, position)
                yield key >> 3, value
            case 1:
                yield key >> 3, body[position : position + 8]
                position += 8
            case 2:
                size, position = _varint(body, position)
                if position + size > len(body):
                    raise IndexError("it ends in the middle of a field")
                yield key >> 3, body[position : position + size]
                position += size
            case 5:
                yield key >> 3, body[position : position + 4]
                position += 4
            case other:
                raise TypeError(f"wire type {other} is not used by Kubernetes")


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
