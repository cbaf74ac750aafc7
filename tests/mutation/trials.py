"""Trials of mutants: a pytest plugin that collects all tests once and runs those that reach a mutant in a fork.

The fork replaces the code of the changed function, so every module that imports it runs the mutant. A test that
fails counts only if it also passes alone on unchanged code.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from mmap import mmap
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import pytest
from hypothesis import Phase, settings

from tests.mutation.mutants import Mutant
from tests.mutation.reach import CORE, Test

_FAILED, _BROKEN, _TIMEOUT = 1, 2, 3
_EVERYWHERE = frozenset(("test", "unit", "decision", "property", "integration"))
_LIMITS = (signal.SIGPROF, signal.SIGALRM)
_OVERHEAD_SECONDS = 0.005
"""What pytest itself takes for one test."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`result` is killed, timeout, survived, unreached (no test runs the code) or invalid (it cannot be replaced).

    `test` failed or exceeded its time, `tests` reach the mutant, and `tried` of them have time to run.
    """

    name: str
    result: str
    test: str = ""
    tests: int = 0
    tried: int = 0


class Trials:
    """Try mutants in a number of processes, and append the outcomes to a file, one line each."""

    def __init__(
        self, mutants: Sequence[Mutant], tests: dict[str, Test], seconds: float, processes: int, kept: Path
    ) -> None:
        self._mutants, self._tests, self._seconds = mutants, tests, seconds
        self._processes, self._kept = processes, kept
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[tuple[str, str], list[FunctionType]] = {}
        self._is_sound: dict[str, bool] = {}
        self._kills: Counter[tuple[Path, str]] = Counter()
        self._is_trial = False

    def pytest_collection(self) -> None:
        """Let hypothesis stop at the first failing example: which example is the smallest does not matter here."""
        whole = settings.get_profile("nodesmith")
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", whole, phases=phases, database=None, report_multiple_bugs=False)
        settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid.split("@")[0]: item for item in session.items}
        self._functions = _functions({str(mutant.path) for mutant in self._mutants})
        workers = []
        for number in range(self._processes):
            worker = os.fork()
            if not worker:
                self._work(self._mutants[number :: self._processes])
            workers.append(worker)
        statuses = [os.waitpid(worker, 0)[1] for worker in workers]
        if any(statuses):
            raise pytest.UsageError("a process that tries mutants has died")
        return True

    def _work(self, mutants: Sequence[Mutant]) -> NoReturn:
        """Try mutants and end the process."""
        status = 1
        try:
            for mutant in mutants:
                line = json.dumps(asdict(self._outcome(mutant)))
                with self._kept.open("a") as kept:
                    kept.write(line + "\n")
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._is_trial and report.failed:
            os._exit(_FAILED)

    def _outcome(self, mutant: Mutant) -> Outcome:
        reaching = self._reaching(mutant)
        if not reaching:
            return Outcome(mutant.name, "unreached")
        chosen = self._within(reaching)
        while True:
            status, test = self._try(
                _code(mutant), self._functions[str(mutant.path), mutant.function], chosen
            )
            if status == _BROKEN:
                return Outcome(mutant.name, "invalid")
            if not status:
                return Outcome(mutant.name, "survived", "", len(reaching), len(chosen))
            if self._passes_alone(test):
                self._kills[mutant.path, test] += 1
                result = "timeout" if status == _TIMEOUT else "killed"
                return Outcome(mutant.name, result, test, len(reaching), len(chosen))
            chosen = [each for each in chosen if each != test]

    def _reaching(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach a mutant, those first that are likely to kill it soon.

        Short tests that reach few other blocks come first, those that have killed mutants of its module, and those
        whose names share words with it.
        """
        path = str(mutant.path.relative_to(CORE))
        found = [
            name
            for name, test in self._tests.items()
            if name in self._items
            and mutant.block in test["reached"].get(path, ())
            and self._is_sound.get(name, True)
        ]
        about = _words(f"{path} {mutant.function}")

        def rank(name: str) -> float:
            return self._cost(name) / (1 + self._kills[mutant.path, name] + len(about & _words(name)))

        return sorted(found, key=rank)

    def _cost(self, name: str) -> float:
        """Return the time of a test, multiplied by how many blocks it reaches."""
        test = self._tests[name]
        return (test["seconds"] + _OVERHEAD_SECONDS) * sum(map(len, test["reached"].values()))

    def _within(self, reaching: Sequence[str]) -> list[str]:
        """Return the tests that one mutant may take the time of; at least one."""
        chosen: list[str] = []
        left = self._seconds
        for name in reaching:
            if not chosen or self._tests[name]["seconds"] <= left:
                chosen.append(name)
                left -= self._tests[name]["seconds"]
        return chosen

    def _passes_alone(self, test: str) -> bool:
        if test not in self._is_sound:
            self._is_sound[test] = not self._try(None, (), [test])[0]
        return self._is_sound[test]

    def _try(
        self, code: CodeType | None, functions: Sequence[FunctionType], tests: Sequence[str]
    ) -> tuple[int, str]:
        """Run tests in a fork until one fails; return the fork's status, 0 if all pass, and the last test that ran."""
        at = mmap(-1, 4)  # shared: the number of the test that runs
        trial = os.fork()
        if not trial:
            status = _BROKEN
            with suppress(ValueError):  # the new code uses other variables of its surroundings
                for function in functions:
                    function.__code__ = code or function.__code__
                status = 0
            if not status:
                self._run(tests, at)
            os._exit(status)
        _, status = os.waitpid(trial, 0)
        with suppress(ProcessLookupError):  # what its tests started
            os.killpg(trial, signal.SIGKILL)
        last = tests[int.from_bytes(at[:4])]
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status), last
        return (_TIMEOUT if os.WTERMSIG(status) in _LIMITS else _FAILED), last

    def _run(self, tests: Sequence[str], at: mmap) -> None:
        """Run tests; the first failure, or a signal once a test takes too long, ends the process."""
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the output is that of the trials
        self._is_trial = True
        for limit in _LIMITS:
            signal.signal(limit, signal.SIG_DFL)
        items = [self._items[name] for name in tests]
        for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
            at[:4] = number.to_bytes(4)
            seconds = self._tests[tests[number]]["seconds"]
            signal.setitimer(signal.ITIMER_PROF, 2 + 10 * seconds)
            signal.setitimer(signal.ITIMER_REAL, 60 + 60 * seconds)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


