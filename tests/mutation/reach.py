"""Which tests reach which blocks of the code that is mutated, and how much processor time each test takes.

A pytest plugin. It adds a mark to each block while the module is imported, and reads the marks after each test. This is
much cheaper than a trace function.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any, TypedDict

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "layers" / "core" / "python" / "nodesmith"
KEPT = ROOT / "build" / "mutation"
_FOUND = KEPT / "reached.json"
_PART = "part"
_MARKS: dict[str, bytearray] = {}


def reached(folders: Sequence[str], processes: int) -> dict[str, Test]:
    """Return the tests that reach mutated code, by name, as kept from earlier runs or found now.

    Test files run again if they have changed, or if a test of theirs reaches a module that has changed. What is known
    of such files outside of `folders` is forgotten.
    """
    kept: Any = json.loads(_FOUND.read_text()) if _FOUND.is_file() else {"hashes": {}, "tests": {}}
    files = sorted(str(each) for folder in folders for each in _test_files(Path(folder)))
    sources = {str(path.relative_to(ROOT)): str(path.relative_to(CORE)) for path in mutated()}
    now = {path: sha256((ROOT / path).read_bytes()).hexdigest() for path in [*files, *sources]}
    changed = {path for path, found in now.items() if kept["hashes"].get(path) != found}
    modules = {module for path, module in sources.items() if path in changed}
    tests: dict[str, Test] = kept["tests"]
    stale = {n.partition("::")[0] for n, test in tests.items() if not modules.isdisjoint(test["reached"])}
    again = [path for path in files if path in changed or path in stale]
    if again:
        outdated = stale.union(again)
        hashes = {path: found for path, found in kept["hashes"].items() if path not in outdated} | now
        tests = {name: test for name, test in tests.items() if name.partition("::")[0] not in outdated}
        tests |= _measured(again, processes)
        KEPT.mkdir(parents=True, exist_ok=True)
        _FOUND.write_text(json.dumps({"hashes": hashes, "tests": tests}))
    return {name: test for name, test in tests.items() if name.partition("::")[0] in files}


def _test_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("test_*.py"))


def _measured(files: Sequence[str], processes: int) -> dict[str, Test]:
    for part in KEPT.glob(f"{_PART}*"):
        part.unlink()
    run = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", __name__, "-n", str(processes)]
    done = subprocess.run([sys.executable, "-m", "pytest", *run, *files], cwd=ROOT, check=False)
    if done.returncode > pytest.ExitCode.TESTS_FAILED:  # one that fails alone, too, will not count
        sys.exit("the tests could not be measured")
    parts = sorted(KEPT.glob(f"{_PART}*"))
    return {name: test for part in parts for name, test in json.loads(part.read_text()).items()}


def mutated() -> list[Path]:
    """Return the modules to mutate: decisions, effects, and the controllers that use effects."""
    effects = ("from nodesmith.effects import", "from nodesmith.launcheffects import")
    controllers = [
        path
        for path in (CORE / "controllers").rglob("*.py")
        if path.name == "runs.py" or any(each in path.read_text() for each in effects)
    ]
    return sorted(
        [*(CORE / "decisions").rglob("*.py"), CORE / "effects.py", CORE / "launcheffects.py", *controllers]
    )


class Test(TypedDict):
    """A test: its processor time in seconds, and by module the numbers of the blocks that it reaches."""

    seconds: float
    reached: dict[str, list[int]]


def blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    """Return the bodies of all functions, branches, loops and cases, those outside before those inside."""
    fields = ("body", "orelse", "finalbody")
    return [
        body
        for node in ast.walk(tree)
        if not isinstance(node, ast.Module | ast.ClassDef)
        for field in fields
        if isinstance(body := getattr(node, field, None), list) and body
    ]


class _Marking(SourceFileLoader):
    """Load a module in which each block first marks that it was reached."""

    def exec_module(self, module: ModuleType) -> None:
        path = Path(self.path)
        tree = ast.parse(path.read_text())
        every = blocks(tree)
        for number, body in enumerate(every):
            first = body[0]
            is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            mark = ast.parse(f"__marks__[{number}] = 1").body[0]
            body.insert(1 if is_docstring else 0, ast.copy_location(mark, first))
        marks = _MARKS[str(path.relative_to(CORE))] = bytearray(len(every))
        module.__dict__["__marks__"] = marks
        exec(compile(ast.fix_missing_locations(tree), self.path, "exec"), module.__dict__)  # noqa: S102


class _Finder(MetaPathFinder):
    paths = frozenset(map(str, mutated()))

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the modules that are mutated as Python does, and replace their loader."""
        if not name.startswith("nodesmith."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin not in self.paths:
            return None
        spec.loader = _Marking(name, spec.origin)
        return spec


class Reaching:
    """Collect for each test the time it takes and the blocks it reaches."""

    def __init__(self) -> None:
        self.tests: dict[str, Test] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began = process_time()
        for marks in _MARKS.values():
            marks[:] = bytes(len(marks))
        result = yield
        reached = {
            path: [number for number, mark in enumerate(marks) if mark]
            for path, marks in _MARKS.items()
            if any(marks)
        }
        if reached:
            seconds = round(process_time() - began, 3)
            self.tests[item.nodeid.split("@")[0]] = {"seconds": seconds, "reached": reached}
        return result

    def pytest_sessionfinish(self) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        if self.tests:
            KEPT.mkdir(parents=True, exist_ok=True)
            (KEPT / f"{_PART}{worker}.json").write_text(json.dumps(self.tests))


def pytest_configure(config: pytest.Config) -> None:
    sys.meta_path.insert(0, _Finder())
    config.pluginmanager.register(Reaching())
