"""Programs in a real terminal: what they draw, and keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from typing import Any

from tests.patience import patient

_ANSI = re.compile(r"\x1b\[[0-9;?>$<]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()=>]")


class Terminal:
    """A process in a terminal, and everything that it has drawn."""

    def __init__(self, command: list[str], columns: int = 80, rows: int = 24) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self.drawn = ""

    def until(self, *texts: str, seconds: float = 60) -> None:
        """Read until all texts were drawn. `seconds` are real seconds on an idle machine; a busy one gets more."""
        began = time.monotonic()
        while not all(text in self.drawn for text in texts):
            assert time.monotonic() < began + patient(seconds), (
                f"not drawn: {[text for text in texts if text not in self.drawn]}"
            )
            if select.select([self._master], [], [], 0.2)[0]:
                self.drawn += _ANSI.sub("", os.read(self._master, 65536).decode(errors="replace"))

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
