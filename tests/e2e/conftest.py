"""What every scenario has: a folder for its logs, its line in build/e2e/report.json, a quiet machine if it measures."""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.e2e.assembled import NAME, REGION
from tests.e2e.deployed.assembly import Assembly, synthesised
from tests.e2e.system import System
from tests.patience import until_quiet

BUILD = Path(__file__).resolve().parents[2] / "build" / "e2e"
CONTRACT = "tests/contract/"
UNUSED = "granted, never called"
LONGEST_FIRST = (
    "seeds-0 seeds-1 test_plans real-api-server test_releases test_two_clusters test_disruption "
    "test_observed_disruption test_ends_by_hand test_faults test_kills test_controlplane test_observed_lifecycle "
    "test_observed_times test_observed_provisioning "
    "test_ends_in_order test_nodes_by_wish test_nodepools test_volumes test_forwarder test_local_up test_workloads "
    "test_capacity test_no_nodes"
).split()
"""Modules, and groups that stay together."""
MEASURED = "test_disruption_times test_interruptions test_ends test_forwarder_scale test_first_pods".split()
"""Modules with tests that measure, last of all; first those that make the most before they do."""
QUIET_WITHIN_SECONDS = 60.0
_BETWEEN_TESTS_SECONDS = 1.0
Figures = Callable[[str, float], None]
Start = Callable[..., System]
Alone = Callable[[], AbstractContextManager[None]]


def pytest_configure(config: pytest.Config) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    if not hasattr(config, "workerinput"):  # the process that hears of every test, whichever worker ran it
        config.pluginmanager.register(Report())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, and measure last: by then the other workers have little left to do, or nothing."""
    mixed = _using(lasting.__name__, items) & _using(start.__name__, items)
    if mixed:
        names = ", ".join(sorted(path.name for path in mixed))
        raise pytest.UsageError(
            f"{names}: a shared system and one of a test's own cannot run in one process at once"
        )
    for item in items:
        if _measures(item):
            # A unit of its own, which any worker may take; those that share a system stay together.
            unit = item.path.stem if lasting.__name__ in getattr(item, "fixturenames", ()) else item.name
            item.add_marker(pytest.mark.xdist_group(unit))
    items.sort(key=_turn)


def _using(fixture: str, items: Iterable[pytest.Item]) -> set[Path]:
    """Return the modules with tests that use a fixture."""
    return {item.path for item in items if fixture in getattr(item, "fixturenames", ())}


def _turn(item: pytest.Item) -> int:
    if _measures(item):
        return len(LONGEST_FIRST) + 1 + MEASURED.index(item.path.stem)
    names = {item.path.stem, *(group.args[0] for group in item.iter_markers("xdist_group"))}
    return min((LONGEST_FIRST.index(name) for name in names & {*LONGEST_FIRST}), default=len(LONGEST_FIRST))


def _measures(item: pytest.Item) -> bool:
    return alone.__name__ in getattr(item, "fixturenames", ())


_MACHINE: pytest.StashKey[TextIO] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Share the machine with the tests of the other workers, until it is asked for alone."""
    with (BUILD / "machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        item.stash[_MACHINE] = lock
        return (yield)


def _taken_alone(lock: TextIO) -> bool:
    """Take the lock alone; False where a worker was only between two tests and has it again."""
    fcntl.flock(lock, fcntl.LOCK_EX)
    fcntl.flock(lock, fcntl.LOCK_UN)
    time.sleep(_BETWEEN_TESTS_SECONDS)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.fixture
def alone(request: pytest.FixtureRequest) -> Alone:
    """Have the machine alone for a while: `with alone(): …` begins when no other worker tests, none does until its end.

    What is made before and looked at afterwards, beside other tests, costs the whole run no time of its own.
    """

    @contextmanager
    def hold() -> Iterator[None]:
        lock = request.node.stash[_MACHINE]
        with (BUILD / "measuring.lock").open("w") as turn:
            fcntl.flock(lock, fcntl.LOCK_UN)  # whose turn it is need not wait for one that waits for its own
            fcntl.flock(turn, fcntl.LOCK_EX)
            while not _taken_alone(lock):
                pass
            until_quiet(QUIET_WITHIN_SECONDS)
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_SH)

    return hold


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """Write a figure of this scenario into the report: `figures("pending-to-fleet-p50-s", 1.3)`."""
    return record_property


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Path:
    """Return the scenario's own folder, with what it left the last time removed."""
    own: Path = BUILD / request.path.stem / request.node.name.replace("/", "-")[:100]
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    return own


