"""`nodesmith top` in a real terminal, on the scene that the page shows, while EC2 takes a node."""

from __future__ import annotations

import sys
from datetime import timedelta

from tests.browser.scene import Scene
from tests.patience import patient
from tests.processes.terminals import Terminal

COMMAND = [sys.executable, "-m", "nodesmith_cli.main", "top"]


def test_top_answers_on_screen_what_runs_why_pods_wait_and_what_comes_next(scene: Scene) -> None:
    with Terminal([*COMMAND, "--kubeconfig", str(scene.kubeconfig)], columns=130, rows=40) as terminal:
        terminal.until("/hour", "/month", "spot", "pending default/reports-", "Quit", seconds=90)
        terminal.until("lower bound $", seconds=180)
        taken = scene.spot_nodes()[0]
        scene.interrupt(taken, timedelta(minutes=20))
        terminal.until("interrupted", " left", "1 interrupted", seconds=90)
        terminal.press("\t")
        terminal.until("PENDING PODS", "0 of 2 NodePools fit", "its budget of 0 ")
        terminal.press("q")
        assert terminal.process.wait(timeout=patient(30)) == 0
