"""Carrying out one step for each of many claims, possibly concurrently. A failure does not affect other claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import randrange
from typing import Protocol, TypeVar

from nodesmith.errors import Conflict, Failures, Rejected, Transient
from nodesmith.model.commands import Command, Release, SingleEnding

Item = TypeVar("Item")
Result = TypeVar("Result")
Step = TypeVar("Step", bound=SingleEnding | Release | Command)


class Spread(Protocol):
    """Apply a function to each item and return the results in order, as `map` or an executor's `map` does."""

    def __call__(self, work: Callable[[Item], Result], items: Iterable[Item], /) -> Iterable[Result]: ...


def in_turn(work: Callable[[Item], Result], items: Iterable[Item], /) -> Iterable[Result]:
    """Process the items one after the other."""
    return map(work, items)


def from_anywhere(spread: Spread, drawn: Callable[[int], int] = randrange) -> Spread:
    """Return a `Spread` that begins at a random item, so that two runs over the same items share the work.

    `drawn` returns a random number below its argument.
    """

    def rotated(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterable[Result]:
        every = list(items)
        first = drawn(len(every)) if every else 0
        came = list(spread(work, [*every[first:], *every[:first]]))
        wrapped = len(every) - first
        return [*came[wrapped:], *came[:wrapped]]

    return rotated


def each(
    spread: Spread,
    steps: Sequence[Step],
    work: Callable[[Step], Result],
    done: Counter[str],
    failures: Failures,
) -> Mapping[str, Result | Conflict | Transient | Rejected]:
    """Carry out one step for each claim; return the results by claim name, which may be exceptions.

    Successful steps are counted in `done` by their type, conflicts as "Conflict". Other errors are added to `failures`.
    """

    def attempt(step: Step) -> Result | Conflict | Transient | Rejected:
        try:
            return work(step)
        except (Conflict, Transient, Rejected) as error:
            return error

    came = list(spread(attempt, steps))
    for step, result in zip(steps, came, strict=True):
        match result:
            case Conflict():
                done["Conflict"] += 1
            case Transient() | Rejected() as error:
                failures.add(error, f"NodeClaim {step.claim.name}")
            case _:
                done[type(step).__name__] += 1
    return {step.claim.name: result for step, result in zip(steps, came, strict=True)}


def failed(came: Mapping[str, object]) -> set[str]:
    """Return the names of the claims whose step failed, so that later steps must wait."""
    return {name for name, result in came.items() if isinstance(result, Transient | Rejected)}
