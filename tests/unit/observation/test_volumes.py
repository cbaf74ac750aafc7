"""Where the volumes of a pending pod allow it to run, and why some allow no node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.observation.mirror import (
    PODS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    Mirror,
)
from tests.objects.storage import (
    EBS_ZONE,
    ZONE,
    Manifest,
    as_decided,
    claim,
    mounting,
    pod_with,
    storage_class,
    volume,
)
from tests.smallworld.world import pod_manifest

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
HOSTNAME = "kubernetes.io/hostname"


def seen(
    *pods: Manifest,
    claims: Iterable[Manifest] = (),
    volumes: Iterable[Manifest] = (),
    classes: Iterable[Manifest] = (),
) -> dict[str, Pod]:
    """Return the pods by name, as a decision sees them."""
    kinds = {PODS: pods, VOLUME_CLAIMS: claims, VOLUMES: volumes, STORAGE_CLASSES: classes}
    return {pod.key.removeprefix("default/"): pod for pod in as_decided(kinds).pods}


def only(pod: Manifest, **objects: Any) -> Pod:
    (found,) = seen(pod, **objects).values()
    return found


def places(pod: Pod, key: str = ZONE) -> list[set[str]]:
    """Return the values that each alternative allows."""
    assert (pod.refusal, pod.shape.refusal) == ("", "")
    return [set(term[key].values) for term in pod.shape.terms]


def is_anywhere(pod: Pod) -> bool:
    assert (pod.refusal, pod.shape.refusal) == ("", "")
    return pod.shape.terms == (Requirements({}),)


class TestABoundClaim:
    @pytest.mark.parametrize("key", [ZONE, EBS_ZONE, "failure-domain.beta.kubernetes.io/zone"])
    def test_ties_its_pod_to_the_zone_of_its_volume_under_any_label_key(self, key: str) -> None:
        found = only(
            pod_with("data"), claims=[claim("data", bound_to="pv")], volumes=[volume("pv", B, key=key)]
        )
        assert places(found) == [{B}]

    def test_ties_a_nominated_pod_too_since_its_node_may_end(self) -> None:
        pod = pod_with("data")
        pod["status"]["nominatedNodeName"] = "n1"
        assert places(only(pod, claims=[claim("data", bound_to="pv")], volumes=[volume("pv", B)])) == [{B}]

    def test_allows_each_term_of_its_volume(self) -> None:
        terms = [
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [A]}]},
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [B]}]},
            {"matchExpressions": []},  # selects nothing
        ]
        regional = volume("pv", nodeAffinity={"required": {"nodeSelectorTerms": terms}})
        assert places(only(pod_with("data"), claims=[claim("data", bound_to="pv")], volumes=[regional])) == [
            {A},
            {B},
        ]

    def test_of_a_volume_without_affinity_lets_its_pod_run_anywhere(self) -> None:
        shared = volume("efs")
        assert is_anywhere(only(pod_with("data"), claims=[claim("data", bound_to="efs")], volumes=[shared]))

    def test_ties_its_pod_to_the_zones_in_the_labels_of_its_volume(self) -> None:
        old = volume("pv", labels={"failure-domain.beta.kubernetes.io/zone": f"{A}__{C}"})
        both = volume("pv", A, B, labels={ZONE: A})
        bound = [claim("data", bound_to="pv")]
        assert places(only(pod_with("data"), claims=bound, volumes=[old])) == [{A, C}]
        assert places(only(pod_with("data"), claims=bound, volumes=[both])) == [{A}]

    @pytest.mark.parametrize("kind", ["local", "hostPath"])
    def test_of_a_local_volume_keeps_the_zone_but_not_the_host(self, kind: str) -> None:
        expressions = [
            {"key": HOSTNAME, "operator": "In", "values": ["n1"]},
            {"key": ZONE, "operator": "In", "values": [A]},
        ]
        required = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
        on_disk: dict[str, Any] = {kind: {"path": "/data"}}
        local = volume("pv", nodeAffinity=required, **on_disk)
        assert places(only(pod_with("data"), claims=[claim("data", bound_to="pv")], volumes=[local])) == [{A}]

        required = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions[:1]}]}}
        local = volume("pv", nodeAffinity=required, **on_disk)
        assert is_anywhere(only(pod_with("data"), claims=[claim("data", bound_to="pv")], volumes=[local]))

    def test_of_any_other_volume_on_one_host_ties_its_pod_to_that_host(self) -> None:
        pinned = volume("pv", "n1", key=HOSTNAME)
        found = only(pod_with("data"), claims=[claim("data", bound_to="pv")], volumes=[pinned])
        assert places(found, HOSTNAME) == [{"n1"}]


class TestAClaimThatWaitsForItsFirstConsumer:
    def test_lets_its_pod_run_anywhere(self) -> None:
        assert is_anywhere(only(pod_with("data"), claims=[claim("data")], classes=[storage_class()]))

    def test_restricts_its_pod_to_the_topologies_that_its_class_allows(self) -> None:
        one = storage_class(allowed=[{EBS_ZONE: [A, B]}])
        two = storage_class(allowed=[{EBS_ZONE: [A]}, {EBS_ZONE: [C], "rack": ["r"]}])
        assert places(only(pod_with("data"), claims=[claim("data")], classes=[one])) == [{A, B}]
        assert places(only(pod_with("data"), claims=[claim("data")], classes=[two])) == [{C}, {A}]

    def test_may_also_be_bound_to_a_free_volume_where_its_class_provisions_none(self) -> None:
        allowed = storage_class(allowed=[{EBS_ZONE: [A]}])
        free = volume("pv", C, phase="Available")
        found = only(pod_with("data"), claims=[claim("data")], classes=[allowed], volumes=[free])
        assert places(found) == [{A}, {C}]

    def test_with_a_selected_node_ties_its_pod_to_that_node(self) -> None:
        chosen = claim("data", annotations={"volume.kubernetes.io/selected-node": "n1"})
        found = only(pod_with("data"), claims=[chosen], classes=[storage_class()])
        assert places(found, HOSTNAME) == [{"n1"}]

    def test_without_a_class_has_the_newest_default_class(self) -> None:
        classes = [
            storage_class("old", is_default=True, allowed=[{ZONE: [A]}]),
            storage_class("new", is_default=True, allowed=[{ZONE: [B]}], created="2026-11-20T10:00:00Z"),
            storage_class("newer", allowed=[{ZONE: [C]}], created="2026-11-20T11:00:00Z"),
        ]
        unnamed = claim("data", storageClassName=None)
        assert places(only(pod_with("data"), claims=[unnamed], classes=classes)) == [{B}]

    def test_uses_the_class_in_its_old_annotation(self) -> None:
        old = claim("data", annotations={"volume.beta.kubernetes.io/storage-class": "old"})
        classes = [storage_class(), storage_class("old", allowed=[{ZONE: [B]}])]
        assert places(only(pod_with("data"), claims=[old], classes=classes)) == [{B}]


class TestAClaimOfAClassThatMakesNoVolumes:
    CLASS = storage_class("local", provisioner="kubernetes.io/no-provisioner")

    def place(self, *volumes: Manifest, **spec: Any) -> Pod:
        asking = claim("data", storageClassName="local", **spec)
        return only(pod_with("data"), claims=[asking], classes=[self.CLASS], volumes=volumes)

    def test_allows_any_zone_with_a_free_volume_that_fits(self) -> None:
        free = [
            volume(f"pv-{zone}", zone, phase="Available", storageClassName="local", storage="20Gi")
            for zone in (A, B, A)
        ]
        assert places(self.place(*free)) == [{A}, {B}]

    @pytest.mark.parametrize(
        "unfit",
        [
            {"phase": "Bound"},
            {"phase": "Released", "claim": "default/data"},
            {"claim": "default/other"},
            {"storage": "9Gi"},
            {"accessModes": ["ReadOnlyMany"]},
            {"volumeMode": "Block"},
            {"storageClassName": "other"},
            {"labels": {"tier": "slow"}},
        ],
    )
    def test_does_not_count_a_volume_that_does_not_fit(self, unfit: dict[str, Any]) -> None:
        about: dict[str, Any] = {
            "phase": "Available",
            "storageClassName": "local",
            "labels": {"tier": "fast"},
        }
        wanted = {"selector": {"matchLabels": {"tier": "fast"}}}
        fit = volume("pv-fit", A, **about)
        assert places(self.place(fit, **wanted)) == [{A}]
        assert places(self.place(fit, volume("pv", B, **{**about, **unfit}), **wanted)) == [{A}]
        refused = self.place(volume("pv", B, **{**about, **unfit}), **wanted)
        assert refused.refusal == (
            "persistentvolumeclaim 'data' finds no free persistentvolume of StorageClass 'local' (10Gi, ReadWriteOnce),"
            " and that class provisions none"
        )

    def test_uses_the_volume_that_is_reserved_for_it(self) -> None:
        kept = volume("pv", B, phase="Available", storageClassName="local", claim="default/data")
        free = volume("pv-2", A, phase="Available", storageClassName="local")
        assert places(self.place(kept, free)) == [{B}]


REFUSED: dict[str, tuple[dict[str, list[Manifest]], str]] = {
    "missing claim": ({}, "persistentvolumeclaim 'data' not found: create it"),
    "claim being deleted": (
        {
            "claims": [
                {**claim("data"), "metadata": {**claim("data")["metadata"], "deletionTimestamp": "now"}}
            ]
        },
        "persistentvolumeclaim 'data' is being deleted",
    ),
    "lost claim": (
        {"claims": [claim("data", bound_to="pv", phase="Lost")]},
        "persistentvolumeclaim 'data' has lost its persistentvolume 'pv'",
    ),
    "missing volume": (
        {"claims": [claim("data", bound_to="pv")]},
        "persistentvolume 'pv', to which persistentvolumeclaim 'data' is bound, not found",
    ),
    "not bound yet to the volume it names": (
        {
            "claims": [claim("data", volumeName="pv")],
            "volumes": [volume("pv", A)],
            "classes": [storage_class()],
        },
        "persistentvolumeclaim 'data' is not bound yet to the persistentvolume 'pv' that it names",
    ),
    "immediate binding": (
        {"claims": [claim("data")], "classes": [storage_class(mode="Immediate")]},
        "persistentvolumeclaim 'data' is not bound yet: its StorageClass 'gp3' binds immediately (Immediate)",
    ),
    "missing class": (
        {"claims": [claim("data", storageClassName="gp33")], "classes": [storage_class()]},
        "storageclass.storage.k8s.io 'gp33' of persistentvolumeclaim 'data' not found, did you mean 'gp3'?",
    ),
    "no class": (
        {"claims": [claim("data", storageClassName="")], "classes": [storage_class(is_default=True)]},
        "persistentvolumeclaim 'data' is not bound and has no StorageClass: add one",
    ),
    "no default class": (
        {"claims": [claim("data", storageClassName=None)], "classes": [storage_class()]},
        "persistentvolumeclaim 'data' is not bound and has no StorageClass: add one",
    ),
    "an affinity that allows nothing": (
        {
            "claims": [claim("data", bound_to="pv")],
            "volumes": [
                volume("pv", nodeAffinity={"required": {"nodeSelectorTerms": [{"matchExpressions": []}]}})
            ],
        },
        "the node affinity of the volume of persistentvolumeclaim 'data' allows no node",
    ),
}


@pytest.mark.parametrize(("objects", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_pod_whose_volume_is_unreachable_is_refused_with_the_object_to_blame(
    objects: dict[str, list[Manifest]], reason: str
) -> None:
    assert only(pod_with("data"), **objects).refusal.startswith(reason)


class TestSeveralClaims:
    def test_in_one_zone_tie_their_pod_to_it(self) -> None:
        claims = [claim("data", bound_to="pv-1"), claim("logs", bound_to="pv-2"), claim("tmp")]
        volumes = [volume("pv-1", A, B), volume("pv-2", B, C, key=ZONE)]
        found = only(
            pod_with("data", "logs", "tmp"), claims=claims, volumes=volumes, classes=[storage_class()]
        )
        assert places(found) == [{B}]

    def test_in_two_zones_are_refused_with_both_named(self) -> None:
        claims = [claim(name, bound_to=f"pv-{name}") for name in ("any", "data", "logs")]
        volumes = [volume("pv-any"), volume("pv-data", A), volume("pv-logs", B)]
        assert only(pod_with("any", "data", "logs"), claims=claims, volumes=volumes).refusal == (
            f"no node reaches all its volumes: persistentvolumeclaim 'logs' needs {ZONE} In [{B}],"
            f" persistentvolumeclaim 'data' {ZONE} In [{A}]"
        )

    def test_that_only_conflict_all_together_are_refused(self) -> None:
        claims = [claim(name, bound_to=f"pv-{name}") for name in "abc"]
        volumes = [volume("pv-a", A, B), volume("pv-b", B, C), volume("pv-c", C, A)]
        assert only(pod_with("a", "b", "c"), claims=claims, volumes=volumes).refusal == (
            f"no node reaches all its volumes: persistentvolumeclaim 'c' needs {ZONE} In [{A}, {C}],"
            f" the others {ZONE} In [{B}]"
        )


class TestAnEphemeralVolume:
    POD = pod_manifest(
        "web-0",
        volumes=[
            {
                "name": "scratch",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {"storageClassName": "gp3", "accessModes": ["ReadWriteOnce"]},
                    }
                },
            }
        ],
    )
    CLASSES = (storage_class(allowed=[{ZONE: [C]}]),)

    def test_is_read_from_its_template_until_its_claim_exists(self) -> None:
        assert places(only(self.POD, classes=self.CLASSES)) == [{C}]

    def test_is_its_claim_once_that_exists(self) -> None:
        own = claim("web-0-scratch", bound_to="pv", owner_uid="uid-web-0")
        found = only(self.POD, claims=[own], volumes=[volume("pv", B)], classes=self.CLASSES)
        assert places(found) == [{B}]

    def test_does_not_use_a_claim_that_was_not_created_for_it(self) -> None:
        other = claim("web-0-scratch", bound_to="pv")
        refused = only(self.POD, claims=[other], volumes=[volume("pv", B)], classes=self.CLASSES)
        assert "persistentvolumeclaim 'web-0-scratch' has the name of" in refused.refusal


def test_a_pod_of_another_namespace_does_not_find_the_claim() -> None:
    pod = pod_with("data")
    pod["metadata"]["namespace"] = "shop"
    (found,) = seen(pod, claims=[claim("data")], classes=[storage_class()]).values()
    assert "persistentvolumeclaim 'data' not found" in found.refusal


def test_volumes_narrow_the_nodes_that_a_pod_selects_but_not_those_that_its_spread_counts() -> None:
    pod = pod_with("data", nodeSelector={"kubernetes.io/arch": "arm64"})
    shape = only(pod, claims=[claim("data", bound_to="pv")], volumes=[volume("pv", B)]).shape
    assert [set(term) for term in shape.terms] == [{"kubernetes.io/arch", ZONE}]
    assert [set(term) for term in shape.own_terms] == [{"kubernetes.io/arch"}]


def test_a_pod_whose_selector_excludes_its_volume_is_refused() -> None:
    pod = pod_with("data", nodeSelector={ZONE: A})
    shape = only(pod, claims=[claim("data", bound_to="pv")], volumes=[volume("pv", B)]).shape
    assert shape.refusal == (
        f"its volumes are out of reach of its node selector or affinity: needs {ZONE} In [{B}],"
        f" but {ZONE} In [{A}] is offered"
    )


def test_pods_with_volumes_in_one_zone_share_a_shape_whatever_the_names_of_their_claims() -> None:
    zones = [A, B, C]
    found = seen(
        *(pod_with(f"data-web-{n}", name=f"web-{n}") for n in range(30)),
        claims=[claim(f"data-web-{n}", bound_to=f"pv-{n}") for n in range(30)],
        volumes=[volume(f"pv-{n}", zones[n % 3]) for n in range(30)],
    )
    assert len({pod.shape for pod in found.values()}) == 3
    assert all(places(found[f"web-{n}"]) == [{zones[n % 3]}] for n in range(30))


def test_refused_pods_share_a_shape_and_keep_their_own_reasons() -> None:
    found = seen(*(pod_with(f"data-{n}", name=f"web-{n}") for n in range(3)))
    assert len({pod.shape for pod in found.values()}) == 1
    assert [found[f"web-{n}"].refusal[:30] for n in range(3)] == [
        f"persistentvolumeclaim 'data-{n}'" for n in range(3)
    ]


def test_a_bound_pod_keeps_the_locations_of_its_volumes_since_its_node_may_end() -> None:
    zones = (A, B, B)
    pods = [pod_with(f"data-{n}", name=f"web-{n}", nodeName="n1") for n in range(3)]
    found = seen(
        *pods,
        claims=[claim(f"data-{n}", bound_to=f"pv-{n}") for n in range(3)],
        volumes=[volume(f"pv-{n}", zone) for n, zone in enumerate(zones)],
    )
    assert [places(found[f"web-{n}"]) for n in range(3)] == [[{zone}] for zone in zones]
    assert len({pod.shape for pod in found.values()}) == 2


def test_an_alternative_with_an_invalid_label_value_is_refused() -> None:
    odd = volume("pv", "$(reboot)", key="example.com/rack")
    shape = only(pod_with("data"), claims=[claim("data", bound_to="pv")], volumes=[odd]).shape
    assert shape.refusal == (
        "node affinity of its volumes on 'example.com/rack': no label can have the value '$(reboot)'"
    )


def test_many_volumes_with_many_alternatives_keep_a_bounded_number_of_them() -> None:
    names = [f"k{n}" for n in range(12)]
    volumes = [
        volume(
            name,
            nodeAffinity={
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": f"example.com/{name}", "operator": "In", "values": [value]}
                            ]
                        }
                        for value in "xyz"
                    ]
                }
            },
        )
        for name in names
    ]
    claims = [claim(name, bound_to=name) for name in names]
    found = only(pod_with(*names), claims=claims, volumes=volumes)
    assert len(found.shape.terms) == 64
    assert all(len(term) == 12 for term in found.shape.terms)


def test_a_volume_whose_affinity_cannot_be_read_is_a_problem_and_its_pod_is_refused() -> None:
    mirror = Mirror(VOLUMES)
    bad = {"matchExpressions": [{"key": ZONE, "operator": "Within", "values": [A]}]}
    mirror.put(volume("pv", nodeAffinity={"required": {"nodeSelectorTerms": [bad]}}))
    assert "PersistentVolume/pv: cannot be read" in mirror.problems["pv"]


def test_bounds_on_a_label_are_read_as_they_were_written() -> None:
    expressions = [
        {"key": "example.com/rack", "operator": "Gt", "values": ["4"]},
        {"key": "example.com/rack", "operator": "Lt", "values": ["9"]},
        {"key": "example.com/rack", "operator": "NotIn", "values": ["7"]},
        {"key": "example.com/room", "operator": "Exists"},
        {"key": "example.com/old", "operator": "DoesNotExist"},
    ]
    required = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    found = only(
        pod_with("data"),
        claims=[claim("data", bound_to="pv")],
        volumes=[volume("pv", nodeAffinity=required)],
    )
    (term,) = found.shape.terms
    assert [value for value in map(str, range(12)) if term["example.com/rack"].allows(value)] == [
        "5",
        "6",
        "8",
    ]
    assert term["example.com/room"].allows("any")
    assert term["example.com/old"].is_empty


def test_volumes_without_claims_change_nothing() -> None:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "s3cr3t"}}]
    assert is_anywhere(only(pod_manifest("web-0", volumes=volumes)))
    assert is_anywhere(only(pod_manifest("web-0", volumes=mounting())))
