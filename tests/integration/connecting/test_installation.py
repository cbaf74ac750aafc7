"""The wheel, installed into an environment of its own with the dependencies of one kind of installation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nodesmith_cli.access.preconditions import SIMULATOR_LIBRARIES

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples" / "express-test")
GIT = ("git", "-C", str(ROOT))
NEED_THE_EXTRA = (["demo"], ["local", "run", "-f", EXAMPLE], ["local", "up"], ["local", "interrupt", "node"])
# Imports every module that other commands than local, demo and ui may import, also the ones that load late.
IMPORT_ALL = """
import pkgutil, importlib, nodesmith_cli, nodesmith_formats
names = [each.name for package in (nodesmith_cli, nodesmith_formats)
         for each in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
without = ("nodesmith_cli.simulator.localcommands", "nodesmith_cli.views.ui.")
wanted = [name for name in names if not name.startswith(without)]
for name in wanted:
    importlib.import_module(name)
print(len(wanted), "of", len(names))
"""

pytestmark = pytest.mark.xdist_group("installation")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [made] = folder.glob("nodesmith-*.whl")
    return made


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `nodesmith` of a new environment with the wheel and what it requires."""
    folder, packages = environment(tmp_path_factory.mktemp("base"))
    install = [
        sys.executable,
        "-m",
        "pip",
        f"--python={folder / 'bin' / 'python'}",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",  # the tests import half of the modules
        "--no-index",
    ]
    subprocess.run([*install, str(wheel)], check=True)
    link_required(project_in(packages), set(), packages)
    return folder / "bin" / "nodesmith"


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `nodesmith` of an environment with the extra as well.

    It links the modules that are installed in `base`, so that Python compiles them once.
    """
    folder, packages = environment(tmp_path_factory.mktemp("whole"))
    project = project_in(packages_of(base.parents[1]))
    link(project, packages)
    link_required(project, {"local"}, packages)
    script = folder / "bin" / "nodesmith"
    script.write_text(base.read_text().replace(str(base.parent), str(script.parent)))
    script.chmod(0o755)
    return script


def environment(folder: Path) -> tuple[Path, Path]:
    """Create an environment without packages; return it and the folder for its packages."""
    venv.create(folder, with_pip=False)
    return folder, packages_of(folder)


def packages_of(folder: Path) -> Path:
    return next((folder / "lib").glob("python*/site-packages"))


def project_in(packages: Path) -> Distribution:
    [project] = packages.glob("nodesmith-*.dist-info")
    return Distribution.at(project)


def link_required(project: Distribution, extras: set[str], packages: Path) -> None:
    """Link the requirements from the environment that runs the tests, because tests use no network."""
    for each in required_by(project, extras):
        link(each, packages)


def required_by(project: Distribution, extras: set[str]) -> list[Distribution]:
    """Return the distributions that pip would install for a project with these extras."""
    found: dict[str, Distribution] = {}
    left = [(project, extras)]
    while left:
        asking, chosen = left.pop()
        for requirement in wanted(asking, chosen):
            name = canonicalize_name(requirement.name)
            if name not in found or requirement.extras:
                found[name] = distribution(name)
                left.append((found[name], requirement.extras))
    return list(found.values())


def wanted(project: Distribution, extras: set[str]) -> Iterator[Requirement]:
    for line in project.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def link(project: Distribution, into: Path) -> None:
    """Link a distribution's files from where they are installed, except for its scripts."""
    for top in sorted({file.parts[0] for file in project.files or ()} - {"..", "__pycache__"}):
        target = into / top
        if not target.exists():
            target.symlink_to(Path(str(project.locate_file(top))))


def output_of(nodesmith: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user of the installation does, without a kubeconfig and an AWS account."""
    home = str(nodesmith.parent)
    environment = {"PATH": os.environ["PATH"], "HOME": home, "AWS_EC2_METADATA_DISABLED": "true"}
    return subprocess.run(
        [nodesmith, *arguments], cwd=home, env=environment, capture_output=True, text=True, check=False
    )


def test_an_installation_without_the_extra_has_none_of_the_simulators_libraries(base: Path) -> None:
    look = f"import importlib.util as u; print([n for n in {SIMULATOR_LIBRARIES!r} if u.find_spec(n)])"
    ran = subprocess.run([base.parent / "python", "-c", look], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["", "demo", "local", "local up", "plan"])
def test_commands_describe_themselves_without_the_extra(command: str, base: Path) -> None:
    ran = output_of(base, *command.split(), "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"Usage: nodesmith {command}".rstrip())


def test_an_installation_tells_the_commit_it_was_built_from(base: Path) -> None:
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    reported = json.loads(output_of(base, "version", "-o", "json").stdout)
    assert len(reported["commit"].removesuffix("-dirty")) == 12
    assert head.stdout.startswith(reported["commit"].removesuffix("-dirty"))


def test_all_but_the_simulator_can_be_imported_without_the_extra(base: Path) -> None:
    ran = subprocess.run(
        [base.parent / "python", "-c", IMPORT_ALL], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    imported, _, there = ran.stdout.partition(" of ")
    assert int(there) - 30 < int(imported) < int(there)


def test_plan_and_validate_work_without_the_extra(base: Path) -> None:
    planned, validated = output_of(base, "plan", "-f", EXAMPLE), output_of(base, "validate", "-f", EXAMPLE)
    assert planned.returncode == 0, planned.stderr
    assert "20 pods" in planned.stdout
    assert (validated.returncode, validated.stdout) == (0, "3 objects: 0 errors, 0 warnings\n")


@pytest.mark.parametrize("command", NEED_THE_EXTRA, ids=" ".join)
def test_the_simulators_commands_say_in_one_line_what_to_install(command: list[str], base: Path) -> None:
    ran = output_of(base, *command)
    assert ran.returncode == 2
    assert ran.stdout == ""
    [line] = ran.stderr.splitlines()
    assert line.endswith("install it with `pipx install --force 'nodesmith[local]'`")


def test_the_page_says_in_one_line_what_to_install(base: Path) -> None:
    ran = output_of(base, "ui")
    assert (ran.returncode, ran.stdout) == (2, "")
    [line] = ran.stderr.splitlines()
    assert line.endswith("install it with `pipx install --force 'nodesmith[ui]'`")


def test_the_wheel_contains_the_page(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    own = [
        each for each in (ROOT / "cli/nodesmith_cli/views/ui").rglob("*.*") if "__pycache__" not in each.parts
    ]
    assert len(own) > 25
    assert {str(each.relative_to(ROOT / "cli")) for each in own} <= names


def test_the_extra_brings_the_simulator(whole: Path) -> None:
    ran = output_of(whole, "local", "run", "-f", EXAMPLE, "--speed", "20", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["pendingPods"] == []
