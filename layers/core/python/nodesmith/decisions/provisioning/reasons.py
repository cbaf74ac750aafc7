"""Why a demand found nothing to buy: the NodePool that came nearest, the one thing in the way there, and what helps.

A NodePool's refusal is the first filter that leaves nothing, and what failed there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence

from nodesmith.decisions.provisioning.alternatives import Attempt
from nodesmith.decisions.provisioning.nodepools.remedies import first_fix
from nodesmith.decisions.provisioning.nodepools.tiers import Obstructed, Pools
from nodesmith.decisions.provisioning.purchase.order import Filter, Purchase, Refusal
from nodesmith.decisions.provisioning.refusals import (
    of_obstructed,
    refusal,
)
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.kubernetes.pods import OPTED_OUT, Pod, Reason, Shape

NO_NODEPOOL = "no NodePool"
_MOST_SHOWN = 3
_LONGEST_OTHER = 160
_TYPO_CORES = 1_000_000  # milli-cores or bytes were meant
_NAMED = re.compile(r"[\w.]+ '[^']*'")
"""An object at the beginning of a sentence: `persistentvolumeclaim 'data'`."""
_ADVICE = re.compile(r": ((?:create|recreate|make|name|remove|mend|fix|correct|update|add|ask|declare) .*)$")
"""The part of a sentence that already says what would help."""
_RULES = (
    (
        "rules about other pods",
        "allow nodes in more domains, or make the topology spread or affinity of these pods preferred",
    ),
    ("a shared ResourceClaim", "make room on that node, or claim devices by a ResourceClaimTemplate"),
    (
        "required pod affinity",
        "make room beside the pods that they must be with, or make the affinity preferred",
    ),
    ("required pod anti-affinity", "allow nodes in more domains, or make the anti-affinity preferred"),
    ("topology spread of other pods", "allow nodes in more domains, or raise maxSkew of those pods"),
    (
        "topology spread",
        "allow nodes in more domains, raise maxSkew, or set whenUnsatisfiable to ScheduleAnyway",
    ),
)
_FAULTS = (
    ("no pod anywhere matches", "correct the selector of the affinity, or create pods that it matches"),
    ("minDomains is", "lower minDomains, raise maxSkew, or allow nodes in more domains"),
    ("no node has that label", "correct topologyKey, or give the nodes of a NodePool that label"),
)
"""What is wrong with a rule, where that says more about the remedy than the rule does."""
_REFUSALS = (
    (OPTED_OUT, "node affinity", "remove that affinity to have nodes bought for the pod"),
    ("its node selector and affinity", "node selector and affinity", "remove one of the two"),
    ("its pod affinity and anti-affinity", "pod affinity and anti-affinity", "remove one of the two"),
    ("node selector or affinity", "node selector or affinity", "select nodes by a label that they can have"),
    ("required node affinity by matchFields", "node affinity by matchFields", "select nodes by their labels"),
    ("its volumes are out of reach", "volumes", "remove the selector, or use volumes within its reach"),
    ("no node reaches all", "volumes", "use volumes of one zone: they cannot be moved"),
    ("node affinity of its volumes", "volumes", "use volumes whose node affinity uses ordinary labels"),
    ("it claims devices", "resource claims", ""),
    # Nothing is wrong with such a pod yet, so it gets no Event.
    (
        "it waits behind the scheduling gate",
        "",
        "see why the controller that removes it does not, or remove it",
    ),
    ("its request of", "requests", "request zero or more"),
    ("a resource quantity", "requests", "write the amount as Kubernetes does"),
    ("the pod's spec", "spec", "fix that field"),
)


_COUNTED = {
    Filter.ABSENT: "without a resource that the pods request",
    Filter.LABEL: "without the labels that the pods require",
    Filter.TAINT: "with a taint that the pods do not tolerate",
    Filter.REQUIREMENT: "without the labels that the pods require",
    Filter.NODEPOOL: "not able to launch anything now",
    Filter.OFFERING: "without a suitable offering left",
    Filter.HOST_PORT: "with the pods' host port in use on every node",
    Filter.RESOURCE: "too small",
    Filter.MIN_VALUES: "with too few instance types left for its minValues",
    Filter.OBSTRUCTED: "not able to launch anything now",
    Filter.LIMIT: "at their limit",
    Filter.UNFINISHED: "with more work than one run does",
}


def reason(
    demand: Demand,
    templates: Sequence[Template],
    obstacles: Mapping[str, str],
    tried: Mapping[tuple[Shape, str | None, str], Refusal],
    obstructed: Mapping[str, Obstructed] | None = None,
) -> Reason:
    """Return the reason for pods that stay pending. `templates` come heaviest first; `obstacles` go by NodePool.

    `tried` is what refused a purchase, by shape, zone and NodePool. `obstructed` are the valid NodePools with an
    obstacle. The nearest NodePool is the one that passed most filters, the heaviest of equals, a static one last. As
    kube-scheduler does for nodes, the text counts the NodePools stopped by each filter. It then describes the nearest
    one, and the next ones that something else stopped.
    """
    refusals = [
        (t.name, tried.get((demand.shape, demand.zone, t.name)) or refusal(demand, t)) for t in templates
    ]
    by_name = obstructed or {}
    static = {name for name, nodepool in by_name.items() if nodepool.pool.is_static}
    refusals += [
        (name, of_obstructed(demand, name, obstacles[name], by_name.get(name)))
        for name in sorted(obstacles, key=lambda name: name in static)
    ]
    if not refusals:
        return Reason("there is no NodePool", blocking=NO_NODEPOOL, fix="create a NodePool")
    refusals.sort(key=lambda r: -r[1].filter)
    name, nearest = refusals[0]
    text = f"NodePool {name}: {nearest.reason}"
    if len(refusals) > 1:
        text = "; ".join(
            [f"{_counts(found.filter for _, found in refusals)}; nearest is {text}", *_others(refusals)]
        )
    text += _by_volumes(demand.shape) + _typo(demand.shape.requests)
    return Reason(text, name, nearest.blocking, nearest.fix)


def _others(refusals: Sequence[tuple[str, Refusal]]) -> list[str]:
    """Describe the NodePools that come after the nearest one, the first of those that the same thing stopped."""
    by_blocking = {found.blocking: (name, found.reason) for name, found in reversed(refusals)}
    described = [by_blocking[each] for each in dict.fromkeys(found.blocking for _, found in refusals)]
    return [
        f"NodePool {name}: {why if len(why) <= _LONGEST_OTHER else f'{why[:_LONGEST_OTHER]}…'}"
        for name, why in described[1:_MOST_SHOWN]
    ]


def _counts(filters: Iterable[Filter]) -> str:
    """Count the NodePools by the filter that stopped them, nearest first: `0 of 3 NodePools fit: 1 too small, …`."""
    counts = Counter(_COUNTED[each] for each in sorted(filters, reverse=True))
    parts = ", ".join(f"{number} {what}" for what, number in counts.items())
    return f"0 of {counts.total()} NodePools fit: {parts}"


def _by_volumes(shape: Shape) -> str:
    """Return what volumes or allocated devices require. Capacity types are decided by splits, which have said so."""
    own = {str(value) for term in shape.own_terms for value in term.values()}
    values = {str(value) for term in shape.terms for key, value in term.items() if key != CAPACITY_TYPE} - own
    subject = "volumes or devices" if shape.devices else "volumes"
    return f" (for their {subject}: {' or '.join(sorted(values)[:_MOST_SHOWN])})" if values else ""


def _typo(requests: Resources) -> str:
    cores = requests.cpu_milli // 1000
    return f" (a cpu request of {cores} looks like a unit mistake)" if cores >= _TYPO_CORES else ""


def by_rule(message: str) -> Reason:
    """Return the reason for pods that a rule about other pods keeps from every node.

    `message` reads `rule: what is wrong`.
    """
    rule, colon, what = message.partition(": ")
    fix = first_fix(_FAULTS, what) or first_fix(_RULES, rule)
    return Reason(message, blocking=rule if colon else "", fix=fix)


def of_refusal(message: str) -> Reason:
    """Return the reason for pods that no node can serve, whatever is for sale."""
    match, advice = _NAMED.match(message), _ADVICE.search(message)
    beginning = next((row for row in _REFUSALS if message.startswith(row[0])), None)
    blocking, fix = beginning[1:] if beginning else (match[0] if match else "", "")
    return Reason(message, blocking=blocking, fix=fix or (advice[1] if advice else ""))


def left_of(attempt: Attempt, offers: Pools) -> list[tuple[Pod, Reason]]:
    """Return the pods that an attempt leaves without a node, with the reasons."""
    return [*_stuck(attempt, offers), *_refused(attempt.purchase, offers)]


def why_left(
    attempt: Attempt,
    offers: Pools,
    pods: Collection[str],
    known: MutableMapping[tuple[Shape, str | None], str],
) -> dict[str, str]:
    """Return why an attempt leaves these pods (namespace/name) without a node, by pod.

    `known` are the reasons of like demands, from attempts of one pass: searching for one takes milliseconds.
    """
    found = {pod.key: why.text for pod, why in _stuck(attempt, offers) if pod.key in pods}
    templates = [t for tier in attempt.purchase.tiers for t in tier]
    for demand in attempt.purchase.left:
        mine = [pod.key for pod in demand.pods if pod.key in pods]
        key = demand.shape, demand.zone
        if mine and key not in known:
            refusals = attempt.purchase.refusals
            known[key] = reason(demand, templates, offers.obstacles, refusals, offers.obstructed).text
        found |= dict.fromkeys(mine, known.get(key, ""))
    return found


def _stuck(attempt: Attempt, offers: Pools) -> list[tuple[Pod, Reason]]:
    """Return the pods that no node was demanded for, with the reasons.

    If an attempt to buy for them failed, the reason is that of the attempt.
    """
    tried = {pod.shape: refusal for pod, refusal in _refused(attempt.tried, offers)} if attempt.tried else {}
    stuck = attempt.assignment.stuck
    return [(pod, tried.get(pod.shape) or by_rule(rule)) for pods, rule in stuck for pod in pods]


def _refused(purchase: Purchase, offers: Pools) -> list[tuple[Pod, Reason]]:
    templates = [t for tier in purchase.tiers for t in tier]
    refused: list[tuple[Pod, Reason]] = []
    for demand in purchase.left:
        refusal = reason(demand, templates, offers.obstacles, purchase.refusals, offers.obstructed)
        refused += [(pod, refusal) for pod in demand.pods]
    return refused
