"""Bad input to `nodesmith plan`: each unplaced pod gets a clear reason in bounded time, and the others are placed.

Every plan is audited.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.builders import anti_affinity, expression, node_affinity, nodepool_manifest, spread
from tests.objects import foreign, manifests
from tests.processes.plancommand import Ran, Run, kwok, plan_command, written
from tests.samples import sampled

Manifest = dict[str, Any]
HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
HERMITS = sampled(3_000, whole=10_000)
_TYPE = "node.kubernetes.io/instance-type"
_FAMILY = "karpenter.k8s.aws/instance-family"
WOULD = "launched would have it"
IS_THERE = "is, or will be, on a node with that label"
OK_PODS = "pods of app In [ok]"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Command:
    """`nodesmith plan --audit -o json` on manifests."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run, self._folder = run, folder

    def __call__(self, *manifests: Manifest, catalog: Sequence[Manifest] = ()) -> Ran:
        """Plan for the manifests and a pod `ok`, which must be placed. The audit must find no violations."""
        pools = [] if any(m["kind"] == "NodePool" for m in manifests) else [nodepool_manifest()]
        everything = {"apiVersion": "v1", "kind": "List", "items": [*pools, pod("ok"), *manifests]}
        arguments = ["-f", written(self._folder, "all.json", everything), "-o", "json", "--audit"]
        if catalog:
            file = self._folder / "kwok.json"
            file.write_text(json.dumps(catalog))
            arguments += ["--catalog", str(file)]
        ran = self._run(*arguments)
        assert "no violations found" in ran.err
        assert ran.status == 0
        return ran


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    return Command(plan_command(monkeypatch, capsys), tmp_path)


def pod(name: str, cpu: str = "1", memory: str = "1Gi", app: str = "", **spec: Any) -> Manifest:
    return manifests.pod(name, cpu, memory, labels={"app": app or name}, **spec)


def near(*apps: str, key: str = HOSTNAME) -> Manifest:
    terms = [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} for app in apps]
    return {"podAffinity": {_REQUIRED: terms}}


def reasons(ran: Ran) -> dict[str, str]:
    return {name.removeprefix("default/"): entry["reason"] for name, entry in ran.unplaced.items()}


def test_a_pod_larger_than_any_type_shows_the_largest_type(plan: Command) -> None:
    ran = plan(pod("huge", "5000"), pod("fat", memory="900Ti"))

    assert ran.pods == ["default/ok"]
    huge, fat = ran.unplaced["default/huge"], ran.unplaced["default/fat"]
    assert "one pod asks for 5000 cpu, the most that a node offers to pods is " in huge["reason"]
    assert (huge["nodePool"], huge["blocking"]) == ("default", "resource cpu")
    assert "one pod asks for 900Ti memory, the most that a node offers to pods is " in fat["reason"]
    assert fat["blocking"] == "resource memory"
    assert fat["fix"].startswith("allow instance types with more memory, or ask for at most ")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (
            {"affinity": node_affinity([expression(ZONE, "In", "z"), expression(ZONE, "NotIn", "z")])},
            f"its node selector and affinity contradict each other on '{ZONE}'",
        ),
        (
            {"nodeSelector": {ZONE: "us-east-1a"}, "affinity": node_affinity([expression(ZONE, "In", "us-east-1b")])},
            f"its node selector and affinity contradict each other on '{ZONE}'",
        ),
        (
            {"affinity": {**near("ok"), **anti_affinity("ok")}},
            (f"its pod affinity and anti-affinity contradict each other: in one {HOSTNAME} it must and must not run "
            f"with {OK_PODS}"),
        ),
        (
            {"affinity": {**near("ok", key=ZONE), **anti_affinity("ok", ZONE)}},
            (f"its pod affinity and anti-affinity contradict each other: in one {ZONE} it must and must not run with "
            f"{OK_PODS}"),
        ),
    ],
)  # fmt: skip
def test_contradicting_affinities_are_reported(plan: Command, spec: Manifest, reason: str) -> None:
    ran = plan(pod("odd", **spec))

    assert ran.pods == ["default/ok"]
    assert reasons(ran) == {"odd": reason}


