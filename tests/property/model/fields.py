"""Strategies for values of schema fields: structurally valid, but they may break the fields' rules."""

import re
from datetime import UTC, datetime
from typing import Any, assert_never

from hypothesis import strategies as st

from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.schema.fields import (
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

LABEL_KEYS = (
    "example.com/team",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
    "karpenter.sh/anything",
    "sub.karpenter.sh/anything",
    "notkarpenter.sh/anything",
    "karpenter.k8s.aws/instance-cpu",
    "karpenter.k8s.aws/instance-cpus",
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "plain",
)
TAG_KEYS = ("team", "", "kubernetes.io/cluster/x", "karpenter.sh/nodepool", "eks:eks-cluster-name")
LABEL_VALUES = ("a", "b", "0", "12", "99999999999999999999", "spot", "")

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "In", "1gb", "-1", "Never", "default", "karpenter.sh/v1"])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def values(field: Field) -> st.SearchStrategy[Any]:
    """Return structurally valid values of a field."""
    match field:
        case Text():
            return texts(field)
        case Integer():
            low = -1000 if field.minimum is None else field.minimum
            return st.integers(low, min(field.maximum, low + 100)) | st.just(min(field.maximum, 2**63 - 1))
        case Boolean():
            return st.booleans()
        case Quantity():
            return st.sampled_from(["1", "500m", "2Gi", "1e3", 0, 7])
        case Array():
            most = min(field.max_items or 3, max(3, field.min_items))
            return st.lists(values(field.of), min_size=field.min_items, max_size=most)
        case Map():
            return st.dictionaries(values(field.keys or Text()), values(field.of), max_size=3)
        case Object():
            return objects(field)
        case _:
            assert_never(field)


def texts(field: Text) -> st.SearchStrategy[str]:
    if field.enum:
        return st.sampled_from(field.enum)
    if field.format == "date-time":
        return st.integers(0, 2**32).map(lambda second: format_time(datetime.fromtimestamp(second, UTC)))
    likely = [
        t for t in (field.example, *LABEL_KEYS, *LABEL_VALUES, *TAG_KEYS, "720h", "@daily") if fits(field, t)
    ]
    if not field.pattern:
        return st.sampled_from(likely)
    made = st.from_regex(re.compile(field.pattern, re.ASCII), fullmatch=True).filter(lambda t: fits(field, t))
    return st.sampled_from(likely) if len(likely) > 1 else made


def fits(field: Text, text: str) -> bool:
    longest = field.max_length if field.max_length is not None else 1000
    return field.min_length <= len(text) <= longest and (
        not field.pattern or re.fullmatch(field.pattern, text) is not None
    )


def objects(field: Object) -> st.SearchStrategy[dict[str, Any]]:
    needed = {name: values(inner) for name, inner in field.fields.items() if name in field.required}
    rest = {name: values(inner) for name, inner in field.fields.items() if name not in field.required}
    return st.fixed_dictionaries(needed, optional=rest)


def manifests(kind: Kind) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects whose spec is structurally valid."""
    return st.builds(
        lambda name, spec: {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": name},
            "spec": spec,
        },
        st.sampled_from(["default", "a.b"]),
        values(kind.spec),
    )


def rules(field: Field, path: str = "") -> list[tuple[str, Field, Rule]]:
    """Return every rule below a field, each with its path and field."""
    found: list[tuple[str, Field, Rule]] = []
    match field:
        case Text() | Array() | Map() | Object():
            found += [(path, field, rule) for rule in field.rules]
    match field:
        case Array():
            found += rules(field.of, f"{path}[]")
        case Map():
            found += rules(field.of, f"{path}[]")
            found += rules(field.keys, f"{path}(keys)") if field.keys else []
        case Object():
            for name, inner in field.fields.items():
                found += rules(inner, f"{path}.{name}")
    return found


def damaged(kind: Kind) -> st.SearchStrategy[Any]:
    """Return objects that are valid except in one place, which holds an arbitrary value."""
    return st.tuples(manifests(kind), st.randoms(use_true_random=False), JSON).map(
        lambda drawn: _with_damage(drawn[0], drawn[1], drawn[2])
    )


def _with_damage(value: Any, random: Any, damage: Any) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(sorted(value))
        return {**value, key: _with_damage(value[key], random, damage)}
    if isinstance(value, list) and value and random.random() < 0.9:
        place = random.randrange(len(value))
        return [*value[:place], _with_damage(value[place], random, damage), *value[place + 1 :]]
    return damage
