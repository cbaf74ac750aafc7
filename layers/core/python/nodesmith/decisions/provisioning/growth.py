"""Growth of workloads: nodes for pods that do not exist yet, and how much room a workload needs by its past growth.

Proactive scale-up buys nodes for pods that do not exist yet, because their workload has just grown. A decision plans
the pods that a workload lacks like pods that wait for a node, so that one plan serves those that exist already and
those to come. Once a pod exists, it counts instead of one that is planned, and finds the capacity that was bought.
Disruption sees planned pods as well, so it leaves them their nodes.

Nodes for pods that never come are bounded: pods are planned for five minutes after the growth, nodes that were bought
in vain back off (see `attempts`), and pods that exist come first wherever a limit does not suffice for all.

The room of a CapacityBuffer can follow from how fast its workload has grown at this time before. A history has the most
pods that the workload wanted in each five minutes. Its growth at a moment is how many more it wanted at most within the
buffer's horizon. The size of the room is a quantile of the growths around the present half-hour in earlier weeks
(seasonal naive forecast with empirical quantiles), or on earlier days while two weeks are not recorded yet. It changes
at full and half hours only, so that nodes do not come and go with each sample.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, TypeAlias

from nodesmith.decisions.provisioning.plan import Forthcoming, Inputs, Plan, Unplaced
from nodesmith.decisions.scheduling.demands import provisionable
from nodesmith.decisions.scheduling.workloads import Workloads
from nodesmith.model.karpenter.bufferannotations import Quantile
from nodesmith.model.karpenter.capacitybuffers import CapacityBuffer
from nodesmith.model.kubernetes.pods import LACKING_FOR, Pod, is_forthcoming

_AFTER_PODS = "pods that exist wait for the limits of NodePools, and come first"
_EVER = datetime.min.replace(tzinfo=UTC)
Planned: TypeAlias = Mapping[str, tuple[Pod, ...]]
"""The pods that workloads lack, by workload (`Kind/namespace/name`)."""


def planned(inputs: Inputs) -> Planned:
    """Return the pods to plan, the earliest growth first, as far as the setting PROACTIVE_POD_LIMIT allows."""
    lately = inputs.now - LACKING_FOR
    grown = [
        workload for workload in inputs.snapshot.grown if workload.grown_at > lately and workload.lacking > 0
    ]
    if not grown:
        return {}
    remaining = inputs.settings.proactive_pod_limit - len(provisionable(inputs.snapshot.pods)[0])
    pods_by_workload: dict[str, tuple[Pod, ...]] = {}
    for workload in sorted(grown, key=lambda workload: (workload.grown_at, workload.template.key)):
        pods = workload.pods(max(0, remaining), inputs.now)
        remaining -= len(pods)
        if pods:
            pods_by_workload[workload.template.key] = tuple(pods)
    return pods_by_workload


def with_planned(inputs: Inputs) -> Inputs:
    """Return the inputs with the planned pods among the pods of the snapshot."""
    planned_pods = [pod for pods in planned(inputs).values() for pod in pods]
    if not planned_pods:
        return inputs
    return replace(
        inputs, snapshot=replace(inputs.snapshot, pods=(*inputs.snapshot.pods, *planned_pods), grown=())
    )


def exhausts_limits(planned: Planned, plan: Plan) -> bool:
    """Return whether a limit leaves pods that exist without a node in a plan that serves planned pods as well."""
    planned_keys = _keys(planned)
    limited = (group for group in plan.unplaced if group.cause.blocking.startswith("limit"))
    return any(key not in planned_keys for group in limited for key in group.pods)


def put_off(planned: Planned, plan: Plan) -> Plan:
    """Return a plan for pods that exist alone, which says why there are no nodes for the planned ones."""
    waiting = (Forthcoming(name, len(pods), reason=_AFTER_PODS) for name, pods in planned.items())
    return replace(plan, forthcoming=tuple(waiting))


def with_planned_places(planned: Planned, plan: Plan, claims: Collection[str]) -> Plan:
    """Return a plan that says where the planned pods have places, and names only pods that exist as unplaced.

    `claims` are the names of the NodeClaims, which in-flight nodes have.
    """
    planned_keys, reasons, places = _keys(planned), dict[str, str](), dict[str, str]()
    for group in (*plan.unplaced, *plan.ignored):
        reasons.update((key, str(group.cause)) for key in group.pods if key in planned_keys)
    for name, keys in (plan.placed or {}).items():
        places.update((key, "launching" if name in claims else "ready") for key in keys)
    places.update(dict.fromkeys(plan.waiting or (), "launching"))
    for node in plan.nodes:
        places.update(dict.fromkeys(node.claim.nominated, "bought"))
    return replace(
        plan,
        unplaced=tuple(_without(planned_keys, plan.unplaced)),
        ignored=tuple(_without(planned_keys, plan.ignored)),
        forthcoming=tuple(_forthcoming(name, pods, places, reasons) for name, pods in planned.items()),
    )


def _forthcoming(
    workload: str, pods: tuple[Pod, ...], places: Mapping[str, str], reasons: Mapping[str, str]
) -> Forthcoming:
    counts = Counter(places.get(pod.key, "") for pod in pods)
    reason = next((reasons[pod.key] for pod in pods if pod.key in reasons), "")
    return Forthcoming(workload, len(pods), counts["ready"], counts["launching"], counts["bought"], reason)


def _without(keys: Collection[str], groups: Iterable[Unplaced]) -> Iterator[Unplaced]:
    for group in groups:
        remaining = tuple(key for key in group.pods if key not in keys)
        if remaining:
            yield replace(group, pods=remaining)


def _keys(planned: Planned) -> frozenset[str]:
    return frozenset(pod.key for pods in planned.values() for pod in pods)


def judging(pods: Iterable[Pod], names: Workloads) -> list[Pod]:
    """Return the pods by which earlier purchases for their workloads are judged.

    Planned pods count as waiting all the time. Where pods of the same workload exist, only these count: that pods did
    not come earlier does not hold up those that have come.
    """
    pods = list(pods)
    existing = [pod for pod in pods if not is_forthcoming(pod.key)]
    if len(existing) == len(pods):
        return pods
    names_there = {names.of(pod) for pod in existing}
    others = [pod for pod in pods if is_forthcoming(pod.key) and names.of(pod) not in names_there]
    return [*existing, *(replace(pod, created_at=_EVER) for pod in others)]


STEP = timedelta(minutes=5)
MOST_DAYS = 28
"""How far back a history goes."""
LEAST_DAYS, WEEKLY_DAYS = 3, 14
"""How much must be recorded before room is sized by it, and before days of the week are distinguished."""
LONGEST_GAP = 12
"""How many steps without a look repeat the last value: in a quiet cluster functions look every half-hour."""
_DAY = timedelta(days=1) // STEP
_HALF_HOUR = timedelta(minutes=30) // STEP
_FEWEST = 12
"""The fewest growths that a quantile is taken of."""


@dataclass(frozen=True, slots=True)
class History:
    """The pods that a workload wanted: the most in each step, None if unknown. The last value is that of step `end`.

    Steps are numbered since 1970.
    """

    end: int
    values: tuple[int | None, ...]

    def at(self, step: int) -> int | None:
        """Return the value of a step, None if it is not recorded."""
        index = len(self.values) - 1 - (self.end - step)
        return self.values[index] if 0 <= index < len(self.values) else None

    @property
    def days(self) -> float:
        """How much is recorded."""
        return sum(value is not None for value in self.values) / _DAY


@dataclass(frozen=True, slots=True)
class Sizing:
    """The size of a buffer by its workload's history, in pods, and why; None if too little is recorded."""

    count: int | None
    message: str


