"""What volumes ask of nodes beside their place: a limit on how many are attached, and claims for one pod at a time.

A node counts a volume once however many of its pods mount it (kube-scheduler: NodeVolumeLimits). Requests add up, so
what pods on a node share is added to what the node offers. Pods that still wait count each of their volumes, which is
too much where several of them mount the same: they may get more nodes than they need, never too few.
Not looked at: volumes still attached to a node that no pod mounts any more (VolumeAttachments).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from nodesmith.model.attachments import ATTACHABLE_EBS, EBS_DRIVER, UNLIMITED
from nodesmith.model.labels import INITIALIZED, NODEPOOL
from nodesmith.model.pods import Manifest
from nodesmith.observation.csinodes import ReducedCsiNode
from nodesmith.observation.podreduction import ReducedPod
from nodesmith.observation.volumes import Volumes

_AT_LEAST = 1
"""What a starting node's driver will take, as far as it is known before it has said: the driver never says less."""


class Attachments:
    """The volumes of all pods of one moment, and where they are attached."""

    def __init__(
        self, pods: Iterable[ReducedPod], volumes: Volumes, csi_nodes: Iterable[ReducedCsiNode]
    ) -> None:
        mounting = sorted((pod for pod in pods if pod.claims), key=_precedence)
        self._volumes = volumes
        self._limits = {each.name: each.limits for each in csi_nodes}
        self._attached = {_key(pod): self._ebs_claims(pod) for pod in mounting}
        self._used = self._shared_out(mounting)
        self._users: dict[str, ReducedPod] = {}
        for pod in mounting:
            for mount in pod.claims:
                self._users.setdefault(mount.key, pod)

    def count(self, pod: ReducedPod) -> int:
        """Give how many EBS volumes a pod needs attached; one that it mounts twice counts once."""
        return len(self._attached.get(_key(pod), ()))

    def refusal(self, pod: ReducedPod) -> str:
        """Say which claim is another pod's alone: one that has a node, or waits and comes before this one."""
        for mount in pod.claims:
            claim = self._volumes.claim(mount.key) or mount.template
            user = self._users[mount.key]
            if claim is not None and claim.single and _key(user) != _key(pod):
                name = mount.key.partition("/")[2]
                return (
                    f"persistentvolumeclaim {name!r} is ReadWriteOncePod, and the pod {user.name!r} uses it: one pod"
                    " at a time can have it"
                )
        return ""

    def offered(self, node: Manifest) -> Mapping[str, int]:
        """Give a node's places for EBS volumes as a resource; none where no pod asks for any."""
        if not any(self._attached.values()):
            return {}
        name = node["metadata"]["name"]
        labels = node["metadata"].get("labels") or {}
        limits = self._limits.get(name, {})
        limit = limits.get(EBS_DRIVER)
        if limit is not None:
            return {ATTACHABLE_EBS: limit + self._used.get(name, 0)}
        is_starting = NODEPOOL in labels and labels.get(INITIALIZED) != "true"
        return {ATTACHABLE_EBS: _AT_LEAST if is_starting and EBS_DRIVER not in limits else UNLIMITED}

    def _ebs_claims(self, pod: ReducedPod) -> frozenset[str]:
        return frozenset(m.key for m in pod.claims if self._volumes.driver(m) == EBS_DRIVER)

    def _shared_out(self, mounting: Iterable[ReducedPod]) -> Mapping[str, int]:
        """Give, by node, how many times more its pods count volumes than it attaches any."""
        counted: Counter[str] = Counter()
        distinct: dict[str, set[str]] = {}
        for pod in mounting:
            claims = self._attached[_key(pod)]
            counted[pod.whereabouts] += len(claims)
            distinct.setdefault(pod.whereabouts, set()).update(claims)
        return {node: counted[node] - len(claims) for node, claims in distinct.items() if node}


def _precedence(pod: ReducedPod) -> tuple[bool, bool, int, str, str]:
    """Pods with a node first, then nominated ones, then the oldest."""
    return not pod.node, not pod.nominated_node, pod.created, pod.namespace, pod.name


def _key(pod: ReducedPod) -> tuple[str, str]:
    return pod.namespace, pod.name
