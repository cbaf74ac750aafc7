"""Old and mistaken label keys and values, what each is read as, and their conversion in requirements and in workloads.

Workloads have label keys in selectors, affinity, spreads and annotations of pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.labels import (
    ALIASES,
    ARCH,
    AWS_DOMAIN,
    AWS_KEYS,
    CAPACITY_TYPE,
    DISRUPTED,
    DO_NOT_DISRUPT,
    INSTANCE_TYPE,
    NODEPOOL,
    ON_DEMAND,
    OS,
    PROVISIONER_NAME,
    normalised,
)
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.karpenter.conversion.drafts import Draft, FieldOutcome, SourceObject, entries, items

# Sources: the keys of Karpenter 0.4 to 0.37, of EKS managed node groups and EKS Auto Mode, and of blog posts.
CATEGORY = f"{AWS_DOMAIN}/instance-category"
_COUNTS = frozenset(f"{AWS_DOMAIN}/instance-{name}" for name in ("cpu", "memory", "family", "size"))
_DOTTED = ("family", "size", "cpu", "memory", "gpu.name", "gpu.manufacturer", "gpu.count", "gpu.memory")
_AUTO_MODE = "eks.amazonaws.com/instance-"
_INSTANCE = f"{AWS_DOMAIN}/instance-"
_CATEGORIES = re.compile(r"[a-z]{1,3}")

MISTAKEN: Mapping[str, str] = {
    **{
        f"{AWS_DOMAIN}/instance.{name}": f"{AWS_DOMAIN}/instance-{name.replace('.', '-')}" for name in _DOTTED
    },
    **{f"{_AUTO_MODE}{key.removeprefix(_INSTANCE)}": key for key in AWS_KEYS if key.startswith(_INSTANCE)},
    "node.kubernetes.io/instance-family": f"{AWS_DOMAIN}/instance-family",
    "node.kubernetes.io/instance-size": f"{AWS_DOMAIN}/instance-size",
    "node.k8s.aws/capacityType": CAPACITY_TYPE,
    "node.k8s.aws/capacity-type": CAPACITY_TYPE,
    "eks.amazonaws.com/capacityType": CAPACITY_TYPE,
}
"""Key that no node of Karpenter has → the intended key."""
RENAMED: Mapping[str, str] = {**ALIASES, PROVISIONER_NAME: NODEPOOL}
"""Key that was once right → its current name."""
WITHOUT_EQUIVALENT: Mapping[str, str] = {
    f"{AWS_DOMAIN}/instance-pods": "the number of pods of a node has no label; maxPods limits it",
    f"{AWS_DOMAIN}/instance-ami-id": "images are chosen by the EC2NodeClass, in amiSelectorTerms",
    f"{AWS_DOMAIN}/instance-accelerator-memory": "accelerators are chosen by their name or count",
}
_VALUES: Mapping[str, Mapping[str, str]] = {
    CAPACITY_TYPE: {
        "ondemand": "on-demand",
        "on-demand": "on-demand",
        "spot": "spot",
        "reserved": "reserved",
    },
    ARCH: {"x86-64": "amd64", "amd64": "amd64", "x64": "amd64", "aarch64": "arm64", "arm64": "arm64"},
    OS: {"linux": "linux", "windows": "windows"},
}
"""Key → known spelling of a value, in lower case with dashes → current value."""


class Reading(NamedTuple):
    """What a key and its values are read as. `explanation` is empty if they are right, or unknown and unchanged."""

    key: str
    values: tuple[str, ...]
    explanation: str = ""
    renamed: bool = False
    """True if the only change is from a key that was once right."""


def read_label(key: str, values: tuple[str, ...]) -> Reading:
    """Read a label key with the values that it must or must not have."""
    current = MISTAKEN.get(key) or RENAMED.get(key, key)
    renamed_values = tuple(_value(current, value) for value in values)
    if current in _COUNTS and values and all(map(_is_category, values)):
        current = CATEGORY
    reasons = []
    if current != key:
        reasons.append(f"is read as {current}")
    if renamed_values != values:
        reasons.append(f"{', '.join(values)} as {', '.join(renamed_values)}")
    renamed = key in RENAMED and renamed_values == values
    changes = ", ".join(reasons)
    return Reading(
        current, renamed_values, changes if current != key or not changes else f"has {changes}", renamed
    )


def _value(key: str, value: str) -> str:
    return _VALUES.get(key, {}).get(value.lower().replace("_", "-"), value)


def _is_category(value: str) -> bool:
    """Return whether a value is a category (c, hpc), and not a number, a family (with a digit) or a size (longer)."""
    return _CATEGORIES.fullmatch(value) is not None


def unknown_key(key: str) -> str:
    """Return advice for a key in AWS's domains that no node has, empty for all other keys."""
    hint = WITHOUT_EQUIVALENT.get(key, "")
    if key.startswith(_AUTO_MODE) and key not in MISTAKEN:
        hint = (
            f"it belongs to EKS Auto Mode and has no equivalent here{did_you_mean(key, frozenset(MISTAKEN))}"
        )
    return f"no node has this label: {hint}" if hint and key not in AWS_KEYS else ""


