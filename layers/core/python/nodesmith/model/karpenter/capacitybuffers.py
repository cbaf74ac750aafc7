"""CapacityBuffers (autoscaling.x-k8s.io): room that is kept free for pods to come, and for how many pods it is.

The API belongs to SIG Autoscaling. The count follows Karpenter: the larger of `replicas` and the percentage of the
workload's replicas, as far as `limits` allow; `limits` alone determine the count. A buffer may be on a schedule, by
annotations that are nodesmith's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.model.apimachinery.problems import Parsed, ParseOnce, did_you_mean, shown
from nodesmith.model.apimachinery.quantities import Resources, parse_resources
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.bufferannotations import (
    EXPIRE_AFTER,
    LIMIT_USD,
    WARM_CAPACITY,
    Quantile,
    read_expire_after,
    read_number,
    read_quantile,
    read_window,
    report_unknown,
)
from nodesmith.model.karpenter.disruption import Window
from nodesmith.model.kubernetes.pods import PodTemplate, is_planned
from nodesmith.model.schema.fields import INT32, Integer, Kind, Map, Object, Quantity, Rule, Text
from nodesmith.model.schema.reading import read_manifest

ACTIVE_CAPACITY = "buffer.x-k8s.io/active-capacity"
"""The strategy of nodes that run."""
STRATEGIES = frozenset({ACTIVE_CAPACITY, WARM_CAPACITY})
"""The strategies that nodesmith serves. Buffers with another one are left alone."""
POD_TEMPLATE = "PodTemplate"
SCALABLE_KINDS: Mapping[str, str] = {
    "Deployment": "apps",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "Job": "batch",
}
"""The kinds whose pod template and replicas a scalableRef reads, with their API groups."""
REPLICATION_CONTROLLER = "ReplicationController"
"""A kind of the core group whose pods a scalableRef reads, like those of custom resources."""
_CORE = ("", "core")
_KIND, _GROUP = re.compile("[A-Za-z][A-Za-z0-9]{0,62}"), re.compile("[a-z0-9.-]{1,253}")
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
VERSIONS = ("autoscaling.x-k8s.io/v1beta1", "autoscaling.x-k8s.io/v1alpha1")
"""The apiVersions that are read. They have the same fields."""
_TEMPLATE, _SCALABLE = "podTemplateRef", "scalableRef"


def _has_one_reference(spec: dict[str, Any]) -> bool:
    return (_TEMPLATE in spec) != (_SCALABLE in spec)


def _advice_on_references(spec: dict[str, Any]) -> str:
    return "leave out one of podTemplateRef and scalableRef" if _TEMPLATE in spec else "name one of them"


def _is_scalable(reference: dict[str, Any]) -> bool:
    kind, group = reference["kind"], reference.get("apiGroup") or ""
    if kind == REPLICATION_CONTROLLER:
        return group in _CORE
    if _is_custom(group):
        return _KIND.fullmatch(kind) is not None
    return SCALABLE_KINDS.get(kind) in ((group,) if group else SCALABLE_KINDS.values())


def _is_custom(group: str) -> bool:
    """Return whether a group can be that of a CRD: those of Kubernetes' own workloads have no dot."""
    return "." in group and _GROUP.fullmatch(group) is not None


def _advice_on_scalable(reference: dict[str, Any]) -> str:
    kind, group = reference["kind"], reference.get("apiGroup") or ""
    if kind in SCALABLE_KINDS and "/" not in group:
        return f"must be of the apiGroup {SCALABLE_KINDS[kind]}, not {shown(group)}"
    if "/" in group:
        return f"apiGroup must have no version: {shown(group.partition('/')[0])}"
    if _is_custom(group):
        return f"{shown(kind)} can be no kind: write it as in the manifest, such as Rollout"
    if kind == REPLICATION_CONTROLLER:
        return f"leave out apiGroup {shown(group)}: a {kind} has none"
    kinds = ", ".join((*SCALABLE_KINDS, REPLICATION_CONTROLLER))
    kinds += did_you_mean(kind, SCALABLE_KINDS)
    return f"use one of {kinds}, or set the apiGroup of a custom resource, such as argoproj.io"


def kind_key(kind: str, group: str) -> str:
    """Return how decisions name a kind: `Deployment`, and `Rollout.argoproj.io` for that of a custom resource."""
    return kind if group in {"", SCALABLE_KINDS.get(kind)} else f"{kind}.{group}"


def referred_kind(reference: Mapping[str, Any]) -> str:
    """Return the `kind_key` of a scalableRef."""
    group = str(reference.get("apiGroup") or "")
    return kind_key(str(reference.get("kind")), "" if group in _CORE else group)


_NAME = Text("The name.", min_length=1, max_length=253)
CAPACITY_BUFFER = Kind(
    "autoscaling.x-k8s.io",
    "CapacityBuffer",
    "capacitybuffers",
    Object(
        {
            "provisioningStrategy": Text("How the room is provided.", default=ACTIVE_CAPACITY),
            _TEMPLATE: Object(
                {"name": _NAME}, "A PodTemplate in the buffer's namespace.", required=("name",)
            ),
            _SCALABLE: Object(
                {"apiGroup": Text("The API group."), "kind": Text("The kind.", min_length=1), "name": _NAME},
                "A workload in the buffer's namespace.",
                required=("kind", "name"),
                rules=(
                    Rule(
                        "",
                        "must be a known kind, or one of a custom resource",
                        _is_scalable,
                        _advice_on_scalable,
                        field="kind",
                    ),
                ),
            ),
            "replicas": Integer("For how many pods there is room.", 0, INT32),
            "percentage": Integer("The same, as a percentage of the workload's replicas.", 0, INT32),
            "limits": Map(Quantity(), "The most resources that the pods may request together."),
        },
        "Desired room.",
        rules=(
            Rule(
                "",
                "needs one of podTemplateRef and scalableRef",
                _has_one_reference,
                _advice_on_references,
                field=_TEMPLATE,
            ),
            Rule(
                "",
                "with a podTemplateRef, set replicas or limits",
                lambda spec: _TEMPLATE not in spec or "replicas" in spec or "limits" in spec,
                field="replicas",
            ),
            Rule(
                "",
                "needs a scalableRef, whose replicas it refers to; use replicas with a podTemplateRef",
                lambda spec: "percentage" not in spec or _SCALABLE in spec,
                fatal=False,
                field="percentage",
            ),
        ),
    ),
    "Room that is kept free for pods.",
    "v1beta1",
)


