"""What every node needs to start, whatever its image family, and the error for user data that does not allow it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    DO_NOT_SYNC_TAINTS,
    UNREGISTERED,
    Taint,
    is_label_value,
    kubelet_may_set,
)
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.nodeclasses.instancesettings import KubeletConfiguration
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo


@dataclass(frozen=True, slots=True)
class Start:
    """What a node needs to start. `max_pods` replaces the kubelet configuration's own value.

    `image_name` is the name of the node's image, empty if it is unknown.
    """

    claim: NodeClaim
    capacity_type: str
    max_pods: int
    nodeclass: EC2NodeClass
    cluster: ClusterInfo
    image_name: str = ""

    @property
    def kubelet(self) -> KubeletConfiguration:
        """The NodeClass's kubelet settings."""
        return self.nodeclass.kubelet

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the kubelet sets itself, sorted."""
        return node_labels(self.claim, self.capacity_type)

    @property
    def taints(self) -> list[Taint]:
        """The taints that the node registers with."""
        return registered_taints(self.claim)

    @property
    def dns_addresses(self) -> tuple[str, ...]:
        """The addresses of the cluster's DNS: the NodeClass's own, else the cluster's."""
        return self.kubelet.cluster_dns or ((self.cluster.dns_ip,) if self.cluster.dns_ip else ())

    @property
    def images(self) -> tuple[str, ...]:
        """The images to pull before the node is stopped, by their full names; empty for a node that stays."""
        return tuple(dict.fromkeys(filter(None, map(full_name, self.claim.images))))[:MOST_IMAGES]

    @property
    def joins_disks(self) -> bool:
        """Whether the node combines its instance store disks."""
        return self.nodeclass.instance_store_policy == "RAID0"


PULLING_POD = "nodesmith-images"
"""The static pod with which Bottlerocket pulls images. Its mirror pod is named after it and the Node."""
MOST_IMAGES = 16
"""The most images that a node pulls in advance."""
_IMAGE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._:/-]*?)(?P<tag>:[A-Za-z0-9_][\w.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_LONGEST_IMAGE = 400


def full_name(image: str) -> str:
    """Return the full name of a container image, as containerd needs it; empty if it is no valid name.

    The names come from the cluster and go into scripts that run as root, so nothing but letters, digits and `._-/:@` is
    let through.
    """
    match = _IMAGE.fullmatch(image) if len(image) <= _LONGEST_IMAGE else None
    if match is None:
        return ""
    name, tag, digest = match["name"], match["tag"] or "", match["digest"] or ""
    host, slash, _ = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        name = f"docker.io/{name if slash else f'library/{name}'}"
    return name + (tag or ("" if digest else ":latest")) + digest


def node_labels(claim: NodeClaim, capacity_type: str) -> dict[str, str]:
    """Return the labels that the kubelet sets itself. NodeRestriction forbids it labels in Kubernetes' own domains.

    Invalid label values are left out: the kubelet would read their quotes and commas as further flags.
    """
    labels = {**claim.labels, CAPACITY_TYPE: capacity_type, DO_NOT_SYNC_TAINTS: "true"}
    return {
        key: labels[key] for key in sorted(labels) if kubelet_may_set(key) and is_label_value(labels[key])
    }


def registered_taints(claim: NodeClaim) -> list[Taint]:
    """Return the taints that the node registers with, each once. `UNREGISTERED` keeps pods off until registration."""
    taints = {taint.identity: taint for taint in (*claim.taints, *claim.startup_taints, UNREGISTERED)}
    return [taints[identity] for identity in sorted(taints)]


class MalformedUserData(ValueError):
    """User data that cannot be merged with what the node needs.

    `line` is the first wrong line of `spec.userData`, counted from 1; 0 if the fault is in no single line.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.line = line


def line_at(text: str, position: int) -> int:
    """Return the number of the line that contains a position, counted from 1."""
    return text.count("\n", 0, position) + 1
