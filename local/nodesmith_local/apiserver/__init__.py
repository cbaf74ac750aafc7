"""A Kubernetes API server in memory, for the official client and for kubectl.

`ApiServer` serves HTTP; `Store` is the same cluster in process. It keeps the API's promises: resource versions,
watches, selectors, patches and server-side apply, status, finalizers, owners, eviction, and CRDs with defaults and
validation, CEL rules included. It runs no webhooks and no containers, and does not check authorization.
"""

from nodesmith_formats.kubernetes.errors import ApiError
from nodesmith_local.apiserver.server import ApiServer
from nodesmith_local.apiserver.storage.deletion import DeleteOptions
from nodesmith_local.apiserver.storage.store import Store, Write

__all__ = ["ApiError", "ApiServer", "DeleteOptions", "Store", "Write"]
