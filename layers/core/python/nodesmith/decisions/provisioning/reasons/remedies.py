"""What stands in the way and what would help, derived from how a reason given elsewhere begins."""

from __future__ import annotations

import re

from nodesmith.model.kubernetes.pods import OPTED_OUT, Reason

_NAMED = re.compile(r"[\w.]+ '[^']*'")
"""An object at the beginning of a sentence: `persistentvolumeclaim 'data'`."""
_ADVICE = re.compile(r": ((?:create|recreate|make|name|remove|mend|fix|correct|update|add|ask) .*)$")
"""The part of a sentence that already says what would help."""
_RULES = (
    (
        "required pod affinity",
        "make room for the pods that they must be with, or make the affinity preferred",
    ),
    ("required pod anti-affinity", "allow nodes in more domains, or make the anti-affinity preferred"),
    ("topology spread of other pods", "allow nodes in more domains, or raise maxSkew of those pods"),
    (
        "topology spread",
        "allow nodes in more domains, raise maxSkew, or set whenUnsatisfiable to ScheduleAnyway",
    ),
)
_OBSTACLES = (
    ("no instance type meets", "loosen the requirement that removes most instance types"),
    (
        "none of its",
        "allow more instance types, zones or capacity types, or wait until EC2 has capacity again",
    ),
    ("its DaemonSets ask", "allow larger instance types"),
    ("no instance type can boot", "let its EC2NodeClass select images of an architecture that it may buy"),
    ("its EC2NodeClass", "fix what the status of that EC2NodeClass shows"),
    ("its last launch was refused", "fix what EC2 reports; the launch is retried automatically"),
)
_REFUSALS = (
    (OPTED_OUT, "node affinity", "remove that affinity to have nodes bought for the pod"),
    ("its node selector and affinity", "node selector and affinity", "remove one of the two"),
    ("its pod affinity and anti-affinity", "pod affinity and anti-affinity", "remove one of the two"),
    ("node selector or affinity", "node selector or affinity", "select nodes by a label that they can have"),
    ("required node affinity by matchFields", "node affinity by matchFields", "select nodes by their labels"),
    (
        "its volumes are out of reach",
        "volumes",
        "remove the selector, or use volumes where it lets the pod run",
    ),
    ("no node reaches all", "volumes", "use volumes of one zone: they cannot be moved"),
    ("node affinity of its volumes", "volumes", "use volumes whose node affinity uses ordinary labels"),
    ("it claims devices", "resource claims", ""),
    ("its request of", "requests", "request zero or more"),
    ("a resource quantity", "requests", "write the amount as Kubernetes does"),
    ("the pod's spec", "spec", "fix that field"),
)


def by_rule(why: str) -> Reason:
    """Return the reason for pods that a rule about other pods keeps from every node.

    `why` reads `rule: what is wrong`.
    """
    rule, colon, _ = why.partition(": ")
    return Reason(why, blocking=rule if colon else "", fix=_first(_RULES, rule))


def of_obstacle(why: str) -> str:
    """Return what would let a NodePool buy again; empty if unknown."""
    return _first(_OBSTACLES, why)


def of_refusal(why: str) -> Reason:
    """Return the reason for pods that no node can serve, whatever is for sale."""
    named, advice = _NAMED.match(why), _ADVICE.search(why)
    beginning = next((row for row in _REFUSALS if why.startswith(row[0])), None)
    blocking, fix = beginning[1:] if beginning else (named[0] if named else "", "")
    return Reason(why, blocking=blocking, fix=fix or (advice[1] if advice else ""))


def _first(rows: tuple[tuple[str, str], ...], text: str) -> str:
    return next((fix for beginning, fix in rows if text.startswith(beginning)), "")
