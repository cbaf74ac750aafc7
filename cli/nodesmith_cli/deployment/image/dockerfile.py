"""Parsing the forwarder's Dockerfile, which is the only place where the base images are pinned.

Only what that file uses is supported: `FROM … AS base-ARCHITECTURE` for each platform, and the last stage's settings.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodesmith.errors import Rejected
from nodesmith_cli.deployment.image.references import Reference, parse_reference

_BASE = "base-"
_CONTINUED, _COMMENT = re.compile(r"\\\n"), re.compile(r"^\s*#.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The image to build. `bases` are by architecture, pinned by digest. `folder` is the image's PYTHONPATH."""

    bases: Mapping[str, Reference]
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    user: str
    ports: Sequence[str]
    entrypoint: Sequence[str]
    folder: str


def read_recipe(dockerfile: Path) -> Recipe:
    """Parse the Dockerfile. Raises Rejected if an instruction is missing, or if a base is not pinned by digest."""
    bases: dict[str, Reference] = {}
    stage: list[tuple[str, str]] = []
    for instruction, rest in _instructions(dockerfile.read_text()):
        stage.append((instruction, rest))
        if instruction == "FROM":
            stage = []
            bases |= _base(rest)
    environment, last = _pairs(stage, "ENV"), dict(stage)
    if missing := {"USER", "EXPOSE", "ENTRYPOINT"} - last.keys() or ({"PYTHONPATH"} - environment.keys()):
        raise Rejected(f"{dockerfile}: its last stage lacks {', '.join(sorted(missing))}")
    if unpinned := [str(base) for base in bases.values() if not base.digest] or (
        [] if bases else ["no base"]
    ):
        raise Rejected(f"{dockerfile}: {', '.join(unpinned)}: pin it with @sha256:…")
    return Recipe(
        bases,
        environment,
        _pairs(stage, "LABEL"),
        last["USER"],
        tuple(port if "/" in port else f"{port}/tcp" for port in last["EXPOSE"].split()),
        tuple(json.loads(last["ENTRYPOINT"])),
        environment["PYTHONPATH"],
    )


def _base(rest: str) -> dict[str, Reference]:
    """Parse `IMAGE AS base-ARCHITECTURE`. Returns nothing for other stages."""
    name, *more = rest.split()
    architecture = more[-1].removeprefix(_BASE) if more and more[-1].startswith(_BASE) else ""
    return {architecture: parse_reference(name)} if architecture else {}


def _pairs(stage: Sequence[tuple[str, str]], instruction: str) -> dict[str, str]:
    words = [word for name, rest in stage if name == instruction for word in shlex.split(rest)]
    return dict(word.split("=", 1) for word in words)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    for line in _CONTINUED.sub(" ", _COMMENT.sub("", text)).splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction:
            yield instruction.upper(), rest.strip()
