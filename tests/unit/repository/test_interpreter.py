import gzip
import json
import platform
import stat
from pathlib import Path

import pytest

from requirements import interpreter
from tests.processes import lambdapython

_DIRECTORY, _LINK = 1 << 31, 1 << 27


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the home, the PATH and the checkout of a machine without any Python."""
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(interpreter, "INSTALLED", tmp_path / "build")
    monkeypatch.setattr(interpreter, "UV", tmp_path / "bin" / "uv")
    monkeypatch.setattr(interpreter, "uv_environment", dict)
    executable(tmp_path / "bin" / "uv", f'echo uv "$2" "$3" >> {tmp_path / "calls"}; exit 2')
    return tmp_path


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def calls(machine: Path) -> list[str]:
    return (machine / "calls").read_text().splitlines()


def test_the_newest_patch_release_is_found_in_pyenvs_folder(machine: Path) -> None:
    paths = [machine / ".pyenv/versions" / each / "bin/python3.14" for each in ("3.14.9", "3.14.10")]
    for path in paths:
        executable(path, "exit 0")

    assert interpreter.find("3.14") == paths[1]


def test_a_name_on_the_path_that_runs_no_python_is_passed_over(machine: Path) -> None:
    executable(machine / "bin/python3.14", "exit 127")
    of_uv = executable(machine / ".local/share/uv/python/cpython-3.14.2-linux/bin/python3.14", "exit 0")

    assert interpreter.find("3.14") == of_uv
    assert interpreter.find("3.13") is None


def test_uv_installs_what_is_missing(machine: Path) -> None:
    python = machine / "build/cpython-3.14.2-linux/bin/python3.14"
    executable(machine / "bin/uv", f"/bin/mkdir -p {python.parent}; /bin/ln -s /bin/true {python}")

    assert interpreter.provide("3.14") == python


def test_what_cannot_be_installed_is_tried_again_only_when_asked(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert interpreter.provide("3.14") is None
    assert "can neither be found nor installed" in capsys.readouterr().err
    assert interpreter.provide("3.14") is None
    assert calls(machine) == ["uv install 3.14"]

    assert interpreter.provide("3.14", again=True) is None
    assert calls(machine) == ["uv install 3.14"] * 2


def test_a_go_module_is_the_source_where_uvs_downloads_cannot_be_reached(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_module(machine, monkeypatch, "h1:pinned")

    python = interpreter.provide("3.14")

    assert python == machine / "build/v1/bin/python3.14"
    assert python.read_text() == "#!/bin/sh\nexit 0\n"
    assert (python.parent / "python").readlink() == Path("python3.14")
    assert stat.S_IMODE((machine / "build/v1/lib/os.py").stat().st_mode) == 0o644
    assert sorted(path.name for path in (machine / "build").iterdir()) == ["v1"]


def test_a_go_module_of_another_hash_is_not_used(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    go_module(machine, monkeypatch, "h1:another")

    assert interpreter.provide("3.14") is None
    assert "h1:another instead of h1:pinned: not used" in capsys.readouterr().err


def test_suites_are_said_not_to_have_been_tried_where_lambdas_python_is_missing(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lambdapython, "NOT_TRIED", machine / "build" / "not-tried")

    assert lambdapython.main(["tests/unit"]) == 0

    assert "NOT tried on Lambda's Python" in capsys.readouterr().err
    assert (machine / "build" / "not-tried").read_text().startswith("this machine has no Python 3.14")


def go_module(machine: Path, monkeypatch: pytest.MonkeyPatch, sum_: str) -> None:
    """Put a `go` on the PATH that has a module with a Python for this machine, and pin that module."""
    monkeypatch.setattr(interpreter, "_GO_MODULES", {"3.14": interpreter.GoModule("host/m@v1", "h1:pinned")})
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    data = machine / "module/python/internal/data/linux-amd64"
    (data / "bin").mkdir(parents=True)
    (data / "lib").mkdir()
    (data / "bin/python3.14.gz").write_bytes(gzip.compress(b"#!/bin/sh\nexit 0\n"))
    (data / "lib/os.py").write_text("")
    files = [
        {"name": "bin", "size": 0, "perm": _DIRECTORY | 0o755},
        {"name": "bin/python", "size": 10, "perm": _LINK, "symlink": "python3.14"},
        {"name": "bin/python3.14", "size": 17, "perm": 0o755, "compressed": True},
        {"name": "lib", "size": 0, "perm": _DIRECTORY | 0o755},
        {"name": "lib/os.py", "size": 0, "perm": 0o644},
    ]
    (data / "files.json").write_text(json.dumps({"files": files}))
    answer = json.dumps({"Dir": str(machine / "module"), "Sum": sum_})
    executable(machine / "bin/go", f"echo '{answer}'")
