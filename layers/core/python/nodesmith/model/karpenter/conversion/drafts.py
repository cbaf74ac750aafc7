"""The two sides of a conversion, the old object and the draft of the new one, and the report of what changed.

Kubelet settings move from NodePools to EC2NodeClasses, which are split if their NodePools' settings differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.problems import at, did_you_mean
from nodesmith.model.schema.nodeclasses import KUBELET


class FieldOutcome(StrEnum):
    """What happened to a field, from harmless to fatal."""

    MOVED = "moved"
    """has the same meaning in another place or spelling"""
    ADDED = "added"
    """was implied, and must be stated today"""
    REPAIRED = "repaired"
    """was wrong, but its intended meaning is certain"""
    ALTERED = "altered"
    """carried over, but does not work exactly as it did"""
    DROPPED = "dropped"
    """has no effect"""
    REFUSED = "refused"
    """needs a decision by the author; the object cannot be used until then"""


QUIET = frozenset({FieldOutcome.MOVED, FieldOutcome.ADDED})
"""Fates that do not affect pods."""


class Change(NamedTuple):
    """One finding. `number` is the index of the object in the input, and `field` is a path in that object."""

    number: int
    object: str
    """Kind and name as given: `Provisioner/default`."""
    field: str
    outcome: FieldOutcome
    explanation: str
    """Follows the field in a sentence: `is read as karpenter.k8s.aws/instance-category`."""

    @property
    def is_quiet(self) -> bool:
        """True if the change does not affect pods and needs no attention."""
        return self.outcome in QUIET

    def __str__(self) -> str:
        return f"{self.object}: {self.field} {self.explanation}"


class Origin(NamedTuple):
    """Where a field of a converted object comes from: the index of the input object, and a path in it."""

    number: int
    field: str


class Converted(NamedTuple):
    """A converted object. `number` is the index of the main input object; `origins` has the origin of each field."""

    number: int
    manifest: Mapping[str, Any]
    origins: Mapping[str, Origin] = {}
    """Field of `manifest` → origin. All fields outside of those listed have not moved."""

    def origin(self, field: str) -> Origin | None:
        """Return the origin of a field, derived from the closest listed field around it; None if it was added."""
        ends = [at for at in range(len(field), 0, -1) if at == len(field) or field[at] in ".["]
        for end in ends:
            origin = self.origins.get(field[:end])
            if origin is not None:
                return Origin(origin.number, origin.field + field[end:]) if origin.field else None
        return Origin(self.number, field)


class Conversion(NamedTuple):
    """All objects in the order of the input, with old ones converted, and all changes."""

    objects: tuple[Converted, ...]
    changes: tuple[Change, ...] = ()


_IDENTITY = frozenset(
    {"uid", "resourceVersion", "finalizers", "ownerReferences", "managedFields", "selfLink"}
)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def entries(value: object) -> Mapping[str, Any]:
    """Return a map's entries with keys as text; empty if `value` is not a map."""
    if not isinstance(value, Mapping):
        return {}
    return value if all(isinstance(key, str) for key in value) else {str(k): v for k, v in value.items()}


def items(value: object) -> list[Any]:
    """Return a list's items; empty if `value` is not a list."""
    return value if isinstance(value, list) else []


class SourceObject:
    """An input object, and the changes that its conversion reports."""

    def __init__(self, number: int, manifest: Mapping[str, Any]) -> None:
        self.number = number
        self.manifest = manifest
        self.metadata = entries(manifest.get("metadata"))
        self.spec = entries(manifest.get("spec"))
        self.name = str(self.metadata.get("name") or "")
        self.object = f"{manifest.get('kind')}/{self.name or '(unnamed)'}"
        self.changes: list[Change] = []

    def get(self, field: str) -> Any:
        """Return the value of a dotted field, None if it is absent."""
        value: Any = self.manifest
        for step in field.split("."):
            value = entries(value).get(step)
        return value

    def note(self, outcome: FieldOutcome, field: str, reason: str) -> None:
        """Report a change."""
        self.changes.append(Change(self.number, self.object, field, outcome, reason))

    def refuse_unknown(self, inside: str, known: tuple[str, ...]) -> None:
        """Report the fields inside `inside` that no version ever had, and that have no effect."""
        value = self.get(inside)
        if value is not None and not isinstance(value, Mapping):
            self.note(FieldOutcome.REFUSED, inside, "must be a map")
        for name in entries(value):
            if name not in known:
                reason = f"is an unknown field and has no effect{did_you_mean(name, known)}"
                self.note(FieldOutcome.DROPPED, at(inside, name), reason)


