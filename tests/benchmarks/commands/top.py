"""`nodesmith top` in a terminal beside a large cluster that changes: how much of a processor it needs."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from nodesmith.observation.mirror import NODES, PODS
from nodesmith_cli.views.top.actions import Actions
from nodesmith_cli.views.top.fleet import KINDS, Fleet
from nodesmith_cli.views.top.screen import TopApp
from nodesmith_cli.views.top.updates import pricing
from tests.benchmarks.figures import Figure
from tests.builders import catalog
from tests.objects.savingsclusters import node, pod

_PODS_ON_A_NODE = 20
_CHANGES_A_SECOND = 50
_WARMING_SECONDS, _MEASURED_SECONDS = 5.0, 20.0


def figures(*, sizes: tuple[int, ...] = (1_000, 5_000)) -> list[Figure]:
    """Measure the share of one processor at two frames a second, with 20 pods a node and 50 changes a second."""
    found = []
    for nodes in sizes:
        share, first = _measured(nodes)
        note = f"{nodes:,} nodes, {nodes * _PODS_ON_A_NODE:,} pods, {_CHANGES_A_SECOND} changes a second; "
        name = "top-cpu-percent" if nodes == sizes[0] else f"top-cpu-percent-{nodes}"
        found.append(Figure(name, share, "%", 10, note + f"one view takes {first:.0f} ms"))
    return found


def _measured(nodes: int) -> tuple[float, float]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "result"
        code = f"from tests.benchmarks.commands.top import live; live({nodes}, {str(file)!r})"
        main, terminal = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm-256color", "LINES": "40", "COLUMNS": "140"},
        )
        os.close(terminal)
        while process.poll() is None:
            if select.select([main], [], [], 0.2)[0]:
                with suppress(OSError):  # the process has closed the terminal
                    os.read(main, 65_536)
        os.close(main)
        result = json.loads(file.read_text())
    return result["share"], result["view"]


def live(nodes: int, file: str) -> None:
    """Show a changing fleet in the present terminal for a while, and write what that took."""
    fleet = Fleet("benchmark")
    fleet.put(NODES, (node(f"n-{n}") for n in range(nodes)))
    fleet.put(PODS, (_pod(n, nodes) for n in range(nodes * _PODS_ON_A_NODE)))
    for kind in KINDS:
        fleet.mark(kind, current=True)
    fleet.price_with(pricing(catalog()))
    app = TopApp(fleet, Actions(None, fleet), lambda: datetime.now(UTC))  # type: ignore[arg-type]
    Thread(target=_change, args=(fleet, nodes, app, file), daemon=True).start()
    app.run()


def _pod(number: int, nodes: int) -> dict[str, Any]:
    return pod(f"p-{number}", f"n-{number % nodes}", cpu="150m", memory="400Mi")


def _change(fleet: Fleet, nodes: int, app: TopApp, file: str) -> None:
    _changing(fleet, nodes, _WARMING_SECONDS)
    began, cpu = time.monotonic(), time.process_time()
    _changing(fleet, nodes, _MEASURED_SECONDS)
    share = (time.process_time() - cpu) / (time.monotonic() - began) * 100
    at = time.process_time()
    fleet.view(datetime.now(UTC))
    Path(file).write_text(json.dumps({"share": share, "view": (time.process_time() - at) * 1000}))
    app.call_from_thread(app.exit)


def _changing(fleet: Fleet, nodes: int, seconds: float) -> None:
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        fleet.put(PODS, [_pod(number % (nodes * _PODS_ON_A_NODE), nodes)])
        number += 1
        time.sleep(1 / _CHANGES_A_SECOND)
