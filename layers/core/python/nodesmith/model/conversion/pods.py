"""Convert label keys in workloads: in selectors, affinity, spreads and annotations of pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.taints import DISRUPTED
from nodesmith.model.conversion.drafts import Draft, Fate, Old, entries, items
from nodesmith.model.conversion.requirements import MISTAKEN, RENAMED, read_label, unknown_key

DO_NOT_EVICT = "karpenter.sh/do-not-evict"
DO_NOT_CONSOLIDATE = "karpenter.sh/do-not-consolidate"
TEMPLATES: Mapping[str, str] = {
    "Pod": "",
    "Deployment": "spec.template",
    "ReplicaSet": "spec.template",
    "StatefulSet": "spec.template",
    "DaemonSet": "spec.template",
    "ReplicationController": "spec.template",
    "Job": "spec.template",
    "CronJob": "spec.jobTemplate.spec.template",
    "PodTemplate": "template",
}
"""Kind → the path of its pod template, empty for pods themselves."""
KINDS = frozenset(TEMPLATES) | {"Node"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_DISRUPTING = "karpenter.sh/disruption"
_ANNOTATIONS = {DO_NOT_EVICT: DO_NOT_DISRUPT, DO_NOT_CONSOLIDATE: DO_NOT_DISRUPT}


def workload(old: Old) -> Draft:
    """Convert a workload, a pod or a node."""
    draft = Draft.of(old, str(old.manifest.get("apiVersion")))
    kind = str(old.manifest.get("kind"))
    if kind == "Node":
        _annotations(draft, "metadata.annotations")
        return draft
    place = f"{TEMPLATES[kind]}." if TEMPLATES[kind] else ""
    _annotations(draft, f"{place}metadata.annotations")
    _node_selector(draft, f"{place}spec.nodeSelector")
    field = f"{place}spec.tolerations"
    _replace(
        draft, field, [_toleration(old, t, f"{field}[{n}]") for n, t in enumerate(items(draft.get(field)))]
    )
    for field, terms in _term_lists(draft, f"{place}spec.affinity.nodeAffinity"):
        _replace(draft, field, [_term(old, term, f"{field}[{n}]") for n, term in enumerate(terms)])
    for field in (f"{place}spec.topologySpreadConstraints", *_pod_terms(place)):
        _replace(
            draft, field, [_topology(old, t, f"{field}[{n}]") for n, t in enumerate(items(draft.get(field)))]
        )
    return draft


def _pod_terms(place: str) -> Iterator[str]:
    for part in ("podAffinity", "podAntiAffinity"):
        for when in (_REQUIRED, _PREFERRED):
            yield f"{place}spec.affinity.{part}.{when}"


def _replace(draft: Draft, field: str, new: list[Any]) -> None:
    given = items(draft.get(field))
    if any(a is not b for a, b in zip(new, given, strict=True)):
        draft.put(field, new, field)


def _annotations(draft: Draft, field: str) -> None:
    given = entries(draft.get(field))
    if not _ANNOTATIONS.keys() & given.keys():
        return
    for key in _ANNOTATIONS.keys() & given.keys():
        draft.old.note(Fate.MOVED, f"{field}[{key}]", f"is {_ANNOTATIONS[key]} today")
    draft.put(field, {_ANNOTATIONS.get(key, key): value for key, value in given.items()}, field)
    draft.rename(field, {_ANNOTATIONS.get(key, key): key for key in given})


def _node_selector(draft: Draft, field: str) -> None:
    given = entries(draft.get(field))
    new: dict[str, Any] = {}
    names: dict[str, str] = {}
    for key, value in given.items():
        values = (value,) if isinstance(value, str) else ()
        today, read = _read(draft.old, key, values, f"{field}[{key}]")
        new[today] = read[0] if read else value
        names[today] = key
    if new != given:
        draft.put(field, new, field)
        draft.rename(field, names)


def _read(old: Old, key: str, values: tuple[str, ...], field: str) -> tuple[str, tuple[str, ...]]:
    """Return the current key and values if no node has the given key, else both unchanged."""
    if hint := unknown_key(key):
        old.note(Fate.REFUSED, field, hint)
    if key not in MISTAKEN and key not in RENAMED:
        return key, values
    reading = read_label(key, values)
    fate = Fate.MOVED if reading.renamed else Fate.REPAIRED
    old.note(fate, field, reading.why)
    return reading.key, reading.values


def _term_lists(draft: Draft, field: str) -> Iterator[tuple[str, list[Any]]]:
    required = f"{field}.{_REQUIRED}.nodeSelectorTerms"
    yield required, items(draft.get(required))
    preferred = f"{field}.{_PREFERRED}"
    yield preferred, items(draft.get(preferred))


def _term(old: Old, term: Any, field: str) -> Any:
    """Convert a term, weighted or not."""
    if isinstance(entries(term).get("preference"), Mapping):
        inner = _term(old, term["preference"], f"{field}.preference")
        return term if inner is term["preference"] else {**term, "preference": inner}
    given = items(entries(term).get("matchExpressions"))
    new = [_expression(old, each, f"{field}.matchExpressions[{n}]") for n, each in enumerate(given)]
    if all(a is b for a, b in zip(new, given, strict=True)):
        return term
    return {**term, "matchExpressions": new}


def _expression(old: Old, given: Any, field: str) -> Any:
    key, values = entries(given).get("key"), items(entries(given).get("values"))
    if not isinstance(key, str) or not all(isinstance(value, str) for value in values):
        return given
    today, read = _read(old, key, tuple(values), f"{field}.key")
    if today == key and read == tuple(values):
        return given
    return {**given, "key": today, **({"values": list(read)} if values else {})}


def _toleration(old: Old, given: Any, field: str) -> Any:
    """Convert a toleration of the taint with which Karpenter kept pods off a node that must end."""
    if entries(given).get("key") != _DISRUPTING:
        return given
    old.note(Fate.MOVED, field, f"{_DISRUPTING} is {DISRUPTED.key} today, without a value")
    rest = {name: value for name, value in given.items() if name != "value"}
    return {**rest, "key": DISRUPTED.key, "operator": "Exists"}


def _topology(old: Old, given: Any, field: str) -> Any:
    """Convert the topology key of a spread or an affinity term, weighted or not."""
    if isinstance(entries(given).get("podAffinityTerm"), Mapping):
        inner = _topology(old, given["podAffinityTerm"], f"{field}.podAffinityTerm")
        return given if inner is given["podAffinityTerm"] else {**given, "podAffinityTerm": inner}
    key = entries(given).get("topologyKey")
    if not isinstance(key, str):
        return given
    today, _ = _read(old, key, (), f"{field}.topologyKey")
    return given if today == key else {**given, "topologyKey": today}
