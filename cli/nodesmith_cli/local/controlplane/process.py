"""A program that runs beside us, writes a log, and ends when we do, even when we are killed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nodesmith.errors import Rejected

_LOG_LINES = 12
_STOP_SECONDS = 4.0
_GO = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
"""Garbage is collected when four times as much has come as lives, and sooner where memory nears the limit."""
# The program's process group holds a second process, which waits on a pipe that only we can write to. When the pipe
# ends, by our doing or our death, it kills the group. Linux has a signal for a parent's death, but the parent that it
# means is the thread that forked, and asking for it takes Python code between fork and exec.
_LIFELINE = 'exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) & exec 3<&-; exec "$@"'


def on_a_lifeline(command: Sequence[str | Path]) -> list[str]:
    """Return a command for a session of its own that ends when its standard input, a pipe from us, does."""
    return ["/bin/sh", "-c", _LIFELINE, Path(command[0]).name, *map(str, command)]


class Died(Rejected):
    """A program ended that should run. The message has the end of its log; so has `log`."""

    def __init__(self, name: str, status: int, path: Path) -> None:
        self.log = path.read_text(encoding="utf-8", errors="replace")
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        tail = "\n".join(f"  {line[:400]}" for line in self.log.splitlines()[-_LOG_LINES:])
        super().__init__(f"{name} {ended}; the end of {path}:\n{tail}")


class Process:
    """Starts `command` at once, in a session of its own, so that Ctrl-C reaches us first. Its log is appended to.

    Of our environment it gets the PATH only: etcd, for one, reads settings from there. Its home is the log's folder.
    It collects garbage less often than is Go's default, which takes a tenth of an API server's start.
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
        """Raise Died if it runs no more."""
        status = self._popen.poll()
        if status is not None:
            raise Died(self.name, status, self._log)

    def kill(self) -> None:
        """End it at once."""
        self._popen.kill()
        self.stop()

    def stop(self) -> None:
        """Ask it to end, wait a little, make it end; take everything of its process group along."""
        self._popen.terminate()
        try:
            self._popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        finally:
            if self._popen.stdin is not None:
                self._popen.stdin.close()
