"""A Python process with everything imported, which forks processes much faster than they start."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.e2e.systems import preloaded
from tests.processes.runtimeapi import Start


@cache
def preloaded_from(path: str) -> Preloaded:
    """Return this process's preloaded Python for `path`, a PYTHONPATH. It runs as long as this process."""
    return Preloaded(path)


class Preloaded:
    """A Python process outside this virtual environment that has imported what functions import from `path`.

    -S ignores everything but the path; -B leaves assets as they are.
    """

    def __init__(self, path: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-B", preloaded.__file__],
            env={"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._turn = threading.Lock()

    def started(
        self, program: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
    ) -> Start:
        """Run `program` (a file or -m and a module, then arguments) as `executed` does, but in a forked process."""

        def start(api: str) -> Forked:
            ask, answers = self._process.stdin, self._process.stdout
            assert ask is not None
            assert answers is not None
            asked = {
                "program": list(program),
                "folder": str(folder.resolve()),
                "environment": {**environment, "AWS_LAMBDA_RUNTIME_API": api},
                "log": str(log.resolve()),
            }
            with self._turn:
                print(json.dumps(asked), file=ask, flush=True)
                answer = answers.readline()
            assert answer, "the preloaded Python process has ended"
            return Forked(int(answer))

        return start


class Forked:
    """A forked process. Only the process that forked it knows its exit status."""

    def __init__(self, pid: int) -> None:
        self._handle: int | None = os.pidfd_open(pid)
        self._using = threading.Lock()

    def wait(self) -> None:
        """Wait until it has ended."""
        handle = self._handle
        assert handle is not None
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        ended.poll()
        with self._using:
            os.close(handle)
            self._handle = None

    def kill(self) -> None:
        """Kill it, whatever it is doing."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        with self._using:
            if self._handle is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._handle, number)
