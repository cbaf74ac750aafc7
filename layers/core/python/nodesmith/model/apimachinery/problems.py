"""Reports to users about their objects: problems, so that their authors can fix them, and Events.

`kubectl describe` shows Events, whose messages have a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

_OWN_DOMAIN = "nodesmith.dev/"
_LONGEST_TYPO = 100
_NEAR = 0.75
"""the minimum similarity of a suggestion, as in difflib"""
_STEM = 4
"""The fewest letters at which the beginning of a name is enough: `architecture` for `arch`."""


def meant(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the words in `known` that are closest to `word`, at most `most` of them; empty if none is close."""
    return [] if len(word) > _LONGEST_TYPO else [*_closest(word, tuple(sorted(known)), most)]


@lru_cache(maxsize=64)  # the search takes milliseconds, and several NodePools ask for the same
def _closest(word: str, known: tuple[str, ...], most: int) -> tuple[str, ...]:
    alike = [candidate for candidate in known if candidate.lower() == word.lower()]
    return tuple(
        alike[:most] or get_close_matches(word, [k for k in known if _is_near(word, k)], most, _NEAR)
    )


def _is_near(word: str, candidate: str) -> bool:
    """Return whether two keys are alike beyond their domain, which may be most of their letters."""
    name, other = word.partition("/")[2], candidate.partition("/")[2]
    if not (name and other):
        return True
    is_longer = min(len(name), len(other)) >= _STEM and (name.startswith(other) or other.startswith(name))
    return is_longer or bool(get_close_matches(name, (other,), 1, _NEAR))


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the closest word in `known`, empty if none is close."""
    return "".join(f"did you mean {candidate!r}?" for candidate in meant(word, known))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the suggestion as the end of a sentence: `, did you mean 'x'?`, empty if no word is close."""
    hint = suggestion(word, known)
    return f", {hint}" if hint else ""


T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of one field. A `fatal` problem makes its object unusable, but no other object."""

    object: str
    """Kind and name: `NodePool/default`."""
    field: str
    """Path in the manifest: `spec.template.spec.requirements[0].operator`."""
    found: str
    """The value of the field, shortened."""
    remedy: str
    """What would be right."""
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.object}: {self.field} is {self.found}: {self.remedy}"


class Parsed(NamedTuple, Generic[T_co]):
    """The outcome of reading a manifest: a value, or None if a problem is fatal, and all problems."""

    value: T_co | None
    problems: tuple[Problem, ...] = ()

    @property
    def fatal(self) -> tuple[Problem, ...]:
        """The problems that prevent a value."""
        return tuple(problem for problem in self.problems if problem.fatal)


_MOST_PARSED = 300
"""How many results of one kind are kept. A manifest and its value have a few kilobytes."""


class ParseOnce(Generic[T_co]):
    """Parses all manifests of a snapshot, each with `parse`, and remembers the results.

    A decision parses the same manifests half a dozen times. A snapshot never changes, so the same tuple always holds
    the same manifests. The next snapshot is another tuple, in which most manifests have the same text as before.
    """

    def __init__(self, parse: Callable[[Mapping[str, object]], Parsed[T_co]]) -> None:
        self._parse = parse
        self._last: tuple[tuple[Mapping[str, object], ...], tuple[Parsed[T_co], ...]] = (), ()
        self._known: dict[str, Parsed[T_co]] = {}

    def __call__(self, manifests: tuple[Mapping[str, object], ...]) -> tuple[Parsed[T_co], ...]:
        """Return the parsed manifests in their order."""
        of, parsed = self._last
        if manifests is not of:
            parsed = tuple(map(self._parsed, manifests))
            self._last = manifests, parsed
        return parsed

    def _parsed(self, manifest: Mapping[str, object]) -> Parsed[T_co]:
        text = repr(manifest)  # equal manifests may differ: 1 == True
        parsed = self._known.get(text)
        if parsed is None:
            parsed = self._parse(manifest)
            if len(self._known) >= _MOST_PARSED:
                self._known.clear()
            self._known[text] = parsed
        return parsed


_MOST_PROBLEMS = 50
_FEW = 8


class Report:
    """Collects the problems of one object. `fatal` counts those that make it unusable, whether kept or not."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._problems: list[Problem] = []
        self.fatal = 0

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems that were kept, in the order of the fields."""
        return tuple(self._problems)

    @property
    def is_full(self) -> bool:
        """True if further problems would not be kept."""
        return len(self._problems) >= _MOST_PROBLEMS

    def add(self, field: str, found: str, remedy: str, *, fatal: bool = True) -> None:
        """Add a problem. A full report still keeps its first fatal one."""
        if not self.is_full or (fatal and not self.fatal):
            self._problems.append(Problem(self._name, field, found, remedy, fatal))
        self.fatal += fatal


def nearest(name: object, known: tuple[str, ...]) -> str:
    """Suggest a replacement for a name that is not known."""
    hint = suggestion(name, known) if isinstance(name, str) else ""
    return hint or (f"use one of {', '.join(known)}" if len(known) <= _FEW else "leave it out")


def at(path: str, key: object) -> str:
    """Return the path of a map's entry: `limits.cpu`, `labels[example.com/team]`."""
    if isinstance(key, str) and len(key) <= 63 and key.isascii() and key.replace("-", "").isalnum():
        return f"{path}.{key}" if path else key
    return f"{path}[{key[:63] if isinstance(key, str) else shown(key)}]"


def shown(value: object) -> str:
    """Return a short description of a value of any size."""
    match value:
        case str():
            return repr(value) if len(value) <= 60 else f"{value[:57]!r}…"
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case int() if abs(value) > 2**64:
            return "a number beyond 64 bits"
        case int() | float():
            return repr(value)
        case [] | [_] | [_, _] if all(isinstance(item, str) and len(item) <= 30 for item in value):
            return repr(list(value))
        case list() | tuple():
            return f"a list of {len(value)}"
        case Mapping():
            return f"a map of {len(value)}"
        case _:
            return f"a {type(value).__name__}"


LONGEST_MESSAGE = 1024
"""maximum number of characters in the message of an Event or a condition, which may quote user input"""
AWAITING = "AwaitingReconciliation", "object is awaiting reconciliation"
"""Karpenter's reason and message for a condition whose status is not known yet."""


def shortened(message: str) -> str:
    """Return a message, truncated if it is too long."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An Event about a cluster-scoped object or a pod (`namespace/name`). Repeating the same Event adds no new one."""

    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False
    uid: str = field(default="", compare=False)
    """The uid of the object if it is known; otherwise it is looked up."""

    def __str__(self) -> str:
        return f"{self.reason} of {self.kind} {self.name}"


def report_unknown_annotations(
    annotations: Mapping[str, str], known: Collection[str], owner: str, report: Report
) -> None:
    """Report annotations of nodesmith that are not `known`, as without effect. `owner` has the known ones."""
    for key in sorted(annotations):
        if key.startswith(_OWN_DOMAIN) and key not in known:
            remedy = f"not an annotation of {owner}{did_you_mean(key, known)}; it has no effect"
            report.add(at("metadata.annotations", key), shown(annotations[key]), remedy, fatal=False)
