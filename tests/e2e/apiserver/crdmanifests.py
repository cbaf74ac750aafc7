"""Objects that name every field of the three kinds, and objects that break each rule of their schemas."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, assert_never

from nodesmith.model.schema.fields import (
    INT32,
    Array,
    Boolean,
    Field,
    Integer,
    Kind,
    Map,
    Object,
    Quantity,
    Text,
)
from nodesmith.model.schema.nodeclaims import NODE_CLAIM
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS
from nodesmith.model.schema.nodepools import NODE_POOL
from nodesmith_formats.crds import stored
from tests.objects.nodeclassfields import SPEC

Manifest = dict[str, Any]
Place = tuple[str | int, ...]

_TAINT = {
    "key": "example.com/gpu",
    "value": "yes",
    "effect": "NoSchedule",
    "timeAdded": "2026-01-31T12:00:00Z",
}
_NODE_CLASS_REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
_REQUIREMENTS = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"], "minValues": 1}
]
_LIFE = {"expireAfter": "720h", "terminationGracePeriod": "1h30m"}
_SPECS: dict[str, Manifest] = {
    "NodePool": {
        "template": {
            "metadata": {
                "labels": {"example.com/team": "blue"},
                "annotations": {"example.com/note": "any text"},
            },
            "spec": {
                "requirements": _REQUIREMENTS,
                "nodeClassRef": _NODE_CLASS_REF,
                "taints": [_TAINT],
                "startupTaints": [{"key": "example.com/starting", "effect": "NoExecute"}],
                **_LIFE,
            },
        },
        "disruption": {
            "consolidateAfter": "1m",
            "consolidationPolicy": "WhenEmpty",
            "budgets": [
                {"nodes": "10%", "reasons": ["Empty"], "schedule": "0 9 * * mon-fri", "duration": "8h"}
            ],
        },
        "limits": {"cpu": "100", "nodes": 10},
        "weight": 10,
    },
    "NodeClaim": {
        "requirements": _REQUIREMENTS,
        "nodeClassRef": _NODE_CLASS_REF,
        "taints": [_TAINT],
        "startupTaints": [_TAINT | {"effect": "NoExecute"}],
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
        **_LIFE,
    },
    "EC2NodeClass": SPEC
    | {
        "amiSelectorTerms": [{"alias": "al2023@v20260115"}],
        "networkInterfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
            {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
        ],
    },
}
KINDS = (NODE_POOL, NODE_CLAIM, EC2_NODE_CLASS)


def full(kind: Kind) -> Manifest:
    """Return an object with every field that can be set together with the others."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": "full"},
        "spec": deepcopy(_SPECS[kind.name]),
    }


def changed(kind: Kind, *changes: tuple[str, Any]) -> Manifest:
    """Return the full object with other values at paths of its spec (`template.spec.taints.0.key`); None removes."""
    manifest = full(kind)
    for path, value in changes:
        *above, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        holder = manifest["spec"]
        for step in above:
            holder = holder[step]
        if value is None:
            del holder[last]
        else:
            holder[last] = value
    return manifest


@dataclass(frozen=True, slots=True)
class Broken:
    """An object that is refused: the field in the refusal, and text at the start of its message or within it."""

    manifest: Manifest
    field: str
    words: str


def misfits(kind: Kind) -> Iterator[Broken]:
    """Yield an object for every pattern, enum, bound, length, type and required field of a kind's spec."""
    for place, wrong, words in _misfits(stored(kind).spec, full(kind)["spec"], ()):
        manifest = full(kind)
        manifest["spec"] = _with(manifest["spec"], place, wrong)
        yield Broken(manifest, _text(place), words)


_REMOVED = object()


def _misfits(field: Field, value: Any, place: Place) -> Iterator[tuple[Place, Any, str]]:
    yield from ((place, wrong, words) for wrong, words in _wrong(field, value))
    match field:
        case Array():
            yield from _misfits(field.of, value[0] if value else None, (*place, 0))
        case Map():
            key = next(iter(value)) if value else "cpu"
            yield from _misfits(field.of, value[key] if value else None, (*place, key))
        case Object():
            yield from (((*place, name), _REMOVED, "Required value") for name in field.required)
            for name, inner in field.fields.items():
                yield from _misfits(inner, (value or {}).get(name), (*place, name))


