"""Convert v1alpha1 selectors, one map of tags, to v1 terms. Values of a key were alternatives, but keys were not."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

from nodesmith.model.apimachinery.labels import WELL_KNOWN
from nodesmith.model.conversion.changes import Fate, Origin
from nodesmith.model.conversion.drafts import Draft, entries

_SPECIAL = {"aws-ids": "id", "aws::ids": "id", "aws::name": "name", "aws::owners": "owner"}
_MOST_TERMS = 30


def carry_selector(draft: Draft, field: str, target: str) -> None:
    """Set the terms that a selector is equivalent to. A selector that is not a map of text is kept and refused."""
    given = draft.old.get(field)
    if given is None:
        return
    selector = _of_text(draft, given, field)
    if selector is None:
        draft.put(target, given, field)
        why = "must be a map of text, such as {karpenter.sh/discovery: my-cluster}"
        draft.refuse(target, field, why)
        return
    terms = _terms(draft, selector, field)
    draft.put(target, terms, field)
    draft.origins |= {f"{target}[{n}].tags": Origin(draft.old.number, field) for n in range(len(terms))}
    draft.old.note(Fate.MOVED, field, f"is {target}, a term for each alternative")


def _of_text(draft: Draft, given: object, field: str) -> Mapping[str, str] | None:
    """Return a selector with comma-separated alternatives, also for lists; None if it is not a map of text."""
    found: dict[str, str] = {}
    for key, value in entries(given).items():
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            found[key] = ",".join(value)
            draft.old.note(Fate.REPAIRED, f"{field}[{key}]", f"is a list, and is read as {found[key]}")
        elif isinstance(value, str):
            found[key] = value
        else:
            return None
    return found if isinstance(given, Mapping) else None


def _terms(draft: Draft, selector: Mapping[str, str], field: str) -> list[dict[str, Any]]:
    special: dict[str, list[str]] = {}
    tags: dict[str, list[str]] = {}
    for key, text in selector.items():
        alternatives = [value for value in map(str.strip, text.split(",")) if value] or ["*"]
        if key in _SPECIAL:
            special.setdefault(_SPECIAL[key], []).extend(alternatives)
        else:
            tags[key] = alternatives
    if "id" in special:
        return _by_id(draft, special, tags, field)
    if prod(map(len, (*special.values(), *tags.values()))) > _MOST_TERMS:
        draft.old.note(
            Fate.REFUSED,
            field,
            f"has more than {_MOST_TERMS} combinations of values: give fewer alternatives",
        )
        return []
    return [
        {**dict(zip(special, chosen, strict=False)), **_tags(tags, chosen[len(special) :])}
        for chosen in product(*special.values(), *tags.values())
    ]


def _tags(tags: Mapping[str, list[str]], chosen: tuple[str, ...]) -> dict[str, Any]:
    return {"tags": dict(zip(tags, chosen, strict=True))} if tags else {}


def _by_id(
    draft: Draft, special: Mapping[str, list[str]], tags: Mapping[str, list[str]], field: str
) -> list[dict[str, Any]]:
    if tags or len(special) > 1:
        others = ", ".join((*(name for name in special if name != "id"), *tags))
        draft.old.note(
            Fate.REFUSED, field, f"combines ids with {others}: ids must be alone, so remove the others"
        )
    return [{"id": each} for each in dict.fromkeys(special["id"])]


def carry_images(draft: Draft) -> None:
    """Set the terms of an amiSelector. A name without an owner selects images of this account and Amazon, as in v1."""
    field, target = "spec.amiSelector", "spec.amiSelectorTerms"
    carry_selector(draft, field, target)
    for key in entries(draft.old.get(field)):
        if key in WELL_KNOWN:
            why = "was also a requirement of the image, and is only a tag today"
            draft.old.note(Fate.ALTERED, f"{field}[{key}]", why)
