"""Print the section of CHANGELOG.md for a version: the notes of a GitHub release.

python .ci/release_notes.py 0.1.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def release_notes(changelog: str, version: str) -> str:
    """Return the section of a version. Raises ValueError if there is none or it is empty."""
    sections = re.split(r"^## (.+)$", changelog, flags=re.MULTILINE)[1:]
    for heading, text in zip(sections[::2], sections[1::2], strict=True):
        if heading.split()[0].strip("[]") == version and text.strip():
            return f"{text.strip()}\n"
    raise ValueError(f"CHANGELOG.md has no section '## {version}'")


if __name__ == "__main__":
    try:
        sys.stdout.write(release_notes((ROOT / "CHANGELOG.md").read_text(), sys.argv[1]))
    except ValueError as error:
        sys.exit(str(error))
