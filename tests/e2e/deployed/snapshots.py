"""A function's initialized process, frozen, from which others are made much faster than by a start."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.e2e import frozen
from tests.runtimeapi import Start


class Snapshot:
    """One function after its initialization. `program` is what starts it: an interpreter, its options, the rest.

    It runs until `close`, and the processes made from it as long as they like.
    """

    def __init__(
        self, program: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        interpreter, *rest = program
        options = [word for word in rest[:2] if word in {"-S", "-B"}]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [interpreter, *options, frozen.__file__, *rest[len(options) :]],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        self._log = log
        self._turn = threading.Lock()

    def restored(self, log: Path) -> Start:
        """Let a process that is made from it write to `log`."""

        def start(api: str) -> Restored:
            ask, answers = self._process.stdin, self._process.stdout
            assert ask is not None
            assert answers is not None
            with self._turn:
                print(json.dumps({"api": api, "log": str(log)}), file=ask, flush=True)
                answer = answers.readline()
            assert answer, f"the function did not start: see {self._log}"
            return Restored(int(answer))

        return start

    def close(self) -> None:
        """Make no more."""
        self._process.communicate()


class Restored:
    """A process that another one has made. How it ended is its maker's to know, not ours."""

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
        """End it in the middle of whatever it does."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        with self._using:
            if self._handle is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._handle, number)
