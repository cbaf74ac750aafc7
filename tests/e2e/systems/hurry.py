"""Run a program of nodesmith on the faster clock of its parent process: `python hurry.py MODULE ARGUMENTS…`.

Functions get the clock through `nodesmith.composition.parts.set_clock`; the forwarder gets another SystemClock. At
speed 1 none of this is needed, so the plain program runs.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodesmith_formats.localsystem.clock import LocalClock

CLOCK = "NODESMITH_TEST_CLOCK"
_FILE = Path(__file__).resolve()
_LOCAL_CLOCK = _FILE.parents[3] / "formats" / "nodesmith_formats" / "localsystem" / "clock.py"


def command(clock: LocalClock, module: str) -> list[str]:
    """Return the arguments between the interpreter and the program's own arguments."""
    return ["-m", module] if clock.speed == 1 else [str(_FILE), module]


def environment(clock: LocalClock) -> Mapping[str, str]:
    """Return the environment variables that the program needs in addition to its own."""
    return {} if clock.speed == 1 else {CLOCK: clock.to_json()}


def main() -> None:
    """Set the module's clock and run the module."""
    sys.path[0] = str(
        Path.cwd()
    )  # as `python -m` sets it: the program must not import from this file's folder
    del sys.argv[0]
    module, clock = sys.argv[0], _read_clock()
    if module == "nodesmith_forwarder":
        from nodesmith_forwarder import clock as forwarder_clock

        setattr(forwarder_clock, "SystemClock", lambda: clock)  # noqa: B010 replaces the class
    else:
        from nodesmith.composition import parts

        parts.set_clock(clock.now)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _read_clock() -> LocalClock:
    """Load the clock's class from its file, because a function does not have the command on its path."""
    spec = importlib.util.spec_from_file_location("nodesmith_test_clock", _LOCAL_CLOCK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    clock: LocalClock = module.LocalClock.from_json(os.environ[CLOCK])
    return clock


if __name__ == "__main__":
    main()
