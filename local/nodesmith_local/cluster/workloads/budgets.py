"""PodDisruptionBudgets: how many of the selected pods may be evicted now."""

from __future__ import annotations

from datetime import timedelta

from nodesmith_formats.kubernetes.objects import (
    Object,
    View,
    controller_of,
    dig,
    labels_of,
    parse_timestamp,
    timestamp,
)
from nodesmith_formats.kubernetes.selectors import selector_matcher
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.controller import Controller
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import is_active, is_ready
from nodesmith_local.cluster.records import with_condition
from nodesmith_local.cluster.workloads.replicas import set_status, share

_KIND = "poddisruptionbudgets.policy"
_SCALED = {
    "ReplicaSet": "replicasets.apps",
    "StatefulSet": "statefulsets.apps",
    "Deployment": "deployments.apps",
}
_FORGOTTEN_AFTER = timedelta(minutes=2)  # an eviction that has led to no deletion by then no longer counts


class Budgets(Controller):
    """Writes desiredHealthy, currentHealthy and disruptionsAllowed, which the eviction subresource reads."""

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        super().__init__(store, mirrors)
        mirrors[_KIND].listen(self.touch_object)
        mirrors["pods"].listen(self._touch_selecting)

    def reconcile(self, key: Key) -> bool:
        """Recount one budget."""
        budget = self.mirrors[_KIND].objects.get(key)
        if budget is None:
            return False
        matches = selector_matcher(budget["spec"].get("selector") or {})
        pods = [
            pod
            for (namespace, _), pod in sorted(self.mirrors.pods.items())
            if namespace == key[0] and matches(labels_of(pod)) and is_active(pod)
        ]
        disrupted = self._disrupted(key, budget, pods)
        names = set(disrupted)
        healthy = sum(is_ready(pod) and pod["metadata"]["name"] not in names for pod in pods)
        expected, desired = self._desired(budget, pods)
        allowed = max(0, healthy - desired) if expected else 0
        return self._write(budget, expected, desired, healthy, allowed, disrupted)

    def _desired(self, budget: View, pods: list[View]) -> tuple[int, int]:
        spec = budget["spec"]
        least = spec.get("minAvailable")
        if isinstance(least, int):
            return len(pods), least
        expected = self._expected(pods)
        if least is not None:
            return expected, share(least, expected, up=True)
        max_unavailable = spec.get("maxUnavailable")
        return expected, max(
            0, expected - share(1 if max_unavailable is None else max_unavailable, expected, up=True)
        )

    def _expected(self, pods: list[View]) -> int:
        """Return the number of replicas that the pods' controllers ask for; a pod without one counts as one."""
        expected_counts: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            kind = _SCALED.get(owner["kind"]) if owner else None
            if owner is None or kind is None:
                expected_counts[pod["metadata"]["uid"]] = 1
                continue
            owner_object = self.mirrors[kind].objects.get((pod["metadata"]["namespace"], owner["name"]))
            parent = controller_of(owner_object) if owner_object is not None else None
            if parent is not None and parent["kind"] == "Deployment":
                owner = parent
                owner_object = self.mirrors["deployments.apps"].objects.get(
                    (pod["metadata"]["namespace"], parent["name"])
                )
            expected_counts[owner["uid"]] = int(dig(owner_object, "spec", "replicas") or 0)
        return sum(expected_counts.values())

    def _disrupted(self, key: Key, budget: View, pods: list[View]) -> Object:
        """Return the recorded evictions whose pods still exist and are not being deleted."""
        present = {pod["metadata"]["name"] for pod in pods}
        disrupted: Object = {}
        for name, evicted_at in (dig(budget, "status", "disruptedPods") or {}).items():
            moment = parse_timestamp(evicted_at)
            if name in present and moment and self.store.now() < moment + _FORGOTTEN_AFTER:
                disrupted[name] = evicted_at
                self.look_again(key, moment + _FORGOTTEN_AFTER)
        return disrupted

    def _write(
        self, budget: View, expected: int, desired: int, healthy: int, allowed: int, disrupted: Object
    ) -> bool:
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "observedGeneration": budget["metadata"].get("generation", 0),
        }
        conditions = with_condition(budget, condition, timestamp(self.store.now()))
        counts = {"expectedPods": expected, "desiredHealthy": desired, "currentHealthy": healthy}
        # A merge patch removes a key of disruptedPods only by an explicit null.
        recorded = dig(budget, "status", "disruptedPods") or {}
        expired = dict.fromkeys(recorded.keys() - disrupted.keys())
        status = {**counts, "disruptionsAllowed": allowed, "conditions": conditions}
        if recorded or disrupted:
            status["disruptedPods"] = {**disrupted, **expired}
        return set_status(self.store, _KIND, budget, status)

    def _touch_selecting(self, before: View | None, after: View | None) -> None:
        pod = after or before
        for key, budget in self.mirrors[_KIND].objects.items():
            if pod is None or key[0] != pod["metadata"]["namespace"]:
                continue
            if selector_matcher(budget["spec"].get("selector") or {})(labels_of(pod)):
                self.touch(key)