@pytest.fixture(scope="session")
def assembly() -> Assembly:
    """Return what would be uploaded for the cluster that the tests of the deployment are about."""
    return synthesised([NAME], REGION)


@pytest.fixture
def start(folder: Path, record_property: Callable[[str, object], None]) -> Iterator[Start]:
    """Start a system of the scenario's own: `system = start(delays=…)`. It is stopped when the test ends.

    No scenario may call AWS without a grant; what was granted and never called is for the report.
    """
    with ExitStack() as stack:

        def start(**how: Any) -> System:
            system = stack.enter_context(System(folder, **how))
            stack.callback(lambda: record_property(UNUSED, system.deployed.unused()))
            return system

        yield start


@pytest.fixture(scope="module")
def lasting(request: pytest.FixtureRequest) -> Iterator[System]:
    """Yield the system that a module's tests share, each with a NodePool and pods of its own, which stay.

    It is as the module's SHARED says, in System's own words.
    """
    folder = BUILD / request.path.stem / "shared"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with System(folder, **getattr(request.module, "SHARED", {})) as system:
        yield system


@pytest.fixture
def shared(lasting: System, record_property: Callable[[str, object], None]) -> Iterator[System]:
    """Yield the module's system, and report what was granted there and never called up to the end of the test."""
    yield lasting
    record_property(UNUSED, lasting.deployed.unused())


@dataclass(slots=True)
class Scenario:
    """A line of the report: one test, or all of a kind (a test's parameters, a server's contract tests)."""

    name: str
    seconds: float = 0.0
    failed: dict[str, bool] = field(default_factory=dict)
    figures: Counter[str] = field(default_factory=Counter)

    def add(self, test: str, report: pytest.TestReport) -> None:
        """Count setup, call or teardown of a test. Figures of the tests of one scenario add up."""
        self.failed[test] = self.failed.get(test, False) or not report.passed
        self.seconds += report.duration
        if report.when == "teardown":
            self.figures.update(
                {name: value for name, value in report.user_properties if isinstance(value, int | float)}
            )

    def line(self) -> dict[str, Any]:
        """Write the line."""
        ran, failed = len(self.failed), sum(self.failed.values())
        counts = {"tests-run": ran, "tests-failed": failed} if ran > 1 else {}
        return {
            "scenario": self.name,
            "passed": not failed,
            "seconds": round(self.seconds, 1),
            "figures": {**self.figures, **counts},
        }


class Report:
    """Writes build/e2e/report.json at the end, and says which IAM actions no scenario needed."""

    def __init__(self) -> None:
        self._scenarios: dict[str, Scenario] = {}
        self._unused: list[frozenset[str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a report under its scenario."""
        test = report.nodeid.split("@")[0]
        name = test.partition("::")[2].partition("[")[0].removeprefix("test_").replace("_", " ")
        if test.startswith(CONTRACT):
            name = f"contract tests, {'real' if '[real' in test else 'in-memory'} API server"
        self._scenarios.setdefault(name, Scenario(name)).add(test, report)
        if report.when == "teardown":
            for kind, value in report.user_properties:
                if kind == UNUSED:
                    assert isinstance(value, list)
                    self._unused.append(frozenset(value))

    def pytest_sessionfinish(self) -> None:
        """Write them all."""
        lines = [scenario.line() for scenario in self._scenarios.values()]
        if lines:
            (BUILD / "report.json").write_text(json.dumps(lines, indent=2) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List what could be taken from the roles, as far as these scenarios tell."""
        if self._unused:
            never = sorted(frozenset.intersection(*self._unused))
            terminalreporter.section("granted, and called by no scenario")
            for each in never:
                terminalreporter.line(each)
