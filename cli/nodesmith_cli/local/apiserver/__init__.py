"""A Kubernetes API server in memory, for the official client and for kubectl.

`ApiServer` serves HTTP; `Store` is the same cluster in process. It keeps the API's promises: resource versions,
watches, selectors, patches and server-side apply, status, finalizers, owners, eviction, and CRDs with defaults and
validation, CEL rules included. It runs no webhooks and no containers, and does not check authorization.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodesmith_cli.local.apiserver.deletion import DeleteOptions
    from nodesmith_cli.local.apiserver.errors import ApiError
    from nodesmith_cli.local.apiserver.server import ApiServer
    from nodesmith_cli.local.apiserver.store import Store, Write

__all__ = ["ApiError", "ApiServer", "DeleteOptions", "Store", "Write"]
_MODULES = {
    "ApiError": "errors",
    "ApiServer": "server",
    "DeleteOptions": "deletion",
    "Store": "store",
    "Write": "store",
}


def __getattr__(name: str) -> object:
    """Import `name` on first access (PEP 562), so that checking manifests against schemas does not load the server."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
