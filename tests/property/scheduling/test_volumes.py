"""A stand-in for kube-scheduler, independent of nodesmith, accepts the same nodes as nodesmith's reading of volumes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.scheduling.compatibility import label_refusal
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import PODS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES, Mirror, observed
from nodesmith.observation.reduction.volumes import common_terms, either, read_terms
from tests.builders import NOW
from tests.objects.storage import ZONE, Manifest, claim, pod_with, storage_class, volume
from tests.samples import sampled
from tests.servers.standins import StandIns

ZONES, RACK = "abc", "example.com/rack"
CLASSES = [
    storage_class("any"),
    storage_class("some", allowed=[{ZONE: ["a"]}, {ZONE: ["b"], RACK: ["1"]}]),
    storage_class("slow", mode="Immediate"),
]
NODES = [(f"{zone}{rack}", zone, rack) for zone in ZONES for rack in "012"]

expressions = st.one_of(
    st.builds(
        lambda operator, values: {"key": ZONE, "operator": operator, "values": values},
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(ZONES), min_size=1, unique=True),
    ),
    st.builds(
        lambda operator: {"key": RACK, "operator": operator}, st.sampled_from(["Exists", "DoesNotExist"])
    ),
    st.builds(
        lambda operator, value: {"key": RACK, "operator": operator, "values": [value]},
        st.sampled_from(["Gt", "Lt", "In"]),
        st.sampled_from("012"),
    ),
)
affinities = st.lists(st.lists(expressions, max_size=3), min_size=1, max_size=3).map(
    lambda terms: {"required": {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}
)
volumes = st.one_of(
    affinities.map(lambda affinity: ("bound", affinity)),
    st.just(("bound", None)),
    st.sampled_from([("unbound", name) for name in ("any", "some", "slow", "missing")]),
    st.just(("missing", None)),
)


def objects(kinds: list[tuple[str, Any]]) -> tuple[list[Manifest], list[Manifest]]:
    """Return the claims v0, v1 … of these kinds, and the volumes that they are bound to."""
    claims, there = [], []
    for number, (kind, about) in enumerate(kinds):
        if kind == "bound":
            there.append(volume(f"pv{number}", **({"nodeAffinity": about} if about else {})))
            claims.append(claim(f"v{number}", bound_to=f"pv{number}"))
        elif kind == "unbound":
            claims.append(claim(f"v{number}", storageClassName=about))
    return claims, there


@given(kinds=st.lists(volumes, min_size=1, max_size=3), selected=st.sampled_from([*ZONES, ""]))
@settings(max_examples=sampled(50, whole=200))
def test_nodesmith_and_the_scheduler_accept_a_pod_on_the_same_nodes(
    kinds: list[tuple[str, Any]], selected: str
) -> None:
    claims, there = objects(kinds)
    spec: dict[str, Any] = {"nodeSelector": {ZONE: selected}} if selected else {}
    pod = pod_with(*(f"v{number}" for number in range(len(kinds))), **spec)
    del pod["metadata"]["ownerReferences"]
    mirrors = []
    for kind, manifests in (
        (PODS, [pod]),
        (VOLUME_CLAIMS, claims),
        (VOLUMES, there),
        (STORAGE_CLASSES, CLASSES),
    ):
        mirrors.append(Mirror(kind))
        for manifest in manifests:
            mirrors[-1].put(manifest)
    (ours,) = decode(encode("c", NOW, observed(mirrors))).pods

    for name, zone, rack in NODES:
        world = StandIns()
        labels: dict[str, Any] = {RACK: rack} if rack != "0" else {}
        world.add_node(name, zone=zone, **labels)
        for plural, manifests in (
            ("storageclasses", CLASSES),
            ("persistentvolumes", there),
            ("persistentvolumeclaims", claims),
            ("pods", [pod]),
        ):
            for manifest in manifests:
                world.store.create(plural, manifest)
        world.settle()
        taken = world.places()["web-0"] == name

        known = {"kubernetes.io/hostname": name, ZONE: zone, **labels}
        refused = ours.refusal or ours.shape.refusal or label_refusal(known, ours.shape.terms)
        assert taken == (not refused), (name, refused, world.why("web-0"))


texts = st.lists(st.lists(expressions, min_size=1, max_size=2), min_size=1, max_size=3)


@given(some=texts, others=texts)
def test_terms_combine_like_sets_of_nodes(some: list[Any], others: list[Any]) -> None:
    def text(terms: list[Any]) -> str:
        mirror = Mirror(VOLUMES)
        required = {"required": {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}
        mirror.put(volume("pv", nodeAffinity=required))
        return str(mirror.objects["pv"].terms)

    def takes(terms: str, zone: str, rack: str) -> bool:
        labels = {ZONE: zone, **({RACK: rack} if rack != "0" else {})}
        return label_refusal(labels, read_terms(terms)) is None if terms != "[]" else False

    one, other = text(some), text(others)
    for _, zone, rack in NODES:
        here = takes(one, zone, rack), takes(other, zone, rack)
        assert takes(common_terms(one, other), zone, rack) == all(here)
        assert takes(either([one, other]), zone, rack) == any(here)
