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
    """Return the release to roll back to: the one `asked` for, else the newest one before the live release.

    A release that was only on trial may have failed there, so it has to be asked for.
    An interrupted rollback is continued: its target is the release that some functions run already. Raises Rejected if
    there is no such release, or if it lacks a function.
    """
    found = _asked(known, asked) if asked else _before(known)
    lacking = sorted(set(functions) - found.versions.keys())
    if lacking:
        raise Rejected(
            f"release {found.name} has no version of {', '.join(lacking)}: redeploy that release instead"
        )
    return found


def _asked(known: Sequence[Release], asked: str) -> Release:
    for release in known:
        if release.name == asked:
            return release
    names = ", ".join(each.name for each in known) or "none"
    raise Rejected(f"--to {asked}: no such release; releases: {names}")


def _before(known: Sequence[Release]) -> Release:
    serving = [each for each in known if each.serving]
    if len(serving) > 1:
        return serving[-1]
    older = known[known.index(serving[0]) + 1 :] if serving else []
    older = [each for each in older if not each.name.endswith(TRIAL_SUFFIX)]
    if not older:
        raise Rejected("there is no release before the live one")
    return older[0]
