"""Stand-ins for the parts of a cluster that are not nodesmith: controllers, scheduler, kubelets.

They work in process on the in-memory API server's store. `Cluster(store).start(speed)` runs them all; `register_node`
and `heartbeat` do what kubelets do for their nodes.
"""

from nodesmith_local.cluster.cluster import Cluster
from nodesmith_local.cluster.podrunner import RUN_SECONDS, STOP_SECONDS, Pace
from nodesmith_local.cluster.registration import heartbeat, register_node

__all__ = ["RUN_SECONDS", "STOP_SECONDS", "Cluster", "Pace", "heartbeat", "register_node"]
