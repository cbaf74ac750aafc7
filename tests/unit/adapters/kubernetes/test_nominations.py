"""Nominating many pods at once when some calls fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Manifest, Unfit
from nodesmith.adapters.kubernetes.writes import nominate
from nodesmith.errors import Conflict, NodesmithError, Transient

PODS = [f"default/web-{number}" for number in range(100)]
Answer = Callable[[str, int], NodesmithError | None]


class Answering(ApiServer):
    """An API server that counts attempts and returns given responses for each pod."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.tries: Counter[str] = Counter()

    def patch_if(self, path: str, operations: Sequence[Manifest], **how: Any) -> None:
        del operations, how
        self.tries[path] += 1
        error = self._answer(path, self.tries[path])
        if error is not None:
            raise error


def test_dead_connections_are_replaced_and_no_pod_is_skipped() -> None:
    dead = iter(range(8))  # as many as run in parallel
    server = Answering(lambda *_: Transient("Connection aborted.") if next(dead, None) is not None else None)

    nominate(server, "n1", PODS)

    assert len(server.tries) == 100
    assert server.tries.total() == 108


def test_a_call_that_fails_once_is_retried() -> None:
    unlucky = "/api/v1/namespaces/default/pods/web-7/status"
    server = Answering(lambda path, tries: Transient("503") if path == unlucky and tries == 1 else None)

    nominate(server, "n1", PODS)

    assert server.tries == Counter(
        {f"/api/v1/namespaces/default/pods/web-{n}/status": 2 if n == 7 else 1 for n in range(100)}
    )


@pytest.mark.parametrize("error", [Unfit("422 the server rejected our request"), Conflict("409")])
def test_a_pod_that_was_replaced_is_not_a_failure(error: NodesmithError) -> None:
    server = Answering(lambda *_: error)

    nominate(server, "n1", PODS)

    assert set(server.tries.values()) == {1}


def test_an_unresponsive_server_does_not_get_a_request_for_every_pod() -> None:
    server = Answering(lambda *_: Transient("read timed out", "Timeout"))

    with pytest.raises(
        Transient, match=r"100 pods not nominated for Node n1, default/web-0 first: read timed out"
    ):
        nominate(server, "n1", PODS)

    assert server.tries.total() <= 32, "eight at a time, in each of two rounds, and those on their way"
