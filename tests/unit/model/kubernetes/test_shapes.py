"""What is read from a pod's manifest, and the refusal of a pod that cannot be served."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import HOSTNAME, ZONE, Toleration
from nodesmith.model.apimachinery.times import LONGEST_SECONDS
from nodesmith.model.kubernetes.pods import Shape, Spread
from nodesmith.model.kubernetes.shapereading import Namespaces, parse_shape
from tests.builders import anti_affinity, expression, node_affinity, shape


def test_a_shape_has_namespace_labels_and_controller() -> None:
    read = parse_shape(
        {
            "metadata": {
                "labels": {"app": "web"},
                "ownerReferences": [
                    {"kind": "Custom", "name": "x"},
                    {"kind": "StatefulSet", "name": "db", "controller": True},
                ],
            }
        }
    )

    assert (read.namespace, read.labels, read.owner) == ("default", {"app": "web"}, "StatefulSet/db")
    assert not read.refusal


@pytest.mark.parametrize(
    ("owner", "daemon", "static"),
    [("DaemonSet/agent", True, False), ("Node/n1", False, True), ("ReplicaSet/web", False, False)],
)
def test_pods_of_daemonsets_and_mirror_pods_are_recognised(owner: str, daemon: bool, static: bool) -> None:
    read = shape(owner=owner)

    assert (read.is_daemon, read.is_static) == (daemon, static)


def test_the_node_selector_holds_in_every_alternative_of_the_affinity() -> None:
    read = shape(
        nodeSelector={"team": "a"},
        affinity=node_affinity(
            [expression(ZONE, "In", "us-east-1a")], [expression(ZONE, "NotIn", "us-east-1a")]
        ),
    )

    assert [sorted(term) for term in read.terms] == [["team", ZONE], ["team", ZONE]]
    assert [term[ZONE].allows("us-east-1b") for term in read.terms] == [False, True]
    assert all(term["team"].values == {"a"} for term in read.terms)


@pytest.mark.parametrize(
    "value", ['x" --authorization-mode=AlwaysAllow --v="1', "a,node-role=master", "a\nb", "a=b", "v" * 64]
)
def test_a_pod_that_requires_an_invalid_label_value_is_refused(value: str) -> None:
    asked = [expression("team", "In", "a", value)]

    assert "no label can have the value" in shape(affinity=node_affinity(asked)).refusal
    assert not shape(affinity=node_affinity([expression("team", "NotIn", value)])).refusal


def test_alternatives_that_contradict_the_node_selector_are_dropped_and_a_pod_without_others_is_refused() -> (
    None
):
    blue = node_affinity([expression("team", "In", "blue")])
    either = node_affinity([expression("team", "In", "blue")], [expression("team", "Exists")])

    assert shape(nodeSelector={"team": "red"}, affinity=blue).refusal == (
        "its node selector and affinity contradict each other on 'team'"
    )
    assert [str(term["team"]) for term in shape(nodeSelector={"team": "red"}, affinity=either).terms] == [
        "team In [red]"
    ]
    without = node_affinity([expression("team", "DoesNotExist"), expression("team", "NotIn", "red")])
    assert not shape(affinity=without).refusal


def test_old_label_keys_are_read_as_current_ones() -> None:
    read = shape(nodeSelector={"failure-domain.beta.kubernetes.io/zone": "us-east-1a"})

    assert read.terms[0][ZONE].values == {"us-east-1a"}


def test_a_preferred_node_affinity_requires_nothing() -> None:
    term = {"matchExpressions": [expression("team", "In", "blue")]}
    preferred = [{"weight": 100, "preference": term}]
    read = shape(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})

    assert not read.refusal
    assert not read.terms[0]
    assert [(weight, str(wanted["team"])) for weight, wanted in read.preferred_terms] == [
        (100, "team In [blue]")
    ]


def test_preferred_node_affinity_that_is_empty_or_impossible_is_dropped() -> None:
    terms = [
        {},
        {"matchExpressions": []},
        {"matchExpressions": [expression("team", "In", 'x" --v="1')]},
        {"matchExpressions": [expression("karpenter.sh/capacity", "In", "spot")]},
        {"matchFields": [expression("metadata.name", "In", "node-1")]},
    ]
    preferred = [{"weight": 1 + i, "preference": term} for i, term in enumerate(terms)]
    read = shape(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})

    assert [(weight, str(wanted[HOSTNAME])) for weight, wanted in read.preferred_terms] == [
        (5, f"{HOSTNAME} In [node-1]")
    ]
    assert not read.refusal


def test_preferred_pod_affinity_terms_are_read_with_their_weight() -> None:
    def terms(key: str, weight: int) -> dict[str, Any]:
        term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": [term],
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}],
        }

    read = shape(affinity={"podAffinity": terms(ZONE, 7), "podAntiAffinity": terms(HOSTNAME, 100)})

    assert [(term.topology_key, term.anti, term.weight) for term in read.affinities] == [
        (ZONE, False, 0),
        (ZONE, False, 7),
        (HOSTNAME, True, 0),
        (HOSTNAME, True, 100),
    ]
    assert all(term.namespaces == frozenset({"default"}) for term in read.affinities)
    assert all(term.selects(shape(app="web")) for term in read.affinities)


@pytest.mark.parametrize("weight", [0, 101, -1, "10", None, 1.5, True])
@pytest.mark.parametrize("part", ["nodeAffinity", "podAffinity", "podAntiAffinity"])
def test_a_weight_beyond_1_to_100_is_refused(part: str, weight: object) -> None:
    term = {"weight": weight, "preference": {}, "podAffinityTerm": {"topologyKey": ZONE}}
    read = shape(affinity={part: {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})

    assert f"the weight of a preferred affinity term is {weight!r}: must be 1 to 100" in read.refusal


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({}, Spread(ZONE, 1, hard=True, selector=None)),
        ({"maxSkew": 3, "minDomains": 2}, Spread(ZONE, 3, hard=True, selector=None, min_domains=2)),
        ({"whenUnsatisfiable": "ScheduleAnyway"}, Spread(ZONE, 1, hard=False, selector=None)),
        ({"topologyKey": HOSTNAME}, Spread(HOSTNAME, 1, hard=True, selector=None)),
        (
            {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
            Spread(ZONE, 1, hard=True, selector=None, honor_affinity=False, honor_taints=True),
        ),
    ],
)
def test_a_spread_is_read_with_kubernetes_defaults(raw: dict[str, Any], expected: Spread) -> None:
    assert shape(topologySpreadConstraints=[{"topologyKey": ZONE, **raw}]).spreads == (expected,)


def test_match_label_keys_take_the_pods_own_values_and_skip_labels_it_lacks() -> None:
    raw = {"topologyKey": ZONE, "labelSelector": {}, "matchLabelKeys": ["app", "pod-template-hash"]}
    spread = shape(app="web", topologySpreadConstraints=[raw]).spreads[0]

    assert spread.selector is not None
    assert spread.selector.matches({"app": "web", "pod-template-hash": "1"})
    assert not spread.selector.matches({"app": "db"})


def test_tolerations_and_host_ports_have_kubernetes_defaults() -> None:
    read = shape(
        tolerations=[{"operator": "Exists"}, {"key": "gpu"}],
        containers=[
            {
                "ports": [
                    {"containerPort": 80},
                    {"hostPort": 8080},
                    {"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
                ]
            }
        ],
    )

    assert read.tolerations == (Toleration("", "Exists"), Toleration("gpu", "Equal"))
    assert read.host_ports == (("0.0.0.0", 8080, "TCP"), ("10.0.0.1", 53, "UDP"))  # noqa: S104


def test_host_ports_of_sidecars_count_but_those_of_init_containers_do_not() -> None:
    sidecar = {"name": "proxy", "restartPolicy": "Always", "ports": [{"hostPort": 15001}]}
    setup = {"name": "setup", "ports": [{"hostPort": 9999}]}

    read = shape(initContainers=[setup, sidecar])

    assert [port for _, port, _ in read.host_ports] == [15001]


def test_mismatch_label_keys_leave_pods_with_the_same_value_alone() -> None:
    term = shape(
        app="web",
        affinity=anti_affinity(labelSelector={"matchLabels": {}}, mismatchLabelKeys=["app"]),
    ).affinities[0]

    assert term.selector is not None
    assert not term.selector.matches({"app": "web"})
    assert term.selector.matches({"app": "db"})


def test_volumes_narrow_every_alternative_of_the_affinity_and_drop_unreachable_ones() -> None:
    read = shape(
        affinity=node_affinity([expression(ZONE, "In", "a", "b")], [expression(ZONE, "In", "c")]),
        volumeNodeAffinity=[[expression(ZONE, "In", "b")], [expression("example.com/rack", "Exists")]],
    )

    assert [{key: str(term[key]) for key in sorted(term)} for term in read.terms] == [
        {ZONE: f"{ZONE} In [b]"},
        {"example.com/rack": "example.com/rack Exists", ZONE: f"{ZONE} In [a, b]"},
        {"example.com/rack": "example.com/rack Exists", ZONE: f"{ZONE} In [c]"},
    ]
    assert [term[ZONE].values for term in read.own_terms] == [{"a", "b"}, {"c"}]
    assert read.refusal == ""


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"containers": [{"resources": {"requests": {"memory": "1gb"}}}]},
            "a resource quantity cannot be read: '1gb' is not a quantity, did you mean '1G'",
        ),
        (
            {"affinity": node_affinity([expression("team", "Inn", "a")])},
            "unknown operator 'Inn', did you mean 'In'",
        ),
        (
            {"affinity": node_affinity([expression("karpenter.k8s.aws/instance-cpu", "Gt", "many")])},
            "Gt takes exactly one non-negative integer, found many",
        ),
        (
            {"nodeSelector": {"karpenter.sh/capacity": "spot"}},
            "'karpenter.sh/capacity': the domain karpenter.sh is reserved, did you mean 'karpenter.sh/capacity-type'",
        ),
        (
            {"affinity": node_affinity([expression("karpenter.sh/nodepool", "DoesNotExist")])},
            "opted out: the pod requires that karpenter.sh/nodepool does not exist",
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchFields": [expression("metadata.name", "In", "n1")]}]
                        }
                    }
                }
            },
            "matchFields names a node",
        ),
        (
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]},
            "it claims devices (spec.resourceClaims), but it is not known which instance types have them",
        ),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "the pod's spec cannot be read: 'topologyKey'"),
        ({"tolerations": ["all"]}, "the pod's spec cannot be read"),
        ({"containers": "none"}, "the pod's spec cannot be read"),
        ({"nodeSelector": ["a"]}, "the pod's spec cannot be read"),
    ],
)
def test_a_pod_that_no_node_can_be_bought_for_has_a_refusal(spec: dict[str, Any], said: str) -> None:
    base = {"containers": [{"name": "main"}]}

    read = parse_shape({"metadata": {"namespace": "shop"}, "spec": {**base, **spec}})

    assert said in read.refusal
    assert read.namespace == "shop"


def test_a_pod_with_contradictory_affinity_and_anti_affinity_is_refused() -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}

    def refusal(app: str = "web", **anti: Any) -> str:
        near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return shape(app=app, affinity={**near, **anti_affinity("db", ZONE, **anti)}).refusal

    assert refusal() == (
        "its pod affinity and anti-affinity contradict each other: in one topology.kubernetes.io/zone it must"
        " and must not run with pods of app In [db]"
    )
    assert not refusal(app="db"), "the first of its kind finds nobody"
    assert not refusal(topologyKey=HOSTNAME)
    assert not refusal(namespaces=["other"])
    assert not refusal(labelSelector={"matchLabels": {"app": "db", "tier": "1"}})


def test_a_pod_may_select_an_existing_node_by_hostname() -> None:
    assert not shape(nodeSelector={HOSTNAME: "node-1"}).refusal


def test_shapes_are_equal_by_identity_only() -> None:
    one, other = shape(), shape()

    assert isinstance(one, Shape)
    assert one != other
    assert len({one, one, other}) == 2


TEAMS = Namespaces({"shop": {"team": "a"}, "till": {"team": "a"}, "ops": {}})


@pytest.mark.parametrize(
    ("term", "namespaces"),
    [
        ({}, {"default"}),
        ({"namespaces": ["b", "a"]}, {"a", "b"}),
        ({"namespaceSelector": {}}, None),
        ({"namespaceSelector": {}, "namespaces": ["a"]}, None),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, {"shop", "till"}),
        (
            {"namespaceSelector": {"matchLabels": {"team": "a"}}, "namespaces": ["ops"]},
            {"shop", "till", "ops"},
        ),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, set()),
        ({"namespaceSelector": {"matchExpressions": [expression("team", "DoesNotExist")]}}, {"ops"}),
    ],
)
def test_anti_affinity_applies_to_named_and_selected_namespaces(
    term: dict[str, Any], namespaces: set[str] | None
) -> None:
    manifest = {"spec": {"affinity": anti_affinity(**term)}}
    read = parse_shape(manifest, TEAMS).affinities[0]

    assert (read.anti, read.namespaces) == (True, namespaces)


def test_a_namespace_selector_selects_every_namespace_if_labels_are_unknown() -> None:
    affinity = anti_affinity(namespaceSelector={"matchLabels": {"team": "a"}})

    assert shape(affinity=affinity).affinities[0].namespaces is None


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 30),
        ({"terminationGracePeriodSeconds": 0}, 0),
        ({"terminationGracePeriodSeconds": 7}, 7),
        ({"terminationGracePeriodSeconds": 2**63 - 1}, LONGEST_SECONDS),
    ],
)
def test_a_pod_has_a_grace_period_of_thirty_seconds_by_default(spec: dict[str, Any], seconds: int) -> None:
    assert shape(**spec).grace_seconds == seconds


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
def test_a_pod_is_critical_by_the_name_of_its_priority_class(name: str) -> None:
    assert shape(priorityClassName=name).critical
    assert not shape(priorityClassName="high", priority=2_000_000_000).critical
