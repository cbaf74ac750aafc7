"""Writes the commit of a build into the package, for `nodesmith version`."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMMIT = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]


class CommitHook(BuildHookInterface[Any]):
    """Adds `_commit`, a file with the abbreviated commit, to wheels and sdists that are built in a checkout.

    A wheel that is built from an sdist contains the file that the sdist has.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, unless the build is an editable one, which reads the commit when it is asked for."""
        if version == "editable" or not (Path(self.root) / ".git").exists():
            return
        done = subprocess.run(  # noqa: S603 a constant
            _COMMIT, cwd=self.root, capture_output=True, text=True, check=True
        )
        self._folder = tempfile.TemporaryDirectory()
        written = Path(self._folder.name) / "_commit"
        written.write_text(done.stdout)
        inside = "formats/nodesmith_formats" if self.target_name == "sdist" else "nodesmith_formats"
        build_data["force_include"][str(written)] = f"{inside}/_commit"