class Draft:
    """A new object under construction, with the origin of each field."""

    def __init__(self, old: SourceObject, kind: str, api_version: str, name: str = "") -> None:
        """Start with the metadata of the old object, or with only its generation if `name` is given."""
        self.old = old
        self.kind = kind
        metadata = _metadata(old, same=old.manifest.get("kind") == kind)
        if name:
            metadata = {"name": name, **{n: metadata[n] for n in ("generation",) if n in metadata}}
        self.body: dict[str, Any] = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        self.origins: dict[str, Origin] = {}

    @classmethod
    def of(cls, old: SourceObject, api_version: str) -> Draft:
        """Start with a copy of an object whose kind is current. Maps are copied, but lists are shared with `old`."""
        draft = cls(old, str(old.manifest.get("kind")), api_version)
        spec = {"spec": _unshared(old.manifest["spec"])} if "spec" in old.manifest else {}
        metadata = draft.body["metadata"]
        original = old.manifest.get("metadata")
        draft.body = {
            **old.manifest,
            **draft.body,
            "metadata": metadata if original != metadata else original,
            **spec,
        }
        return draft

    @property
    def name(self) -> str:
        """The name of the new object."""
        return str(self.body["metadata"].get("name") or "")

    def get(self, field: str) -> Any:
        """Return the current value of a dotted field, None if it is absent."""
        value: Any = self.body
        for step in field.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        return value

    def put(self, target: str, value: object, field: str = "", old: SourceObject | None = None) -> None:
        """Set a dotted field. `field` is its path in the old object, empty if it is added."""
        place, last = self._place(target)
        place[last] = value
        self.origins[target] = Origin((old or self.old).number, field)

    def rename(self, field: str, keys: Mapping[str, str]) -> None:
        """Record the origins of renamed keys (current → old) in a map that was put."""
        number = self.old.number
        self.origins |= {
            at(field, new): Origin(number, at(field, old)) for new, old in keys.items() if new != old
        }

    def take(self, field: str) -> Any:
        """Remove a dotted field and return its value, None if it is absent."""
        if self.get(field) is None:
            return None
        place, last = self._place(field)
        return place.pop(last)

    def _place(self, field: str) -> tuple[dict[str, Any], str]:
        """Return the map that contains a field, created if necessary, and the field's last name."""
        *path, last = field.split(".")
        place = self.body
        for step in path:
            if not isinstance(place.get(step), dict):
                place[step] = {}
            place = place[step]
        return place, last

    def carry(self, field: str, target: str) -> None:
        """Copy a field unchanged from the old object, and report its new place."""
        value = self.old.get(field)
        if value is not None:
            self.put(target, value, field)
            if field != target or self.old.manifest.get("kind") != self.kind:
                self.old.note(FieldOutcome.MOVED, field, f"is {target} of the {self.kind}")

    def add(self, target: str, value: object, reason: str) -> None:
        """Set a field that was implied, and report it."""
        self.put(target, value)
        self.old.note(FieldOutcome.ADDED, target, reason)

    def refuse(self, target: str, field: str, reason: str) -> None:
        """Report why there is no usable `target`, so that readers do not report the missing field again."""
        self.origins[target] = Origin(self.old.number, field)
        self.old.note(FieldOutcome.REFUSED, field, reason)

    def converted(self) -> Converted:
        """Return the object, or the input object if the conversion changed nothing."""
        body = self.old.manifest if self.body == self.old.manifest else self.body
        return Converted(self.old.number, body, self.origins)


def _metadata(old: SourceObject, *, same: bool) -> dict[str, Any]:
    """Return the metadata without kubectl's record of the old form.

    For another kind, the fields that identify the old object are left out too: nothing may be owned by, or written to,
    an object that does not exist.
    """
    metadata = {n: v for n, v in old.metadata.items() if same or n not in _IDENTITY}
    annotations = entries(metadata.get("annotations"))
    if _LAST_APPLIED in annotations:
        remaining = {name: text for name, text in annotations.items() if name != _LAST_APPLIED}
        metadata.pop("annotations")
        metadata |= {"annotations": remaining} if remaining else {}
    return metadata


def _unshared(value: Any) -> Any:
    """Return a copy of all maps that are not inside lists."""
    if not isinstance(value, Mapping):
        return value
    return {key: _unshared(inner) for key, inner in value.items()}


_RUNTIME, _PER_CORE = "containerRuntime", "podsPerCore"
_REF = "spec.template.spec.nodeClassRef.name"


class KubeletOf(NamedTuple):
    """A NodePool's kubelet settings, and the field that contains them."""

    old: SourceObject
    field: str
    value: Any