def step_of(moment: datetime) -> int:
    """Return the number of the step that contains a moment."""
    return int(moment.timestamp()) // int(STEP.total_seconds())


def noted(history: History | None, count: int, now: datetime) -> History:
    """Return the history with what the workload wants now. Missed steps repeat the last value, for up to an hour."""
    step = step_of(now)
    if history is None or step - history.end > MOST_DAYS * _DAY:
        return History(step, (count,))
    if step <= history.end:
        *before, last = history.values
        return History(history.end, (*before, max(count, last or 0)))
    missed = step - history.end - 1
    between = (history.values[-1] if missed <= LONGEST_GAP else None,) * missed
    return History(step, (*history.values, *between, count)[-MOST_DAYS * _DAY :])


def sizing(buffer: CapacityBuffer, quantile: Quantile, history: History | None, now: datetime) -> Sizing:
    """Return the size of a buffer's room by the history of its workload."""
    days = history.days if history is not None else 0.0
    if history is None or days < LEAST_DAYS:
        text = f"{days * 24:.0f} of {LEAST_DAYS * 24} hours of {buffer.reference} are recorded"
        return Sizing(None, f"{text}: replicas and percentage count until then")
    for period, unit in ((7, "days of the week"), (1, "days")):
        if days < WEEKLY_DAYS and period == 7:
            continue
        growths = sorted(_growths(history, quantile, period, now))
        if len(growths) >= _FEWEST:
            count = growths[math.ceil(quantile.value * len(growths)) - 1]
            text = f"the {quantile.value:g} quantile of how many more pods {buffer.reference} wanted within"
            text += f" {quantile.horizon_seconds // 60} minutes around this half-hour on the same {unit}"
            return Sizing(count, f"{text}, in the last {quantile.window_days} days")
    return Sizing(None, f"too little of {buffer.reference} is recorded around this half-hour")


def _growths(history: History, quantile: Quantile, period: int, now: datetime) -> Iterator[int]:
    """Yield the growths in the present half-hour, the one before and the one after it, every `period` days."""
    begin = step_of(now) // _HALF_HOUR * _HALF_HOUR - _HALF_HOUR
    horizon = max(1, quantile.horizon_seconds // int(STEP.total_seconds()))
    for days in range(period, quantile.window_days + 1, period):
        for step in range(begin - days * _DAY, begin - days * _DAY + 3 * _HALF_HOUR):
            before = history.at(step)
            after = [
                value for ahead in range(1, horizon + 1) if (value := history.at(step + ahead)) is not None
            ]
            if before is not None and after:
                yield max(0, max(after) - before)


def history_item(history: History) -> dict[str, Any]:
    """Return a history as JSON data: runs of equal values, each as number and value."""
    runs = [[len(list(group)), value] for value, group in groupby(history.values)]
    return {"end": history.end, "runs": runs}


def read_history(item: Mapping[str, Any]) -> History:
    """Read a history. Raises KeyError, TypeError or ValueError for anything else."""
    runs: Sequence[tuple[int, int | None]] = [
        (int(n), None if v is None else int(v)) for n, v in item["runs"]
    ]
    if sum(n for n, _ in runs) > 2 * MOST_DAYS * _DAY:
        raise ValueError("too long")
    values = tuple(value for number, value in runs for _ in range(number))
    return History(int(item["end"]), values[-MOST_DAYS * _DAY :] or (None,))


def next_size_at(now: datetime) -> datetime:
    """Return when sizes may change next."""
    seconds = int(_HALF_HOUR * STEP.total_seconds())
    return datetime.fromtimestamp((int(now.timestamp()) // seconds + 1) * seconds, UTC)
