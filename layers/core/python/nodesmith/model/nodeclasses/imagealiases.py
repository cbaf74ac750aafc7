"""AMI aliases such as `al2023@v20260115`: the valid versions of each family's images."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

LATEST = "latest"
_DATED = re.compile(r"v[0-9]{8}")
_NUMBERED = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-f]+)?")


def version_fault(alias: str) -> str:
    """Return why no image can ever have the version of an alias, empty if one can or if the family is unknown."""
    family, _, version = alias.partition("@")
    if version == LATEST or family not in _VERSIONS:
        return ""
    is_version, example = _VERSIONS[family]
    if is_version(version):
        return ""
    return f"alias {alias}: {version!r} is not a version of its images: use {LATEST} or {example}"


def _is_dated(version: str) -> bool:
    if not _DATED.fullmatch(version):
        return False
    try:
        datetime.strptime(f"{version}+0000", "v%Y%m%d%z")
    except ValueError:
        return False
    return True


def _is_numbered(version: str) -> bool:
    return _NUMBERED.fullmatch(version) is not None


_DATE = (_is_dated, "a date such as v20250821")
_VERSIONS: dict[str, tuple[Callable[[str], bool], str]] = {
    "al2": _DATE,
    "al2023": _DATE,
    "bottlerocket": (_is_numbered, "a release such as v1.50.0"),
}