@dataclass(frozen=True, slots=True)
class CapacityBuffer:
    """One buffer. `reference` is `Kind/name` of the object in its namespace that has the pod template or the pods.

    `replicas`, `percentage` and `limits` are None if they are not set. `window` is when the buffer is wanted, None for
    always. `quantile` is how its workload's history sizes it, None if it does not. `limit_usd` is the most that nodes
    for it alone may cost in USD an hour, None without a limit.
    """

    namespace: str
    name: str
    reference: str
    generation: int = 0
    created_at: datetime = _LONG_AGO
    strategy: str = ACTIVE_CAPACITY
    replicas: int | None = None
    percentage: int | None = None
    limits: Resources | None = None
    window: Window | None = None
    quantile: Quantile | None = None
    limit_usd: float | None = None
    expire_after: timedelta = EXPIRE_AFTER
    """After which time stopped instances are replaced."""

    @property
    def is_warm(self) -> bool:
        """Whether its room is on instances that are stopped."""
        return self.strategy == WARM_CAPACITY

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def owner(self) -> str:
        """The owner of the pods that stand for the buffer's room."""
        return f"{CAPACITY_BUFFER.name}/{self.name}"

    @property
    def template_key(self) -> str:
        """The `PodTemplate.key` of the object that it refers to."""
        kind, _, name = self.reference.partition("/")
        return f"{kind}/{self.namespace}/{name}"


def count_of(buffer: CapacityBuffer, template: PodTemplate) -> int:
    """Return for how many pods a buffer wants room."""
    limit = _most_pods(buffer.limits, template.shape.requests)
    counts = [] if buffer.replicas is None else [buffer.replicas]
    if buffer.percentage is not None and template.kind != POD_TEMPLATE:
        counts.append(-(-buffer.percentage * template.replicas // 100))
    if not counts:
        return (limit or 0) if buffer.quantile is None else 0
    return max(counts) if limit is None else min(max(counts), limit)


def within_limits(count: int, buffer: CapacityBuffer, template: PodTemplate) -> int:
    """Return as many of `count` pods as the buffer's `limits` allow."""
    limit = _most_pods(buffer.limits, template.shape.requests)
    return count if limit is None else min(count, limit)


def _most_pods(limits: Resources | None, requests: Resources) -> int | None:
    """Return how many pods the limits allow, None if they limit nothing that the pods request."""
    counts = [
        max(0, limit) // requests.of(name) for name, limit in (limits or {}).items() if requests.of(name) > 0
    ]
    return min(counts, default=None)


def is_room(key: str) -> bool:
    """Return whether a pod's key (namespace/name) is that of a planned pod for the room of a buffer."""
    return is_planned(key) and key.partition("/")[2].startswith(CAPACITY_BUFFER.name.lower())


def parse_buffer(manifest: Mapping[str, object]) -> Parsed[CapacityBuffer]:
    """Read a CapacityBuffer of any version and report all of its problems. Never raises."""
    if isinstance(manifest, Mapping) and manifest.get("apiVersion") in VERSIONS:
        manifest = {**manifest, "apiVersion": CAPACITY_BUFFER.api_version}
    read = read_manifest(CAPACITY_BUFFER, manifest)
    if read.report.fatal:
        return Parsed(None, read.report.problems)
    annotations = read.metadata.get("annotations", {})
    is_warm = read.spec.get("provisioningStrategy") == WARM_CAPACITY
    report_unknown(annotations, read.report)
    window = read_window(annotations, read.report)
    expire_after = read_expire_after(annotations, read.report, is_warm=is_warm)
    quantile = read_quantile(annotations, read.report, scales=_SCALABLE in read.spec)
    limit_usd = read_number(annotations, LIMIT_USD, read.report, "a number of USD such as 2.50")
    if read.report.fatal:
        return Parsed(None, read.report.problems)
    spec = read.spec
    scalable = spec.get(_SCALABLE)
    kind = referred_kind(scalable) if scalable else POD_TEMPLATE
    name = (scalable or spec[_TEMPLATE])["name"]
    created = read.metadata.get("creationTimestamp")
    buffer = CapacityBuffer(
        namespace=namespace_of(manifest),
        name=read.metadata["name"],
        reference=f"{kind}/{name}",
        generation=read.metadata["generation"],
        created_at=parse_time(created) if created else _LONG_AGO,
        strategy=spec["provisioningStrategy"],
        replicas=spec.get("replicas"),
        percentage=spec.get("percentage"),
        limits=parse_resources(spec["limits"]) if "limits" in spec else None,
        window=window,
        expire_after=expire_after,
        quantile=quantile,
        limit_usd=limit_usd,
    )
    return Parsed(buffer, read.report.problems)


parse_buffers = ParseOnce(parse_buffer)


def namespace_of(manifest: Mapping[str, Any]) -> str:
    """Return the namespace of an object that may be invalid."""
    metadata = manifest.get("metadata")
    return str((metadata if isinstance(metadata, Mapping) else {}).get("namespace") or "default")
