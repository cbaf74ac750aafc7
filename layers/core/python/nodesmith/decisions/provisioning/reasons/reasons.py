"""Why a demand found nothing to buy: the NodePool that came nearest, and the one thing in the way there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nodesmith.decisions.provisioning.reasons.refusals import Filter, Refusal, refusal
from nodesmith.decisions.provisioning.reasons.remedies import of_obstacle
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.resources import Resources
from nodesmith.model.kubernetes.pods import Reason, Shape

_MOST_SHOWN = 3
_TYPO_CPU_MILLI = 1_000_000_000  # a million cores: milli-cores or bytes were meant
_COUNTED = {
    Filter.TAINT: "with a taint that the pods do not tolerate",
    Filter.REQUIREMENT: "without the labels that the pods require",
    Filter.NODEPOOL: "not able to launch anything now",
    Filter.OFFERING: "without an offering left that would do",
    Filter.HOST_PORT: "with the pods' host port in use on every node",
    Filter.RESOURCE: "too small",
    Filter.MIN_VALUES: "with too few instance types left for its minValues",
    Filter.LIMIT: "at their limit",
    Filter.UNFINISHED: "with more work than one run does",
}


def reason(
    demand: Demand,
    templates: Sequence[Template],
    obstacles: Mapping[str, str],
    tried: Mapping[tuple[Shape, str | None, str], Refusal],
) -> Reason:
    """Return the reason for pods that stay pending. `templates` come heaviest first; `obstacles` go by NodePool.

    `tried` is what refused a purchase, by shape, zone and NodePool. The nearest NodePool is the one that passed most
    filters, the heaviest of equals. As kube-scheduler does for nodes, the text counts the NodePools stopped by each
    filter.
    """
    refusals = [
        (t.name, tried.get((demand.shape, demand.zone, t.name)) or refusal(demand, t)) for t in templates
    ]
    refusals += [
        (name, Refusal(Filter.NODEPOOL, why, f"NodePool {name}", of_obstacle(why)))
        for name, why in obstacles.items()
    ]
    if not refusals:
        return Reason("there is no NodePool", blocking="no NodePool", fix="create a NodePool")
    name, nearest = max(refusals, key=lambda r: r[1].filter)
    text = f"NodePool {name}: {nearest.why}"
    if len(refusals) > 1:
        text = f"{_counts(found.filter for _, found in refusals)}; nearest is {text}"
    text += _by_volumes(demand.shape) + _typo(demand.shape.requests)
    return Reason(text, name, nearest.blocking, nearest.fix)


def _counts(filters: Iterable[Filter]) -> str:
    """Count the NodePools by the filter that stopped them, nearest first: `0 of 3 NodePools fit: 1 too small, …`."""
    found = Counter(filters)
    parts = ", ".join(f"{found[each]} {_COUNTED[each]}" for each in sorted(found, reverse=True))
    return f"0 of {found.total()} NodePools fit: {parts}"


def _by_volumes(shape: Shape) -> str:
    """Return the requirements that come from volumes, which a user would not find in the pod's own spec."""
    own = {str(one) for term in shape.own_terms for one in term.values()}
    added = sorted({str(one) for term in shape.terms for one in term.values()} - own)
    return f" (for their volumes: {' or '.join(added[:_MOST_SHOWN])})" if added else ""


def _typo(requests: Resources) -> str:
    if requests.cpu_milli >= _TYPO_CPU_MILLI:
        return f" (a cpu request of {requests.cpu_milli // 1000} looks like a unit mistake)"
    return ""
