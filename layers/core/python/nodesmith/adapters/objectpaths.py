"""Where the API server keeps what we write. Names come from outside, and are no paths."""

from __future__ import annotations

from urllib.parse import quote

PATHS = {
    "Node": "/api/v1/nodes",
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
    "EC2NodeClass": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "Provisioner": "/apis/karpenter.sh/v1alpha5/provisioners",
    "AWSNodeTemplate": "/apis/karpenter.k8s.aws/v1alpha1/awsnodetemplates",
    "Pod": "/api/v1/pods",
}


def object_path(kind: str, name: str) -> str:
    """Give the path of an object; a pod's name is `namespace/name`."""
    return pod_path(name) if kind == "Pod" else f"{PATHS[kind]}/{quote(name, safe='')}"


def pod_path(pod: str, subresource: str = "") -> str:
    """Give the path of a pod (`namespace/name`) or of one of its subresources."""
    namespace, _, name = pod.partition("/")
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path
