"""Proactive scale-up: nodes for pods that do not exist yet, because their workload has just grown.

A decision plans the pods that a workload lacks like pods that wait for a node, so that one plan serves those that exist
already and those to come. Once a pod exists, it counts instead of one that is planned, and finds the capacity that was
bought. Disruption sees planned pods as well, so it leaves them their nodes.

Nodes for pods that never come are bounded: pods are planned for five minutes after the growth, nodes that were bought
in vain back off (see `attempts`), and pods that exist come first wherever a limit does not suffice for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

from nodesmith.decisions.provisioning.plan import Forthcoming, Inputs, Plan, Unplaced
from nodesmith.decisions.scheduling.demands import provisionable
from nodesmith.decisions.scheduling.workloads import Workloads
from nodesmith.model.kubernetes.pods import LACKING_FOR, Pod, is_forthcoming

_AFTER_PODS = "pods that exist wait for the limits of NodePools, and come first"
_EVER = datetime.min.replace(tzinfo=UTC)
Planned: TypeAlias = Mapping[str, tuple[Pod, ...]]
"""The pods that workloads lack, by workload (`Kind/namespace/name`)."""


def planned(inputs: Inputs) -> Planned:
    """Return the pods to plan, the earliest growth first, as far as the setting PROACTIVE_POD_LIMIT allows."""
    lately = inputs.now - LACKING_FOR
    grown = [each for each in inputs.snapshot.grown if each.grown_at > lately and each.lacking > 0]
    if not grown:
        return {}
    left = inputs.settings.proactive_pod_limit - len(provisionable(inputs.snapshot.pods)[0])
    found: dict[str, tuple[Pod, ...]] = {}
    for each in sorted(grown, key=lambda each: (each.grown_at, each.template.key)):
        pods = each.pods(max(0, left), inputs.now)
        left -= len(pods)
        if pods:
            found[each.template.key] = tuple(pods)
    return found


def with_planned(inputs: Inputs) -> Inputs:
    """Return the inputs with the planned pods among the pods of the snapshot."""
    found = [pod for pods in planned(inputs).values() for pod in pods]
    if not found:
        return inputs
    return replace(inputs, snapshot=replace(inputs.snapshot, pods=(*inputs.snapshot.pods, *found), grown=()))


def crowd_out(planned: Planned, plan: Plan) -> bool:
    """Return whether a limit leaves pods that exist without a node in a plan that serves planned pods as well."""
    ours = _keys(planned)
    limited = (group for group in plan.unplaced if group.why.blocking.startswith("limit"))
    return any(key not in ours for group in limited for key in group.pods)


def put_off(planned: Planned, plan: Plan) -> Plan:
    """Return a plan for pods that exist alone, which says why there are no nodes for the planned ones."""
    waiting = (Forthcoming(name, len(pods), why=_AFTER_PODS) for name, pods in planned.items())
    return replace(plan, forthcoming=tuple(waiting))


def told(planned: Planned, plan: Plan, claims: Collection[str]) -> Plan:
    """Return a plan that says where the planned pods have places, and names only pods that exist as unplaced.

    `claims` are the names of the NodeClaims, which in-flight nodes have.
    """
    ours, why, where = _keys(planned), dict[str, str](), dict[str, str]()
    for group in (*plan.unplaced, *plan.ignored):
        why.update((key, str(group.why)) for key in group.pods if key in ours)
    for name, keys in (plan.placed or {}).items():
        where.update((key, "coming" if name in claims else "there") for key in keys)
    where.update(dict.fromkeys(plan.waiting or (), "coming"))
    for node in plan.nodes:
        where.update(dict.fromkeys(node.claim.nominated, "bought"))
    return replace(
        plan,
        unplaced=tuple(_without(ours, plan.unplaced)),
        ignored=tuple(_without(ours, plan.ignored)),
        forthcoming=tuple(_forthcoming(name, pods, where, why) for name, pods in planned.items()),
    )


def _forthcoming(
    workload: str, pods: tuple[Pod, ...], where: Mapping[str, str], why: Mapping[str, str]
) -> Forthcoming:
    counts = Counter(where.get(pod.key, "") for pod in pods)
    reason = next((why[pod.key] for pod in pods if pod.key in why), "")
    return Forthcoming(workload, len(pods), counts["there"], counts["coming"], counts["bought"], reason)


def _without(keys: Collection[str], groups: Iterable[Unplaced]) -> Iterator[Unplaced]:
    for group in groups:
        left = tuple(key for key in group.pods if key not in keys)
        if left:
            yield replace(group, pods=left)


def _keys(planned: Planned) -> frozenset[str]:
    return frozenset(pod.key for pods in planned.values() for pod in pods)


def judging(pods: Iterable[Pod], names: Workloads) -> list[Pod]:
    """Return the pods by which earlier purchases for their workloads are judged.

    Planned pods count as waiting all the time. Where pods of the same workload exist, only these count: that pods did
    not come earlier does not hold up those that have come.
    """
    pods = list(pods)
    there = [pod for pod in pods if not is_forthcoming(pod.key)]
    if len(there) == len(pods):
        return pods
    names_there = {names.of(pod) for pod in there}
    others = [pod for pod in pods if is_forthcoming(pod.key) and names.of(pod) not in names_there]
    return [*there, *(replace(pod, created_at=_EVER) for pod in others)]
