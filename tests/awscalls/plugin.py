"""Fails a test that calls AWS without a grant, and lists granted actions that no test called at the end of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.awscalls.recording import Recorder

_HELD = tuple(Path(__file__).resolve().parents[1] / name for name in ("contract", "integration"))
"""The folders whose tests must stay within the roles; scenarios of tests/e2e use their own credentials."""
_OUTPUT = "calls-by-role"


class CallsAreGranted:
    """One instance for each process of a run. xdist workers send their data to the reporting process."""

    def __init__(self) -> None:
        self._called: dict[str, set[str]] = defaultdict(set)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Start listening before any fixture starts a system."""
        if _is_held(item):
            recorder()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fail the test if a call without a grant was made in it, or since the test before it."""
        yield
        if _is_held(item):
            refused, recorder().refused = recorder().refused, []
            assert not refused, "called without a grant:\n" + "\n".join(sorted(set(refused)))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over the recorded calls."""
        called = recorder().called if recorder.cache_info().currsize else {}
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = {who: sorted(actions) for who, actions in called.items()}
        self._add(called)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the recorded calls of a worker; a crashed worker has none."""
        self._add(getattr(node, "workeroutput", {}).get(_OUTPUT, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List granted actions that were never called, for the roles that made any call."""
        if not self._called:
            return
        from tests.awscalls.judging import never_called
        from tests.awscalls.policies import roles_of

        roles = {who: each for who, each in roles_of("us-east-1").items() if who in self._called}
        kinds = sum(map(len, self._called.values()))
        terminalreporter.section("granted, but not called by these tests")
        terminalreporter.line(f"{kinds} kinds of calls were made by {len(roles)} roles; never called:")
        for each in never_called(roles, self._called):
            terminalreporter.line(each)

    def _add(self, called: dict[str, Any]) -> None:
        for who, actions in called.items():
            self._called[who].update(actions)


def _is_held(item: pytest.Item) -> bool:
    return any(folder in item.path.parents for folder in _HELD)


@cache
def recorder() -> Recorder:
    """Return the recorder of this process. Importing it imports moto, which unit tests do without."""
    from tests.awscalls.recording import Recorder

    made = Recorder()
    made.start()
    return made
