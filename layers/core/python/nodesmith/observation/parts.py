"""The parts of a snapshot, each read from the document on its own, so that a delta can replace some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeAlias

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.capacity import AttachLimits
from nodesmith.model.karpenter.ownership import KarpenterSign, is_foreign
from nodesmith.model.kubernetes.devices import ClusterDevices, parse_devices
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget, parse_budget
from nodesmith.model.kubernetes.nodes import Node, VolumeAttachment, parse_node
from nodesmith.model.kubernetes.pods import GrownWorkload, Manifest, Pod, PodTemplate, Shape
from nodesmith.model.kubernetes.provisioningrequests import ProvisioningRequest, parse_request
from nodesmith.model.kubernetes.shapereading import Namespaces, parse_shape
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.observed import DELETING, NOMINATED, NOT_READY, STARTING, UNREADABLE, UNSCHEDULABLE
from nodesmith.observation.podgroups import with_pod_groups

_KNOWS_NAMESPACES = 3
SOMEWHERE = "a node that the snapshot does not name"
"""The nominated node of a pod in snapshots of releases that did not include it."""
Group: TypeAlias = tuple[Shape | None, tuple[Pod, ...], str]
"""A shape and its pods, sorted by name; or None, no pods, and why they cannot be read."""


class Parts(NamedTuple):
    """A snapshot in the parts of which it is assembled. `rest` has the raw fields of the document that are not here.

    `nodes` and `budgets` have the problem in place of an object that cannot be read; budgets are with their manifests.
    """

    rest: dict[str, Any]
    groups: list[Group]
    nodes: list[tuple[str, Node | str]]
    nodeclaims: list[Manifest]
    budgets: list[tuple[Manifest, PodDisruptionBudget | str]]


def parts_of(document: dict[str, Any]) -> Parts:
    """Read the parts of a snapshot's document, and empty it of them. Raises Rejected."""
    try:
        namespaces = namespaces_of(document)
        names, events = document.pop("nodeNames"), document.pop("podEvents", None) or ()
        return Parts(
            groups=list(groups_of(document.pop("pods"), names, namespaces)),
            nodes=list(nodes_of(document.pop("nodes"), events)),
            nodeclaims=list(document.pop("nodeclaims")),
            budgets=list(budgets_of(document.pop("poddisruptionbudgets", None) or ())),
            rest=document,
        )
    except UNREADABLE as error:
        raise unreadable_part(error) from None


def assembled(parts: Parts) -> Snapshot:
    """Return the snapshot of these parts. Raises Rejected."""
    document = parts.rest
    try:
        problems = [str(problem) for problem in document["problems"]]
        problems += [problem for _, _, problem in parts.groups if problem]
        problems += [node for _, node in parts.nodes if isinstance(node, str)]
        budgets = [budget for _, budget in parts.budgets]
        problems += [budget for budget in budgets if isinstance(budget, str)]
        namespaces = namespaces_of(document)
        snapshot = Snapshot(
            cluster=str(document["cluster"]),
            taken_at=parse_time(document["takenAt"]),
            pods=tuple(chain.from_iterable(pods for _, pods, _ in parts.groups)),
            nodes=tuple(node for _, node in parts.nodes if not isinstance(node, str)),
            daemonsets=tuple(parse_shape(manifest, namespaces) for manifest in document["daemonsets"]),
            capacitybuffers=tuple(_buffers(document.get("capacitybuffers") or ())),
            podtemplates=dict(_templates(document.get("podtemplates") or (), namespaces)),
            nodepools=tuple(nodepool for nodepool in document["nodepools"] if not is_foreign(nodepool)),
            nodeclasses=tuple(document["nodeclasses"]),
            nodeclaims=tuple(nodeclaim for nodeclaim in parts.nodeclaims if not is_foreign(nodeclaim)),
            quotas=tuple(document.get("capacityquotas") or ()),
            foreign_nodepools=tuple(filter(is_foreign, document["nodepools"])),
            budgets=tuple(budget for budget in budgets if not isinstance(budget, str)),
            attachments=tuple(
                VolumeAttachment(
                    str(attachment["node"]), str(attachment["volume"]), tuple(map(str, attachment["pods"]))
                )
                for attachment in document.get("volumeattachments") or ()
            ),
            nodeoverlays=tuple(document.get("nodeoverlays") or ()),
            requests=tuple(_requests(document.get("provisioningrequests") or (), problems)),
            devices=_devices(document.get("devices"), problems),
            grown=tuple(_grown(document.get("grownworkloads") or (), namespaces)),
            attach_limits=_attach_limits(document.get("attachLimits") or {}),
            karpenter=_sign(document.get("karpenter")),
            problems=tuple(problems),
        )
        groups = document.get("podgroups") or ()
        return with_pod_groups(snapshot, groups) if groups else snapshot
    except UNREADABLE as error:
        raise unreadable_part(error) from None


def unreadable_part(error: Exception) -> Rejected:
    """Return the error for a document of which a part cannot be read."""
    return Rejected(f"snapshot: a part is missing or wrong ({error!r})")


def namespaces_of(document: Manifest) -> Namespaces | None:
    """Return the namespaces that a document knows, None for versions that did not."""
    return Namespaces(document["namespaces"]) if document["version"] >= _KNOWS_NAMESPACES else None


def _devices(manifest: Manifest | None, problems: list[str]) -> ClusterDevices | None:
    if manifest is None:
        return None
    try:
        return parse_devices(manifest)
    except UNREADABLE as error:
        problems.append(f"the cluster's devices cannot be read and are left out: {error!r}")
        return None


