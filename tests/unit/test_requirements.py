import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from requirements.install import translated

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
ASKED = {
    path.with_suffix(".txt").name: path.read_text().splitlines() for path in ROOT.glob("requirements/*.in")
}
ASKED["run.txt"] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([^ ;]+)", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_pin_is_exact_and_has_its_hashes(path: Path) -> None:
    entries = re.findall(r"^[a-z].*(?:\n    --hash=sha256:[0-9a-f]{64}.*)+", path.read_text(), re.MULTILINE)
    assert len(entries) == len(re.findall(r"^[^\s#]", path.read_text(), re.MULTILINE)) > 0
    assert [entry for entry in entries if "==" not in entry.splitlines()[0]] == []


@pytest.mark.parametrize("name", sorted(ASKED))
def test_the_pins_are_what_was_asked_for(name: str) -> None:
    wanted = [Requirement(line) for line in (line.split("#")[0].strip() for line in ASKED[name]) if line]
    assert wanted
    found = pins(ROOT / "requirements" / name)
    assert [
        str(want) for want in wanted if not want.specifier.contains(found.get(canonical(want), "0"))
    ] == []


def test_sets_that_share_the_virtual_environment_agree() -> None:
    together: dict[str, set[str]] = {}
    for name in ("bootstrap", "run", "dev", "infra"):
        for project, version in pins(ROOT / "requirements" / f"{name}.txt").items():
            together.setdefault(project, set()).add(version)
    assert {project: versions for project, versions in together.items() if len(versions) > 1} == {}


def test_pips_configuration_reaches_uv_in_uvs_words(tmp_path: Path) -> None:
    listing = (
        ":env:.index-url='https://mirror.example/simple'\n"
        f":env:.find-links='{tmp_path} {tmp_path / 'missing'} https://wheels.example'\n"
        "global.extra-index-url='https://a.example\\nhttps://b.example'\n"
        "global.index-url='https://overruled.example/simple'\n"
        "user.cert='/etc/ssl/mirror.pem'\n"
        "user.no-such-setting='whatever'\n"
    )
    assert translated(listing) == {
        "UV_INDEX_URL": "https://mirror.example/simple",
        "UV_EXTRA_INDEX_URL": "https://a.example https://b.example",
        "SSL_CERT_FILE": "/etc/ssl/mirror.pem",
        "UV_FIND_LINKS": f"{tmp_path},https://wheels.example",
    }


def test_an_unknown_set_is_named(checkout: Path) -> None:
    run = install(checkout, "nonsense")
    assert (run.returncode, run.stderr) == (1, "nodesmith: there is no requirements/nonsense.txt\n")


def test_what_is_installed_already_is_seen_at_a_glance(checkout: Path) -> None:
    started = time.monotonic()
    run = install(checkout, "run")
    assert (run.returncode, run.stderr) == (0, "")
    assert time.monotonic() - started < 1


def test_a_pin_that_moved_is_installed_and_the_step_that_fails_is_named(checkout: Path) -> None:
    (checkout / "requirements" / "run.txt").write_text("moved==2\n")
    run = install(checkout, "run")
    assert run.returncode == 1
    assert run.stderr.startswith("nodesmith: installing run into .venv …\n")
    assert re.search(r"this step failed: .*/uv pip install .*run.txt", run.stderr)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout that has the set "run" installed, by a stamp and a uv that always fails."""
    files = {
        name: f"{name}==1\n"
        for name in ("requirements/bootstrap.txt", "requirements/run.txt", "pyproject.toml")
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(ROOT / "requirements" / "install.py", tmp_path / "requirements")
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (tmp_path / ".venv" / "lib" / python / "site-packages" / "pip").mkdir(parents=True)
    (tmp_path / ".venv" / "bin").mkdir()
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / "bin" / "uv").symlink_to(shutil.which("false") or "false")
    stamp = {Path(name).stem: sha256(text.encode()).hexdigest() for name, text in files.items()}
    stamp["project"] = stamp.pop("pyproject")
    (tmp_path / ".venv" / "installed.json").write_text(json.dumps(stamp))
    return tmp_path


def install(checkout: Path, *sets: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "requirements/install.py", *sets]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)


def canonical(requirement: Requirement) -> str:
    return re.sub(r"[-_.]+", "-", requirement.name).lower()
