"""Repeating: whether nodes may be bought again for pods that did not come to run on those bought before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from nodesmith.decisions.attempts import AttemptHistory
from nodesmith.decisions.provisioning.plan import BACK_OFF, PlannedNode
from nodesmith.decisions.scheduling.nodes.existing import by_age
from nodesmith.decisions.workloads import Workloads
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.kubernetes.pods import Pod, Reason

_FIX = (
    "find out what keeps its pods off new nodes (`kubectl get events`); pods of a new ReplicaSet, or with another spec,"
    " get nodes at once"
)


@dataclass(frozen=True, slots=True)
class Repeating:
    """The history of workloads that nodes were bought for before, by workload name: see `Workloads`."""

    histories: Mapping[str, AttemptHistory]
    names: Workloads
    now: datetime

    def split(self, pods: Iterable[Pod]) -> tuple[list[Pod], list[tuple[Pod, Reason]]]:
        """Split pods into those that may be bought for and those that wait, each with the reason."""
        chosen: list[Pod] = []
        held: list[tuple[Pod, Reason]] = []
        tried: set[str] = set()
        pods = list(pods)
        if not any(history.is_on_trial for history in self.histories.values()):
            return pods, held
        for pod in by_age(pods):
            workload = self.names.of(pod)
            history = self.histories.get(workload, AttemptHistory())
            if pod.node or not history.is_on_trial:
                chosen.append(pod)
            elif history.waits(self.now) or workload in tried:
                held.append((pod, _reason(pod, history, self.now)))
            else:
                tried.add(workload)
                chosen.append(pod)
        return chosen, held

    def due(self, held: Iterable[tuple[Pod, Reason]]) -> datetime | None:
        """Return when the first of the waiting pods may be tried again; None if no time is known."""
        waiting = {self.names.of(pod) for pod, _ in held}
        dues = (self.histories.get(workload, AttemptHistory()).due for workload in waiting)
        return min((due for due in dues if due is not None and due > self.now), default=None)

    def noted(self, nodes: Sequence[PlannedNode], pods: Iterable[Pod]) -> tuple[PlannedNode, ...]:
        """Return the nodes to buy with the attempt number of each workload in their claims.

        Pods that still have a node are not counted: they run.
        """
        workloads = {pod.key: self.names.of(pod) for pod in pods if not pod.node}
        return tuple(self._noted(node, workloads) for node in nodes)

    def _noted(self, node: PlannedNode, workloads: Mapping[str, str]) -> PlannedNode:
        mine = sorted({workloads[pod] for pod in node.claim.nominated if pod in workloads})
        attempts = {name: self.histories.get(name, AttemptHistory()).failed + 1 for name in mine}
        return replace(node, claim=replace(node.claim, attempts=FrozenMap(attempts)))


def _reason(pod: Pod, history: AttemptHistory, now: datetime) -> Reason:
    whose = pod.shape.owner or "the pod"
    text = f"nodes were bought {history.failed} times for {whose}, and none of its pods stayed on one for a minute"
    if history.trial:
        text += f"; it is tried with one node, NodeClaim {history.trial}"
    elif history.waits(now):
        text += f"; tried again after {history.until:%H:%M:%S} UTC"
    else:
        text += "; it is tried with one pod first"
    return Reason(text, blocking=BACK_OFF, fix=_FIX)
