"""Groups of pods that a scheduler binds together or not at all, as requests for room for all of them.

Three APIs say so: PodGroup (`scheduling.k8s.io/v1alpha2`), the pod groups of a Workload (v1alpha1 of the same group),
and PodGroup of the scheduler plugins (`scheduling.x-k8s.io/v1alpha1`). Each states how many pods must be bound at once,
and pods name their group. Of the pods that wait, as many as a group lacks become a request, which is served like a
ProvisioningRequest: room for all of them is found or bought, or for none. It exists in snapshots only, and its name
contains what no name of Kubernetes does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.problems import shown
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.kubernetes.pods import Manifest, Pod, PodTemplate, Shape
from nodesmith.model.kubernetes.provisioningrequests import (
    ATOMIC_SCALE_UP,
    CONSUMES,
    MOST_PODS_OF_SET,
    OWN_DOMAIN,
    VALID_FOR,
    PodSet,
    ProvisioningRequest,
)
from nodesmith.model.snapshot import Snapshot

POD_GROUP = "nodesmith.dev/pod-group"
"""In the snapshot, on a pod: the group that it names. Observation writes it, whatever the pod's annotations are."""
SCHEDULER_PLUGINS_LABEL = "scheduling.x-k8s.io/pod-group"
_OF_KUBERNETES, _OF_WORKLOAD, _OF_PLUGINS = "PodGroup", "Workload", "SchedulerPodGroup"
APIS = frozenset(
    {
        ("PodGroup", "scheduling.k8s.io"),
        ("Workload", "scheduling.k8s.io"),
        ("PodGroup", "scheduling.x-k8s.io"),
    }
)
"""The kinds that state how many pods must be bound at once, with their API groups."""
_CLASS = f"{ATOMIC_SCALE_UP}.{OWN_DOMAIN}"
_ALWAYS = FrozenMap({VALID_FOR: "0"})
"""Parameters of a request that waits for room."""


def group_of(metadata: Manifest, spec: Manifest) -> str:
    """Return the group that a pod names, such as `PodGroup/train`; empty if it names none."""
    group, workload = spec.get("schedulingGroup") or {}, spec.get("workloadRef") or {}
    if group.get("podGroupName"):
        return f"{_OF_KUBERNETES}/{group['podGroupName']}"
    if workload.get("name"):
        parts = (workload["name"], workload.get("podGroup", ""), workload.get("podGroupReplicaKey", ""))
        return "/".join((_OF_WORKLOAD, *map(str, parts)))
    label = (metadata.get("labels") or {}).get(SCHEDULER_PLUGINS_LABEL)
    return f"{_OF_PLUGINS}/{label}" if label else ""


def reduce_pod_group(manifest: Manifest) -> dict[str, Any] | None:
    """Keep how many pods of a PodGroup of either API must be bound at once; None if that is left to each pod.

    Raises KeyError, TypeError, AttributeError or ValueError for content that no API server accepts.
    """
    spec = manifest.get("spec") or {}
    if "minMember" in spec:
        return _reduced(manifest, _OF_PLUGINS, {"": spec["minMember"]})
    gang = (spec.get("schedulingPolicy") or {}).get("gang")
    return _reduced(manifest, _OF_KUBERNETES, {"": gang["minCount"]}) if gang else None


def reduce_workload(manifest: Manifest) -> dict[str, Any] | None:
    """Keep the same of the pod groups of a Workload. Later versions of Workload have templates only, and PodGroups."""
    groups = (manifest.get("spec") or {}).get("podGroups") or ()
    policies = {str(group["name"]): (group.get("policy") or {}).get("gang") for group in groups}
    gangs = {name: gang["minCount"] for name, gang in policies.items() if gang}
    return _reduced(manifest, _OF_WORKLOAD, gangs) if gangs else None


def _reduced(manifest: Manifest, kind: str, policies: Mapping[str, Any]) -> dict[str, Any]:
    metadata = manifest["metadata"]
    about = {name: str(metadata[name]) for name in ("namespace", "name", "uid", "creationTimestamp")}
    parse_time(about["creationTimestamp"])
    return {
        "metadata": about,
        "kind": kind,
        "least": {name: int(count) for name, count in sorted(policies.items())},
    }


