"""The forwarder in its cluster: manifests applied as users do, and the kubelet and container runtime of its one pod.

kwok's kubelets run nothing. Here the pod that the Deployment's controllers create, and kube-scheduler binds, gets what
it would have on a node: the process of its image (`image`), settings and restarts (`container`), and its service
account's volume (`volumes`). In the API server it may do only what the manifests grant.
"""

from tests.e2e.incluster.forwarder import InCluster

__all__ = ["InCluster"]