@cache
def _words(name: str) -> frozenset[str]:
    """Return the words of a name in the singular, without those that are everywhere."""
    return frozenset(each.removesuffix("s") for each in re.findall("[a-z]{4,}", name.lower())) - _EVERYWHERE


def _code(mutant: Mutant) -> CodeType:
    """Return the changed function of a mutant, compiled."""
    return _codes(compile(mutant.tree(), str(mutant.path), "exec"))[mutant.function]


def _codes(module: CodeType) -> dict[str, CodeType]:
    """Return the functions of a module and of its classes by qualified name, without those inside other functions."""
    found: dict[str, CodeType] = {}
    for each in module.co_consts:
        if isinstance(each, CodeType):
            is_class = not each.co_flags & 2  # CO_NEWLOCALS: functions have it, bodies of classes do not
            found.update(_codes(each) if is_class else {each.co_qualname: each})
    return found


def _functions(paths: set[str]) -> dict[tuple[str, str], list[FunctionType]]:
    """Return all functions of some files by file and qualified name."""
    for path in paths:  # some are imported only when they are needed
        parts = Path(path).relative_to(CORE.parent).with_suffix("").parts
        import_module(".".join(parts).removesuffix(".__init__"))
    gc.unfreeze()  # tests/conftest.py has excluded them from the collector
    found: dict[tuple[str, str], list[FunctionType]] = {}
    every: list[Any] = gc.get_objects()
    for each in every:
        if type(each) is FunctionType and each.__code__.co_filename in paths:
            found.setdefault((each.__code__.co_filename, each.__code__.co_qualname), []).append(each)
    gc.freeze()
    return found