def _wrong(field: Field, value: Any) -> Iterator[tuple[Any, str]]:
    """Yield values that a field refuses, each with the text of the refusal."""
    match field:
        case Text():
            yield from _wrong_texts(field)
        case Integer():
            yield from _wrong_integers(field)
        case Boolean():
            yield "yes", 'must be of type boolean: "string"'
        case Quantity():
            yield "1gb", "should match '"
            yield -1, "should be greater than or equal to 0"
            yield ["1"], "must be of type integer,string"
        case Array():
            yield "one", 'must be of type array: "string"'
            yield from _wrong_lengths(field, value)
        case Map():
            yield "one", 'must be of type object: "string"'
            if field.max_entries:
                item = next(iter(value.values())) if value else "1"
                entries = {f"key-{number}": item for number in range(field.max_entries + 1)}
                yield entries, f"Too many: {len(entries)}: must have at most {field.max_entries} items"
        case Object():
            yield "one", 'must be of type object: "string"'
        case _:
            assert_never(field)


def _wrong_texts(field: Text) -> Iterator[tuple[Any, str]]:
    if field.format == "date-time":
        yield 7, 'must be of type date-time: "int64"'
        yield True, 'must be of type date-time: ""'
        yield "yesterday", 'must be of type date-time: "yesterday"'
    else:
        yield 7, 'must be of type string: "integer"'
    if field.enum:
        yield "nonsense", 'Unsupported value: "nonsense": supported values: '
    if field.pattern:
        yield "/?", f"should match '{field.pattern}'"
    if field.min_length:
        yield "", "should be at least 1 chars long"
    if field.max_length:
        yield "a" * (field.max_length + 1), f"Too long: may not be more than {field.max_length} bytes"


def _wrong_integers(field: Integer) -> Iterator[tuple[Any, str]]:
    yield "seven", 'must be of type integer: "string"'
    if field.minimum is not None:
        yield field.minimum - 1, f"should be greater than or equal to {field.minimum}"
    if field.maximum < INT32:
        yield field.maximum + 1, f"should be less than or equal to {field.maximum}"


def _wrong_lengths(field: Array, value: Any) -> Iterator[tuple[Any, str]]:
    if field.min_items:
        yield [], f"should have at least {field.min_items} items"
    if field.max_items and value:
        many = [value[0]] * (field.max_items + 1)
        yield many, f"Too many: {len(many)}: must have at most {field.max_items} items"


def _with(value: Any, place: Place, new: Any) -> Any:
    """Return a copy of a value with `new` at a place, which need not exist yet."""
    if not place:
        return new
    step, *rest = place
    if isinstance(step, int):
        first = _with(value[0] if value else None, tuple(rest), new)
        return [first, *(value or [])[1:]]
    inner = _with((value or {}).get(step), tuple(rest), new)
    return {
        **{k: v for k, v in (value or {}).items() if k != step},
        **({} if inner is _REMOVED else {step: inner}),
    }


def _text(place: Place) -> str:
    """Write a place as the API server does, except for the keys of maps, which it writes in two ways."""
    text = "spec"
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text


