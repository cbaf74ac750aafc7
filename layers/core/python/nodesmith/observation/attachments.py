"""Requirements of volumes beside their location: attachment limits of nodes, and claims for a single pod.

A node counts a volume once, however many of its pods mount it (kube-scheduler: NodeVolumeLimits). Since requests are
added up, volumes that pods on a node share are added to what the node offers. For pending pods, each volume of each pod
counts. If several of them mount the same volume, they may get more nodes than they need, but never too few. Only
volumes of drivers with a limit count: EBS, and any driver for which a node's CSINode states a limit. Volumes that are
still attached to a node but that no pod mounts any more (VolumeAttachments) are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import INITIALIZED, INSTANCE_TYPE, NODEPOOL
from nodesmith.model.ec2.attachablevolumes import ATTACHABLE, EBS_DRIVER, UNLIMITED
from nodesmith.model.ec2.attachlimits import NO_LIMITS, AttachLimits
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.reduction.csinodes import ReducedCsiNode
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith.observation.volumes import Volumes

_AT_LEAST = 1
"""The limit of a starting node's EBS driver before it has reported one. The driver never reports less."""
_Mounted: TypeAlias = Mapping[str, frozenset[str]]
"""driver → the claims whose volumes it attaches"""


class Attachments:
    """The volumes of all pods at one moment, and where they are attached."""

    def __init__(
        self,
        pods: Iterable[ReducedPod],
        volumes: Volumes,
        csi_nodes: Iterable[ReducedCsiNode],
        nodes: Iterable[Manifest] = (),
    ) -> None:
        mounting = sorted((pod for pod in pods if pod.claims), key=_precedence)
        self._volumes = volumes
        self._limits = {each.name: each.limits for each in csi_nodes}
        stating = {d for limits in self._limits.values() for d, most in limits.items() if most is not None}
        self._limiting = {EBS_DRIVER, *stating}
        self._attached = {_key(pod): self._mounted(pod) for pod in mounting}
        self._asked = sorted({driver for mounted in self._attached.values() for driver in mounted})
        self._used = self._shared_out(mounting)
        self._users: dict[str, ReducedPod] = {}
        for pod in mounting:
            for mount in pod.claims:
                self._users.setdefault(mount.key, pod)
        self.of_new_nodes = self._told_of_types(nodes) if stating.intersection(self._asked) else NO_LIMITS

    def count(self, pod: ReducedPod) -> tuple[tuple[str, int], ...]:
        """Return how many volumes of each driver a pod needs. A volume that it mounts twice counts once."""
        mounted = self._attached.get(_key(pod), {})
        return tuple((driver, len(mounted[driver])) for driver in sorted(mounted))

    def refusal(self, pod: ReducedPod) -> str:
        """Return the reason if a claim of the pod is reserved for another pod, which takes precedence; else ""."""
        for mount in pod.claims:
            claim = self._volumes.claim(mount.key) or mount.template
            user = self._users[mount.key]
            if claim is not None and claim.single and _key(user) != _key(pod):
                name = mount.key.partition("/")[2]
                return (
                    f"persistentvolumeclaim {name!r} is ReadWriteOncePod, and the pod {user.name!r} uses it: only one"
                    " pod at a time can use it"
                )
        return ""

    def offered(self, node: Manifest) -> Mapping[str, int]:
        """Return a node's attachment limits as resources, only for drivers whose volumes any pod uses."""
        return {ATTACHABLE + driver: self._places(node, driver) for driver in self._asked}

    def _places(self, node: Manifest, driver: str) -> int:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        limits = self._limits.get(name, {})
        limit = limits.get(driver)
        if limit is not None:
            return limit + self._used.get((name, driver), 0)
        is_starting = NODEPOOL in labels and labels.get(INITIALIZED) != "true"
        if not is_starting or driver in limits:
            return UNLIMITED
        return (
            _AT_LEAST
            if driver == EBS_DRIVER
            else self.of_new_nodes.on(_type_of(node)).of(ATTACHABLE + driver)
        )

    def _told_of_types(self, nodes: Iterable[Manifest]) -> AttachLimits:
        """Return the limits that nodes state for the drivers that pods use, except EBS, for which more is known."""
        told: dict[str, dict[str, int]] = {}
        for node in nodes:
            kind, limits = _type_of(node), self._limits.get(node["metadata"]["name"], {})
            for driver in self._limiting.intersection(self._asked, limits) - {EBS_DRIVER}:
                limit = limits[driver]
                known = told.setdefault(driver, {})
                known[kind] = min(known.get(kind, UNLIMITED), UNLIMITED if limit is None else limit)
        return AttachLimits(FrozenMap({driver: FrozenMap(told[driver]) for driver in sorted(told)}))

    def _mounted(self, pod: ReducedPod) -> _Mounted:
        found: dict[str, set[str]] = {}
        for mount in pod.claims:
            driver = self._volumes.driver(mount)
            if driver in self._limiting:
                found.setdefault(driver, set()).add(mount.key)
        return {driver: frozenset(claims) for driver, claims in found.items()}

    def _shared_out(self, mounting: Iterable[ReducedPod]) -> Mapping[tuple[str, str], int]:
        """Return, by node and driver, the number of volumes counted by its pods beyond the distinct ones."""
        counted: Counter[tuple[str, str]] = Counter()
        distinct: dict[tuple[str, str], set[str]] = {}
        for pod in mounting:
            for driver, claims in self._attached[_key(pod)].items():
                where = pod.whereabouts, driver
                counted[where] += len(claims)
                distinct.setdefault(where, set()).update(claims)
        return {where: counted[where] - len(claims) for where, claims in distinct.items() if where[0]}


def _type_of(node: Manifest) -> str:
    return str((node["metadata"].get("labels") or {}).get(INSTANCE_TYPE) or "")


def _precedence(pod: ReducedPod) -> tuple[bool, bool, int, str, str]:
    """Return the sort key of a pod: pods with a node first, then nominated ones, then the oldest."""
    return not pod.node, not pod.nominated_node, pod.created, pod.namespace, pod.name


def _key(pod: ReducedPod) -> tuple[str, str]:
    return pod.namespace, pod.name
