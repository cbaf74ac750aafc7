"""Log output of the functions of a local system."""

from __future__ import annotations

from contextlib import redirect_stdout
from pathlib import Path

from nodesmith.composition.telemetry import Telemetry
from nodesmith.model.functions import Concern
from nodesmith_local.logs import logs_to


def test_the_functions_of_each_system_in_a_process_log_to_its_own_file(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("first.log", "second.log")]
    for path in files:
        with logs_to(path) as file, redirect_stdout(file):
            Telemetry(Concern.PROVISIONING, path.stem).ran({"PodsUnplaced": 1})
    for path in files:
        done = [line for line in path.read_text().splitlines() if '"done"' in line]
        assert [f'"cluster":"{path.stem}"' in line for line in done] == [True], path.name
