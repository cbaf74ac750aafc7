"""Strategies for clusters of every kind: NodePools, DaemonSets, nodes and pending pods as users write them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from nodesmith.decisions.provisioning import Inputs
from nodesmith.model.apimachinery.labels import ARCH, CAPACITY_TYPE, HOSTNAME, ZONE
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.snapshot import Snapshot
from tests.builders import (
    ZONES,
    anti_affinity,
    bind,
    catalog,
    daemon,
    expression,
    inputs,
    node,
    node_affinity,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)

TEAM = "example.com/team"
SIZE, FAMILY = "karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-family"
APPS = ("a", "b")
# Few instance types keep the search small and conflicts frequent.
FAMILIES = ("m5", "c6a", "r6g", "t3", "m7g")


def few_types() -> Catalog:
    """Return a catalogue of the families that these NodePools may choose from."""
    whole = catalog()
    names = [name for name in whole.facts if name.partition(".")[0] in FAMILIES]
    facts = {name: whole.facts[name] for name in names}
    offerings = {name: whole.offerings[name] for name in names if name in whole.offerings}
    return Catalog.of(whole.region, whole.made_at, facts, offerings)


CATALOG = few_types()


def made_from(seen: Snapshot) -> Inputs:
    """Return the inputs of a decision about this cluster."""
    return inputs(snapshot=seen, catalog=CATALOG)


_REQUIREMENTS = {
    CAPACITY_TYPE: [
        expression(CAPACITY_TYPE, "In", "spot", "on-demand"),
        expression(CAPACITY_TYPE, "In", "spot"),
    ],
    ZONE: [expression(ZONE, "In", *ZONES[:2]), expression(ZONE, "NotIn", ZONES[0])],
    SIZE: [expression(SIZE, "Lt", "9"), expression(SIZE, "Gt", "3")],
    TEAM: [expression(TEAM, "Exists"), expression(TEAM, "In", "x", "y")],
    FAMILY: [expression(FAMILY, "Exists", minValues=2)],
}
_SELECTORS: list[dict[str, str]] = [
    {},
    {},
    {ARCH: "arm64"},
    {ARCH: "amd64"},
    {ZONE: ZONES[0]},
    {CAPACITY_TYPE: "on-demand"},
    {TEAM: "x"},
    {SIZE: "4"},
]
_VOLUMES: list[dict[str, Any]] = [
    *[{}] * 5,
    {"volumeNodeAffinity": [[expression(ZONE, "In", ZONES[1])]]},
    {"volumeNodeAffinity": [[expression(ZONE, "In", ZONES[0])], [expression(ZONE, "In", *ZONES[1:])]]},
    {"volumeNodeAffinity": [[expression(HOSTNAME, "In", "n0")]]},
]
_TOLERATIONS: list[list[dict[str, str]]] = [
    [],
    [{"operator": "Exists"}],
    [{"key": "dedicated", "operator": "Exists"}],
]


@st.composite
def nodepools(draw: st.DrawFn, name: str) -> dict[str, Any]:
    families = draw(st.lists(st.sampled_from(FAMILIES), min_size=1, unique=True))
    chosen = draw(st.lists(st.sampled_from(sorted(_REQUIREMENTS)), unique=True, max_size=3))
    further = [draw(st.sampled_from(_REQUIREMENTS[key])) for key in chosen]
    return nodepool_manifest(
        name,
        requirements=[expression(FAMILY, "In", *families), *further],
        weight=draw(st.none() | st.integers(1, 2)),
        limits=draw(
            st.none() | st.sampled_from([{"cpu": "16"}, {"nodes": "2"}, {"memory": "64Gi", "cpu": "40"}])
        ),
        labels=draw(st.sampled_from([{}, {"example.com/rack": "1"}])),
        taints=draw(st.sampled_from([[], [], [{"key": "dedicated", "effect": "NoSchedule"}]])),
    )


@st.composite
def spreads(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "topologyKey": draw(st.sampled_from([ZONE, ZONE, HOSTNAME])),
            "maxSkew": draw(st.integers(1, 2)),
            "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
            "labelSelector": {"matchLabels": {"app": draw(st.sampled_from(APPS))}},
        }
        for _ in range(draw(st.integers(0, 2)))
    ]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    spec: dict[str, Any] = {
        "nodeSelector": draw(st.sampled_from(_SELECTORS)),
        "tolerations": draw(st.sampled_from(_TOLERATIONS)),
        "topologySpreadConstraints": draw(spreads()),
        **draw(st.sampled_from(_VOLUMES)),
    }
    if draw(st.integers(0, 5)) == 0:
        spec["affinity"] = anti_affinity(draw(st.sampled_from(APPS)))
    elif draw(st.integers(0, 5)) == 0:
        spec["affinity"] = node_affinity(
            [expression(TEAM, "In", "y"), expression(ARCH, "In", "arm64")],
            [expression(TEAM, "In", "x"), expression(ZONE, "In", ZONES[1])],
        )
    cpu = draw(st.sampled_from(["0", "100m", "900m", "2", "3500m", "14"]))
    memory = draw(st.sampled_from(["0", "64Mi", "2Gi", "30Gi"]))
    return shape(cpu, memory, app=draw(st.sampled_from(APPS)), **spec)


@st.composite
def daemonsets(draw: st.DrawFn, name: str) -> Shape:
    return daemon(
        name,
        draw(st.sampled_from(["50m", "500m"])),
        nodeSelector=draw(st.sampled_from([{}, {ARCH: "arm64"}, {TEAM: "x"}])),
        tolerations=draw(st.sampled_from(_TOLERATIONS)),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Draw up to three NodePools, two DaemonSets, three nodes and six shapes of pods."""
    pools = [draw(nodepools(f"pool-{n}")) for n in range(draw(st.integers(1, 3)))]
    daemons = [draw(daemonsets(f"daemon-{n}")) for n in range(draw(st.integers(0, 2)))]
    nodes = [
        node(f"n{n}", cpu=draw(st.sampled_from(["1", "8"])), zone=draw(st.sampled_from(ZONES)))
        for n in range(draw(st.integers(0, 3)))
    ]
    some: list[Pod] = []
    for number in range(draw(st.integers(1, 6))):
        of = draw(shapes())
        some += pods(of, draw(st.integers(1, 12)), prefix=f"p{number}")
        hosts = draw(st.lists(st.sampled_from(nodes), max_size=1)) if nodes else []
        some += [pod for host in hosts for pod in bind(of, host.name)]
    return snapshot(pods=some, nodes=nodes, nodepools=pools, daemonsets=daemons)
