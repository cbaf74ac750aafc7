"""What a process uses, as Linux counts it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_USER_TICKS, _SYSTEM_TICKS = 11, 12  # positions in /proc/PID/stat after the command's name


@dataclass(frozen=True, slots=True)
class Usage:
    """A process at a moment: CPU time since its start, current and peak memory."""

    at_seconds: float
    cpu_seconds: float
    memory_mib: float
    peak_memory_mib: float

    def cpu_share_since(self, earlier: Usage) -> float:
        """Return the CPU used since then, as a share of one core: 0.05 is five hundredths of it."""
        return (self.cpu_seconds - earlier.cpu_seconds) / (self.at_seconds - earlier.at_seconds)


def usage(process_id: int) -> Usage:
    """Read what a process has used. Raises FileNotFoundError if there is no such process, or no Linux."""
    folder = Path("/proc") / str(process_id)
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return Usage(
        time.monotonic(),
        ticks / os.sysconf("SC_CLK_TCK"),
        int(status["VmRSS"].split()[0]) / 1024,
        int(status["VmHWM"].split()[0]) / 1024,
    )
