"""Convert the requirements of a NodePool or NodeClaim to current keys and values, and add a Provisioner's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.apimachinery.labels import (
    ARCH,
    AWS_DOMAIN,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    normalised,
)
from nodesmith.model.conversion.changes import Fate
from nodesmith.model.conversion.drafts import Draft, Old, entries, items
from nodesmith.model.conversion.labelkeys import CATEGORY, MISTAKEN, read_label, unknown_key

_GENERATION = f"{AWS_DOMAIN}/instance-generation"
_CHOOSES_TYPES = frozenset({INSTANCE_TYPE, f"{AWS_DOMAIN}/instance-family", CATEGORY, _GENERATION})
_BOUNDS = frozenset({"Gt", "Lt", "Gte", "Lte"})


def repaired_requirements(old: Old, given: Any, field: str, *, rename: bool) -> Any:
    """Return requirements with current keys and values, or the same list if they are already right.

    `rename` is True to replace old keys that are still understood, too.
    """
    if not isinstance(given, list):
        return given
    new = [_repaired(old, item, f"{field}[{number}]", rename) for number, item in enumerate(given)]
    return given if all(a is b for a, b in zip(new, given, strict=True)) else new


def _repaired(old: Old, item: Any, field: str, rename: bool) -> Any:
    key, values = entries(item).get("key"), items(entries(item).get("values"))
    if not isinstance(key, str) or not all(isinstance(value, str) for value in values):
        return item
    if hint := unknown_key(key):
        old.note(Fate.REFUSED, f"{field}.key", f"is {key}: {hint}")
    reading = read_label(key, tuple(values))
    if not reading.why or (reading.renamed and not rename):
        return item
    old.note(Fate.MOVED if reading.renamed else Fate.REPAIRED, f"{field}.key", f"{key} {reading.why}")
    kept = {**item, "key": reading.key}
    return {**kept, "values": list(reading.values)} if reading.values != tuple(values) else kept


def repaired_labels(old: Old, given: Any, field: str) -> Any:
    """Return node labels with current keys and values, or the same map if they are already right."""
    new: dict[Any, Any] = {}
    for key, value in entries(given).items():
        reading = read_label(key, (value,)) if isinstance(value, str) and _may_mean(key) else None
        if reading is None or not reading.why:
            new[key] = value
            continue
        old.note(Fate.REPAIRED, f"{field}[{key}]", f"{key} {reading.why}")
        new[reading.key] = reading.values[0]
    return new if isinstance(given, Mapping) and new != given else given


def _may_mean(key: str) -> bool:
    return key in MISTAKEN or normalised(key) in {CAPACITY_TYPE, ARCH, OS}


def add_provisioner_defaults(draft: Draft) -> None:
    """Add the requirements that a Provisioner had by default for keys that it did not constrain."""
    given = draft.get("spec.template.spec.requirements")
    if given is not None and not isinstance(given, list):
        return
    labels = entries(draft.get("spec.template.metadata.labels"))
    spoken = {normalised(key) for key in labels}
    spoken |= {normalised(str(entries(item).get("key"))) for item in items(given)}
    defaults = [_is(key, value) for key, value in _DEFAULTS if key not in spoken]
    if not spoken & _CHOOSES_TYPES:
        defaults += [
            {"key": CATEGORY, "operator": "In", "values": ["c", "m", "r"]},
            {"key": _GENERATION, "operator": "Gt", "values": ["2"]},
        ]
    for each in defaults:
        draft.old.note(
            Fate.ADDED,
            "spec.requirements",
            f"does not constrain {each['key']}: {each['operator']} {', '.join(each['values'])} was the default",
        )
    if defaults or given is None:
        field = "spec.requirements" if given is not None else ""
        draft.put("spec.template.spec.requirements", [*items(given), *defaults], field)


_DEFAULTS = ((OS, "linux"), (ARCH, "amd64"), (CAPACITY_TYPE, ON_DEMAND))


def _is(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
