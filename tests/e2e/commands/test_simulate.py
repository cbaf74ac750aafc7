"""The commands of docs/simulate.md as a user types them, on a local system."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.patience import hurried

ROOT = Path(__file__).resolve().parents[3]
QUICK = ("--seeds", "1")


def typed(folder: Path, *words: str) -> str:
    """Run `nodesmith` with these arguments in a folder, and return what it prints."""
    command = [sys.executable, "-m", "nodesmith_cli.main", *words]
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
    return ran.stdout


def test_the_commands_of_the_documentation_work(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in page.partition("## Try it")[2].split("```sh\n")[1:3]]
    commands = [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]
    assert [words[0] for words in commands] == ["simulate", "local", "simulate", "simulate"]
    printed = [
        typed(tmp_path, *words, *(QUICK if words[0] == "simulate" else ("--speed", f"{hurried(20):g}")))
        for words in commands
    ]
    assert "changed: NodePool/default" in printed[0]
    assert "of which 0 differ" in printed[2]
    assert "changed: prices of spot × 1.5" in printed[3]
