"""Forms of objects in responses: whole, metadata only, or kubectl's tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import Clock, Object, View
from nodesmith_local.apiserver.storage.history import Revision
from nodesmith_local.apiserver.tables.columns import columns_of

Form: TypeAlias = Literal["object", "metadata", "table"]


@dataclass(frozen=True, slots=True)
class Presentation:
    """The form that a client requested: the form itself, the API version, and the contents of a table's rows."""

    form: Form
    resource: Resource
    version: str
    include: str
    now: Clock

    def one(self, revision: Revision) -> bytes:
        """Return one object as the body of a response or of a watch event."""
        if self.form == "object" and self.version == self.resource.versions[0]:
            return revision.body()
        return _json(self.shaped(revision.object))

    def shaped(self, obj: View, *, headed: bool = True) -> Object:
        """Return one object in the requested form. A table without `headed` omits its columns."""
        if self.form == "table":
            return self._table([obj], {"resourceVersion": obj["metadata"]["resourceVersion"]}, headed=headed)
        return _partial(obj) if self.form == "metadata" else self._versioned(obj)

    def many(self, revisions: Iterable[Revision], metadata: Object) -> bytes:
        """Return a list as a response body; `metadata` is the list's own."""
        if self.form == "table":
            return _json(self._table([revision.object for revision in revisions], metadata))
        kind, api_version = self.resource.listed_as, self.resource.api_version(self.version)
        if self.form == "metadata":
            kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        head = _json({"kind": kind, "apiVersion": api_version, "metadata": metadata})
        nameless = self.form == "object" and not self.resource.custom
        items = (revision.nameless() if nameless else self.one(revision) for revision in revisions)
        return head[:-1] + b',"items":[' + b",".join(items) + b"]}"

    def _versioned(self, obj: View) -> Object:
        return {**obj, "apiVersion": self.resource.api_version(self.version)}

    def _table(self, objects: Iterable[View], metadata: Object, *, headed: bool = True) -> Object:
        columns, now = columns_of(self.resource, self.version), self.now()
        heads = [
            {
                "name": c.name,
                "type": c.type,
                "format": c.format,
                "description": c.name,
                "priority": c.priority,
            }
            for c in columns
        ]
        rows: list[Object] = []
        for obj in objects:
            row: Object = {"cells": [column.cell(obj, now) for column in columns]}
            if self.include != "None":
                row["object"] = self._versioned(obj) if self.include == "Object" else _partial(obj)
            rows.append(row)
        table: Object = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return {**table, "columnDefinitions": heads if headed else [], "rows": rows}


def form_asked(accept: str) -> Form:
    """Return the form that the Accept header requests: the first that this server supports."""
    for choice in accept.split(","):
        parameters = {parameter.strip() for parameter in choice.split(";")}
        if "as=Table" in parameters and "v=v1" in parameters:
            return "table"
        if parameters & {"as=PartialObjectMetadata", "as=PartialObjectMetadataList"}:
            return "metadata"
        if parameters & {"application/json", "*/*", "application/yaml"}:
            return "object"
    return "object"


def _partial(obj: View) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
