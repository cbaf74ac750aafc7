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

    A wheel that is built from an sdist contains the sdist's own file.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file. An editable build has none: it reads the commit at run time."""
        if version == "editable" or not (Path(self.root) / ".git").exists():
            return
        process = subprocess.run(  # noqa: S603 a constant
            _COMMIT, cwd=self.root, capture_output=True, text=True, check=True
        )
        self._folder = tempfile.TemporaryDirectory()
        commit_file = Path(self._folder.name) / "_commit"
        commit_file.write_text(process.stdout)
        inside = "formats/nodesmith_formats" if self.target_name == "sdist" else "nodesmith_formats"
        build_data["force_include"][str(commit_file)] = f"{inside}/_commit"
