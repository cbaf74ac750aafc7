"""The v1beta1 fields that CRDs accept beside those of v1.

A CRD with two versions and no webhook stores one object for both: the API server changes only the apiVersion. So each
version has the fields of both, and the reader tells them apart by content (`nodesmith.model.conversion`). A field that
v1 requires and v1beta1 lacks has a default in the v1beta1 schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nodesmith.model.schema.fields import Field, Integer, Kind, Object, Rule, Text
from nodesmith.model.schema.kubelet import KUBELET
from nodesmith.model.schema.nodeclaims import NODE_CLAIM
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS
from nodesmith.model.schema.nodepools import NODE_POOL
from nodesmith.model.schema.nodespec import DURATION_OR_NEVER

_V1BETA1 = "v1beta1"
_OLD_KUBELET = KUBELET._replace(
    doc="Where v1beta1 had the kubelet settings that are now in the EC2NodeClass."
)
_OLD_API_VERSION = Text("How v1beta1 named the group.")
_OLD_EXPIRY = Text("Where v1beta1 had the template's expireAfter.", DURATION_OR_NEVER, "720h")


def _inside(place: Object, path: str, change: Callable[[Object], Field]) -> Object:
    """Return `place` with a change of the object at a dotted path."""
    first, _, rest = path.partition(".")
    inner = place.fields[first]
    assert isinstance(inner, Object)  # noqa: S101 - only the paths below occur
    new = _inside(inner, rest, change) if rest else change(inner)
    return place._replace(fields={**place.fields, first: new})


def _with(**more: Field) -> Callable[[Object], Object]:
    return lambda place: place._replace(fields={**place.fields, **more})


def _also(name: str, *words: str) -> Callable[[Object], Object]:
    def widened(place: Object) -> Object:
        text = place.fields[name]
        assert isinstance(text, Text)  # noqa: S101
        return _with(**{name: text._replace(enum=(*text.enum, *words))})(place)

    return widened


def _defaulting(**defaults: str) -> Callable[[Object], Object]:
    def filled(place: Object) -> Object:
        texts = {name: place.fields[name] for name in defaults}
        return _with(**{n: t._replace(default=defaults[n]) for n, t in texts.items() if isinstance(t, Text)})(
            place
        )

    return filled


def _pool(spec: Object) -> Object:
    spec = _inside(spec, "template.spec", _with(kubelet=_OLD_KUBELET))
    spec = _inside(spec, "template.spec.nodeClassRef", _with(apiVersion=_OLD_API_VERSION))
    spec = _inside(spec, "disruption", _with(expireAfter=_OLD_EXPIRY))
    return _inside(spec, "disruption", _also("consolidationPolicy", "WhenUnderutilized"))


def _claim(spec: Object) -> Object:
    return _inside(_with(kubelet=_OLD_KUBELET)(spec), "nodeClassRef", _with(apiVersion=_OLD_API_VERSION))


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
    return _also("amiFamily", "Ubuntu")(spec._replace(rules=(*rules, _IMAGES), required=needed))


def _hops(metadata: Object) -> Object:
    """Return `metadata` with v1beta1's default hop limit, which was 2."""
    hops = metadata.fields["httpPutResponseHopLimit"]
    assert isinstance(hops, Integer)  # noqa: S101
    defaults = {**(metadata.default or {}), "httpPutResponseHopLimit": 2}
    return _with(httpPutResponseHopLimit=hops._replace(default=2))(metadata)._replace(default=defaults)


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
