from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.apimachinery.quantities import NOTHING, Resources
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.karpenter.disruption import Budget
from nodesmith.model.karpenter.nodeclaims import NodeClassRef
from nodesmith.model.karpenter.nodepools import NodePool, parse_nodepool
from tests import builders

SMALLEST: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [],
            }
        }
    },
}
FULLEST: dict[str, Any] = {
    "metadata": {
        "name": "full",
        "uid": "0-1",
        "generation": 7,
        "deletionTimestamp": "2026-11-21T12:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {
        "template": {
            "metadata": {"labels": {"example.com/team": "a"}, "annotations": {"example.com/note": "b"}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "blue"},
                "requirements": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]},
                    {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["3"]},
                    {"key": "karpenter.k8s.aws/instance-family", "operator": "Exists", "minValues": 5},
                ],
                "taints": [{"key": "example.com/gpu", "value": "true", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "example.com/cni", "effect": "NoExecute"}],
                "expireAfter": "1h30m",
                "terminationGracePeriod": "45s",
            },
        },
        "disruption": {
            "consolidateAfter": "Never",
            "consolidationPolicy": "Balanced",
            "budgets": [
                {"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h", "reasons": ["Drifted"]},
                {"nodes": "20%"},
            ],
        },
        "limits": {"cpu": "1k", "memory": "1Ti", "nodes": 10},
        "weight": 50,
    },
    "status": {"nodes": 3},
}


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy with one path changed. None removes it."""
    copy = deepcopy(manifest)
    *way, last = path.split("|")
    place: Any = copy
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    if isinstance(place, list):
        place[int(last)] = value
    elif value is None:
        del place[last]
    else:
        place[last] = value
    return copy


def parsed(manifest: dict[str, Any]) -> NodePool:
    found = parse_nodepool(manifest)
    assert found.problems == ()
    assert found.value is not None
    return found.value


def complaint(manifest: Any) -> str:
    """Return the only fatal problem."""
    found = parse_nodepool(manifest)
    assert found.value is None
    (problem,) = (p for p in found.problems if p.fatal)
    return str(problem)


def test_a_minimal_pool_gets_the_defaults() -> None:
    pool = parsed(SMALLEST)
    assert (pool.expire_after, pool.termination_grace_period) == ("720h", None)
    assert pool.disruption.consolidate_after_seconds == 0
    assert pool.disruption.consolidation_policy == "WhenEmptyOrUnderutilized"
    assert pool.disruption.budgets == (Budget("10%"),)
    assert (pool.weight, pool.replicas, pool.limits) == (0, None, NOTHING)
    assert not pool.is_static
    assert not pool.deleting


def test_every_field_is_read() -> None:
    pool = parsed(FULLEST)
    assert (pool.name, pool.uid, pool.generation, pool.deleting) == ("full", "0-1", 7, True)
    assert pool.labels == {"example.com/team": "a"}
    assert pool.annotations == {"example.com/note": "b"}
    assert pool.nodeclass == NodeClassRef("blue")
    assert pool.nodeclass.label == "karpenter.k8s.aws/ec2nodeclass"
    assert pool.requirements == Requirements.of(
        requirement("kubernetes.io/arch", "In", ["amd64", "arm64"]),
        requirement("karpenter.k8s.aws/instance-cpu", "Gte", ["4"]),
        requirement("karpenter.k8s.aws/instance-family", "Exists", (), 5),
    )
    assert pool.taints == (Taint("example.com/gpu", "NoSchedule", "true"),)
    assert pool.startup_taints == (Taint("example.com/cni", "NoExecute"),)
    assert (pool.expire_after, pool.termination_grace_period) == ("1h30m", "45s")
    assert pool.disruption.consolidate_after_seconds is None
    assert pool.disruption.budgets == (
        Budget("0", ("Drifted",), "0 9 * * mon-fri", 8 * 3600),
        Budget("20%"),
    )
    assert pool.limits == Resources({"cpu": 1_000_000, "memory": 2**40, "nodes": 10})
    assert pool.weight == 50


@pytest.mark.parametrize(("text", "usd"), [("0", 0.0), ("0.05", 0.05), ("1e-3", 0.001), ("10000", 10_000.0)])
def test_a_nodes_surcharge_is_read_from_the_annotation_of_the_nodepool(text: str, usd: float) -> None:
    pool = parsed(surcharged(text))
    assert pool.node_surcharge_hourly_usd == usd
    assert pool.hash == parsed(SMALLEST).hash, "what a node costs beside does not drift it"


@pytest.mark.parametrize("text", ["-0.01", "nan", "inf", "cheap", "", "10001"])
def test_an_invalid_surcharge_is_reported_and_counts_as_none(text: str) -> None:
    read = parse_nodepool(surcharged(text))
    assert read.value is not None
    assert read.value.node_surcharge_hourly_usd == 0.0
    (problem,) = read.problems
    assert str(problem) == (
        f"NodePool/{read.value.name}: metadata.annotations[nodesmith.dev/node-surcharge-hourly] is {text!r}: "
        "must be USD per node and hour, 0 to 10000, such as 0.05; treated as 0"
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("$1", "did you mean '1'?"),
        ("0,05", "did you mean '0.05'?"),
        ("2 EUR", "convert 2 EUR into US dollars"),
    ],
)
def test_a_surcharge_with_a_currency_or_a_comma_is_told_how_to_write_it(text: str, hint: str) -> None:
    (problem,) = parse_nodepool(surcharged(text)).problems
    assert hint in problem.remedy


@pytest.mark.parametrize(
    ("text", "minutes"), [("1m", 1), ("90s", 1.5), ("20m", 20), ("1h30m", 90), ("24h", 1440), ("0h75m", 75)]
)
def test_timeouts_are_read_from_the_annotations_of_the_nodepool(text: str, minutes: float) -> None:
    keys = ("nodesmith.dev/launch-timeout", "nodesmith.dev/registration-timeout")
    options = parsed(annotated(dict.fromkeys(keys, text))).options
    assert (options.launch_timeout, options.registration_timeout) == (timedelta(minutes=minutes),) * 2


def test_without_annotations_timeouts_are_karpenters() -> None:
    options = parsed(SMALLEST).options
    assert options.launch_timeout == timedelta(minutes=5)
    assert options.registration_timeout == timedelta(minutes=15)


@pytest.mark.parametrize(
    "text", ["", "15", "soon", "-5m", "1.5h", "59s", "25h", "Never", "9" * 400 + "m", "5m "]
)
def test_an_invalid_timeout_is_reported_and_the_default_is_used(text: str) -> None:
    read = parse_nodepool(annotated({"nodesmith.dev/registration-timeout": text}))
    assert read.value is not None
    assert read.value.options.registration_timeout == timedelta(minutes=15)
    (problem,) = read.problems
    assert problem.field == "metadata.annotations[nodesmith.dev/registration-timeout]"
    assert problem.remedy == "must be a duration of 1m to 24h, such as 20m or 1h30m; treated as 15m"


def test_a_misspelt_annotation_of_nodesmith_is_reported_but_foreign_ones_are_not() -> None:
    read = parse_nodepool(annotated({"nodesmith.dev/registraton-timeout": "20m", "example.com/x": "y"}))
    (problem,) = read.problems
    assert "did you mean 'nodesmith.dev/registration-timeout'?" in problem.remedy


def annotated(annotations: dict[str, str]) -> dict[str, Any]:
    return {**SMALLEST, "metadata": {**SMALLEST["metadata"], "annotations": annotations}}


def surcharged(text: str) -> dict[str, Any]:
    return annotated({"nodesmith.dev/node-surcharge-hourly": text})


def test_items_of_a_list_are_read_although_they_have_no_kind() -> None:
    bare = {field: value for field, value in SMALLEST.items() if field in ("metadata", "spec")}
    assert parsed(bare) == parsed(SMALLEST)


def test_nulls_count_as_absent() -> None:
    nulls = changed(SMALLEST, "spec|template|spec|expireAfter", "Never")
    nulls["spec"]["limits"] = nulls["spec"]["weight"] = nulls["spec"]["disruption"] = nulls["status"] = None
    assert parsed(nulls).expire_after == "Never"
    assert parsed(nulls).disruption == parsed(SMALLEST).disruption


def test_a_pool_with_replicas_is_static() -> None:
    pool = parsed(changed(changed(SMALLEST, "spec|replicas", 3), "spec|limits", {"nodes": 5}))
    assert pool.is_static
    assert pool.replicas == 3


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "spec|template|spec|requirements|0|operator",
            "Inn",
            (
                "spec.template.spec.requirements[0].operator is 'Inn': "
                "use one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte, did you mean 'In'?"
            ),
        ),
        (
            "spec|template|spec|requirements|0|key",
            "karpenter.k8s.aws/instance-familly",
            (
                "spec.template.spec.requirements[0].key is 'karpenter.k8s.aws/instance-familly': the domain "
                "karpenter.k8s.aws is reserved, did you mean 'karpenter.k8s.aws/instance-family'?"
            ),
        ),
        (
            "spec|template|spec|requirements|0|key",
            "karpenter.sh/nodepool",
            (
                "spec.template.spec.requirements[0].key is 'karpenter.sh/nodepool': "
                "nodes get this label from their NodePool; leave it out"
            ),
        ),
        (
            "spec|template|spec|requirements|0|values",
            [],
            "spec.template.spec.requirements[0].values is []: In needs at least one value",
        ),
        (
            "spec|template|spec|requirements|0|minValues",
            3,
            "spec.template.spec.requirements[0].values is ['amd64', 'arm64']: In needs at least minValues values",
        ),
        (
            "spec|template|spec|requirements|1|values",
            ["-1"],
            (
                "spec.template.spec.requirements[1].values[0] is '-1': "
                "must match ^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$, for example us-east-1a"
            ),
        ),
        (
            "spec|template|spec|requirements|1|values",
            ["1", "2"],
            (
                "spec.template.spec.requirements[1].values is ['1', '2']: "
                "Gt, Lt, Gte and Lte need exactly one value, an integer that is not negative"
            ),
        ),
        (
            "spec|template|spec|requirements|0",
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["sopt"]},
            "spec.template.spec.requirements[0].values is ['sopt']: use one of reserved, spot, on-demand",
        ),
        (
            "spec|template|spec|requirements",
            {"key": "a"},
            "spec.template.spec.requirements is a map of 1: must be a list",
        ),
        (
            "spec|template|metadata|labels|kubernetes.io/hostname",
            "a",
            (
                "spec.template.metadata.labels[kubernetes.io/hostname] (the key) is 'kubernetes.io/hostname': "
                "kubernetes.io/hostname is set by the node itself: leave it out"
            ),
        ),
        (
            "spec|template|metadata|labels|gpu",
            True,
            "spec.template.metadata.labels.gpu is true: must be text, so put it in quotes",
        ),
        (
            "spec|template|metadata|labels",
            ["a", "b"],
            "spec.template.metadata.labels is ['a', 'b']: must be a map",
        ),
        (
            "spec|template|spec|taints|0|effect",
            "NoScheduling",
            (
                "spec.template.spec.taints[0].effect is 'NoScheduling': "
                "use one of NoSchedule, PreferNoSchedule, NoExecute, did you mean 'NoSchedule'?"
            ),
        ),
        (
            "spec|template|spec|startupTaints|0",
            {"key": "example.com/gpu", "effect": "NoSchedule"},
            (
                "spec.template.spec.startupTaints is a list of 1: "
                "each pair of key and effect may occur only once across taints and startupTaints"
            ),
        ),
        (
            "spec|template|spec|expireAfter",
            "30d",
            "spec.template.spec.expireAfter is '30d': must match ^(([0-9]+(s|m|h))+|Never)$, for example 720h",
        ),
        (
            "spec|template|spec|nodeClassRef|name",
            "",
            "spec.template.spec.nodeClassRef.name is '': must not be empty",
        ),
        (
            "spec|template|spec|nodeClassRef|name",
            None,
            "spec.template.spec.nodeClassRef.name is missing: it is required",
        ),
        ("spec|limits|cpu", "-5", "spec.limits.cpu is '-5': must not be negative"),
        ("spec|limits|cpu", -5, "spec.limits.cpu is -5: must not be negative"),
        ("spec|limits|memory", "1gb", "spec.limits.memory is '1gb': must be a quantity, did you mean '1G'?"),
        ("spec|limits", 10, "spec.limits is 10: must be a map"),
        ("spec|weight", 101, "spec.weight is 101: must be at least 1 and at most 100"),
        ("spec|weight", "10", "spec.weight is '10': must be a whole number, without quotes"),
        (
            "spec|weight",
            10**400,
            "spec.weight is a number beyond 64 bits: must be at least 1 and at most 100",
        ),
        (
            "spec|disruption|budgets|0|duration",
            None,
            (
                "spec.disruption.budgets[0].schedule is '0 9 * * mon-fri': "
                "schedule and duration go together: set both or neither"
            ),
        ),
        (
            "spec|disruption|budgets|1|nodes",
            "110%",
            "spec.disruption.budgets[1].nodes is '110%': must match ^((100|[0-9]{1,2})%|[0-9]+)$, for example 10%",
        ),
        (
            "spec|disruption|budgets",
            [{}] * 51,
            "spec.disruption.budgets is a list of 51: must have at most 50 items",
        ),
        ("spec|replicas", -1, "spec.replicas is -1: must be at least 0 and at most 9223372036854775807"),
        ("spec", "all of it", "spec is 'all of it': must be a map"),
        ("spec", None, "spec.template is missing: it is required"),
        ("metadata|generation", "7", "metadata.generation is '7': must be a whole number, without quotes"),
        ("apiVersion", "karpenter.sh/v2", "apiVersion is 'karpenter.sh/v2': must be karpenter.sh/v1"),
        ("kind", "Nodepool", "kind is 'Nodepool': must be NodePool"),
    ],
)
def test_invalid_input_is_reported_with_object_field_value_and_remedy(
    path: str, value: Any, message: str
) -> None:
    assert complaint(changed(FULLEST, path, value)) == f"NodePool/full: {message}"


def test_an_in_without_values_is_reported_even_for_capacity_types() -> None:
    capacity_type = {"key": "karpenter.sh/capacity-type", "operator": "In"}
    assert complaint(changed(FULLEST, "spec|template|spec|requirements|0", capacity_type)) == (
        "NodePool/full: spec.template.spec.requirements[0].values is missing: In needs at least one value"
    )


def test_an_unknown_capacity_type_among_known_ones_is_not_fatal() -> None:
    mixed = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "sopt"]}
    found = parse_nodepool(changed(FULLEST, "spec|template|spec|requirements|0", mixed))
    assert found.value is not None
    assert [problem.fatal for problem in found.problems] == [False]


@pytest.mark.parametrize(
    ("limits", "weight", "remedy"),
    [
        ({"cpu": 10}, None, "with replicas, limits may only name nodes"),
        (None, 10, "weight has no meaning with replicas, leave one of them out"),
    ],
)
def test_a_static_pool_has_neither_weight_nor_limits_on_resources(
    limits: dict[str, int] | None, weight: int | None, remedy: str
) -> None:
    manifest = deepcopy(SMALLEST)
    manifest["spec"] |= {"replicas": 1, "limits": limits, "weight": weight}
    assert complaint(manifest).endswith(remedy)


def test_unknown_fields_are_reported_but_not_fatal() -> None:
    manifest = deepcopy(FULLEST)
    manifest["spec"]["tempalte"] = {}
    manifest["spec"]["ttlSecondsAfterEmpty"] = 30
    manifest["specs"] = {}
    found = parse_nodepool(manifest)
    assert found.value is not None
    assert [str(problem) for problem in found.problems] == [
        "NodePool/full: specs is an unknown field, which is ignored: did you mean 'spec'?",
        "NodePool/full: spec.tempalte is an unknown field, which is ignored: did you mean 'template'?",
        (
            "NodePool/full: spec.ttlSecondsAfterEmpty is an unknown field, which is ignored: "
            "use one of template, disruption, limits, weight, replicas"
        ),
    ]


def test_all_problems_are_reported_at_once() -> None:
    manifest = changed(changed(FULLEST, "spec|weight", 0), "spec|limits|cpu", "1gb")
    found = parse_nodepool(changed(manifest, "spec|template|spec|expireAfter", "soon"))
    assert [p.field for p in found.fatal] == [
        "spec.template.spec.expireAfter",
        "spec.limits.cpu",
        "spec.weight",
    ]


@pytest.mark.parametrize(
    "nonsense", [None, [], "text", 3, True, {}, {"metadata": []}, {"metadata": {"name": 3}}]
)
def test_input_that_is_not_a_manifest_is_explained(nonsense: Any) -> None:
    found = parse_nodepool(nonsense)
    assert found.value is None
    assert found.fatal[0].object == "NodePool/(unnamed)"


def nested(depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "huge",
    [
        pytest.param({f"field-{number}": number for number in range(20_000)}, id="20,000 unknown fields"),
        pytest.param({"x" * 1_000_000: 1}, id="a name of a million characters"),
        pytest.param({"template": nested(100_000)}, id="100,000 brackets"),
        pytest.param({"limits": {f"r{n}": "1gb" for n in range(20_000)}}, id="20,000 bad quantities"),
        pytest.param({"template": {"spec": {"requirements": [{}] * 1_000_000}}}, id="a million requirements"),
    ],
)
def test_huge_invalid_values_are_reported_briefly(huge: Any) -> None:
    found = parse_nodepool({"metadata": {"name": "huge"}, "spec": huge})
    assert found.value is None
    assert 1 <= len(found.problems) <= 51
    assert sum(len(str(problem)) for problem in found.problems) < 20_000


def drift_hash(path: str, value: Any) -> str:
    return parsed(changed(FULLEST, path, value)).hash


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec|template|metadata|labels|example.com/team", "b"),
        ("spec|template|metadata|labels|example.com/empty", ""),
        ("spec|template|metadata|annotations|example.com/note", "c"),
        ("spec|template|spec|taints|0|effect", "NoExecute"),
        ("spec|template|spec|startupTaints|0|key", "example.com/csi"),
        ("spec|template|spec|nodeClassRef|name", "green"),
        ("spec|template|spec|expireAfter", "Never"),
        ("spec|template|spec|terminationGracePeriod", None),
    ],
)
def test_the_hash_changes_with_fields_that_affect_nodes(path: str, value: Any) -> None:
    assert drift_hash(path, value) != parsed(FULLEST).hash


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec|weight", 1),
        ("spec|limits", {"cpu": 1}),
        ("spec|disruption", {}),
        ("spec|template|spec|requirements", []),
        ("spec|template|spec|expireAfter", "90m"),
        ("metadata|generation", 8),
    ],
)
def test_the_hash_ignores_fields_that_do_not_affect_nodes(path: str, value: Any) -> None:
    assert drift_hash(path, value) == parsed(FULLEST).hash


def test_the_hash_does_not_depend_on_order() -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
    there = drift_hash("spec|template|spec|taints", taints)
    assert drift_hash("spec|template|spec|taints", taints[::-1]) == there


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
        ("topology.kubernetes.io/zones", "topology.kubernetes.io/zone"),
        ("kubernetes.io/role", ""),
        ("node.kubernetes.io/lifecycle", ""),
        ("example.com/arch", ""),
    ],
)
def test_a_key_that_resembles_a_kubernetes_label_is_used_but_reported(key: str, meant: str) -> None:
    parsed = parse_nodepool(builders.nodepool_manifest(requirements=[builders.expression(key, "In", "a")]))
    assert parsed.value is not None
    assert [f"did you mean {meant!r}" in str(problem) for problem in parsed.problems] == [True] * bool(meant)


def test_an_invalid_memory_bound_is_reported_with_its_unit() -> None:
    bound = builders.expression("karpenter.k8s.aws/instance-memory", "Lt", "64Gi")
    (problem,) = parse_nodepool(builders.nodepool_manifest(requirements=[bound])).problems
    assert "it counts MiB, so 64Gi is 65536" in str(problem)
