"""A child process with a log that ends when this process ends, even if this one is killed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nodesmith.errors import Rejected

_LOG_LINES = 12
_STOP_SECONDS = 4.0
_GO = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
"""Collect garbage when the heap has grown by four times its live size, and sooner near the memory limit."""
# The program's process group contains a second process, which waits on a pipe that only this process can write to. When
# the pipe closes, deliberately or by this process's death, it kills the group. Linux has a signal for a parent's death,
# but it refers to the thread that forked, and requesting it takes Python code between fork and exec.
_LIFELINE = 'exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) & exec 3<&-; exec "$@"'


def on_a_lifeline(command: Sequence[str | Path]) -> list[str]:
    """Return a command for a session of its own that ends when its standard input, a pipe from this process, closes."""
    return ["/bin/sh", "-c", _LIFELINE, Path(command[0]).name, *map(str, command)]


class Died(Rejected):
    """A program ended unexpectedly. The message contains the end of its log; `log` is the whole log."""

    def __init__(self, name: str, status: int, path: Path) -> None:
        self.log = path.read_text(encoding="utf-8", errors="replace")
        outcome = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        tail = "\n".join(f"  {line[:400]}" for line in self.log.splitlines()[-_LOG_LINES:])
        super().__init__(f"{name} {outcome}; the end of {path}:\n{tail}")


class Process:
    """Starts `command` at once in its own session, so that Ctrl-C reaches this process first, and appends to its log.

    Its environment contains only PATH, HOME (the log's folder) and Go's settings, since etcd, for one, reads settings
    from the environment. It collects garbage less often than Go's default, which would take a tenth of an API server's
    start.
    """

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        self.name = Path(command[0]).name
        self._log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(  # noqa: S603 the command is ours
                on_a_lifeline(command),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(log.parent), **_GO},
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def check(self) -> None:
        """Raise Died if the program no longer runs."""
        status = self._popen.poll()
        if status is not None:
            raise Died(self.name, status, self._log)

    def kill(self) -> None:
        """Kill the program."""
        self._popen.kill()
        self.stop()

    def stop(self) -> None:
        """Terminate the program, kill it if it does not end in time, and end the rest of its process group."""
        self._popen.terminate()
        try:
            self._popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        finally:
            if self._popen.stdin is not None:
                self._popen.stdin.close()
