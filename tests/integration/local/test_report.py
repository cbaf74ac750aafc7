"""The report of a local system after a wait: its timeline has all that its objects show."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from nodesmith_local.runs.running import wait_for
from nodesmith_local.runs.system import LocalSystem, Place
from nodesmith_local.runs.timeline import PENDING, Entry, Timeline

LATE_SECONDS = 0.3


def gated(name: str) -> dict[str, Any]:
    """Return a pod that no scheduler looks at."""
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "example.com/wait"}]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_a_wait_includes_the_thread_that_records_changes(tmp_path: Path) -> None:
    def late(entry: Entry) -> None:
        if entry.object.startswith("Pod/"):
            time.sleep(LATE_SECONDS)

    place = Place("us-east-1", "nodesmith-local", zones=("us-east-1a",))
    with LocalSystem(place, tmp_path, timeline=lambda _: Timeline(late)) as running:
        for name in ("first", "second", "third"):
            running.first.objects.create("pods", gated(name))
        wait_for(running.first, 1, lambda: "")
        report = running.first.report()

    pending = [entry.object for entry in report.timeline if entry.what == PENDING]
    assert pending == ["Pod/default/first", "Pod/default/second", "Pod/default/third"]
