"""CustomResourceDefinitions, generated from the descriptions of the kinds, with fields of old API versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from nodesmith.model.schema.fields import (
    INT32,
    INT64,
    Array,
    Boolean,
    Field,
    Integer,
    Kind,
    Map,
    Object,
    Quantity,
    Rule,
    Text,
)
from nodesmith.model.schema.nodeclaims import DURATION_OR_NEVER, NODE_CLAIM
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS, KUBELET
from nodesmith.model.schema.nodepools import NODE_POOL
from nodesmith.model.schema.statuses import DEFINITIONS, Column, Definition

# A CRD with two versions and no webhook stores one object for both: the API server changes only the apiVersion. So
# each version has the fields of both, and the reader tells them apart by content
# (`nodesmith.model.karpenter.conversion`). A field that v1 requires and v1beta1 lacks has a default in the v1beta1
# schema.
_V1BETA1 = "v1beta1"
_OLD_KUBELET = KUBELET._replace(
    doc="Where v1beta1 had the kubelet settings that are now in the EC2NodeClass."
)
_OLD_API_VERSION = Text("How v1beta1 named the group.")
_OLD_EXPIRY = Text("Where v1beta1 had the template's expireAfter.", DURATION_OR_NEVER, "720h")


def _inside(place: Object, path: str, change: Callable[[Object], Field]) -> Object:
    """Return `place` with a change of the object at a dotted path."""
    outer_name, _, inner_path = path.partition(".")
    inner = place.fields[outer_name]
    assert isinstance(inner, Object)  # noqa: S101 - only the paths below occur
    changed = _inside(inner, inner_path, change) if inner_path else change(inner)
    return place._replace(fields={**place.fields, outer_name: changed})


def _with_fields(**fields: Field) -> Callable[[Object], Object]:
    return lambda place: place._replace(fields={**place.fields, **fields})


def _with_enum_values(name: str, *values: str) -> Callable[[Object], Object]:
    def widened(place: Object) -> Object:
        text = place.fields[name]
        assert isinstance(text, Text)  # noqa: S101
        return _with_fields(**{name: text._replace(enum=(*text.enum, *values))})(place)

    return widened


def _defaulting(**defaults: str) -> Callable[[Object], Object]:
    def filled(place: Object) -> Object:
        texts = {name: place.fields[name] for name in defaults}
        return _with_fields(
            **{n: t._replace(default=defaults[n]) for n, t in texts.items() if isinstance(t, Text)}
        )(place)

    return filled


def _pool(spec: Object) -> Object:
    spec = _inside(spec, "template.spec", _with_fields(kubelet=_OLD_KUBELET))
    spec = _inside(spec, "template.spec.nodeClassRef", _with_fields(apiVersion=_OLD_API_VERSION))
    spec = _inside(spec, "disruption", _with_fields(expireAfter=_OLD_EXPIRY))
    return _inside(spec, "disruption", _with_enum_values("consolidationPolicy", "WhenUnderutilized"))


def _claim(spec: Object) -> Object:
    return _inside(
        _with_fields(kubelet=_OLD_KUBELET)(spec), "nodeClassRef", _with_fields(apiVersion=_OLD_API_VERSION)
    )


_IMAGES = Rule(
    "has(self.amiSelectorTerms) || has(self.amiFamily)",
    "amiSelectorTerms is needed, and so is amiFamily where no term has an alias",
    None,
    field="amiSelectorTerms",
)


def _class(spec: Object) -> Object:
    """Allow amiFamily alone to select images, and apply rules about selector terms only if there are terms."""
    rules = tuple(
        rule._replace(cel=f"!has(self.amiSelectorTerms) || ({rule.cel})")
        if "amiSelectorTerms" in rule.cel
        else rule
        for rule in spec.rules
    )
    needed = tuple(name for name in spec.required if name != "amiSelectorTerms")
    return _with_enum_values("amiFamily", "Ubuntu")(spec._replace(rules=(*rules, _IMAGES), required=needed))


def _hops(metadata: Object) -> Object:
    """Return `metadata` with v1beta1's default hop limit, which was 2."""
    hops = metadata.fields["httpPutResponseHopLimit"]
    assert isinstance(hops, Integer)  # noqa: S101
    defaults = {**(metadata.default or {}), "httpPutResponseHopLimit": 2}
    return _with_fields(httpPutResponseHopLimit=hops._replace(default=2))(metadata)._replace(default=defaults)


_REF = _defaulting(group=EC2_NODE_CLASS.group, kind=EC2_NODE_CLASS.name)
_TODAY: Mapping[str, Object] = {
    NODE_POOL.name: _pool(NODE_POOL.spec),
    NODE_CLAIM.name: _claim(NODE_CLAIM.spec),
    EC2_NODE_CLASS.name: _class(EC2_NODE_CLASS.spec),
}
_BEFORE: Mapping[str, Object] = {
    NODE_POOL.name: _inside(_TODAY[NODE_POOL.name], "template.spec.nodeClassRef", _REF),
    NODE_CLAIM.name: _inside(_TODAY[NODE_CLAIM.name], "nodeClassRef", _REF),
    EC2_NODE_CLASS.name: _inside(_TODAY[EC2_NODE_CLASS.name], "metadataOptions", _hops),
}


def stored(kind: Kind) -> Kind:
    """Return a kind as its CRD stores it: with the fields of v1beta1."""
    return kind._replace(spec=_TODAY.get(kind.name, kind.spec))


