"""Where the volumes of a pod allow it to run, by the rules of kube-scheduler, and how many a node can attach.

A bound claim ties a pod to where its volume can be reached. A claim that waits for its first consumer can be bound to
any free volume that fits, or to a new volume where its StorageClass provisions them. For any other claim, the location
is unknown until it is bound. CSI storage capacity and the number of free volumes are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import INITIALIZED, INSTANCE_TYPE, NODEPOOL
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.quantities import format_bytes
from nodesmith.model.ec2.capacity import ATTACHABLE, EBS_DRIVER, NO_LIMITS, UNLIMITED, AttachLimits
from nodesmith.model.kubernetes.pods import NOT_ALL_VOLUMES, Manifest
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith.observation.reduction.volumes import (
    ANYWHERE,
    NOWHERE,
    Mount,
    ReducedClaim,
    ReducedClass,
    ReducedCsiNode,
    ReducedVolume,
    Storage,
    common_terms,
    either,
    node_terms,
    read_terms,
)


class Reach(NamedTuple):
    """Where volumes can be reached from (see `ANYWHERE`), or why no node fits, empty if one may."""

    terms: str = ANYWHERE
    refusal: str = ""


class Volumes:
    """The PersistentVolumeClaims, PersistentVolumes and StorageClasses at one moment."""

    def __init__(
        self,
        claims: Iterable[ReducedClaim],
        volumes: Iterable[ReducedVolume],
        classes: Iterable[ReducedClass],
    ) -> None:
        self._claims = {claim.key: claim for claim in claims}
        self._volumes = {volume.name: volume for volume in volumes}
        self._classes = {storage_class.name: storage_class for storage_class in classes}
        free = [v for _, v in sorted(self._volumes.items()) if v.offers]
        self._kept = {volume.claim: volume for volume in free if volume.claim}
        self._free = [volume for volume in free if not volume.claim]
        defaults = sorted((c for c in classes if c.is_default), key=lambda c: c.name)
        self._default = max(defaults, key=lambda c: c.created, default=None)
        self._matches: dict[Storage, tuple[str, ...]] = {}

    def reach(self, pod: ReducedPod) -> Reach:
        """Return where all of a pod's volumes can be reached from, or the first obstacle."""
        terms_by_claim: list[tuple[str, str]] = []
        for mount in pod.claims:
            reach = self._of_mount(mount, pod.uid)
            if reach.refusal:
                return reach
            terms_by_claim.append((_claim_text(mount.key), reach.terms))
        return _together(terms_by_claim)

    def claim(self, key: str) -> ReducedClaim | None:
        """Return a claim by `namespace/name`, None if it does not exist."""
        return self._claims.get(key)

    def driver(self, mount: Mount) -> str:
        """Return the CSI driver that attaches, or will attach, the volume.

        Empty if there is none or if it is not known yet.
        """
        claim = self._claims.get(mount.key) or mount.template
        if claim is None:
            return ""
        if claim.volume:
            volume = self._volumes.get(claim.volume)
            return volume.driver if volume else ""
        storage_class = self._class_of(claim.requested_storage) if claim.requested_storage else None
        return storage_class.driver if storage_class and storage_class.provisions else ""

    def _class_of(self, asks: Storage) -> ReducedClass | None:
        name = asks.storage_class
        if name is None:
            return self._default
        return self._classes.get(name)

    def _of_mount(self, mount: Mount, pod_uid: str) -> Reach:
        claim, name = self._claims.get(mount.key), _claim_text(mount.key)
        if claim is None:
            missing = (
                f"{name} not found: create it in the pod's namespace, or fix the name in the pod's volumes"
            )
            return self._of(mount.template) if mount.template else Reach(refusal=missing)
        if mount.template and claim.controller != pod_uid:
            return Reach(
                refusal=f"{name} has the name of the pod's ephemeral volume, but was not created for it: remove it"
            )
        return self._of(claim)

    def _of(self, claim: ReducedClaim) -> Reach:
        name = _claim_text(claim.key)
        if claim.deleting:
            return Reach(refusal=f"{name} is being deleted: create it again")
        if claim.lost:
            return Reach(refusal=f"{name} has lost its persistentvolume {claim.volume!r}: create both again")
        if claim.requested_storage:
            return self._unbound(claim, claim.requested_storage, name)
        volume = self._volumes.get(claim.volume)
        missing = f"persistentvolume {claim.volume!r}, to which {name} is bound, not found: create both again"
        return Reach(volume.terms) if volume else Reach(refusal=missing)

    def _unbound(self, claim: ReducedClaim, asks: Storage, name: str) -> Reach:
        """Return the reach of an unbound claim, which is only known if its class waits for the first consumer."""
        storage_class = self._class_of(asks)
        class_name = storage_class.name if storage_class else asks.storage_class
        if claim.volume:
            return Reach(
                refusal=f"{name} is not bound yet to the persistentvolume {claim.volume!r} that it names"
            )
        if not class_name:
            return Reach(
                refusal=f"{name} is not bound and has no StorageClass: add one, or create a volume for it"
            )
        if storage_class is None:
            hint = did_you_mean(class_name, set(self._classes))
            return Reach(refusal=f"storageclass.storage.k8s.io {class_name!r} of {name} not found{hint}")
        if not storage_class.waits:
            return Reach(
                refusal=f"{name} is not bound yet: its StorageClass {class_name!r} binds immediately (Immediate), so"
                " its volume must exist first; with WaitForFirstConsumer it is created where the pod runs"
            )
        if claim.selected_node:
            return Reach(node_terms(claim.selected_node))
        return self._possible(claim.key, asks, storage_class)

    def _possible(self, key: str, asks: Storage, storage_class: ReducedClass) -> Reach:
        reserved = self._kept.get(key)
        if reserved:
            return Reach(reserved.terms)
        if storage_class.provisions and storage_class.terms == ANYWHERE:
            return Reach()
        places = (
            *self._matching(asks, storage_class.name),
            *([storage_class.terms] if storage_class.provisions else []),
        )
        if places:
            return Reach(either(places))
        requested = ", ".join([format_bytes(asks.storage_bytes), *asks.access_modes])
        return Reach(
            refusal=f"{_claim_text(key)} finds no free persistentvolume of StorageClass {storage_class.name!r}"
            f" ({requested}), and that class provisions none"
        )

    def _matching(self, asks: Storage, storage_class: str) -> tuple[str, ...]:
        """Return the locations of the free volumes that a claim could be bound to."""
        if asks not in self._matches:
            self._matches[asks] = tuple(
                volume.terms
                for volume in self._free
                if volume.offers
                and volume.offers.storage_class == storage_class
                and volume.offers.storage_bytes >= asks.storage_bytes
                and volume.offers.volume_mode == asks.volume_mode
                and set(asks.access_modes) <= set(volume.offers.access_modes)
                and (asks.selector is None or asks.selector.matches(volume.labels))
            )
        return self._matches[asks]


