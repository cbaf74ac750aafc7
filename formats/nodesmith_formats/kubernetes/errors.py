"""Refusals of the server, as a real server's Status bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodesmith_formats.kubernetes.objects import Object


class ApiError(Exception):
    """A refusal: HTTP status `code`, machine-readable `reason`, human-readable `message`, optional `details`."""

    def __init__(
        self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})

    def status(self) -> Object:
        """Return the metav1.Status body."""
        body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body |= {"message": self.message} | ({"reason": self.reason} if self.reason else {})
        if self.details:
            body["details"] = self.details
        return body | {"code": self.code}


class Undecodable(ApiError):
    """400 for an object that its kind's type cannot hold.

    `decoder_message` is the part of the message that the decoder writes. `unknown` lists the paths of unknown fields.
    """

    def __init__(self, kind: str, version: str, decoder_message: str, unknown: Sequence[str] = ()) -> None:
        super().__init__(
            400,
            "BadRequest",
            f'{kind} in version "{version}" cannot be handled as a {kind}: {decoder_message}',
        )
        self.decoder_message = decoder_message
        self.unknown = tuple(unknown)


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One problem with one field. `cause` is a metav1 CauseType such as FieldValueInvalid."""

    field: str
    cause: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required(field: str, detail: str = "") -> FieldProblem:
    """Return the problem of a missing `field`."""
    return FieldProblem(field, "FieldValueRequired", f"Required value{': ' + detail if detail else ''}")


def invalid_value(field: str, value: object, detail: str) -> FieldProblem:
    """Return the problem of a `field` whose value breaks a rule."""
    return FieldProblem(field, "FieldValueInvalid", f"Invalid value: {_quoted(value)}: {detail}")


def unsupported(field: str, value: object, choices: Sequence[object]) -> FieldProblem:
    """Return the problem of a `field` whose value is not one of `choices`."""
    listed = ", ".join(_quoted(choice) for choice in choices)
    return FieldProblem(
        field, "FieldValueNotSupported", f"Unsupported value: {_quoted(value)}: supported values: {listed}"
    )


def forbidden_field(field: str, detail: str) -> FieldProblem:
    """Return the problem of a `field` that must not be set, or must not be changed."""
    return FieldProblem(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> FieldProblem:
    """Return the problem of a list that holds the same key twice."""
    return FieldProblem(field, "FieldValueDuplicate", f"Duplicate value: {_quoted(value)}")


def not_found(resource: str, name: str) -> ApiError:
    """404 for an object; `resource` is the plural with its group (`nodepools.karpenter.sh`)."""
    return ApiError(404, "NotFound", f'{resource} "{name}" not found', _details(resource, name))


def no_such_path() -> ApiError:
    """404 for a path that the server does not serve."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: str, name: str) -> ApiError:
    """409 for a create under a name that is already in use."""
    return ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists', _details(resource, name))


def conflict(resource: str, name: str, detail: str) -> ApiError:
    """409 for a write that lost a race, or whose precondition does not hold."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {detail}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def forbidden(qualified: str, name: str, detail: str) -> ApiError:
    """403 for an operation that is not allowed on an object; `qualified` is `resource.group`."""
    message = f'{qualified} "{name}" is forbidden: {detail}'
    return ApiError(403, "Forbidden", message, _details(qualified, name))


def modified(resource: str, name: str) -> ApiError:
    """409 for a resourceVersion that is no longer the newest."""
    detail = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, detail)


def invalid(kind: str, name: str, problems: Sequence[FieldProblem]) -> ApiError:
    """422 with one cause for each problem; `kind` includes its group (`Deployment.apps`)."""
    texts = [str(problem) for problem in problems]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": p.cause, "message": p.message, "field": p.field} for p in problems]
    details = {**_details(kind, name), "causes": causes}
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def bad_request(message: str) -> ApiError:
    """400 for a request that the server cannot interpret."""
    return ApiError(400, "BadRequest", message)


def internal(message: str) -> ApiError:
    """500 without a reason, for requests to which a real server responds with it."""
    return ApiError(500, "", message)


def expired(message: str) -> ApiError:
    """410 for a resourceVersion, or a continue token, older than the server's history."""
    return ApiError(410, "Expired", message)


def _details(qualified: str, name: str) -> Object:
    """Return the details of a Status; `qualified` is the object's plural or kind, with the group."""
    kind, _, group = qualified.partition(".")
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def _quoted(value: object) -> str:
    return json.dumps(value, separators=(",", ":")) if not isinstance(value, float) else f"{value:g}"