def test_the_first_of_two_pods_with_affinity_and_anti_affinity_to_each_other_is_placed(plan: Command) -> None:
    both = {**near("loner", key=ZONE), **anti_affinity("loner", ZONE)}

    ran = plan(pod("one", app="loner", affinity=both), pod("two", app="loner", affinity=both))

    assert ran.pods == ["default/ok", "default/one"]
    assert reasons(ran)["two"].startswith(f"anti-affinity of other pods over {ZONE}: it keeps them out")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (
            {"topologySpreadConstraints": spread(RACK, hard=True, app="odd")},
            f"topology spread over {RACK}: no node has that label, and none that can be launched would",
        ),
        (
            {"affinity": near("odd", key=RACK)},
            f"required pod affinity over {RACK}: no node with that label has room, and none that can be {WOULD}",
        ),
        (
            {"affinity": near("ok", key=RACK)},
            f"required pod affinity over {RACK}: no pod that matches app In [ok] {IS_THERE}",
        ),
    ],
)
def test_a_topology_key_that_no_node_has_is_reported(plan: Command, spec: Manifest, reason: str) -> None:
    ran = plan(pod("odd", **spec))

    assert ran.pods == ["default/ok"]
    assert reasons(ran) == {"odd": reason}
    assert ran.unplaced["default/odd"]["blocking"] == reason.partition(": ")[0]
    assert ran.unplaced["default/odd"]["fix"]


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": spread(RACK, hard=False, app="odd")},
        {"affinity": anti_affinity("odd", RACK)},
    ],
)
def test_a_preferred_topology_key_that_no_node_has_blocks_nothing(plan: Command, spec: Manifest) -> None:
    assert plan(pod("odd", **spec)).pods == ["default/odd", "default/ok"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("shared", [False, True])
def test_thousands_of_pods_with_an_anti_affinity_each_are_planned_in_seconds(
    plan: Command, shared: bool
) -> None:
    """All pods have the same labels, so a node takes one; or each has its own label and excludes only itself."""
    apps = ["hermit" if shared else f"hermit-{number}" for number in range(HERMITS)]
    hermits = [
        pod(f"h-{number}", "100m", "100Mi", app, affinity=anti_affinity(app))
        for number, app in enumerate(apps)
    ]
    began = time.process_time()

    ran = plan(*hermits)

    assert time.process_time() - began < sampled(
        20, whole=60
    )  # including reading and auditing; pod by pod, it would take hours
    assert ran.plan["seconds"] < sampled(4, whole=10)
    assert len(ran.pods) == HERMITS + 1
    assert (len(ran.plan["nodes"]) >= HERMITS) == shared


def test_a_catalogue_of_one_type_places_what_fits_and_reports_the_rest(plan: Command) -> None:
    arm = node_affinity([expression("kubernetes.io/arch", "In", "arm64")])

    ran = plan(
        nodepool_manifest(requirements=[]),
        pod("large", "5"),
        pod("arm", affinity=arm),
        catalog=[kwok("only", 0.2)],
    )

    assert [node["instanceTypes"] for node in ran.plan["nodes"]] == [["only"]]
    assert (
        "one pod asks for 5 cpu, the most that a node offers to pods is 3.9 (only)" in reasons(ran)["large"]
    )
    assert ran.unplaced["default/arm"]["blocking"] == "requirement kubernetes.io/arch In [arm64]"


def test_types_without_a_price_are_reported_and_not_launched(plan: Command) -> None:
    """A price of 0 means that the price is unknown. Otherwise every plan would consist of these types."""
    ran = plan(nodepool_manifest(requirements=[]), catalog=[kwok("free", 0.0), kwok("priced", 0.3)])

    assert [node["instanceTypes"] for node in ran.plan["nodes"]] == [["priced"]]
    assert (
        "InstanceType/free: offerings[0].Price is 0.0: write the hourly price as a positive number" in ran.err
    )


def test_without_any_price_every_pod_has_that_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    catalog = tmp_path / "kwok.json"
    catalog.write_text(json.dumps([kwok("free", 0.0), kwok("gratis", 0.0)]))
    file = written(tmp_path, "all.json", nodepool_manifest(requirements=[]), pod("a"), pod("b"))

    ran = plan_command(monkeypatch, capsys)("-f", file, "--catalog", str(catalog), "-o", "json", "--audit")

    assert ran.status == 0
    assert ran.plan["nodes"] == []
    assert all("none of its 2 instance types has an offering left" in why for why in reasons(ran).values())
    assert "none is sold with a known price" in reasons(ran)["a"]
    assert "InstanceType/gratis: offerings[0].Price is 0.0" in ran.err


def test_impossible_min_values_are_the_reason_of_a_pod_and_other_nodepools_launch_nodes(
    plan: Command,
) -> None:
    """Two families are left for the pod `ok`, and only one of them has a type with 100 cpu."""
    flexible = nodepool_manifest(requirements=[expression(_FAMILY, "In", "m5", "m6i", minValues=2)])

    ran = plan(flexible, pod("large", "100"))

    assert ran.pods == ["default/ok"]
    large = ran.unplaced["default/large"]
    assert (large["blocking"], large["fix"]) == ("minValues", "lower minValues, or allow more instance types")
    assert f"{_FAMILY} 1 of 2" in large["reason"]


def test_min_values_above_the_number_of_values_are_reported_and_other_nodepools_launch_nodes(
    plan: Command,
) -> None:
    odd = nodepool_manifest(
        "odd", weight=9, requirements=[expression(_TYPE, "In", "m5.large", "m5.xlarge", minValues=3)]
    )

    ran = plan(odd, nodepool_manifest("sound"))

    assert {node["nodePool"] for node in ran.plan["nodes"]} == {"sound"}
    assert "NodePool/odd" in ran.err
    assert "In needs at least minValues values" in ran.err


def test_exceeded_limits_stop_only_their_nodepool(plan: Command) -> None:
    full = nodepool_manifest("full", weight=9, limits={"cpu": "4"})
    only_full = node_affinity([expression("karpenter.sh/nodepool", "In", "full")])

    ran = plan(full, nodepool_manifest("open"), large_node("full", cpu="8"), pod("stays", affinity=only_full))

    assert {node["nodePool"] for node in ran.plan["nodes"]} == {"open"}
    stays = ran.unplaced["default/stays"]
    assert "its limit of 4 cpu is reached (8 used, the smallest suitable node takes 2)" in stays["reason"]
    assert (stays["nodePool"], stays["blocking"]) == ("full", "limit cpu")
    assert stays["fix"] == "for this pod raise spec.limits.cpu to at least 10"


def test_pods_with_circular_affinity_and_their_followers_are_reported(plan: Command) -> None:
    ran = plan(
        pod("a", affinity=near("b")),
        pod("b", affinity=near("c")),
        pod("c", affinity=near("a")),
        pod("x", affinity=near("y", key=ZONE)),
        pod("y", affinity=near("x", key=ZONE)),
        pod("joins", affinity=near("a")),
        pod("lost", affinity=near("nobody")),
    )

    assert ran.pods == ["default/ok"]
    reported = reasons(ran)
    for name, leader, key in (
        ("a", "b", HOSTNAME),
        ("b", "c", HOSTNAME),
        ("c", "a", HOSTNAME),
        ("x", "y", ZONE),
        ("y", "x", ZONE),
    ):
        assert reported[name] == (
            f"required pod affinity over {key}: they must be with pods that match app In [{leader}], which in turn"
            " wait for these: none can be the first"
        )
    assert ran.unplaced["default/a"]["blocking"] == f"required pod affinity over {HOSTNAME}"
    assert "make the affinity preferred" in ran.unplaced["default/a"]["fix"]
    assert reported["joins"].endswith(
        "they must be with pods that match app In [a], which wait for other pods"
    )
    assert (
        reported["lost"] == f"required pod affinity over {HOSTNAME}: no pod anywhere matches app In [nobody]"
    )


def test_circular_affinity_broken_by_another_pod_is_placed(plan: Command) -> None:
    ran = plan(
        pod("a-0", app="a", affinity=near("b", key=ZONE)),
        pod("b-0", app="b", affinity=near("a", key=ZONE)),
        pod("b-1", app="b"),
    )

    assert ran.pods == ["default/a-0", "default/b-0", "default/b-1", "default/ok"]
    assert len({node["zone"] for node in ran.plan["nodes"] if set(node["pods"]) - {"default/ok"}}) == 1


def test_thousands_of_pods_with_circular_affinity_are_reported_in_seconds(plan: Command) -> None:
    circle = [pod(f"p-{number}", affinity=near(f"p-{(number + 1) % 3000}")) for number in range(3000)]

    ran = plan(*circle)

    assert ran.plan["seconds"] < 10
    assert len(ran.unplaced) == 3000


def test_a_nodepool_of_auto_mode_launches_nothing_and_its_node_takes_pods(plan: Command) -> None:
    auto = [foreign.auto_mode_nodepool(), foreign.node("i-auto1", "general-purpose")]
    only = pod("only", cpu="16", nodeSelector={"eks.amazonaws.com/compute-type": "auto"})
    ran = plan(pod("fits", cpu="2"), pod("bought", cpu="5"), only, nodepool_manifest(), *auto)
    assert [node["nodePool"] for node in ran.plan["nodes"]] == ["default"]
    assert [node["pods"] for node in ran.plan["nodes"]] == [["default/bought"]]
    assert set(ran.unplaced) == {"default/only"}
    assert "general-purpose is served by EKS Auto Mode" in ran.err


def large_node(nodepool: str, cpu: str) -> Manifest:
    """Return a node that accepts none of our pods."""
    offered: Mapping[str, str] = {"cpu": cpu, "memory": "32Gi", "pods": "58"}
    labels = {"karpenter.sh/nodepool": nodepool, ZONE: "us-east-1a", HOSTNAME: "there"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "there", "labels": labels},
        "spec": {
            "providerID": "aws:///us-east-1a/i-there",
            "taints": [{"key": "own", "effect": "NoSchedule"}],
        },
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
