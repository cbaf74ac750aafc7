"""One small write for each of many pods: several at once, and a second time for those that fail for now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import quote

from nodesmith.errors import Transient

READ_SECONDS = 5.0
"""How long one write is waited for: others wait behind it."""
_AT_ONCE = 8
_ROUNDS = 2  # in the first a frozen function may find that its connections have died

Answer = TypeVar("Answer")


def for_each_pod(pods: Sequence[str], write: Callable[[str], Answer], failed: str) -> dict[str, Answer]:
    """Write for each pod (namespace/name); gives the answers, ordered as `pods`.

    Raises Transient for those that two rounds have left, with what `failed`, such as `not evicted`.
    """
    answers: dict[str, Answer] = {}
    left = list(dict.fromkeys(pods))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in range(_ROUNDS):
            error = _round(left, write, answers, threads)
            if error is None:
                return {pod: answers[pod] for pod in dict.fromkeys(pods)}
            left = [pod for pod in left if pod not in answers]
            failure = Transient(f"{len(left)} pods {failed}, {left[0]} first: {error}", error.code)
    raise failure


def _round(
    pods: Sequence[str], write: Callable[[str], Answer], answers: dict[str, Answer], threads: Executor
) -> Transient | None:
    """Try each pod once, but no more after as many failures as calls at once; give the first of them."""
    errors: list[Transient] = []

    def attempt(pod: str) -> None:
        if len(errors) >= _AT_ONCE:
            return
        try:
            answers[pod] = write(pod)
        except Transient as error:
            errors.append(error)

    for _ in threads.map(attempt, pods):
        pass
    return next(iter(errors), None)


def pod_path(pod: str, subresource: str = "") -> str:
    """Give where the API server keeps a pod (namespace/name). Names come from outside, and are no paths."""
    namespace, _, name = pod.partition("/")
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path
