"""The forwarder's image as a folder, laid out as its Dockerfile says.

What the Dockerfile forgets to copy or install is missing here as well. There are two stand-ins: packages are those
installed beside the tests, and `python` is the tests' interpreter in an environment without packages.
"""

from __future__ import annotations

import compileall
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath
from venv import EnvBuilder

_PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==", re.MULTILINE)
_ELSEWHERE = {
    "..",
    "__pycache__",
}  # parts of packages outside site-packages, or in no folder of their own


@dataclass(frozen=True, slots=True)
class Image:
    """What a container starts from. `port` is the only port that the image exposes."""

    root: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    port: int


@dataclass(slots=True)
class _Stage:
    root: Path
    workdir: str = "/"
    instructions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        return self.root / str(PurePosixPath(self.workdir, name)).lstrip("/")


def build_image(dockerfile: Path, context: Path, folder: Path) -> Image:
    """Build into `folder`. Raises ValueError for an unknown instruction or a file that the context does not include."""
    stages: dict[str, _Stage] = {}
    for instruction, rest in _instructions(dockerfile.read_text()):
        if instruction == "FROM":
            name = rest.split()[-1]
            stage = stages[name] = _Stage(folder / f"stage-{len(stages)}")
            stage.root.mkdir(parents=True)
        elif instruction == "COPY":
            _copy(rest, stage, stages, context, dockerfile.with_name(f"{dockerfile.name}.dockerignore"))
        elif instruction == "RUN":
            _run(shlex.split(rest), stage)
        elif instruction == "ENV":
            stage.environment |= dict(word.split("=", 1) for word in shlex.split(rest))
        elif instruction == "WORKDIR":
            stage.workdir = rest
        else:
            stage.instructions[instruction] = rest
    EnvBuilder(symlinks=True).create(folder / "python")
    return _image(stage, str(folder / "python" / "bin" / "python"))


def _image(stage: _Stage, interpreter: str) -> Image:
    program, *arguments = json.loads(stage.instructions["ENTRYPOINT"])
    if program != "python":
        raise ValueError(f"ENTRYPOINT starts {program!r}, only python is supported here")
    environment = {
        name: str(stage.path(text)) if text.startswith("/") else text
        for name, text in stage.environment.items()
    }
    return Image(stage.root, (interpreter, *arguments), environment, int(stage.instructions["EXPOSE"]))


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    whole = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    for line in filter(None, map(str.strip, whole.splitlines())):
        instruction, _, rest = line.partition(" ")
        yield instruction, rest.strip()


def _copy(rest: str, stage: _Stage, stages: Mapping[str, _Stage], context: Path, ignoring: Path) -> None:
    *flags, source, target = rest.split()
    if flags:
        origin = stages[flags[0].removeprefix("--from=")].path(source)
    else:
        allowed = [line[1:] for line in ignoring.read_text().split() if line.startswith("!")]
        if not any(PurePosixPath(source).is_relative_to(name) for name in allowed):
            raise ValueError(f"COPY {source}: {ignoring.name} keeps it out of the build's context")
        origin = context / source
    destination = stage.path(target)
    if origin.is_dir():
        ignored = shutil.ignore_patterns("__pycache__") if not flags else None
        shutil.copytree(origin, destination, symlinks=True, ignore=ignored, dirs_exist_ok=True)
    else:
        destination.mkdir(parents=True, exist_ok=True)
        shutil.copy2(origin, destination)


def _run(words: Sequence[str], stage: _Stage) -> None:
    match words:
        case ["python", "-m", "pip", "install", *options]:
            pins = stage.path(options[options.index("--requirement") + 1]).read_text()
            target = stage.path(options[options.index("--target") + 1])
            target.mkdir(parents=True, exist_ok=True)
            for match in _PINNED.finditer(pins):
                _install(match["name"], target)
        case ["python", "-m", "compileall", *_, folder]:
            for package in stage.path(folder).iterdir():
                if package.is_dir() and not package.is_symlink():
                    compileall.compile_dir(package, quiet=1)
        case _:
            raise ValueError(f"RUN {shlex.join(words)}: this is not simulated")


def _install(name: str, target: Path) -> None:
    package = distribution(name)
    for top in {file.parts[0] for file in package.files or ()} - _ELSEWHERE:
        (target / top).symlink_to(Path(str(package.locate_file(top))))
