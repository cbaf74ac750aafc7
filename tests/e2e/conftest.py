"""Fixtures for every scenario: a log folder, an entry in build/e2e/report.json, an idle machine for measurements."""

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

from tests.e2e.deployed.assembled import NAME, REGION
from tests.e2e.deployed.assembly import Assembly, synthesised
from tests.e2e.systems.system import System
from tests.patience import until_quiet

BUILD = Path(__file__).resolve().parents[2] / "build" / "e2e"
CONTRACT = "tests/contract/"
UNUSED = "granted, never called"
LONGEST_FIRST = (
    "seeds-0 seeds-1 test_kueue test_plans real-api-server test_releases test_disruption "
    "test_observed_disruption test_ends_by_hand test_faults test_kills test_controlplane test_observed_lifecycle "
    "test_observed_times test_observed_provisioning "
    "test_ends_in_order test_nodes_without_pods test_nodepools test_volumes test_forwarder test_local_up "
    "test_workloads test_capacity test_no_nodes"
).split()
"""The order in which test modules, and xdist groups that stay together, start."""
MEASURED = (
    "test_disruption_times test_capacitybuffers test_proactive_scale_up test_two_clusters test_interruptions"
    " test_ends test_forwarder_scale test_savings test_first_pods"
).split()
"""The modules with tests that measure. They run last; those that prepare most before they measure start first."""
QUIET_WITHIN_SECONDS = 60.0
_BETWEEN_TESTS_SECONDS = 1.0
Figures = Callable[[str, float], None]
Start = Callable[..., System]
Alone = Callable[[], AbstractContextManager[None]]


def pytest_configure(config: pytest.Config) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    # The controlling process receives the reports of all workers.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first and measure last, when the other workers have little or nothing left to do."""
    mixed = _using(lasting.__name__, items) & _using(start.__name__, items)
    if mixed:
        names = ", ".join(sorted(path.name for path in mixed))
        raise pytest.UsageError(
            f"{names}: a module cannot mix tests that share a system with tests that start their own"
        )
    for item in items:
        if _measures(item):
            # A group of its own can run on any worker. Tests that share a system stay together.
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
    """Share the machine with the tests of the other workers until a test takes it exclusively."""
    with (BUILD / "machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        item.stash[_MACHINE] = lock
        return (yield)


def _taken_alone(lock: TextIO) -> bool:
    """Take the lock exclusively; return False if a worker that was between two tests has taken it again."""
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
    """Return a context manager that takes the machine exclusively.

    `with alone(): …` waits until no other worker runs a test, and keeps the others waiting until the block ends.
    Prepare before the block and check results after it, while other tests run, so that the whole run loses no time.
    """

    @contextmanager
    def hold() -> Iterator[None]:
        lock = request.node.stash[_MACHINE]
        with (BUILD / "measuring.lock").open("w") as turn:
            fcntl.flock(lock, fcntl.LOCK_UN)  # the current holder must not wait for a queued worker
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
    """Return a function that adds a figure of this scenario to the report: `figures("pending-to-fleet-p50-s", 1.3)`."""
    return record_property


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Path:
    """Return the scenario's own folder, emptied of what its last run left."""
    own: Path = BUILD / request.path.stem / request.node.name.replace("/", "-")[:100]
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    return own


@pytest.fixture(scope="session")
def assembly() -> Assembly:
    """Return the cloud assembly for the cluster that the deployment tests use."""
    return synthesised([NAME], REGION)


@pytest.fixture
def start(folder: Path, record_property: Callable[[str, object], None]) -> Iterator[Start]:
    """Start a system for one scenario: `system = start(delays=…)`. It stops when the test ends.

    No scenario may call AWS without a grant. Grants that were never used go to the report.
    """
    with ExitStack() as stack:

        def start(**how: Any) -> System:
            system = stack.enter_context(System(folder, **how))
            stack.callback(lambda: record_property(UNUSED, system.deployed.unused()))
            return system

        yield start


@pytest.fixture(scope="module")
def lasting(request: pytest.FixtureRequest) -> Iterator[System]:
    """Yield the system that a module's tests share. Each test has its own NodePool and pods, which stay.

    The module's SHARED holds the arguments for System.
    """
    folder = BUILD / request.path.stem / "shared"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with System(folder, **getattr(request.module, "SHARED", {})) as system:
        yield system


@pytest.fixture
def shared(lasting: System, record_property: Callable[[str, object], None]) -> Iterator[System]:
    """Yield the module's system, and report the grants that were not used by the end of the test."""
    yield lasting
    record_property(UNUSED, lasting.deployed.unused())


@dataclass(slots=True)
class Scenario:
    """A line of the report: one test, or a group (a test's parameters, or a server's contract tests)."""

    name: str
    seconds: float = 0.0
    failed: dict[str, bool] = field(default_factory=dict)
    figures: Counter[str] = field(default_factory=Counter)

    def add(self, test: str, report: pytest.TestReport) -> None:
        """Count setup, call or teardown of a test, and add its figures to the scenario's."""
        self.failed[test] = self.failed.get(test, False) or not report.passed
        self.seconds += report.duration
        if report.when == "teardown":
            self.figures.update(
                {name: value for name, value in report.user_properties if isinstance(value, int | float)}
            )

    def line(self) -> dict[str, Any]:
        """Return the report's line as JSON."""
        ran, failed = len(self.failed), sum(self.failed.values())
        counts = {"tests-run": ran, "tests-failed": failed} if ran > 1 else {}
        return {
            "scenario": self.name,
            "passed": not failed,
            "seconds": round(self.seconds, 1),
            "figures": {**self.figures, **counts},
        }


class Report:
    """Write build/e2e/report.json at the end, and list the IAM actions that no scenario needed."""

    def __init__(self) -> None:
        self._scenarios: dict[str, Scenario] = {}
        self._unused: list[frozenset[str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test's report to its scenario."""
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
        """Write the lines of all scenarios."""
        lines = [scenario.line() for scenario in self._scenarios.values()]
        if lines:
            (BUILD / "report.json").write_text(json.dumps(lines, indent=2) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the grants that no scenario used."""
        if self._unused:
            never = sorted(frozenset.intersection(*self._unused))
            terminalreporter.section("granted, but called by no scenario")
            for each in never:
                terminalreporter.line(each)
