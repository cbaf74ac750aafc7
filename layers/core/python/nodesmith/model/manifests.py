"""Read the parts that all manifests share: kind, name, metadata, and the spec as its kind defines it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nodesmith.model.schema.fields import Integer, Kind, Map, Object, Text
from nodesmith.model.schema.nodespec import TIME_RULE
from nodesmith.model.schema.reading import read
from nodesmith.model.schema.reports import Report, at, nearest, shown

_TIME = Text(rules=(TIME_RULE,))
_METADATA = Object(
    {
        "name": Text(min_length=1, max_length=253),
        "uid": Text(default=""),
        "generation": Integer(minimum=0, default=0),
        "creationTimestamp": _TIME,
        "deletionTimestamp": _TIME,
        "labels": Map(Text()),
        "annotations": Map(Text()),
    },
    required=("name",),
)
_TOP = ("apiVersion", "kind", "metadata", "spec", "status")


class Manifest(NamedTuple):
    """The checked metadata and spec of an object. Use them only if `report` has no fatal problem."""

    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]
    report: Report

    @property
    def identity(self) -> dict[str, Any]:
        """Name, uid, generation and whether the object is being deleted, as constructor arguments of any kind."""
        return {
            "name": self.metadata["name"],
            "uid": self.metadata["uid"],
            "generation": self.metadata["generation"],
            "deleting": "deletionTimestamp" in self.metadata,
        }


def read_manifest(kind: Kind, manifest: object) -> Manifest:
    """Check an object of this kind completely. Never raises, whatever JSON or YAML `manifest` is."""
    body = manifest if isinstance(manifest, Mapping) else {}
    given = body.get("metadata")
    metadata = (
        {k: v for k, v in given.items() if k in _METADATA.fields} if isinstance(given, Mapping) else given
    )
    report = Report(f"{kind.name}/{_name(metadata)}")
    if body is not manifest:
        report.add("the manifest", shown(manifest), "must be a map with apiVersion, kind, metadata and spec")
        return Manifest({}, {}, report)
    _check_top(kind, body, report)
    return Manifest(
        read(_METADATA, {} if metadata is None else metadata, "metadata", report),
        read(kind.spec, {} if body.get("spec") is None else body["spec"], "spec", report),
        report,
    )


def _check_top(kind: Kind, body: Mapping[object, object], report: Report) -> None:
    # Items of a list from the API server carry neither apiVersion nor kind.
    for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.name)):
        found = body.get(field)
        if found is not None and found != wanted:
            report.add(field, shown(found), f"must be {wanted}")
    for name in body:
        if name not in _TOP:
            report.add(at("", name), "an unknown field, which is ignored", nearest(name, _TOP), fatal=False)


def _name(metadata: object) -> str:
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name[:253] if isinstance(name, str) and name else "(unnamed)"
