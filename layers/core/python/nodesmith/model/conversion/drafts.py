"""An old object as it is taken apart, and an object of today as it is put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.apimachinery.spelling import did_you_mean
from nodesmith.model.conversion.changes import Change, Converted, Fate, Origin
from nodesmith.model.schema.reports import at

_IDENTITY = frozenset(
    {"uid", "resourceVersion", "finalizers", "ownerReferences", "managedFields", "selfLink"}
)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def entries(value: object) -> Mapping[str, Any]:
    """Return a map's entries with text for keys; none for what is no map."""
    if not isinstance(value, Mapping):
        return {}
    return value if all(isinstance(key, str) for key in value) else {str(k): v for k, v in value.items()}


def items(value: object) -> list[Any]:
    """Return a list's items; none for what is no list."""
    return value if isinstance(value, list) else []


class Old:
    """An object as given, and what is found while it is taken apart."""

    def __init__(self, number: int, manifest: Mapping[str, Any]) -> None:
        self.number = number
        self.manifest = manifest
        self.metadata = entries(manifest.get("metadata"))
        self.spec = entries(manifest.get("spec"))
        self.name = str(self.metadata.get("name") or "")
        self.object = f"{manifest.get('kind')}/{self.name or '(unnamed)'}"
        self.changes: list[Change] = []

    def get(self, field: str) -> Any:
        """Return the value of a dotted field, None where there is none."""
        value: Any = self.manifest
        for step in field.split("."):
            value = entries(value).get(step)
        return value

    def note(self, fate: Fate, field: str, why: str) -> None:
        """Add to the report."""
        self.changes.append(Change(self.number, self.object, field, fate, why))

    def refuse_unknown(self, inside: str, known: tuple[str, ...]) -> None:
        """Say which fields inside of this one nobody ever knew; they have no effect."""
        value = self.get(inside)
        if value is not None and not isinstance(value, Mapping):
            self.note(Fate.REFUSED, inside, "must be a map")
        for name in entries(value):
            if name not in known:
                why = f"is an unknown field and has no effect{did_you_mean(name, known)}"
                self.note(Fate.DROPPED, at(inside, name), why)


class Draft:
    """An object of today as it is put together, each field with where it comes from."""

    def __init__(self, old: Old, kind: str, api_version: str, name: str = "") -> None:
        """Begin with the metadata of the old object, or with a name of its own and how often that has changed."""
        self.old = old
        self.kind = kind
        metadata = _metadata(old, same=old.manifest.get("kind") == kind)
        if name:
            metadata = {"name": name, **{n: metadata[n] for n in ("generation",) if n in metadata}}
        self.body: dict[str, Any] = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        self.origins: dict[str, Origin] = {}

    @classmethod
    def of(cls, old: Old, api_version: str) -> Draft:
        """Begin with all of an object whose kind is that of today; maps may be changed, lists are the old one's."""
        draft = cls(old, str(old.manifest.get("kind")), api_version)
        spec = {"spec": _unshared(old.manifest["spec"])} if "spec" in old.manifest else {}
        metadata = draft.body["metadata"]
        given = old.manifest.get("metadata")
        draft.body = {
            **old.manifest,
            **draft.body,
            "metadata": metadata if given != metadata else given,
            **spec,
        }
        return draft

    @property
    def name(self) -> str:
        """The name that it will have."""
        return str(self.body["metadata"].get("name") or "")

    def get(self, field: str) -> Any:
        """Return what is at a dotted field by now, None for nothing."""
        value: Any = self.body
        for step in field.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        return value

    def put(self, target: str, value: object, field: str = "", old: Old | None = None) -> None:
        """Set a dotted field, `field` being where it was in the old object; without one it is added."""
        place, last = self._place(target)
        place[last] = value
        self.origins[target] = Origin((old or self.old).number, field)

    def rename(self, field: str, keys: Mapping[str, str]) -> None:
        """Tell which keys (today's → old) of a map that was put have another name."""
        number = self.old.number
        self.origins |= {
            at(field, new): Origin(number, at(field, old)) for new, old in keys.items() if new != old
        }

    def take(self, field: str) -> Any:
        """Take a dotted field out and give it, None where there is none."""
        if self.get(field) is None:
            return None
        place, last = self._place(field)
        return place.pop(last)

    def _place(self, field: str) -> tuple[dict[str, Any], str]:
        """Return the map that holds a field, made where there is none."""
        *path, last = field.split(".")
        place = self.body
        for step in path:
            if not isinstance(place.get(step), dict):
                place[step] = {}
            place = place[step]
        return place, last

    def carry(self, field: str, target: str) -> None:
        """Take a field over as it is, and report where it went."""
        value = self.old.get(field)
        if value is not None:
            self.put(target, value, field)
            if field != target or self.old.manifest.get("kind") != self.kind:
                self.old.note(Fate.MOVED, field, f"is {target} of the {self.kind}")

    def add(self, target: str, value: object, why: str) -> None:
        """Say what was understood without saying."""
        self.put(target, value)
        self.old.note(Fate.ADDED, target, why)

    def refuse(self, target: str, field: str, why: str) -> None:
        """Report why there is no `target`, or none that is of use: that it lacks is then no news."""
        self.origins[target] = Origin(self.old.number, field)
        self.old.note(Fate.REFUSED, field, why)

    def converted(self) -> Converted:
        """Return the object; the one that was given where nothing came of it."""
        body = self.old.manifest if self.body == self.old.manifest else self.body
        return Converted(self.old.number, body, self.origins)


def _metadata(old: Old, *, same: bool) -> dict[str, Any]:
    """Keep the metadata but for what kubectl wrote down of the old form.

    For another kind, what makes it that very object is left out too: nothing may be
    owned by an object that is not there, or written to it.
    """
    metadata = {n: v for n, v in old.metadata.items() if same or n not in _IDENTITY}
    annotations = entries(metadata.get("annotations"))
    if _LAST_APPLIED in annotations:
        rest = {name: text for name, text in annotations.items() if name != _LAST_APPLIED}
        metadata.pop("annotations")
        metadata |= {"annotations": rest} if rest else {}
    return metadata


def _unshared(value: Any) -> Any:
    """Copy the maps that are not inside of lists."""
    if not isinstance(value, Mapping):
        return value
    return {key: _unshared(inner) for key, inner in value.items()}