def _sign(document: Manifest | None) -> KarpenterSign | None:
    return KarpenterSign(parse_time(document["seenAt"]), str(document["sign"])) if document else None


def _attach_limits(stated: Manifest) -> AttachLimits:
    return AttachLimits(
        FrozenMap(
            {
                str(driver): FrozenMap({str(kind): int(most) for kind, most in by_type.items()})
                for driver, by_type in stated.items()
            }
        )
    )


def nodes_of(manifests: Iterable[Manifest], pod_events: Iterable[int]) -> Iterator[tuple[str, Node | str]]:
    """Yield the name of each node, and the node or why it cannot be read."""
    for manifest, event in zip(manifests, chain(pod_events, repeat(0)), strict=False):
        name = str(manifest["metadata"]["name"])
        try:
            yield name, parse_node(manifest, moment_of(event) if event else None)
        except UNREADABLE as error:
            yield name, f"Node/{name}: cannot be read and is left out: {error}"


def _buffers(manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yield CapacityBuffers. They may be invalid, but each has a name and a namespace, which decisions rely on."""
    for manifest in manifests:
        about = manifest["metadata"]
        identity = {"name": str(about["name"]), "namespace": str(about["namespace"])}
        yield {**manifest, "metadata": {**about, **identity}}


def _templates(
    manifests: Iterable[Manifest], namespaces: Namespaces | None
) -> Iterator[tuple[str, PodTemplate]]:
    for manifest in manifests:
        about = manifest["metadata"]
        template = PodTemplate(
            kind=str(manifest["kind"]),
            name=str(about["name"]),
            shape=parse_shape(manifest["pod"], namespaces),
            generation=int(about["generation"]),
            replicas=int(manifest.get("replicas") or 0),
            images=tuple(map(str, manifest.get("images") or ())),
        )
        yield template.key, template


def _grown(manifests: Sequence[Manifest], namespaces: Namespaces | None) -> Iterator[GrownWorkload]:
    for manifest, (_, template) in zip(manifests, _templates(manifests, namespaces), strict=True):
        grown_at = datetime.fromtimestamp(manifest["grown"], UTC)
        yield GrownWorkload(template, int(manifest["lacking"]), grown_at)


def budgets_of(manifests: Iterable[Manifest]) -> Iterator[tuple[Manifest, PodDisruptionBudget | str]]:
    """Yield each PodDisruptionBudget's manifest, and the budget or why it cannot be read."""
    for manifest in manifests:
        try:
            yield manifest, parse_budget(manifest)
        except UNREADABLE as error:
            about = manifest["metadata"]
            key = f"{about['namespace']}/{about['name']}"
            yield manifest, f"PodDisruptionBudget/{key}: cannot be read and is left out: {error}"


def _requests(manifests: Iterable[Manifest], problems: list[str]) -> Iterator[ProvisioningRequest]:
    for manifest in manifests:
        try:
            yield parse_request(manifest)
        except UNREADABLE as error:
            about = manifest["metadata"]
            problems.append(
                f"ProvisioningRequest/{about['namespace']}/{about['name']}: cannot be read and is left out: {error!r}"
            )


def groups_of(
    groups: Iterable[Manifest], node_names: Sequence[str], namespaces: Namespaces | None
) -> Iterator[Group]:
    """Yield groups of pods. A group that cannot be read has its problem alone."""
    moments: dict[int, datetime] = {}
    names = [*node_names, ""]  # index -1 means no node
    for group in groups:
        try:
            shape = parse_shape(group["shape"], namespaces)
            yield shape, tuple(pods_of(group, shape, names, moments)), ""
        except UNREADABLE as error:
            listed = ", ".join(map(str, group["names"][:3]))
            yield None, (), f"Pod/{listed} and pods of the same shape cannot be read: {error}"


def pods_of(
    group: Manifest, shape: Shape, node_names: Sequence[str], moments: dict[int, datetime]
) -> list[Pod]:
    """Read the columns of a group. Its nodes are indices into `node_names`, the last of which is empty."""
    pods = []
    rare = ("refusals", "deletions", "started", "startups")
    refusals, deletions, started, startups = (group.get(name) or {} for name in rare)
    is_rare = bool(refusals or deletions or started or startups)
    columns = zip(group["names"], group["created"], group["nodes"], group["flags"], strict=True)
    for name, created, node, flags in columns:
        moment = moments.get(created)
        if moment is None:
            moment = moments[created] = datetime.fromtimestamp(created, UTC)
        key = f"{shape.namespace}/{name}"
        if not (flags or is_rare):  # nearly all pods; this branch halves their cost
            pods.append(Pod(key, shape, moment, node_names[node]))
            continue
        pods.append(
            Pod(
                key,
                shape,
                moment,
                "" if flags & NOMINATED else node_names[node],
                bool(flags & UNSCHEDULABLE),
                (node_names[node] or SOMEWHERE) if flags & NOMINATED else "",
                bool(flags & DELETING),
                str(refusals.get(name, "")),
                moment_of(deletions.get(name)) if deletions else None,
                moment_of(started.get(name)) if started else None,
                not flags & NOT_READY,
                int(startups.get(name, 0)),
                bool(flags & STARTING),
            )
        )
    return pods


def moment_of(seconds: int | None) -> datetime | None:
    """Return the moment that is so many seconds after 1970."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