def attach_kubelets(pools: Mapping[str, tuple[Draft, KubeletOf | None]], classes: list[Draft]) -> list[Draft]:
    """Put NodePools' kubelet settings into their EC2NodeClasses, and return the additional EC2NodeClasses this needs.

    An additional EC2NodeClass is created if the settings of the NodePools that share one differ. `pools` are all
    NodePools by name; each one with settings is pointed to the EC2NodeClass that has them.
    """
    by_name = {nodeclass.name: nodeclass for nodeclass in classes}
    copies: list[Draft] = []
    for class_name in sorted({str(draft.get(_REF)) for draft, kubelet in pools.values() if kubelet}):
        sharing = [(d, k) for _, (d, k) in sorted(pools.items()) if str(d.get(_REF)) == class_name]
        nodeclass = by_name.get(class_name)
        if nodeclass is None:
            for _, kubelet in sharing:
                if kubelet:
                    reason = f"belongs in EC2NodeClass {class_name!r} today, which is missing: convert both together"
                    kubelet.old.note(FieldOutcome.DROPPED, kubelet.field, reason)
            continue
        copies += _split(nodeclass, sharing, set(by_name) | {nodeclass.name for nodeclass in copies})
    return copies


def _split(nodeclass: Draft, sharing: list[tuple[Draft, KubeletOf | None]], taken: set[str]) -> list[Draft]:
    """Put the settings into the EC2NodeClass itself if all NodePools agree, else into a copy for each variant."""
    variants = [(draft, kubelet, _settings(kubelet)) for draft, kubelet in sharing]
    agreed = (
        all(settings == variants[0][2] for _, _, settings in variants)
        and nodeclass.get("spec.kubelet") is None
    )
    copies: list[tuple[Draft, dict[str, Any]]] = []
    for draft, kubelet, settings in variants:
        if kubelet is None or settings is None:
            continue
        target = (
            nodeclass
            if agreed
            else next((c for c, settings_of_copy in copies if settings_of_copy == settings), None)
        )
        if target is None:
            target = _copy(nodeclass, _free(f"{nodeclass.name}-{draft.name}", taken))
            taken.add(target.name)
            copies.append((target, settings))
        settings = _without_pods_per_core(settings, target, kubelet)
        target.put("spec.kubelet", settings, kubelet.field, kubelet.old)
        kubelet.old.note(FieldOutcome.MOVED, kubelet.field, f"is spec.kubelet of EC2NodeClass/{target.name}")
        if target is not nodeclass:
            _repoint(draft, target.name)
    return [copied for copied, _ in copies]


def _settings(kubelet: KubeletOf | None) -> Any:
    """Return the settings without the container runtime; the same object if it is not set."""
    if kubelet is None or not isinstance(kubelet.value, Mapping):
        return kubelet.value if kubelet else None
    original = entries(kubelet.value)
    fields = tuple(KUBELET.fields)
    for name in original:
        if name == _RUNTIME:
            reason = "has no effect: the container runtime is always containerd"
            kubelet.old.note(FieldOutcome.DROPPED, f"{kubelet.field}.{name}", reason)
        elif name not in fields and (hint := did_you_mean(name, fields)):
            kubelet.old.note(
                FieldOutcome.ALTERED,
                f"{kubelet.field}.{name}",
                f"is a field that Karpenter did not know{hint}",
            )
    return {n: v for n, v in original.items() if n != _RUNTIME} if _RUNTIME in original else kubelet.value


def _without_pods_per_core(settings: Any, nodeclass: Draft, kubelet: KubeletOf) -> Any:
    """Return the settings without what Karpenter ignores on Bottlerocket, and which would be refused there today."""
    if not isinstance(settings, Mapping) or _PER_CORE not in settings or not _is_bottlerocket(nodeclass):
        return settings
    reason = (
        "has no effect: Bottlerocket has no such setting, and Karpenter ignored it; use maxPods to limit pods"
    )
    kubelet.old.note(FieldOutcome.DROPPED, f"{kubelet.field}.{_PER_CORE}", reason)
    return {name: value for name, value in settings.items() if name != _PER_CORE}


def _is_bottlerocket(nodeclass: Draft) -> bool:
    terms = nodeclass.get("spec.amiSelectorTerms")
    aliases = [t.get("alias") for t in terms if isinstance(t, Mapping)] if isinstance(terms, list) else []
    family = nodeclass.get("spec.amiFamily") or next((str(a).partition("@")[0] for a in aliases if a), "")
    return str(family).lower() == "bottlerocket"


def _copy(nodeclass: Draft, name: str) -> Draft:
    copy = Draft(nodeclass.old, nodeclass.kind, str(nodeclass.body["apiVersion"]), name)
    copy.body = {**nodeclass.body, "metadata": {**nodeclass.body["metadata"], "name": name}}
    copy.body["spec"] = dict(nodeclass.body.get("spec") or {})
    copy.origins = {**nodeclass.origins, "metadata.name": Origin(nodeclass.old.number, "")}
    return copy


def _free(name: str, taken: set[str]) -> str:
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def _repoint(draft: Draft, name: str) -> None:
    draft.put(
        "spec.template.spec.nodeClassRef",
        {**draft.get("spec.template.spec.nodeClassRef"), "name": name},
        _origin(draft),
    )


def _origin(draft: Draft) -> str:
    origin = draft.converted().origin("spec.template.spec.nodeClassRef")
    return origin.field if origin else ""
