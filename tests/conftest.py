"""What holds for every test: none is skipped in silence, none fails by the clock, what is shared is made once."""

from __future__ import annotations

import gc
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.awscalls.plugin import CallsAreGranted

# A test may be skipped only if its id is here, with the reason why.
ALLOWED_SKIPS: dict[str, str] = {}

_OBJECTS_A_COLLECTION = 50_000
INFRA = Path(__file__).parent / "infra"

# No deadline: a busy machine is no counter-example. Derandomized: the same commit gives the same result everywhere.
settings.register_profile("nodesmith", deadline=None, derandomize=True)
settings.load_profile("nodesmith")

# A shell starts what it puts into the background deaf to interrupts, and so would be all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CallsAreGranted())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let contract tests be held against the real API server too. It stands here to be known wherever pytest starts."""
    choices = ("in-memory", "real", "both")
    parser.addoption(
        "--api-server", default="in-memory", choices=choices, help="what tests/contract talks to"
    )


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a parameter of bytes by its length: compressed bytes carry the time, and workers must agree on names."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share what takes long to make in one worker, for it is made once per process.

    The CDK's share a template, others what a fixture of their module makes: a local system, a round of functions.
    """
    for item in items:
        if INFRA in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("infra"))
        elif _shares(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def _shares(item: pytest.Item) -> bool:
    """Return whether a test uses a fixture that is made once for its module. pytest has no public word for it."""
    used = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return any(definitions[-1].scope == "module" for definitions in used)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep what is imported and collected out of the garbage collector's sight, and let it look seldom.

    Else each of its rounds, and tests make many, walks through a million objects that stay for good.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_A_COLLECTION)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped, or expected to fail, what ALLOWED_SKIPS does not name."""
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