def group_faults(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the fields of such an object that nodesmith cannot use, each with what would be right."""
    spec = manifest.get("spec") or {}
    stated = {"spec.minMember": spec["minMember"]} if "minMember" in spec else {}
    policies = {"spec.schedulingPolicy": spec.get("schedulingPolicy")}
    for number, group in enumerate(spec.get("podGroups") or ()):
        policies[f"spec.podGroups[{number}].policy"] = group.get("policy")
    for path, policy in policies.items():
        if isinstance(policy, Mapping) and policy.get("gang") is not None:
            gang = policy["gang"]
            stated[f"{path}.gang.minCount"] = gang.get("minCount") if isinstance(gang, Mapping) else None
    for path, count in stated.items():
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_PODS_OF_SET:
            yield path, f"is {shown(count)}: must be a whole number of pods from 1 to {MOST_PODS_OF_SET:,}"


@dataclass(frozen=True, slots=True)
class _Group:
    """One group: the name by which its pods refer to it, and how many of them must be bound at once."""

    namespace: str
    name: str
    uid: str
    created_at: datetime
    least: int

    def request(self, members: Sequence[Pod]) -> tuple[ProvisioningRequest, list[PodTemplate]]:
        """Return the request for the pods that the group lacks, and the templates of all of its pods."""
        waiting = sorted((pod for pod in members if not pod.node), key=lambda pod: pod.key)
        lacking = max(0, self.least - (len(members) - len(waiting)))
        shapes = list(dict.fromkeys(pod.shape for pod in sorted(members, key=lambda pod: pod.key)))
        templates = [PodTemplate("PodTemplate", f"{self.name}/{n}", shape) for n, shape in enumerate(shapes)]
        counts = dict.fromkeys(shapes, 0)
        for pod in waiting[:lacking]:
            counts[pod.shape] += 1
        request = ProvisioningRequest(
            self.namespace,
            self.name,
            self.uid,
            self.created_at,
            _CLASS,
            tuple(PodSet(template.name, counts[template.shape]) for template in templates),
            _ALWAYS,
            faults=tuple(_faults(self.least, lacking, waiting, len(members))),
            lacking=lacking,
        )
        return request, templates


def _faults(least: int, lacking: int, waiting: Sequence[Pod], members: int) -> Iterator[str]:
    """Yield why nothing is bought for a group now."""
    if not lacking:
        yield "as many of its pods as must be bound at once are bound"
    elif len(waiting) < lacking:
        yield f"{least} of its pods must be bound at once, and {members} exist"
    elif lacking > MOST_PODS_OF_SET:
        yield f"{least} of its pods must be bound at once: at most {MOST_PODS_OF_SET:,} are possible"
    elif not any(pod.unschedulable for pod in waiting):
        yield "the scheduler has not called any of its pods unschedulable yet"


def with_pod_groups(snapshot: Snapshot, reduced: Iterable[Manifest]) -> Snapshot:
    """Return the snapshot with a request for each of these groups that has pods, which consume its room.

    Pods that consume the room of a ProvisioningRequest are left to that.
    """
    least = {
        (str(group["metadata"]["namespace"]), key): (group, count)
        for group in reduced
        for key, count in _keys(group)
    }
    members: dict[tuple[str, str], list[Pod]] = {}
    shapes: dict[Shape, Shape] = {}
    for pod in snapshot.pods:
        name = pod.shape.annotations.get(POD_GROUP, "")
        if name and _key(pod.shape.namespace, name) in least and CONSUMES not in pod.shape.annotations:
            if pod.shape not in shapes:
                annotations = FrozenMap({**pod.shape.annotations, CONSUMES: name})
                shapes[pod.shape] = replace(pod.shape, annotations=annotations)
            if not pod.deleting:
                changed = replace(pod, shape=shapes[pod.shape])
                members.setdefault((pod.shape.namespace, name), []).append(changed)
    if not members:
        return snapshot
    requests, templates = list(snapshot.requests), dict(snapshot.podtemplates)
    for (namespace, name), mine in sorted(members.items()):
        manifest, count = least[_key(namespace, name)]
        about = manifest["metadata"]
        suffix = "".join(f"/{part}" for part in name.split("/")[2:])
        created = parse_time(about["creationTimestamp"])
        request, templates_of_group = _Group(
            namespace, name, f"{about['uid']}{suffix}", created, count
        ).request(mine)
        requests.append(request)
        templates.update((template.key, template) for template in templates_of_group)
    pods = tuple(
        replace(pod, shape=shapes[pod.shape]) if pod.shape in shapes else pod for pod in snapshot.pods
    )
    return replace(snapshot, pods=pods, requests=tuple(requests), podtemplates=templates)


def _keys(reduced: Manifest) -> Iterator[tuple[str, int]]:
    stem = f"{reduced['kind']}/{reduced['metadata']['name']}"
    for name, count in reduced["least"].items():
        yield f"{stem}/{name}" if name else stem, int(count)


def _key(namespace: str, name: str) -> tuple[str, str]:
    """Return the key of the group that a pod names, whatever its replica."""
    return namespace, "/".join(name.split("/")[:3])
