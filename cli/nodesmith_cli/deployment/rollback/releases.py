"""The releases of a region: the function versions that belong together, and those that are live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodesmith.errors import Rejected
from nodesmith.registration import TRIAL_SUFFIX


@dataclass(frozen=True, slots=True)
class FunctionVersion:
    """A published version of a function. `release` is the release it was deployed with, or empty."""

    function: str
    number: int
    release: str
    published_at: datetime


@dataclass(frozen=True, slots=True)
class Release:
    """Versions that were deployed together, by function. `serving` are the functions whose alias points to them."""

    name: str
    deployed_at: datetime
    versions: Mapping[str, int]
    serving: frozenset[str]


def releases(versions: Iterable[FunctionVersion], live: Mapping[str, int]) -> list[Release]:
    """Group versions into releases, newest first. `live` are the live versions, by function.

    If a function has several versions of a release, the newest counts.
    """
    function_versions: dict[str, dict[str, FunctionVersion]] = {}
    for version in sorted(versions, key=lambda each: each.number):
        if version.release:
            function_versions.setdefault(version.release, {})[version.function] = version
    made = [
        Release(
            name,
            max(function_version.published_at for function_version in of_release.values()),
            {function: function_version.number for function, function_version in sorted(of_release.items())},
            frozenset(
                f for f, function_version in of_release.items() if live.get(f) == function_version.number
            ),
        )
        for name, of_release in function_versions.items()
    ]
    return sorted(made, key=lambda each: (each.deployed_at, each.name), reverse=True)


def target(candidates: Sequence[Release], requested: str, functions: Iterable[str]) -> Release:
    """Return the release to roll back to: the one `requested` for, else the newest one before the live release.

    A release that was only on trial may have failed there, so it has to be asked for.
    An interrupted rollback is continued: its target is the release that some functions run already. Raises Rejected if
    there is no such release, or if it lacks a function.
    """
    release = _asked(candidates, requested) if requested else _before(candidates)
    lacking = sorted(set(functions) - release.versions.keys())
    if lacking:
        raise Rejected(
            f"release {release.name} has no version of {', '.join(lacking)}: redeploy that release instead"
        )
    return release


def _asked(candidates: Sequence[Release], requested: str) -> Release:
    for release in candidates:
        if release.name == requested:
            return release
    names = ", ".join(known_release.name for known_release in candidates) or "none"
    raise Rejected(f"--to {requested}: no such release; releases: {names}")


def _before(candidates: Sequence[Release]) -> Release:
    serving = [release for release in candidates if release.serving]
    if len(serving) > 1:
        return serving[-1]
    older = candidates[candidates.index(serving[0]) + 1 :] if serving else []
    older = [release for release in older if not release.name.endswith(TRIAL_SUFFIX)]
    if not older:
        raise Rejected("there is no release before the live one")
    return older[0]
