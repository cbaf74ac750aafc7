"""Dynamic resource allocation: which nodes pods with claims to devices get, and why others get none."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from nodesmith.decisions.disruption.candidates import CandidateSelection
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.lifecycle.steps import next_steps
from nodesmith.decisions.provisioning.decide import decide
from nodesmith.decisions.provisioning.plan import Plan
from nodesmith.decisions.scheduling.demands import waiting_by_zone
from nodesmith.decisions.scheduling.devices.allocation import Allocator, Matcher, copies
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE
from nodesmith.model.commands import Initialize, Wait
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodeoverlays import parse_annotated
from nodesmith.model.kubernetes.devices import (
    DEVICES,
    REQUESTED_DRIVERS,
    ClusterDevices,
    amount_of,
    parse_claim,
    parse_devices,
)
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget, parse_budget
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.policies import NodeSettings
from nodesmith_cli.audit.reading.devices import declared
from tests import builders
from tests.builders import JOINED, NOW, READY
from tests.objects.devices import (
    DRIVER,
    GPU,
    claims,
    cluster,
    declaring,
    first_of,
    gpus,
    kind,
    model,
    part,
    parted,
    profile,
    published,
    request,
    shared,
)
from tests.objects.fleets import fleet, pool, running, worker
from tests.objects.nodeoverlays import overlay

TYPE = {**READY, "node.kubernetes.io/instance-type": "m5.xlarge"}
EIGHT = declaring([gpus(8)], "m5")
"""The types of the family m5 have eight GPUs."""


def decided(
    pods: list[Pod], *overlays: dict[str, Any], devices: ClusterDevices | None = None, **fields: Any
) -> Plan:
    seen = builders.snapshot(pods=pods, nodeoverlays=overlays, devices=devices or cluster(), **fields)
    return decide(builders.inputs(snapshot=seen))


def claiming(count: int, *requests: Any, name: str = "job", **claim: Any) -> list[Pod]:
    shape = builders.shape("100m", "64Mi", app=name, deviceClaims=claims(*requests, **claim))
    return builders.pods(shape, count)


def types(plan: Plan) -> list[int]:
    """Return how many pods each bought node is for, and check that only m5 has been asked for."""
    for node in plan.nodes:
        assert {each.instance_type.partition(".")[0] for each in node.request.overrides} == {"m5"}
    return sorted(len(node.claim.nominated) for node in plan.nodes)


def joining(plan: Plan) -> list[int]:
    """Return how many pods join each existing node."""
    return [len(keys) for keys in (plan.placed or {}).values()]


def why(plan: Plan) -> str:
    (left,) = (*plan.unplaced, *plan.ignored)
    return left.reason


def test_pods_that_claim_devices_get_nodes_of_types_that_have_them() -> None:
    plan = decided(claiming(12, request()), EIGHT)
    assert sum(types(plan)) == 12
    assert max(types(plan)) == 8


def test_devices_count_beside_nodeoverlays_that_declare_none() -> None:
    assert types(decided(claiming(3, request()), EIGHT, overlay("cheaper", priceAdjustment="-10%"))) == [3]


def test_a_claim_of_several_devices_takes_as_many() -> None:
    assert types(decided(claiming(3, request(3)), EIGHT)) == [1, 2]


def test_a_nodeclaim_names_the_drivers_and_no_resources_that_stand_for_devices() -> None:
    (node,) = decided(claiming(1, request()), EIGHT).nodes
    assert node.claim.annotations[REQUESTED_DRIVERS] == DRIVER
    amounts = (node.claim.requests, node.claim.capacity, node.claim.allocatable)
    assert not any(name.startswith(DEVICES) for each in amounts for name in each)


def test_pods_without_claims_are_decided_as_before() -> None:
    pods = builders.pods(builders.shape(), 5)
    plain = decide(builders.inputs(snapshot=builders.snapshot(pods=pods)))
    beside = decided([*pods, *claiming(1, request(1, model("none")))], EIGHT)
    assert [node.claim for node in beside.nodes] == [node.claim for node in plain.nodes]


def test_a_selector_decides_which_types_do() -> None:
    overlays = (declaring([gpus(8)], "m5", name="a"), declaring([gpus(8, "h100")], "c5", name="h"))
    plan = decided(claiming(2, request(1, model("a100"))), *overlays)
    assert types(plan) == [2]


def test_requests_that_overlap_do_not_count_a_device_twice() -> None:
    entries = [gpus(6), gpus(2, "h100")]
    anything, special = claiming(6, request()), claiming(2, request(1, model("h100")), name="special")
    assert types(decided([*anything, *special], declaring(entries, "m5"))) == [8]
    assert len(decided([*claiming(7, request()), *special], declaring(entries, "m5")).nodes) == 2


def test_of_alternatives_the_first_that_a_node_has_is_enough() -> None:
    want = first_of(request(1, model("h100")), request(2, model("a100")))
    assert types(decided(claiming(4, want), EIGHT)) == [4]
    assert types(decided(claiming(5, want), EIGHT)) == [1, 4]


def test_devices_with_the_same_value_of_an_attribute_are_found_together() -> None:
    halves = declaring([gpus(4, numa=0), gpus(4, numa=1)], "m5")
    asked = claiming(4, request(3), alike=[f"{DRIVER}/numa"])
    assert types(decided(asked, halves)) == [2, 2]
    assert "claims 5 of gpu" in why(decided(claiming(1, request(5), alike=[f"{DRIVER}/numa"]), halves))


def test_a_constraint_that_holds_anyway_lets_pods_share_a_node() -> None:
    asked = [*claiming(2, request(3), alike=[f"{DRIVER}/model"]), *claiming(2, request(), name="small")]
    assert types(decided(asked, EIGHT)) == [4]


def test_all_devices_of_a_node_are_for_one_pod() -> None:
    assert types(decided(claiming(2, request(0)), EIGHT)) == [1, 1]
    mixed = [*claiming(1, request(0)), *claiming(1, request(), name="small")]
    assert types(decided(mixed, EIGHT)) == [1, 1]


def test_free_devices_of_a_node_come_before_new_nodes() -> None:
    node = builders.node(labels=TYPE)
    there = cluster(published("node-1", (kind(), 8, 3)))
    plan = decided(claiming(4, request()), EIGHT, devices=there, nodes=(node,))
    assert joining(plan) == [3]
    assert types(plan) == [1]


def test_devices_of_running_pods_are_taken() -> None:
    node, running = builders.node(labels=TYPE), claiming(2, request(), name="running")
    bound = [replace(pod, node="node-1", unschedulable=False) for pod in running]
    there = cluster(published("node-1", (kind(), 4, 2)))
    plan = decided([*bound, *claiming(3, request())], devices=there, nodes=(node,))
    assert joining(plan) == [2]


def test_an_incomplete_pool_offers_nothing() -> None:
    node, there = builders.node(labels=TYPE), cluster(published("node-1", (kind(), 8, 8), complete=False))
    assert not decided(claiming(1, request()), devices=there, nodes=(node,)).placed


def test_the_devices_of_a_node_teach_what_the_next_one_will_have() -> None:
    node, there = builders.node(labels=TYPE, cpu="0"), cluster(published("node-1", (kind(), 2, 0)))
    plan = decided(claiming(3, request()), devices=there, nodes=(node,))
    assert types(plan) == [1, 2]
    assert {each.instance_type for node in plan.nodes for each in node.request.overrides} == {"m5.xlarge"}


def test_pods_wait_for_a_node_in_flight_whose_type_has_the_devices() -> None:
    coming = builders.claim(phase=Phase.LAUNCHED, instance_type="m5.xlarge")
    seen = builders.snapshot(pods=claiming(9, request()), nodeoverlays=(EIGHT,), devices=cluster())
    plan = decide(builders.inputs(snapshot=seen, ledger=builders.ledger(claims=(coming,))))
    assert joining(plan) == [8]
    assert types(plan) == [1]


def test_pods_that_share_a_claim_share_its_devices_and_a_node() -> None:
    plan = decided(claiming(4, request(8), key="default/shared"), EIGHT)
    assert types(plan) == [4]


def test_a_pod_whose_shared_claim_is_on_a_full_node_is_told_about_the_claim() -> None:
    nodes = (builders.node("node-1", cpu="1", labels=TYPE), builders.node("node-2", labels=TYPE))
    there = cluster(published("node-1", (kind(), 1, 0)), published("node-2", (kind(), 1, 1)))
    shape = builders.shape(
        "600m", deviceClaims=claims(request(), key="default/shared", allocation={"node": "node-1"})
    )
    pods = [*builders.bind(shape, "node-1"), *builders.pods(shape)]
    (left,) = decided(pods, EIGHT, devices=there, nodes=nodes).unplaced
    assert left.reason == "a shared ResourceClaim: the nodes with matching pods have no room for them"
    assert left.cause.fix == "make room on that node, or claim devices by a ResourceClaimTemplate"


def test_more_pods_than_a_node_holds_are_told_that_their_shared_claim_keeps_them_together() -> None:
    shape = builders.shape("90", deviceClaims=claims(request(), key="default/shared"))
    assert why(decided(builders.pods(shape, 2), EIGHT)).startswith(
        "a shared ResourceClaim: all must share one node, and none holds more than 1"
    )


def test_a_pod_goes_where_devices_are_allocated_to_its_claim() -> None:
    nodes = (builders.node("node-1", labels=TYPE), builders.node("node-2", labels=TYPE))
    there = cluster(published("node-1", (kind(), 1, 1)), published("node-2", (kind(), 1, 0)))
    pods = claiming(1, request(), allocation={"node": "node-2"})
    assert [*(decided(pods, devices=there, nodes=nodes).placed or ())] == ["node-2"]
    gone = claiming(1, request(), allocation={"node": "node-3"})
    assert [*(decided(gone, devices=there, nodes=nodes).placed or ())] == ["node-1"]


def test_devices_that_belong_to_no_node_are_reached_from_the_zones_they_name() -> None:
    zone = builders.ZONES[1]
    terms = [[builders.expression("topology.kubernetes.io/zone", "In", zone)]]
    claim = parse_claim({"name": "c", "allocation": {"terms": terms}})
    assert claim.terms is not None
    there = cluster(replace(published("", (kind(), 2, 1)), node="", terms=claim.terms))
    plan = decided(claiming(2, request()), devices=there)
    (node,) = plan.nodes
    assert {each.zone for each in node.request.overrides} == {zone}
    assert len(plan.ignored) == 1


def test_a_pod_whose_devices_are_where_nothing_is_sold_is_told_that_they_decide_its_zone() -> None:
    terms = [[builders.expression("topology.kubernetes.io/zone", "In", "us-east-1f")]]
    reported = why(decided(claiming(1, request(), allocation={"terms": terms})))
    assert reported.endswith("(for their volumes or devices: topology.kubernetes.io/zone In [us-east-1f])")


@pytest.mark.parametrize(
    ("asked", "reported"),
    [
        (claims(request(1, model("none"))), "no node has devices of DeviceClass gpu.example.com"),
        (claims(request(1, "device.nothing")), "(a selector fails: no such key: 'nothing')"),
        (claims(request(1, "(")), "(a selector fails: it ends too early)"),
        (claims(request(device_class="nic")), "DeviceClass nic does not exist"),
        (claims(problem="its ResourceClaim a/b does not exist"), "claim devices: its ResourceClaim a/b does"),
        (claims(request(32), request(32), request(32), request(33)), "more than 128"),
    ],
)
def test_pods_whose_devices_are_not_known_stay_pending_with_the_reason(asked: Any, reported: str) -> None:
    pods = builders.pods(builders.shape(deviceClaims=asked))
    plan = decided(pods, EIGHT)
    assert not plan.nodes
    assert why(plan).startswith("it claims devices, but")
    assert reported in why(plan)


def test_claims_share_the_capacity_of_a_device() -> None:
    overlay = declaring([{**shared(), "count": 2}], "m5")
    assert sum(types(decided(claiming(16, part("10Gi")), overlay))) == 16
    assert types(decided(claiming(17, part("10Gi")), overlay)) == [1, 16]
    assert types(decided(claiming(3, part("50Gi")), overlay)) == [1, 2]
    whole = claiming(3, request())  # a request that names no capacity takes all of it
    assert types(decided(whole, overlay)) == [1, 2]


@pytest.mark.parametrize(
    ("policy", "asked", "fit"),
    [
        ({"default": "10Gi", "validRange": {"min": "10Gi", "step": "20Gi", "max": "50Gi"}}, "15Gi", 2),
        ({"default": "10Gi", "validValues": ["20Gi", "40Gi"]}, "10Gi", 4),
        ({"default": "10Gi", "validValues": ["20Gi", "40Gi"]}, "50Gi", 0),
        ({"default": "10Gi", "validRange": {"min": "10Gi", "max": "50Gi"}}, "60Gi", 0),
        ({"default": "40Gi"}, "", 2),
    ],
)
def test_a_device_gives_what_its_policy_allows(policy: dict[str, Any], asked: str, fit: int) -> None:
    plan = decided(claiming(1, part(asked) if asked else request()), declaring([shared(**policy)], "m5"))
    assert len(plan.nodes) == min(fit, 1)
    ((made, count),) = parse_annotated([shared(**policy)])
    (claim,) = map(parse_claim, claims(part(asked) if asked else request()))
    assert copies(((made, count, count),), [claim], Matcher(GPU)) == fit


def test_a_request_for_more_than_a_device_has_says_how_much_it_asks_for() -> None:
    assert "1 of gpu.example.com with memory 90Gi" in why(decided(claiming(1, part("90Gi")), EIGHT))
    # A device that is not shared is given whole.
    assert types(decided(claiming(8, part("40Gi")), EIGHT)) == [8]


def test_partitions_take_from_the_counters_of_their_device() -> None:
    overlay = declaring([parted(2)], "m5")
    assert types(decided(claiming(4, request(1, profile("large"))), overlay)) == [4]
    assert types(decided(claiming(5, request(1, profile("large"))), overlay)) == [1, 4]
    assert types(decided(claiming(14, request(1, profile("small"))), overlay)) == [14]
    both = request(1, profile("large")), request(1, profile("small"), name="other")
    assert types(decided(claiming(4, *both), overlay)) == [1, 3]  # 150 of 160 GiB
    whole = [request(1, profile("whole")), request(1, profile("small"), name="other")]
    assert types(decided(claiming(2, *whole), overlay)) == [1, 1]


def test_pods_with_different_partitions_do_not_share_a_new_node() -> None:
    asked = [*claiming(1, request(1, profile("large"))), *claiming(1, request(1, profile("small")), name="b")]
    assert types(decided(asked, declaring([parted()], "m5"))) == [1, 1]


def test_what_is_left_of_a_nodes_divided_devices_is_used_first() -> None:
    node, named = builders.node(labels=TYPE), {"consumes": {"s/slices": 1000}}
    kinds = [
        {"driver": DRIVER, **named},
        {"driver": DRIVER, "shared": True, "capacity": {"memory": "80Gi"}},
    ]
    pool = {"driver": DRIVER, "name": "p", "node": "node-1", "complete": True, "stock": []}
    rows = [[0, 7, 7, {}], [1, 1, 1, {f"{DRIVER}/memory": amount_of("60Gi")}]]
    pool |= {"divisible": rows, "counters": {"s/slices": [3000, 7000]}}
    there = parse_devices({"kinds": kinds, "pools": [pool], "classes": GPU})
    assert joining(decided(claiming(4, request()), devices=there, nodes=(node,))) == [3]
    assert joining(decided(claiming(4, part("10Gi")), devices=there, nodes=(node,))) == [2]
    # A new node of its type has them all.
    learned = decided(claiming(9, part("10Gi")), devices=there, nodes=(node,))
    assert (joining(learned), types(learned)) == ([2], [7])


@pytest.mark.parametrize(
    ("entry", "reported"),
    [
        ({**gpus(1), "partitions": []}, "[0]: counters and partitions must be set together"),
        (parted(partitions=[]), "[0].partitions: must be a list of maps with consumes"),
        (
            parted(partitions=[{"consumes": {"memry": "1Gi"}}]),
            "must name amounts of the entry's counters: memory",
        ),
        (
            parted(partitions=[{"consume": {}}]),
            "[0].partitions[0].consume is unknown, did you mean 'consumes'?",
        ),
        (parted(counters={"memory": "80gb"}), "did you mean '80G'?"),
        (parted(counters={"memory": "-1", "slices": "7"}), "'-1' is negative"),
        (parted(128, partitions=[{"consumes": {"slices": str(n)}} for n in range(1, 7)]), "at most 512"),
        (shared("80Gi", validRange={"min": "1gb"}), "did you mean '1G'?"),
        (shared("80Gi", validValues="x"), "not a quantity"),
    ],
)
def test_a_mistake_in_declared_devices_is_reported(entry: dict[str, Any], reported: str) -> None:
    with pytest.raises(ValueError, match=r"^\[0\]") as error:
        parse_annotated([entry])
    assert reported in str(error.value)


def test_a_claim_of_more_devices_than_a_node_has_is_reported_in_devices() -> None:
    reported = why(decided(claiming(1, request(9)), EIGHT))
    assert "9 of gpu.example.com" in reported
    assert DEVICES not in reported


def test_a_cluster_may_ignore_claims() -> None:
    seen = builders.snapshot(pods=claiming(1, request()), nodeoverlays=(EIGHT,), devices=cluster())
    plan = decide(builders.inputs(snapshot=seen, settings=NodeSettings(ignore_dra_requests=True)))
    assert not plan.nodes
    assert "IGNORE_DRA_REQUESTS" in why(plan)


def test_a_pod_whose_claims_are_not_in_the_snapshot_is_told_so() -> None:
    pods = builders.pods(builders.shape(resourceClaims=[{"name": "gpu"}]))
    assert "it is not known which instance types have them" in why(decided(pods, EIGHT))


def test_the_allocator_tries_other_devices_when_the_first_choice_leads_nowhere() -> None:
    stock = ((kind("a", numa=0), 1, 1), (kind("b", numa=1), 2, 2))
    (claim,) = map(parse_claim, claims(request(), request(1, model("b"), name="b"), alike=[f"{DRIVER}/numa"]))
    allocator = Allocator(stock, Matcher(GPU))
    assert allocator.allocate([claim])
    assert allocator.free == [1, 0]


def test_a_search_that_takes_too_long_ends() -> None:
    stock = tuple((kind(f"m{number}", numa=0), 1, 1) for number in range(20))
    (claim,) = map(
        parse_claim, claims(*(request(3, name=f"r{n}") for n in range(10)), alike=[f"{DRIVER}/numa"])
    )
    assert copies(stock, [claim], Matcher(GPU)) == 0


def test_a_node_is_initialized_once_its_drivers_have_published_all_devices() -> None:
    claim = builders.claim(
        phase=Phase.REGISTERED, node_name="node-1", annotations=FrozenMap({REQUESTED_DRIVERS: DRIVER})
    )
    node = builders.node("node-1", labels=JOINED, provider_id=claim.provider_id)

    def reason(devices: ClusterDevices | None) -> str:
        seen = builders.snapshot(nodes=(node,), devices=devices)
        (command,) = (
            each for each in next_steps([claim], seen, {}, (), NOW) if isinstance(each, Wait | Initialize)
        )
        return command.claim.reason if isinstance(command, Wait) else ""

    assert reason(cluster()) == "DRADriverPoolsNotPublished"
    assert (
        reason(cluster(published("node-1", (kind(), 8, 8), complete=False))) == "DRADriverPoolsNotPublished"
    )
    assert not reason(cluster(published("node-1", (kind(), 8, 8))))
    assert not reason(None)


def moved(*requests: Any, free: tuple[int, int], pods: int = 1) -> list[str]:
    """Return the sources of the moves proposed for two nodes, each with some pods and `free` of its eight devices."""
    shape = builders.shape("100m", "64Mi", app="job", deviceClaims=claims(*requests))
    there = cluster(*(published(name, (kind(), 8, n)) for name, n in zip("ab", free, strict=True)))
    asked = [
        builders.expression(CAPACITY_TYPE, "In", "on-demand"),
        builders.expression(INSTANCE_TYPE, "In", "m5.xlarge"),
    ]
    there_now = running(shape, {"a": pods, "b": pods})
    made = fleet([worker("a"), worker("b")], there_now, pools=[pool(requirements=asked)], devices=there)
    return sorted(name for one in propose(made).proposals for name in one.sources)


def test_a_pod_is_moved_only_where_its_devices_can_be_allocated_again() -> None:
    assert len(moved(request(2), free=(6, 6))) == 1
    assert moved(request(2), free=(1, 6)) == ["claim-a"]
    assert not moved(request(5), free=(3, 3))


def test_pods_that_share_a_claim_stay_while_a_budget_keeps_them_from_leaving_together() -> None:
    shared = {"key": "default/shared"}
    shape = builders.shape("100m", "64Mi", app="job", deviceClaims=claims(request(), **shared))
    there = cluster(published("a", (kind(), 8, 7)), published("b", (kind(), 8, 8)))
    plain = fleet([worker("a"), worker("b")], running(shape, {"a": 2}), devices=there)
    guarded = replace(plain, snapshot=replace(plain.snapshot, budgets=(budget(),)))
    assert not CandidateSelection(plain).blocked
    assert CandidateSelection(guarded).blocked["claim-a"].rule == "SharedResourceClaim"


def budget() -> PodDisruptionBudget:
    about = {"namespace": "default", "name": "one"}
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "job"}}}
    status = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    return parse_budget({"metadata": about, "spec": spec, "status": status})


def test_the_steps_of_a_decision_are_bounded_whatever_is_claimed() -> None:
    numbers = "[1,2,3,4,5,6,7,8,9,10]"
    slow = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, {numbers}.all(d, true))))"
    matcher = Matcher({**GPU, "slow": (slow,)})
    stock = tuple((kind(f"m{number}", numa=0), 1, 1) for number in range(20))
    (other,) = map(parse_claim, claims(request(device_class="slow")))
    assert not Allocator(stock, matcher).allocate([other])
    assert matcher.errors == {("slow", ()): "it takes too many steps"}

    many = (request(3, name=f"r{number}") for number in range(10))
    (hostile,) = map(parse_claim, claims(*many, alike=[f"{DRIVER}/numa"]))
    matcher.left = 50_000
    assert not any(Allocator(stock, matcher).allocate([hostile]) for _ in range(4))
    assert matcher.left == 0


@pytest.mark.parametrize(
    "selector",
    ["true" + " && true" * 1200, "!" * 9000 + "true", "'a'.matches('" + "a?" * 90 + "b')"],
    ids=["a long chain", "many signs", "a pattern"],
)
def test_a_selector_that_python_cannot_evaluate_harms_only_its_own_pods(selector: str) -> None:
    asked = [*claiming(1, request(1, selector), name="hostile"), *claiming(1, request(), name="other")]
    plan = decided(asked, EIGHT)
    assert "default/other-0000" in {key for node in plan.nodes for key in node.claim.nominated}


def test_requests_that_overlap_in_many_ways_share_a_node_only_with_their_like() -> None:
    names = [f"m{number}" for number in range(7)]
    entries = [gpus(1, name) for name in names]
    asked = [
        pod
        for number, name in enumerate(names)
        for pod in claiming(1, request(1, f"{model(name)} || {model(names[0])}"), name=f"job-{number}")
    ]
    plan = decided(asked, declaring(entries, "m5"))
    assert sum(types(plan)) == 7
    assert max(types(plan)) <= 5


def test_a_namespace_with_too_many_different_claims_does_not_slow_others() -> None:
    hostile = [
        replace(pod, shape=replace(pod.shape, namespace="hostile"), key=f"hostile/{number}")
        for number in range(80)
        for pod in claiming(1, request(1, f'device.driver != "{number}"'))
    ]
    plan = decided([*hostile, *claiming(1, request(), name="other")], EIGHT)
    assert sum("64 different claims" in each.reason for each in plan.ignored for _ in each.pods) == 16
    assert "default/other-0000" in {key for node in plan.nodes for key in node.claim.nominated}


def hostile(claiming: list[Pod], number: int) -> list[Pod]:
    return [
        replace(pod, shape=replace(pod.shape, namespace="hostile"), key=f"hostile/{number}-{at}")
        for at, pod in enumerate(claiming)
    ]


def served(plan: Plan) -> set[str]:
    return {key for node in plan.nodes for key in node.claim.nominated}


def test_a_decision_without_steps_left_has_some_for_each_selector_and_claim() -> None:
    stock = tuple((kind(f"m{number}", numa=number % 2), 1, 1) for number in range(20))
    matcher = Matcher(GPU, different=64)
    matcher.left = matcher.left_to_selectors = 0
    (other,) = map(parse_claim, claims(request(2), alike=[f"{DRIVER}/numa"]))
    assert Allocator(stock, matcher).allocate([other])
    (hostile,) = map(
        parse_claim, claims(*(request(3, name=f"r{each}") for each in range(10)), alike=[f"{DRIVER}/numa"])
    )
    before = time.process_time()
    assert not any(Allocator(stock, matcher).allocate([hostile]) for _ in range(1000))
    assert time.process_time() - before < 5
    assert matcher.left == 0


def test_a_namespace_with_too_many_different_requests_does_not_slow_others() -> None:
    pods = [
        pod
        for number in range(12)
        for pod in hostile(
            claiming(
                1, *(request(1, f"device.driver != '{number}-{each}'", name=f"r{each}") for each in range(16))
            ),
            number,
        )
    ]
    plan = decided([*pods, *claiming(1, request(), name="other")], EIGHT)
    assert sum("128 different requests" in each.reason for each in plan.ignored for _ in each.pods) == 4
    assert "default/other-0000" in served(plan)


def test_pods_that_claim_devices_are_not_among_those_that_no_node_can_serve() -> None:
    zones, nowhere = waiting_by_zone(claiming(2, request()))
    assert (dict(zones), nowhere) == ({"flexible": 2}, 0)


@pytest.mark.parametrize(
    ("entry", "count"), [(gpus(8), 8), (parted(2), 20), ({**shared(), "count": 2}, 2_000_000)]
)
def test_an_audit_counts_partitions_one_by_one_and_bounds_no_shares(
    entry: dict[str, Any], count: int
) -> None:
    assert declared(declaring([entry], "m5")) == count
