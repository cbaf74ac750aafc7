"""Stand-ins for the parts of a cluster that are not nodesmith: controllers, scheduler, kubelets.

They work on the in-memory API server's store in process. `Cluster(store).start(speed)` runs them all; kubelets'
registration and heartbeats are `register_node` and `heartbeat`.
"""

from nodesmith_cli.local.cluster.cluster import Cluster
from nodesmith_cli.local.cluster.podrunner import RUN_SECONDS, STOP_SECONDS, Pace
from nodesmith_cli.local.cluster.registration import forget_node, heartbeat, register_node

__all__ = ["RUN_SECONDS", "STOP_SECONDS", "Cluster", "Pace", "forget_node", "heartbeat", "register_node"]
