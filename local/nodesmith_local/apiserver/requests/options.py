"""Query parameters, checked as a real server checks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodesmith_formats.kubernetes.errors import (
    ApiError,
    FieldProblem,
    bad_request,
    forbidden_field,
    internal,
    invalid,
    unsupported,
)
from nodesmith_local.apiserver.requests.messages import Request

_MATCH = "resourceVersionMatch"
_WRITES = {
    "POST": "CreateOptions",
    "PUT": "UpdateOptions",
    "PATCH": "PatchOptions",
    "DELETE": "DeleteOptions",
}
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


def check_list(request: Request) -> int:
    """Check the parameters of a list and return the oldest revision that it accepts. Raises ApiError 400 or 422."""
    version, match = request.query.get("resourceVersion", ""), request.query.get(_MATCH, "")
    if request.query.get("continue") and version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    _refuse("ListOptions", _list_problems(version, match))
    if not version.isdecimal() and version:
        raise bad_request(f"invalid resource version: {_unreadable(version)}")
    return int(version or 0)


def check_watch(request: Request) -> int | None:
    """Check the parameters of a watch and return the revision to start after, or None to start with all objects.

    Raises ApiError 422 or 500.
    """
    version, match = request.query.get("resourceVersion", ""), request.query.get(_MATCH, "")
    _refuse("ListOptions", _watch_problems("sendInitialEvents" in request.query, match))
    if not version.isdecimal() and version:
        raise internal(_unreadable(version))
    return None if request.flag("sendInitialEvents") else int(version or 0) or None


def check_write(request: Request) -> None:
    """Check the parameters of a write. Raises ApiError 422."""
    _refuse(
        _WRITES.get(request.method, ""), _write_problems(request.query, deletes=request.method == "DELETE")
    )


def expect_revision(expected: int, current: int) -> None:
    """Raise ApiError 504 if a list asks for a revision in the future."""
    if expected > current:
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        message = f"Timeout: Too large resource version: {expected}, current: {current}"
        raise ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})


def _refuse(options: str, problems: Iterator[FieldProblem]) -> None:
    found_problems = list(problems)
    if found_problems:
        raise invalid(f"{options}.meta.k8s.io", "", found_problems)


def _list_problems(version: str, match: str) -> Iterator[FieldProblem]:
    if match and not version:
        yield forbidden_field(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided")
    if match == "Exact" and version == "0":
        yield forbidden_field(_MATCH, f'{_MATCH} "Exact" is forbidden for resourceVersion "0"')
    if match not in ("", "Exact", "NotOlderThan"):
        yield unsupported(_MATCH, match, ("Exact", "NotOlderThan", ""))


def _watch_problems(initial: bool, match: str) -> Iterator[FieldProblem]:
    if initial and match != "NotOlderThan":
        yield forbidden_field(_MATCH, f"sendInitialEvents requires setting {_MATCH} to NotOlderThan")
    if match and not initial:
        yield forbidden_field(_MATCH, f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided")


def _write_problems(query: Mapping[str, str], *, deletes: bool) -> Iterator[FieldProblem]:
    dry_run, validation = query.get("dryRun", "All"), query.get("fieldValidation", "")
    if dry_run not in ("", "All"):
        yield unsupported("dryRun", [dry_run], ("All",))
    if validation not in _VALIDATIONS and not deletes:
        yield unsupported("fieldValidation", validation, _VALIDATIONS)


def _unreadable(version: str) -> str:
    return (
        f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
    )
