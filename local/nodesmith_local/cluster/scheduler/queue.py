"""Pods that wait for a node: those to try now, and those that were tried without success."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from nodesmith_formats.kubernetes.objects import View, dig
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.cluster.scheduler.needs import Amounts, Port, claims_of, needs_of, ports_of

_SOCIAL = ("podAffinity", "podAntiAffinity")
_PLACING = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "resourceClaims")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting pod and the properties that matter for its placement.

    Pods with the same `equivalence_key` get the same result, except `nominated` ones, since each has room
    reserved on its node.
    """

    key: Key
    pod: View
    needs: Amounts
    ports: frozenset[Port]
    equivalence_key: str
    social: bool
    priority: int
    nominated: str

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    @property
    def order(self) -> tuple[int, str, str]:
        """The sort key in the queue."""
        return (-self.priority, self.pod["metadata"]["creationTimestamp"], "/".join(self.key))


class Queue:
    """Pods by priority, then age, then name."""

    def __init__(self) -> None:
        self._pods: dict[Key, Waiting] = {}
        self._ready: set[Key] = set()

    def put(self, key: Key, pod: View) -> Waiting:
        """Add a pod, or update its state; a change of its status alone does not cause another try."""
        queued = self._pods.get(key)
        new = _waiting(key, pod)
        self._pods[key] = new
        if queued is None or queued.equivalence_key != new.equivalence_key or queued.order != new.order:
            self._ready.add(key)
        return new

    def drop(self, key: Key) -> None:
        """Remove a pod that has a node or is gone."""
        self._pods.pop(key, None)
        self._ready.discard(key)

    def retry(self, *, social_only: bool = False) -> None:
        """Schedule another try for all pods, or only for social ones, after a change that may help them."""
        self._ready.update(key for key, pod in self._pods.items() if pod.social or not social_only)

    def take(self, limit: int) -> Iterator[Waiting]:
        """Yield up to `limit` pods to try now; they count as tried."""
        taken_pods = sorted((self._pods[key] for key in self._ready), key=lambda each: each.order)[:limit]
        for each in taken_pods:
            self._ready.discard(each.key)
            yield each

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def has_work(self) -> bool:
        """Whether there are pods to try."""
        return bool(self._ready)


def _waiting(key: Key, pod: View) -> Waiting:
    spec = pod["spec"]
    needs, ports = needs_of(spec), ports_of(spec)
    labels, priority = pod["metadata"].get("labels"), int(spec.get("priority") or 0)
    parts = [key[0], labels, priority, sorted(needs.items()), sorted(ports), claims_of(spec)]
    equivalence_key = json.dumps([*parts, [spec.get(field) for field in _PLACING]], sort_keys=True)
    spread = any(
        constraint.get("whenUnsatisfiable") == "DoNotSchedule"
        for constraint in spec.get("topologySpreadConstraints") or ()
    )
    social = spread or any(dig(spec, "affinity", kind) for kind in _SOCIAL)
    nominated = str(dig(pod, "status", "nominatedNodeName") or "")
    return Waiting(key, pod, needs, ports, equivalence_key, social, priority, nominated)
