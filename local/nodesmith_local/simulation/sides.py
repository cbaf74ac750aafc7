"""Runs simulations of several sides and seeds next to each other, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import product
from typing import Any

from nodesmith.errors import Rejected
from nodesmith_local.simulation.simulation import Simulation
from nodesmith_local.simulation.trace import Chances, Trace

Outcome = Mapping[str, Any]


class _Stopped(Exception):
    """The parent waits for no outcome any more."""


_LOOK_EVERY_SECONDS = 0.3
_PROCESSES = multiprocessing.get_context("spawn")
"""Child processes without shared state. A fork would copy the threads of this process in any state."""
_state: dict[str, Any] = {}
"""The input of a child process, set once when the child starts."""


def simulate(
    sides: Mapping[str, Trace],
    seeds: Sequence[int],
    chances: Chances,
    jobs: int,
    on_progress: Callable[[float], None] = lambda _: None,
) -> dict[str, list[Outcome]]:
    """Simulate each side with each seed; return the outcomes by side, in the order of `seeds`.

    `jobs` is how many run at once; with one, they run in this process. `on_progress` gets the share that is done.
    Raises Rejected if a process dies, which lack of memory is the usual cause of.
    """
    tasks = list(product(sides, seeds))
    if jobs <= 1 or len(tasks) == 1:
        outcomes = []
        for number, (side, seed) in enumerate(tasks):
            outcomes.append(_alone(sides[side], seed, chances, number, len(tasks), on_progress))
    else:
        outcomes = _side_by_side(sides, tasks, chances, jobs, on_progress)
    grouped: dict[str, list[Outcome]] = {side: [] for side in sides}
    for (side, _), outcome in zip(tasks, outcomes, strict=True):
        grouped[side].append(outcome)
    return grouped


def _alone(
    trace: Trace, seed: int, chances: Chances, number: int, of: int, on_progress: Callable[[float], None]
) -> Outcome:
    return Simulation(trace, seed, chances, lambda share: on_progress((number + share) / of)).run()


def _side_by_side(
    sides: Mapping[str, Trace],
    tasks: Sequence[tuple[str, int]],
    chances: Chances,
    jobs: int,
    on_progress: Callable[[float], None],
) -> list[Outcome]:
    shares = _PROCESSES.Array("d", len(tasks) + 1)  # the last one is not 0 once children are to stop
    pickled = pickle.dumps((dict(sides), chances))
    with ProcessPoolExecutor(
        min(jobs, len(tasks)), mp_context=_PROCESSES, initializer=_begin, initargs=(pickled, shares)
    ) as pool:
        futures = [pool.submit(_one, number, side, seed) for number, (side, seed) in enumerate(tasks)]
        pending = set(futures)
        try:
            while pending:
                _, pending = wait(pending, timeout=_LOOK_EVERY_SECONDS)
                on_progress(sum(shares[:]) / len(tasks))
        finally:
            shares[-1] = 1.0
            # At Ctrl-C the pool would run all tasks to their end. At the end of all tasks, a child that has not started
            # yet needs `shares`, and would print a traceback without it.
            pool.shutdown(wait=not pending, cancel_futures=True)
        try:
            return [future.result() for future in futures]
        except BrokenProcessPool:
            raise Rejected(
                "a simulation died, probably for lack of memory: use fewer --jobs or a shorter --since"
            ) from None


def _begin(given: bytes, shares: Any) -> None:
    """Prepare a child process. It leaves Ctrl-C, which reaches all processes of a terminal, to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _state["sides"], _state["chances"] = pickle.loads(given)  # noqa: S301 - our own parent has written it
    _state["shares"] = shares


def _one(number: int, side: str, seed: int) -> Outcome:
    def on_progress(share: float) -> None:
        if _state["shares"][-1]:
            raise _Stopped
        _state["shares"][number] = share

    outcome = Simulation(_state["sides"][side], seed, _state["chances"], on_progress).run()
    _state["shares"][number] = 1.0
    return outcome
