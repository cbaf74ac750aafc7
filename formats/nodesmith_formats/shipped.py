"""Files that are in their own folders in a checkout, and in this package in a wheel."""

from __future__ import annotations

from pathlib import Path

from nodesmith.errors import Rejected

_PACKAGED = Path(__file__).parent
_CHECKOUT = Path(__file__).parents[2]


def shipped(name: str, in_checkout: str) -> Path:
    """Return the path of a folder or file, from a checkout or from the installed package. Raises Rejected."""
    for path in (_PACKAGED / name, _CHECKOUT / in_checkout):
        if path.exists():
            return path
    raise Rejected(f"this installation lacks its {in_checkout!r}: reinstall nodesmith")