_GENERATION = f"{AWS_DOMAIN}/instance-generation"
_CHOOSES_TYPES = frozenset({INSTANCE_TYPE, f"{AWS_DOMAIN}/instance-family", CATEGORY, _GENERATION})
_BOUNDS = frozenset({"Gt", "Lt", "Gte", "Lte"})


def repaired_requirements(old: SourceObject, original: Any, field: str, *, rename: bool) -> Any:
    """Return requirements with current keys and values, or the same list if they are already right.

    `rename` is True to replace old keys that are still understood, too.
    """
    if not isinstance(original, list):
        return original
    new = [_repaired(old, item, f"{field}[{number}]", rename) for number, item in enumerate(original)]
    return original if all(a is b for a, b in zip(new, original, strict=True)) else new


def _repaired(old: SourceObject, item: Any, field: str, rename: bool) -> Any:
    key, values = entries(item).get("key"), items(entries(item).get("values"))
    if not isinstance(key, str) or not all(isinstance(value, str) for value in values):
        return item
    if hint := unknown_key(key):
        old.note(FieldOutcome.REFUSED, f"{field}.key", f"is {key}: {hint}")
    reading = read_label(key, tuple(values))
    if not reading.explanation or (reading.renamed and not rename):
        return item
    old.note(
        FieldOutcome.MOVED if reading.renamed else FieldOutcome.REPAIRED,
        f"{field}.key",
        f"{key} {reading.explanation}",
    )
    repaired = {**item, "key": reading.key}
    return {**repaired, "values": list(reading.values)} if reading.values != tuple(values) else repaired


def repaired_labels(old: SourceObject, original: Any, field: str) -> Any:
    """Return node labels with current keys and values, or the same map if they are already right."""
    new: dict[Any, Any] = {}
    for key, value in entries(original).items():
        reading = read_label(key, (value,)) if isinstance(value, str) and _may_mean(key) else None
        if reading is None or not reading.explanation:
            new[key] = value
            continue
        old.note(FieldOutcome.REPAIRED, f"{field}[{key}]", f"{key} {reading.explanation}")
        new[reading.key] = reading.values[0]
    return new if isinstance(original, Mapping) and new != original else original


def _may_mean(key: str) -> bool:
    return key in MISTAKEN or normalised(key) in {CAPACITY_TYPE, ARCH, OS}


def add_provisioner_defaults(draft: Draft) -> None:
    """Add the requirements that a Provisioner had by default for keys that it did not constrain."""
    requirements = draft.get("spec.template.spec.requirements")
    if requirements is not None and not isinstance(requirements, list):
        return
    labels = entries(draft.get("spec.template.metadata.labels"))
    spoken = {normalised(key) for key in labels}
    spoken |= {normalised(str(entries(item).get("key"))) for item in items(requirements)}
    defaults = [_is(key, value) for key, value in _DEFAULTS if key not in spoken]
    if not spoken & _CHOOSES_TYPES:
        defaults += [
            {"key": CATEGORY, "operator": "In", "values": ["c", "m", "r"]},
            {"key": _GENERATION, "operator": "Gt", "values": ["2"]},
        ]
    for requirement in defaults:
        key, operator, values = requirement["key"], requirement["operator"], ", ".join(requirement["values"])
        reason = f"does not constrain {key}: {operator} {values} was the default"
        draft.old.note(FieldOutcome.ADDED, "spec.requirements", reason)
    if defaults or requirements is None:
        field = "spec.requirements" if requirements is not None else ""
        draft.put("spec.template.spec.requirements", [*items(requirements), *defaults], field)


_DEFAULTS = ((OS, "linux"), (ARCH, "amd64"), (CAPACITY_TYPE, ON_DEMAND))


