"""The packages for a second Python are complete before a test imports them, however many processes need them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.processes import interpreters


def test_packages_are_installed_once_when_two_processes_need_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installs: list[Path] = []

    def install(command: Sequence[str], _environment: Mapping[str, str]) -> None:
        (target,) = (Path(one.partition("=")[2]) for one in command if one.startswith("--target="))
        target.mkdir()
        time.sleep(0.2)
        (target / "numpy").touch()
        installs.append(target)

    monkeypatch.setattr(interpreters, "ROOT", tmp_path)
    monkeypatch.setattr(interpreters, "run", install)

    def numpy_exists(version: str) -> bool:
        return (interpreters.compiled(Path(version)) / "numpy").is_file()

    with ThreadPoolExecutor(2) as both:
        assert all(both.map(numpy_exists, ["python3.13", "python3.13"]))

    assert installs == [tmp_path / "build" / "interpreters" / "python3.13"]
