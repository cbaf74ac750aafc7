"""Parallel small writes for many items, with a second attempt for transient failures."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from nodesmith.errors import Transient

READ_SECONDS = 5.0
"""Read timeout of one write, short because others wait for it."""
_AT_ONCE = 8
_ROUNDS = 2  # in the first, connections may be dead because the function was frozen

Item = TypeVar("Item", bound=Hashable)
Answer = TypeVar("Answer")


def for_each(
    items: Sequence[Item], write: Callable[[Item], Answer], failed: str, at_once: int = _AT_ONCE
) -> dict[Item, Answer]:
    """Call `write` for each distinct item, mostly a pod's `namespace/name`, and return the results in order.

    Raises Transient if items remain after two rounds. `failed` describes them in its message: `pods not evicted`.
    """
    answers: dict[Item, Answer] = {}
    left = list(dict.fromkeys(items))
    with ThreadPoolExecutor(at_once) as threads:
        for _ in range(_ROUNDS):
            error = _round(left, write, answers, threads, at_once)
            if error is None:
                return {item: answers[item] for item in dict.fromkeys(items)}
            left = [item for item in left if item not in answers]
            failure = Transient(f"{len(left)} {failed}, {left[0]} first: {error}", error.code)
    raise failure


def _round(
    items: Sequence[Item],
    write: Callable[[Item], Answer],
    answers: dict[Item, Answer],
    threads: Executor,
    most_failures: int,
) -> Transient | None:
    """Try each item once and return the first failure, if any. Stop after `most_failures` failures."""
    errors: list[Transient] = []

    def attempt(item: Item) -> None:
        if len(errors) >= most_failures:
            return
        try:
            answers[item] = write(item)
        except Transient as error:
            errors.append(error)

    for _ in threads.map(attempt, items):
        pass
    return next(iter(errors), None)
