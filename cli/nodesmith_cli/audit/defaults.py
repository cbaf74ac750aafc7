"""The default topology spread that kube-scheduler applies to pods without their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nodesmith_cli.audit.pods import Pod
from nodesmith_cli.audit.reading import Manifest

_CONTROLLERS = ("ReplicaSet/", "StatefulSet/", "ReplicationController/")
_MARK = "audit.nodesmith.dev/controller"
"""A label that stands for the selector of a controller, whose object may be missing."""


def with_default_spreads(pods: Iterable[Pod], constraints: Sequence[Manifest]) -> Iterator[Pod]:
    """Yield pods with default constraints, which have no selector and count the pods of the same controller."""
    for pod in pods:
        if not constraints or pod.fault or not pod.owner.startswith(_CONTROLLERS):
            yield pod
            continue
        mark = {_MARK: pod.owner}
        own = pod.spec.get("topologySpreadConstraints") or [
            {**each, "labelSelector": {"matchLabels": mark}} for each in constraints
        ]
        spec = {**pod.spec, "topologySpreadConstraints": own}
        yield replace(pod, labels={**pod.labels, **mark}, spec=spec)
