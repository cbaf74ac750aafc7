"""A Kubernetes API server in memory, for the official client and for kubectl.

`ApiServer` serves HTTP; `Store` is the same cluster in process. It keeps the API's promises: resource versions,
watches, selectors, patches and server-side apply, status, finalizers, owners, eviction, CRDs with defaults and
validation, CEL rules included. It does not run webhooks, authorisation or containers.
"""

from nodesmith_cli.local.apiserver.deletion import DeleteOptions
from nodesmith_cli.local.apiserver.errors import ApiError
from nodesmith_cli.local.apiserver.server import ApiServer
from nodesmith_cli.local.apiserver.store import Store, Write

__all__ = ["ApiError", "ApiServer", "DeleteOptions", "Store", "Write"]
