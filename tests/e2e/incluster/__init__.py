"""The forwarder in its cluster: manifests applied as users do, and the kubelet and container runtime of its one pod.

kwok's kubelets run nothing. Here the pod that the Deployment's controllers make, and kube-scheduler binds, gets what it
would have on a node: the process of its image (`image`), settings and restarts (`container`), and its service account's
volume (`volumes`). It may do in the API server what the manifests grant, and nothing else.
"""

from tests.e2e.incluster.forwarder import InCluster

__all__ = ["InCluster"]
