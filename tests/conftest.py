"""Rules for all tests: none is skipped silently, none has a deadline, and shared fixtures are made once."""

from __future__ import annotations

import gc
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from tests.awscalls.plugin import CallsAreGranted
from tests.samples import sampled
from tests.sharing import constants_are_shared, documents_follow_their_schemas

# A test may be skipped only if its id is here, with the reason.
ALLOWED_SKIPS: dict[str, str] = {}

_OBJECTS_A_COLLECTION = 50_000
INFRA = Path(__file__).parent / "infra"

# No deadline: a busy machine is no counterexample. Derandomized: the same commit gives the same result everywhere.
settings.register_profile("nodesmith", deadline=None, derandomize=True, max_examples=sampled(30, whole=200))
settings.load_profile("nodesmith")

# Collection creates a million objects that stay. Python's own threshold would search them for garbage 1,000 times.
gc.set_threshold(_OBJECTS_A_COLLECTION)

# A shell starts background processes with SIGINT ignored, and processes started by the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CallsAreGranted())
    shared = ExitStack()
    shared.enter_context(constants_are_shared())
    shared.enter_context(documents_follow_their_schemas())
    config.add_cleanup(shared.close)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option to run contract tests against the real API server. It must be known wherever pytest starts."""
    choices = ("in-memory", "real", "both")
    parser.addoption(
        "--api-server",
        default="in-memory",
        choices=choices,
        help="the API server that tests/contract runs against",
    )


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a bytes parameter by its length: compressed bytes contain the time, and workers must agree on names."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share an expensive fixture in one worker, because each process makes it once.

    Tests of the CDK share a template; others share a fixture of their module, such as a local system.
    """
    for item in items:
        if INFRA in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("infra"))
        elif _shares(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))


def _shares(item: pytest.Item) -> bool:
    """Return whether a test uses a fixture with module scope. pytest has no public API for this."""
    used = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return any(definitions[-1].scope == "module" for definitions in used)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude imported and collected objects from garbage collection.

    Otherwise each of the many collections walks through a million permanent objects.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # forgets how many objects there were: a full collection waits until a quarter as many are new


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with skipped or expected-to-fail tests that ALLOWED_SKIPS does not name."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # an xdist worker: its controller sees every report
        return
    skipped = {
        report.nodeid for outcome in ("skipped", "xfailed") for report in reporter.stats.get(outcome, [])
    }
    unexplained = sorted(nodeid for nodeid in skipped if nodeid.split("@")[0] not in ALLOWED_SKIPS)
    if unexplained:
        reporter.write_line("")
        reporter.write_line(
            f"skipped without a reason in tests/conftest.py: {', '.join(unexplained)}", red=True
        )
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
