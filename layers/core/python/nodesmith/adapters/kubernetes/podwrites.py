"""One small write for each of many: several at once, and a second time for those that fail for now."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from nodesmith.errors import Transient

READ_SECONDS = 5.0
"""How long one write is waited for: others wait behind it."""
_AT_ONCE = 8
_ROUNDS = 2  # in the first a frozen function may find that its connections have died

Item = TypeVar("Item", bound=Hashable)
Answer = TypeVar("Answer")


def for_each(
    items: Sequence[Item], write: Callable[[Item], Answer], failed: str, at_once: int = _AT_ONCE
) -> dict[Item, Answer]:
    """Write for each item, a pod's `namespace/name` mostly; gives the answers, in the same order.

    Raises Transient for those that two rounds have left, with what `failed`, such as `pods not evicted`.
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
    """Try each once, but no more after so many failures; give the first of them."""
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
