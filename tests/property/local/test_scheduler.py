"""The local scheduler overfills no node, breaks no rule, and leaves no pod that could be placed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import sampled
from tests.servers.standins import StandIns

ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}

nodes = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 6), st.booleans()),  # zone, cpus, tainted
    min_size=1,
    max_size=6,
)
workloads = st.lists(
    st.tuples(
        st.sampled_from(["x", "y"]),  # app
        st.integers(1, 3),  # cpus
        st.integers(1, 6),  # replicas
        st.booleans(),  # tolerates
        st.sampled_from(["", "a", "b"]),  # zone wanted
        st.booleans(),  # avoids pods of its app, by node
        st.sampled_from([0, 1, 2]),  # maximum skew over zones, 0 for none
    ),
    min_size=1,
    max_size=4,
)


def pod_spec(app: str, tolerates: bool, zone: str, lonely: bool, skew: int) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    spec: dict[str, Any] = {}
    if tolerates:
        spec["tolerations"] = [{"key": "team", "operator": "Exists"}]
    if zone:
        spec["nodeSelector"] = {ZONE: zone}
    if lonely:
        term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if skew:
        rule = {
            "maxSkew": skew,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
        spec["topologySpreadConstraints"] = [rule]
    return spec


class Referee:
    """Checks placements against the rules themselves, pod by pod."""

    def __init__(
        self, world: StandIns, zones: dict[str, str], cpus: dict[str, int], tainted: set[str]
    ) -> None:
        self.zones, self.cpus, self.tainted = zones, cpus, tainted
        self.pods = {each["metadata"]["name"]: each for each in world.pods()}
        self.places = world.places()

    def cpu(self, name: str) -> int:
        return int(self.pods[name]["spec"]["containers"][0]["resources"]["requests"]["cpu"])

    def app(self, name: str) -> str:
        return str(self.pods[name]["metadata"]["labels"]["app"])

    def used(self, node: str) -> int:
        return sum(self.cpu(name) for name, place in self.places.items() if place == node)

    def may_be_on(self, name: str, node: str) -> bool:
        """Return whether the pod may run on the node, given where all other pods are."""
        spec = self.pods[name]["spec"]
        others = {other: place for other, place in self.places.items() if other != name and place}
        if (
            sum(self.cpu(other) for other, place in others.items() if place == node) + self.cpu(name)
            > self.cpus[node]
        ):
            return False
        tolerates = any(each["key"] == "team" for each in spec["tolerations"])
        if node in self.tainted and not tolerates:
            return False
        if spec.get("nodeSelector", {}).get(ZONE, self.zones[node]) != self.zones[node]:
            return False
        return self.keeps_distance(name, node, others)

    def keeps_distance(self, name: str, node: str, others: dict[str, str]) -> bool:
        """Return whether no required anti-affinity of this pod or of its neighbours forbids the node."""
        alike = [
            other for other, place in others.items() if place == node and self.app(other) == self.app(name)
        ]
        return not any("affinity" in self.pods[each]["spec"] for each in (name, *alike)) if alike else True

    def skew_on(self, name: str, node: str) -> int:
        """Return the skew with the pod on the node, over the zones that its selector allows."""
        wanted = self.pods[name]["spec"].get("nodeSelector", {}).get(ZONE)
        zones = {zone for zone in self.zones.values() if wanted in (None, zone)}
        counts = Counter(dict.fromkeys(zones, 0))
        for other, place in self.places.items():
            if place and other != name and self.app(other) == self.app(name) and self.zones[place] in zones:
                counts[self.zones[place]] += 1
        return counts[self.zones[node]] + 1 - min(counts.values())


@given(nodes, workloads)
@settings(max_examples=sampled(40, whole=150))
def test_placements_follow_every_rule_and_no_placeable_pod_waits(
    node_list: list[tuple[str, int, bool]], workload_list: list[tuple[str, int, int, bool, str, bool, int]]
) -> None:
    world = StandIns()
    zones, cpus = {}, {}
    tainted = set()
    for number, (zone, cpu, is_tainted) in enumerate(node_list):
        name = f"n{number}"
        zones[name], cpus[name] = zone, cpu
        tainted |= {name} if is_tainted else set()
        world.add_node(name, zone, str(cpu), [TAINT] if is_tainted else [])
    for number, (app, cpu, replicas, tolerates, zone, lonely, skew) in enumerate(workload_list):
        for at in range(replicas):
            world.add_pod(
                f"p{number}-{at}", str(cpu), {"app": app}, **pod_spec(app, tolerates, zone, lonely, skew)
            )
    world.settle()
    referee = Referee(world, zones, cpus, tainted)

    assert all(referee.used(node) <= cpus[node] for node in cpus)
    for name, place in referee.places.items():
        spread = referee.pods[name]["spec"].get("topologySpreadConstraints")
        if place:
            # A spread applies when a pod is placed, not afterwards, so it is checked only for pods that wait.
            assert referee.may_be_on(name, place)
        for node in cpus if not place else ():
            fits = referee.may_be_on(name, node)
            assert not fits or (spread and referee.skew_on(name, node) > spread[0]["maxSkew"]), (name, node)
