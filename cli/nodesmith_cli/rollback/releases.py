"""The releases of a region: which versions of its functions belong together, and which of them serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodesmith.errors import Rejected


@dataclass(frozen=True, slots=True)
class FunctionVersion:
    """A published version of a function. `release` is what it was deployed as."""

    function: str
    number: int
    release: str
    published_at: datetime


@dataclass(frozen=True, slots=True)
class Release:
    """Versions that were deployed together, by function; `serving` are those that the alias names today."""

    name: str
    deployed_at: datetime
    versions: Mapping[str, int]
    serving: frozenset[str]


def releases(versions: Iterable[FunctionVersion], live: Mapping[str, int]) -> list[Release]:
    """Group versions into releases, the newest first. `live` are the versions that serve, by function.

    Where a function has several versions of a release, the newest counts.
    """
    found: dict[str, dict[str, FunctionVersion]] = {}
    for version in sorted(versions, key=lambda each: each.number):
        if version.release:
            found.setdefault(version.release, {})[version.function] = version
    made = [
        Release(
            name,
            max(each.published_at for each in of_release.values()),
            {function: each.number for function, each in sorted(of_release.items())},
            frozenset(f for f, each in of_release.items() if live.get(f) == each.number),
        )
        for name, of_release in found.items()
    ]
    return sorted(made, key=lambda each: (each.deployed_at, each.name), reverse=True)


def target(known: Sequence[Release], asked: str, functions: Iterable[str]) -> Release:
    """Choose the release to return to: the one `asked` for, else the newest before that which serves.

    A switch that was cut off half way is gone on with: what some functions serve already is the target then. Raises
    Rejected where there is no such release, or where it lacks a function.
    """
    found = _asked(known, asked) if asked else _before(known)
    lacking = sorted(set(functions) - found.versions.keys())
    if lacking:
        raise Rejected(
            f"release {found.name} has no version of {', '.join(lacking)}: deploy that release again instead"
        )
    return found


def _asked(known: Sequence[Release], asked: str) -> Release:
    for release in known:
        if release.name == asked:
            return release
    names = ", ".join(each.name for each in known) or "none"
    raise Rejected(f"--to {asked}: there is no such release; there are: {names}")


def _before(known: Sequence[Release]) -> Release:
    serving = [each for each in known if each.serving]
    if len(serving) > 1:
        return serving[-1]
    older = known[known.index(serving[0]) + 1 :] if serving else []
    if not older:
        raise Rejected("there is no release before the one that serves")
    return older[0]