def served_beside(kind: Kind) -> Mapping[str, Object]:
    """Return the further versions that a CRD serves, each with the schema of its spec."""
    return {_V1BETA1: _BEFORE[kind.name]} if kind.name in _BEFORE else {}


_QUANTITY = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"
_SELF = re.compile(r"\bself\b")
_VALIDATIONS = "x-kubernetes-validations"


def custom_resource_definitions() -> list[dict[str, Any]]:
    """Return all CRDs, ready to apply."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]


def custom_resource_definition(definition: Definition) -> dict[str, Any]:
    """Return one CRD. The kind's own version is stored; the others are served beside it without a webhook."""
    kind = stored(definition.kind)
    names: dict[str, Any] = {
        "categories": ["karpenter"],
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Cluster",
            "versions": [
                _version(definition, kind.version, kind.spec, is_stored=True),
                *(_version(definition, name, spec) for name, spec in served_beside(kind).items()),
            ],
        },
    }


def _version(definition: Definition, name: str, spec: Object, *, is_stored: bool = False) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if definition.scale:
        spec_path, status_path = definition.scale
        subresources["scale"] = {"specReplicasPath": spec_path, "statusReplicasPath": status_path}
    return {
        "name": name,
        "served": True,
        "storage": is_stored,
        "additionalPrinterColumns": [_column(column) for column in definition.columns],
        "subresources": subresources,
        "schema": {"openAPIV3Schema": _root(definition, spec)},
    }


def _column(column: Column) -> dict[str, Any]:
    printer_column: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**printer_column, "priority": 1} if column.wide else printer_column


def _root(definition: Definition, spec: Object) -> dict[str, Any]:
    kind = definition.kind
    return {
        "description": kind.doc,
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": schema(spec),
            "status": schema(definition.status),
        },
        "required": ["spec"],
    }


def schema(field: Field) -> dict[str, Any]:
    """Return the structural schema of a field."""
    structural: dict[str, Any] = {"description": field.doc} if field.doc else {}
    structural |= _type(field)
    if field.default is not None:
        structural["default"] = field.default
    if not isinstance(field, (Integer, Boolean, Quantity)):
        rules = [_validation(rule) for rule in field.rules if rule.cel]
        if isinstance(field, Map) and field.keys:
            rules += _key_validations(field.keys)
        if rules:
            structural[_VALIDATIONS] = rules
    return structural


def _type(field: Field) -> dict[str, Any]:
    match field:
        case Text():
            return _set_fields(
                type="string",
                format=field.format,
                pattern=field.pattern,
                enum=list(field.enum),
                minLength=field.min_length,
                maxLength=field.max_length,
            )
        case Integer():
            return _integer(field)
        case Boolean():
            return {"type": "boolean"}
        case Quantity():
            either = [{"type": "integer"}, {"type": "string"}]
            return {"anyOf": either, "pattern": _QUANTITY, "minimum": 0, "x-kubernetes-int-or-string": True}
        case Array():
            return _array(field)
        case Map():
            values = schema(field.of)
            return _set_fields(type="object", additionalProperties=values, maxProperties=field.max_entries)
        case Object():
            return _object(field)
        case _:
            assert_never(field)


def _integer(field: Integer) -> dict[str, Any]:
    structural: dict[str, Any] = {"type": "integer", "format": "int32" if field.maximum <= INT32 else "int64"}
    if field.minimum is not None:
        structural["minimum"] = field.minimum
    return structural if field.maximum in (INT32, INT64) else {**structural, "maximum": field.maximum}


def _array(field: Array) -> dict[str, Any]:
    structural = _set_fields(
        type="array", minItems=field.min_items, maxItems=field.max_items, items=schema(field.of)
    )
    if field.unique_by:
        structural |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [field.unique_by]}
    elif field.atomic:
        structural["x-kubernetes-list-type"] = "atomic"
    return structural


def _object(field: Object) -> dict[str, Any]:
    properties = {name: schema(inner) for name, inner in field.fields.items()}
    structural = _set_fields(type="object", properties=properties, required=list(field.required))
    return {**structural, "x-kubernetes-preserve-unknown-fields": True} if field.open else structural


def _validation(rule: Rule) -> dict[str, Any]:
    return _set_fields(rule=rule.cel, message=rule.message, fieldPath=f".{rule.field}" if rule.field else "")


def _key_validations(keys: Text) -> list[dict[str, Any]]:
    """Return the CEL validations of a map's keys, which OpenAPI cannot express."""
    rules = [rule for rule in keys.rules if rule.cel]
    if keys.enum:
        allowed_keys = ", ".join(f"'{word}'" for word in keys.enum)
        rules.append(Rule(f"self in [{allowed_keys}]", f"known keys are {', '.join(keys.enum)}", None))
    if keys.min_length:
        rules.append(Rule("self != ''", "keys must not be empty", None))
    if keys.pattern:
        pattern = keys.pattern.replace("\\", "\\\\")
        rules.append(Rule(f"self.matches('{pattern}')", f"keys must match {keys.pattern}", None))
    return [
        {"rule": f"self.all(key, {_SELF.sub('key', rule.cel)})", "message": rule.message} for rule in rules
    ]


def _set_fields(**fields: Any) -> dict[str, Any]:
    """Return the fields that are set."""
    return {
        name: value
        for name, value in fields.items()
        if value not in (None, "", 0, [], {}) or name == "default"
    }
