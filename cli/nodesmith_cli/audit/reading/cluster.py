"""The cluster of a plan: every manifest that an audit uses, read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodesmith_cli.audit.reading.devices import DeviceClaims
from nodesmith_cli.audit.reading.fields import UNREADABLE, Manifest
from nodesmith_cli.audit.reading.places import Place, missing_daemons, read_places
from nodesmith_cli.audit.reading.pods import Pod, daemon_pod, read_pods
from nodesmith_cli.audit.reading.volumes import Volumes, attachable, try_claim, try_class, try_volume

_CONTROLLERS = ("ReplicaSet/", "StatefulSet/", "ReplicationController/")
_MARK = "audit.nodesmith.dev/controller"
"""A label that represents the selector of a controller, even if the controller's object is missing."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """All objects by name. `place_of` has the place of each NodeClaim, `namespaces` the labels of each namespace."""

    pods: Mapping[str, Pod]
    places: Mapping[str, Place]
    place_of: Mapping[str, str]
    daemons: Sequence[Pod]
    pools: Mapping[str, Manifest]
    nodeclasses: Mapping[str, Manifest]
    namespaces: Mapping[str, Mapping[str, str]]
    volumes: Volumes
    devices: DeviceClaims
    overlays: Sequence[Manifest] = ()

    def place(self, name: str) -> Place | None:
        """Return the place of a Node's or NodeClaim's name, or None."""
        return self.places.get(self.place_of.get(name, name))

    def is_pending(self, pod: Pod) -> bool:
        """Return whether a plan must place this pod, or explain why it cannot."""
        return not (pod.node or pod.deleting or pod.is_daemon or pod.is_mirror)

    def is_moving(self, pod: Pod) -> bool:
        """Return whether a plan may move a bound pod, because its node is being removed."""
        home = self.places.get(pod.node)
        return home is not None and bool(home.closed) and not (pod.is_daemon or pod.is_mirror)


def read_cluster(manifests: Iterable[Manifest], default_spreads: Sequence[Manifest] = ()) -> Cluster:
    """Read all kinds that matter here. Lists are expanded, and other kinds ignored.

    An unreadable object counts as missing, so a plan that uses it is reported. Unreadable pods are kept, with their
    fault.
    """
    kinds: dict[str, list[Manifest]] = {}
    for manifest in filter(_is_readable, _opened(manifests)):
        kinds.setdefault(str(manifest.get("kind")), []).append(manifest)
    pod_list = with_default_spreads(read_pods(kinds.get("Pod", ())), default_spreads)
    pods = {pod.key: pod for pod in pod_list}
    places, place_of = read_places(kinds.get("Node", ()), kinds.get("NodeClaim", ()))
    daemons = [daemon_pod(daemonset) for daemonset in kinds.get("DaemonSet", ())]
    cluster = Cluster(
        pods,
        places,
        place_of,
        daemons,
        _by_name(kinds.get("NodePool", ())),
        _by_name(kinds.get("EC2NodeClass", ())),
        {
            name: {"kubernetes.io/metadata.name": name, **(namespace["metadata"].get("labels") or {})}
            for name, namespace in _by_name(kinds.get("Namespace", ())).items()
        },
        Volumes(kinds),
        DeviceClaims(kinds),
        kinds.get("NodeOverlay", ()),
    )
    for pod in pods.values():
        home = cluster.place(pod.node or pod.nominated)
        if home is not None and not pod.fault:
            home.bound.append(pod)
    for place in places.values():
        place.daemons = missing_daemons(place, daemons)
    return cluster


def _opened(manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    for manifest in manifests:
        if str(manifest.get("kind")).endswith("List") and "items" in manifest:
            yield from _opened(manifest["items"])
        else:
            yield manifest


def _is_readable(manifest: Manifest) -> bool:
    read = _READERS.get(str(manifest.get("kind")), _identity)
    try:
        read(manifest)
    except UNREADABLE:
        return False
    return True


def _identity(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


_READERS: Mapping[str, Callable[[Manifest], object]] = {
    "Node": lambda node: read_places([node], ()),
    "NodeClaim": lambda claim: read_places((), [claim]),
    "DaemonSet": daemon_pod,
    "PersistentVolume": try_volume,
    "PersistentVolumeClaim": try_claim,
    "StorageClass": try_class,
    "CSINode": attachable,
}


def _by_name(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    return {str(manifest["metadata"]["name"]): manifest for manifest in manifests}


def with_default_spreads(pods: Iterable[Pod], constraints: Sequence[Manifest]) -> Iterator[Pod]:
    """Yield pods with default constraints, which have no selector and count the pods of the same controller."""
    for pod in pods:
        if not constraints or pod.fault or not pod.owner.startswith(_CONTROLLERS):
            yield pod
            continue
        mark = {_MARK: pod.owner}
        own = pod.spec.get("topologySpreadConstraints") or [
            {**constraint, "labelSelector": {"matchLabels": mark}} for constraint in constraints
        ]
        spec = {**pod.spec, "topologySpreadConstraints": own}
        yield replace(pod, labels={**pod.labels, **mark}, spec=spec)