_INTERFACE = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
_EFA = {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"}
_BLUE = {"team": "blue"}
_BOUND = "Gt, Lt, Gte and Lte need exactly one value, an integer that is not negative"
_RESERVED = "this key is reserved: use a well-known one, or a domain of your own"
_KEYS = "known keys are "
_REQUIREMENT_RULES: tuple[tuple[str, str, str, Any], ...] = (
    (".values", "In needs at least one value", "values", []),
    (".values", "In needs at least one value", "values", None),
    (".values", "In needs at least minValues values", "minValues", 3),
    (".values", _BOUND, "operator", "Gt"),
    (".key", _RESERVED, "key", "karpenter.sh/anything"),
    (".key", _RESERVED, "key", "kubernetes.io/hostname"),
)
_EACH_SIGNAL = "each signal of evictionSoft needs an entry in evictionSoftGracePeriod, and vice versa"
_OF_CLASSES: tuple[tuple[str, str, tuple[tuple[str, Any], ...]], ...] = (
    ("role", "exactly one of role and instanceProfile is needed", (("role", None),)),
    ("role", "exactly one of role and instanceProfile is needed", (("instanceProfile", "own"),)),
    (
        "amiFamily",
        "amiFamily is needed where no term has an alias",
        (("amiFamily", None), ("amiSelectorTerms", [{"id": "ami-1"}])),
    ),
    ("amiFamily", "amiFamily must be the alias's own family, or Custom", (("amiFamily", "Bottlerocket"),)),
    ("", "no such key: Ubuntu evaluating rule: amiFamily must be", (("amiFamily", "Ubuntu"),)),
    ("subnetSelectorTerms", "each term needs one of tags, id", (("subnetSelectorTerms", [{}]),)),
    (
        "subnetSelectorTerms",
        "id cannot be combined with other fields in a term; remove tags",
        (("subnetSelectorTerms", [{"id": "subnet-1", "tags": _BLUE}]),),
    ),
    (
        "subnetSelectorTerms[0].tags",
        "keys must not be empty",
        (("subnetSelectorTerms.0.tags", {"": "blue"}),),
    ),
    (
        "securityGroupSelectorTerms",
        "each term needs one of tags, id, name",
        (("securityGroupSelectorTerms.1", {}),),
    ),
    (
        "securityGroupSelectorTerms",
        "id cannot be combined with other fields in a term; remove tags, name",
        (("securityGroupSelectorTerms", [{"id": "sg-1", "tags": _BLUE}]),),
    ),
    (
        "securityGroupSelectorTerms",
        "name cannot be combined with other fields in a term; remove tags, id",
        (("securityGroupSelectorTerms", [{"name": "nodes", "tags": _BLUE}]),),
    ),
    (
        "securityGroupSelectorTerms[0].tags",
        "keys must not be empty",
        (("securityGroupSelectorTerms.0.tags", {"": "blue"}),),
    ),
    (
        "capacityReservationSelectorTerms",
        "each term needs one of tags, id, instanceMatchCriteria",
        (("capacityReservationSelectorTerms", [{"ownerID": "123456789012"}]),),
    ),
    (
        "capacityReservationSelectorTerms",
        "id cannot be combined with other fields in a term; remove tags, ownerID, instanceMatchCriteria",
        (("capacityReservationSelectorTerms", [{"id": "cr-1", "ownerID": "123456789012"}]),),
    ),
    (
        "capacityReservationSelectorTerms[0].tags",
        "keys must not be empty",
        (("capacityReservationSelectorTerms.0.tags", {"": "blue"}),),
    ),
    ("placementGroupSelector", "exactly one of name and id is needed", (("placementGroupSelector", {}),)),
    (
        "placementGroupSelector",
        "exactly one of name and id is needed",
        (("placementGroupSelector.id", "pg-1"),),
    ),
    (
        "amiSelectorTerms",
        "each term needs one of tags, id, name, alias, ssmParameter",
        (("amiSelectorTerms", [{"owner": "self"}]),),
    ),
    (
        "amiSelectorTerms",
        "id cannot be combined with other fields in a term; remove alias, tags, name, owner",
        (("amiSelectorTerms", [{"id": "ami-1", "owner": "self"}]),),
    ),
    (
        "amiSelectorTerms",
        "alias cannot be combined with other fields in a term; remove id, tags, name, owner",
        (("amiSelectorTerms.0.owner", "self"),),
    ),
    (
        "amiSelectorTerms",
        "a term with alias must be the only one",
        (("amiSelectorTerms", [{"alias": "al2023@latest"}, {"id": "ami-1"}]),),
    ),
    ("amiSelectorTerms[0].tags", "keys must not be empty", (("amiSelectorTerms", [{"tags": {"": "blue"}}]),)),
    ("tags", "this tag is set automatically, leave it out", (("tags", {"karpenter.sh/nodepool": "mine"}),)),
    (
        "tags",
        "this tag is set automatically, leave it out",
        (("tags", {"kubernetes.io/cluster/x": "owned"}),),
    ),
    ("tags", "keys must not be empty", (("tags", {"": "blue"}),)),
    (
        "amiSelectorTerms",
        "amiSelectorTerms is needed, and so is amiFamily",
        (("amiSelectorTerms", None), ("amiFamily", None)),
    ),
    (
        "blockDeviceMappings",
        "only one mapping may be the rootVolume",
        (("blockDeviceMappings", [{"rootVolume": True}, {"rootVolume": True}]),),
    ),
    (
        "blockDeviceMappings[0].ebs",
        "volumeSize or snapshotID is needed",
        (("blockDeviceMappings.0.ebs", {"volumeType": "gp3"}),),
    ),
    (
        "blockDeviceMappings[0].ebs",
        "volumeInitializationRate needs a snapshotID",
        (("blockDeviceMappings.0.ebs.snapshotID", None),),
    ),
    (
        "networkInterfaces",
        "one of them must be an interface at card 0, device 0",
        (("networkInterfaces", [_EFA]),),
    ),
    (
        "networkInterfaces",
        "each card and device may occur only once",
        (("networkInterfaces", [_INTERFACE, _INTERFACE]),),
    ),
    (
        "networkInterfaces",
        "a card may have only one efa-only interface",
        (("networkInterfaces", [_INTERFACE, _EFA, _EFA | {"deviceIndex": 2}]),),
    ),
    (
        "connectionTracking",
        "at least one of tcpEstablishedTimeout, udpStreamTimeout, udpTimeout is needed",
        (("connectionTracking", {}),),
    ),
)


def _of_kubelet(kubelet: str) -> Iterator[tuple[str, str, Manifest]]:
    """Yield kubelet settings that each break one rule, with the field and the message of the refusal."""
    sound = _SPECS["EC2NodeClass"]["kubelet"]
    percent = "imageGCHighThresholdPercent"
    yield (
        f"{kubelet}.{percent}",
        f"{percent} must be greater than",
        sound | {"imageGCLowThresholdPercent": 85},
    )
    for one in ("evictionSoft", "evictionSoftGracePeriod"):
        yield kubelet, _EACH_SIGNAL, {name: value for name, value in sound.items() if name != one}
    for name in ("systemReserved", "kubeReserved", "evictionHard", "evictionSoft", "evictionSoftGracePeriod"):
        yield f"{kubelet}.{name}", _KEYS, sound | {name: {"nonsense": "1m" if "Grace" in name else "1"}}


def rule_breakers(kind: Kind) -> Iterator[Broken]:
    """Yield objects that fit their schema and break a CEL rule, for every rule about new objects."""
    kubelet = "template.spec.kubelet" if kind is NODE_POOL else "kubelet"
    for field, words, settings in _of_kubelet(kubelet):
        yield Broken(changed(kind, (kubelet, settings)), f"spec.{field}", words)
    if kind is EC2_NODE_CLASS:
        for field, words, changes in _OF_CLASSES:
            yield Broken(changed(kind, *changes), f"spec.{field}".rstrip("."), words)
        return
    at = "template.spec.requirements" if kind is NODE_POOL else "requirements"
    for about, words, name, value in _REQUIREMENT_RULES:
        yield Broken(changed(kind, (f"{at}.0.{name}", value)), f"spec.{at}[0]{about}", words)
    if kind is NODE_POOL:
        yield from _pool_rule_breakers()


def _pool_rule_breakers() -> Iterator[Broken]:
    labels, budget = "template.metadata.labels", "disruption.budgets.0"
    for field, words, *changes in (
        (labels, _RESERVED, (labels, {"karpenter.k8s.aws/mine": "x"})),
        (labels, _RESERVED, (labels, {"karpenter.sh/nodepool": "x"})),
        (labels, "keys must match ^", (labels, {"not a key": "x"})),
        ("limits", "with replicas, limits may only name nodes", ("replicas", 3), ("weight", None)),
        (
            "weight",
            "weight has no meaning with replicas, leave one of them out",
            ("replicas", 3),
            ("limits", {"nodes": 3}),
        ),
        (
            "disruption.budgets[0].schedule",
            "schedule and duration go together: set both or neither",
            (f"{budget}.duration", None),
        ),
        (
            "disruption.budgets[0].schedule",
            "schedule and duration go together: set both or neither",
            (f"{budget}.schedule", None),
        ),
    ):
        yield Broken(changed(NODE_POOL, *changes), f"spec.{field}", words)
