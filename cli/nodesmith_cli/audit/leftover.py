"""Unplaced pods that an existing node clearly has room for. This is a warning, not a violation.

Only pods without constraints on other pods, volumes and device claims are checked, since their case is clear.
"""

from __future__ import annotations

from nodesmith_cli.audit.apart import Aversions
from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.places import Place
from nodesmith_cli.audit.pods import Pod, finds_port_taken, needs_of
from nodesmith_cli.audit.reading import Amounts
from nodesmith_cli.audit.selectors import refusals
from nodesmith_cli.audit.violations import Kind

_OWN_PLACES = ("volumes", "resourceClaims")
_SOCIAL = ("podAffinity", "podAntiAffinity")


def check_unplaced(result: Outcome, aversions: Aversions) -> None:
    """Report the unplaced pods that would fit on an existing node after the plan."""
    rooms = [(place, _free(place)) for place in result.places.values() if not (place.is_new or place.closed)]
    for key in result.plan.unplaced:
        pod = result.cluster.pods.get(key)
        if pod and result.cluster.is_pending(pod) and _is_plain(pod) and not aversions.about(pod):
            name = next((place.name for place, free in rooms if _fits(pod, place, free)), None)
            if name:
                result.report(Kind.COULD_FIT, key, f"is unplaced, but {name} has room for it")


def _free(place: Place) -> Amounts:
    used = needs_of((*place.bound, *place.daemons, *place.pods))
    return {name: amount - used.get(name, 0) for name, amount in (place.room or {}).items()}


def _is_plain(pod: Pod) -> bool:
    affinity = pod.spec.get("affinity") or {}
    held = pod.gated or pod.nominated or pod.fault or any(map(pod.spec.get, _OWN_PLACES))
    return not (held or pod.spec.get("topologySpreadConstraints") or any(map(affinity.get, _SOCIAL)))


def _fits(pod: Pod, place: Place, free: Amounts) -> bool:
    if any(amount < 0 or amount > free.get(name, 0) for name, amount in pod.needs.items()):
        return False
    if refusals(pod.spec, place.labels, place.taints, place.node_name):
        return False
    resident = (*place.bound, *place.daemons, *place.pods)
    return not finds_port_taken([pod], resident)