def _is(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}


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


def workload(old: SourceObject) -> Draft:
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
        for kind in (_REQUIRED, _PREFERRED):
            yield f"{place}spec.affinity.{part}.{kind}"


def _replace(draft: Draft, field: str, new: list[Any]) -> None:
    original = items(draft.get(field))
    if any(a is not b for a, b in zip(new, original, strict=True)):
        draft.put(field, new, field)


def _annotations(draft: Draft, field: str) -> None:
    old = entries(draft.get(field))
    if not _ANNOTATIONS.keys() & old.keys():
        return
    for key in _ANNOTATIONS.keys() & old.keys():
        draft.old.note(FieldOutcome.MOVED, f"{field}[{key}]", f"is {_ANNOTATIONS[key]} today")
    draft.put(field, {_ANNOTATIONS.get(key, key): value for key, value in old.items()}, field)
    draft.rename(field, {_ANNOTATIONS.get(key, key): key for key in old})


def _node_selector(draft: Draft, field: str) -> None:
    selector = entries(draft.get(field))
    new: dict[str, Any] = {}
    names: dict[str, str] = {}
    for key, value in selector.items():
        values = (value,) if isinstance(value, str) else ()
        today, read = _read(draft.old, key, values, f"{field}[{key}]")
        new[today] = read[0] if read else value
        names[today] = key
    if new != selector:
        draft.put(field, new, field)
        draft.rename(field, names)


def _read(old: SourceObject, key: str, values: tuple[str, ...], field: str) -> tuple[str, tuple[str, ...]]:
    """Return the current key and values if no node has the given key, else both unchanged."""
    if hint := unknown_key(key):
        old.note(FieldOutcome.REFUSED, field, hint)
    if key not in MISTAKEN and key not in RENAMED:
        return key, values
    reading = read_label(key, values)
    outcome = FieldOutcome.MOVED if reading.renamed else FieldOutcome.REPAIRED
    old.note(outcome, field, reading.explanation)
    return reading.key, reading.values


def _term_lists(draft: Draft, field: str) -> Iterator[tuple[str, list[Any]]]:
    required = f"{field}.{_REQUIRED}.nodeSelectorTerms"
    yield required, items(draft.get(required))
    preferred = f"{field}.{_PREFERRED}"
    yield preferred, items(draft.get(preferred))


def _term(old: SourceObject, term: Any, field: str) -> Any:
    """Convert a term, weighted or not."""
    if isinstance(entries(term).get("preference"), Mapping):
        inner = _term(old, term["preference"], f"{field}.preference")
        return term if inner is term["preference"] else {**term, "preference": inner}
    expressions = items(entries(term).get("matchExpressions"))
    new = [_expression(old, item, f"{field}.matchExpressions[{n}]") for n, item in enumerate(expressions)]
    if all(a is b for a, b in zip(new, expressions, strict=True)):
        return term
    return {**term, "matchExpressions": new}


def _expression(old: SourceObject, original: Any, field: str) -> Any:
    key, values = entries(original).get("key"), items(entries(original).get("values"))
    if not isinstance(key, str) or not all(isinstance(value, str) for value in values):
        return original
    today, read = _read(old, key, tuple(values), f"{field}.key")
    if today == key and read == tuple(values):
        return original
    return {**original, "key": today, **({"values": list(read)} if values else {})}


def _toleration(old: SourceObject, original: Any, field: str) -> Any:
    """Convert a toleration of the taint with which Karpenter kept pods off a node that must end."""
    if entries(original).get("key") != _DISRUPTING:
        return original
    old.note(FieldOutcome.MOVED, field, f"{_DISRUPTING} is {DISRUPTED.key} today, without a value")
    remaining = {name: value for name, value in original.items() if name != "value"}
    return {**remaining, "key": DISRUPTED.key, "operator": "Exists"}


def _topology(old: SourceObject, original: Any, field: str) -> Any:
    """Convert the topology key of a spread or an affinity term, weighted or not."""
    if isinstance(entries(original).get("podAffinityTerm"), Mapping):
        inner = _topology(old, original["podAffinityTerm"], f"{field}.podAffinityTerm")
        return original if inner is original["podAffinityTerm"] else {**original, "podAffinityTerm": inner}
    key = entries(original).get("topologyKey")
    if not isinstance(key, str):
        return original
    today, _ = _read(old, key, (), f"{field}.topologyKey")
    return original if today == key else {**original, "topologyKey": today}
