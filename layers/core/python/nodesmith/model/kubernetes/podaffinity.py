"""Read a pod's topology spread constraints, pod affinity and pod anti-affinity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodesmith.model.apimachinery.labels import normalised
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.kubernetes.namespaces import Namespaces
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.model.kubernetes.shapes import PodAffinityTerm, Spread

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HEAVIEST = 100


def read_spread(raw: Manifest, labels: Mapping[str, str]) -> Spread:
    """Read one topology spread constraint of a pod with these labels. Raises KeyError or ValueError."""
    keys = raw.get("matchLabelKeys") or ()
    return Spread(
        topology_key=normalised(str(raw["topologyKey"])),
        max_skew=max(1, int(raw.get("maxSkew") or 1)),
        hard=raw.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        selector=parse_selector(raw.get("labelSelector"), {k: labels[k] for k in keys if k in labels}),
        min_domains=int(raw.get("minDomains") or 1),
        honor_affinity=raw.get("nodeAffinityPolicy", "Honor") == "Honor",
        honor_taints=raw.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


@dataclass(frozen=True, slots=True)
class _Whose:
    namespace: str
    labels: Mapping[str, str]
    namespaces: Namespaces | None


def read_pod_affinity(
    affinity: Manifest, namespace: str, labels: Mapping[str, str], namespaces: Namespaces | None
) -> Iterator[PodAffinityTerm]:
    """Yield the required and preferred terms of a pod's affinity and anti-affinity. Raises KeyError or ValueError.

    If `namespaces` is None, a term with a namespaceSelector applies to all namespaces.
    """
    pod = _Whose(namespace, labels, namespaces)
    for part, anti in (("podAffinity", False), ("podAntiAffinity", True)):
        terms = affinity.get(part) or {}
        for term in terms.get(REQUIRED) or ():
            yield _term(term, pod, anti=anti, weight=0)
        for each in terms.get(PREFERRED) or ():
            yield _term(each["podAffinityTerm"], pod, anti=anti, weight=read_weight(each))


def at_odds(terms: Sequence[PodAffinityTerm], namespace: str, labels: Mapping[str, str]) -> str:
    """Return why a pod's required affinity and anti-affinity exclude every node, empty if they do not contradict.

    Terms that select the pod itself are ignored, because the first such pod has no other pods to be near or away from.
    """
    asked: dict[object, bool] = {}
    for term in terms:
        if term.weight or term.selector is None:
            continue
        whom = term.topology_key, term.selector.key, term.namespaces
        own = term.selector.matches(labels) and (term.namespaces is None or namespace in term.namespaces)
        if not own and asked.setdefault(whom, term.anti) != term.anti:
            return (
                f"its pod affinity and anti-affinity contradict each other: in one {term.topology_key} it must and must"
                f" not run with pods of {term.selector}"
            )
    return ""


def read_weight(preferred: Manifest) -> int:
    """Return the weight of a preferred term. Raises ValueError if it is not 1 to 100."""
    weight = preferred.get("weight")
    if type(weight) is not int or not 1 <= weight <= _HEAVIEST:
        raise ValueError(f"the weight of a preferred affinity term is {weight!r}: must be 1 to {_HEAVIEST}")
    return weight


def _term(term: Manifest, pod: _Whose, *, anti: bool, weight: int) -> PodAffinityTerm:
    labels = pod.labels
    return PodAffinityTerm(
        topology_key=normalised(str(term["topologyKey"])),
        selector=parse_selector(
            term.get("labelSelector"),
            {k: labels[k] for k in term.get("matchLabelKeys") or () if k in labels},
            {k: labels[k] for k in term.get("mismatchLabelKeys") or () if k in labels},
        ),
        anti=anti,
        namespaces=_namespaces(term, pod),
        weight=weight,
    )


def _namespaces(term: Manifest, pod: _Whose) -> frozenset[str] | None:
    """Return the named and the selected namespaces, the pod's own if the term has neither, or None for all."""
    named = frozenset(map(str, term.get("namespaces") or ()))
    selector = parse_selector(term.get("namespaceSelector"))
    if selector is None:
        return named or frozenset({pod.namespace})
    if not selector.requirements or pod.namespaces is None:
        return None
    return named | pod.namespaces.selected(selector)