def _together(terms_by_claim: list[tuple[str, str]]) -> Reach:
    """Return the intersection of claims' reaches. If two claims have no location in common, the refusal names both."""
    terms = ANYWHERE
    for index, (name, own_terms) in enumerate(terms_by_claim):
        if own_terms == NOWHERE:
            return Reach(
                refusal=f"the node affinity of the volume of {name} allows no node: update or replace the volume"
            )
        narrowed = common_terms(terms, own_terms)
        if narrowed == NOWHERE:
            clash = (pair for pair in terms_by_claim[:index] if common_terms(pair[1], own_terms) == NOWHERE)
            other, other_terms = next(clash, ("the others", terms))
            return Reach(
                refusal=f"{NOT_ALL_VOLUMES}: {name} needs {_places(own_terms)}, {other} {_places(other_terms)}"
            )
        terms = narrowed
    return Reach(terms)


def _places(terms: str) -> str:
    return " or ".join("; ".join(str(term[key]) for key in sorted(term)) for term in read_terms(terms))


def _claim_text(key: str) -> str:
    return f"persistentvolumeclaim {key.partition('/')[2]!r}"


# A node counts a volume once, however many of its pods mount it (kube-scheduler: NodeVolumeLimits). Since requests
# are added up, volumes that pods on a node share are added to what the node offers. For pending pods, each volume
# of each pod counts. If several of them mount the same volume, they may get more nodes than they need, but never
# too few. Only volumes of drivers with a limit count: EBS, and any driver for which a node's CSINode states a
# limit. Volumes that are still attached to a node but that no pod mounts any more (VolumeAttachments) are ignored.
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
        self._limits = {csi_node.name: csi_node.limits for csi_node in csi_nodes}
        stating = {d for limits in self._limits.values() for d, limit in limits.items() if limit is not None}
        self._limiting = {EBS_DRIVER, *stating}
        self._attached = {_key(pod): self._mounted(pod) for pod in mounting}
        self._asked = sorted({driver for mounted in self._attached.values() for driver in mounted})
        self._used = self._shared_out(mounting)
        self._users: dict[str, ReducedPod] = {}
        for pod in mounting:
            for mount in pod.claims:
                self._users.setdefault(mount.key, pod)
        self.of_new_nodes = self._limits_of_types(nodes) if stating.intersection(self._asked) else NO_LIMITS

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

    def _limits_of_types(self, nodes: Iterable[Manifest]) -> AttachLimits:
        """Return the limits that nodes state for the drivers that pods use, except EBS, for which more is known."""
        by_driver: dict[str, dict[str, int]] = {}
        for node in nodes:
            kind, limits = _type_of(node), self._limits.get(node["metadata"]["name"], {})
            for driver in self._limiting.intersection(self._asked, limits) - {EBS_DRIVER}:
                limit = limits[driver]
                by_type = by_driver.setdefault(driver, {})
                by_type[kind] = min(by_type.get(kind, UNLIMITED), UNLIMITED if limit is None else limit)
        return AttachLimits(FrozenMap({driver: FrozenMap(by_driver[driver]) for driver in sorted(by_driver)}))

    def _mounted(self, pod: ReducedPod) -> _Mounted:
        claims_by_driver: dict[str, set[str]] = {}
        for mount in pod.claims:
            driver = self._volumes.driver(mount)
            if driver in self._limiting:
                claims_by_driver.setdefault(driver, set()).add(mount.key)
        return {driver: frozenset(claims) for driver, claims in claims_by_driver.items()}

    def _shared_out(self, mounting: Iterable[ReducedPod]) -> Mapping[tuple[str, str], int]:
        """Return, by node and driver, the number of volumes counted by its pods beyond the distinct ones."""
        counted: Counter[tuple[str, str]] = Counter()
        distinct: dict[tuple[str, str], set[str]] = {}
        for pod in mounting:
            for driver, claims in self._attached[_key(pod)].items():
                key = pod.bound_or_nominated_node, driver
                counted[key] += len(claims)
                distinct.setdefault(key, set()).update(claims)
        return {key: counted[key] - len(claims) for key, claims in distinct.items() if key[0]}


def _type_of(node: Manifest) -> str:
    return str((node["metadata"].get("labels") or {}).get(INSTANCE_TYPE) or "")


def _precedence(pod: ReducedPod) -> tuple[bool, bool, int, str, str]:
    """Return the sort key of a pod: pods with a node first, then nominated ones, then the oldest."""
    return not pod.node, not pod.nominated_node, pod.created, pod.namespace, pod.name


def _key(pod: ReducedPod) -> tuple[str, str]:
    return pod.namespace, pod.name
