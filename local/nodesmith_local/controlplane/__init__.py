"""A real Kubernetes control plane on loopback: etcd, API server, controllers, scheduler, and kwok's kubelets.

`find_binaries` finds the programs, or builds them from the Go modules of a checkout. `ControlPlane` runs them with its
own certificates, ports and folder, and ends them when it ends, even if it is killed.
"""

from nodesmith_local.controlplane.authenticator import User
from nodesmith_local.controlplane.binaries import PROGRAMS, find_binaries
from nodesmith_local.controlplane.plane import ControlPlane

__all__ = ["PROGRAMS", "ControlPlane", "User", "find_binaries"]
