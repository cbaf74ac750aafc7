"""What snapshots hold of dynamic resource allocation, and how the API's versions are read."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.kubernetes.devices import ClusterDevices, PodClaim, amount_of
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import DEVICE_CLAIMS, DEVICE_CLASSES, SLICES, Mirror, WatchedKind
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.devices import (
    reduce_claim_template,
    reduce_device_claim,
    reduce_device_class,
    reduce_slice,
)
from nodesmith.observation.reduction.pods import reduce_pod
from tests.builders import NOW

DRIVER = "gpu.example.com"
CLASS = {
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}
EXACTLY = {"deviceClassName": "gpu", "count": 2}
BIG = 'device.attributes["gpu.example.com"].model == "a100"'


def asks(*requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    return {"devices": {"requests": list(requests), **devices}}


def template(spec: dict[str, Any], name: str = "two") -> Any:
    return reduce_claim_template({"metadata": {"namespace": "a", "name": name}, "spec": {"spec": spec}})


def claim(name: str, spec: dict[str, Any], *devices: str, node: str = "n1") -> Any:
    selector = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    results = [{"request": "r", "driver": DRIVER, "pool": node, "device": each} for each in devices]
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [selector]}}
    status = {"allocation": allocation} if devices else {}
    return reduce_device_claim({"metadata": {"namespace": "a", "name": name}, "spec": spec, "status": status})


def pod(name: str, made: str = "", node: str = "", **ref: str) -> Any:
    statuses = [{"name": "gpu", "resourceClaimName": made}] if made else []
    about = {
        "name": name,
        "namespace": "a",
        "uid": name,
        "creationTimestamp": "2026-11-21T12:00:00Z",
    }
    spec = {"containers": [{"name": "c"}], "resourceClaims": [{"name": "gpu", **ref}], "nodeName": node}
    return reduce_pod({"metadata": about, "spec": spec, "status": {"resourceClaimStatuses": statuses}})


def device(name: str, **attributes: Any) -> dict[str, Any]:
    values = {key: {"string": value} for key, value in {"model": "a100", "uuid": name, **attributes}.items()}
    return {"name": name, "attributes": values, "capacity": {"memory": {"value": "40Gi"}}}


def piece(
    *devices: dict[str, Any], node: str = "n1", generation: int = 1, total: int = 1, **spec: Any
) -> Any:
    pool = {"name": node, "generation": generation, "resourceSliceCount": total}
    named = spec or {"nodeName": node}
    body = {"driver": DRIVER, "pool": pool, "devices": list(devices), **named}
    return reduce_slice({"metadata": {"name": f"{node}-{generation}"}, "spec": body})


def read(*pods: Any, **objects: Any) -> Snapshot:
    known = {"deviceclasses": [reduce_device_class(CLASS)], **objects}
    return decode(encode("c", NOW, Observed(pods=pods, **known)))


def claim_of(seen: Snapshot, name: str = "p") -> PodClaim:
    (found,) = next(each for each in seen.pods if each.key == f"a/{name}").shape.claims
    return found


def devices_of(seen: Snapshot) -> ClusterDevices:
    assert seen.devices is not None
    return seen.devices


@pytest.mark.parametrize(
    "request_",
    [
        {"name": "r", "exactly": EXACTLY},
        {"name": "r", **EXACTLY},  # v1beta1
    ],
)
def test_a_template_is_resolved_for_the_pods_that_use_it(request_: dict[str, Any]) -> None:
    seen = read(pod("p", resourceClaimTemplateName="two"), resourceclaimtemplates=[template(asks(request_))])
    (request,) = claim_of(seen).requests
    assert [(want.device_class, want.count) for want in request.wants] == [("gpu", 2)]
    assert not claim_of(seen).key


def test_alternatives_selectors_and_constraints_are_kept() -> None:
    first = {"name": "one", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": BIG}}]}
    everything = {"name": "rest", "deviceClassName": "gpu", "allocationMode": "All"}
    spec = asks(
        {"name": "r", "firstAvailable": [first, everything]},
        constraints=[{"requests": ["r"], "matchAttribute": "gpu.example.com/numa"}],
    )
    found = claim_of(read(pod("p", resourceClaimName="mine"), resourceclaims=[claim("mine", spec)]))
    assert [(want.name, want.selectors, want.count) for want in found.requests[0].wants] == [
        ("one", (BIG,), 1),
        ("rest", (), 0),
    ]
    assert [(each.requests, each.attribute) for each in found.constraints] == [
        (("r",), "gpu.example.com/numa")
    ]
    assert found.key == "a/mine"


@pytest.mark.parametrize(
    ("request_", "reported"),
    [
        ({"exactly": {"deviceClassName": "gpu", "adminAccess": True}}, "adminAccess"),
        ({"exactly": {"deviceClassName": "gpu", "count": 33}}, "more than 32 devices"),
        ({"exactly": {"deviceClassName": "gpu", "allocationMode": "Some"}}, "'Some', which is not known"),
    ],
)
def test_what_is_not_simulated_is_reported(request_: dict[str, Any], reported: str) -> None:
    made = [template(asks({"name": "r", **request_}))]
    seen = read(pod("p", resourceClaimTemplateName="two"), resourceclaimtemplates=made)
    assert reported in claim_of(seen).problem


def test_a_claim_or_template_that_does_not_exist_is_reported() -> None:
    seen = read(pod("p", resourceClaimTemplateName="none"), pod("q", resourceClaimName="gone"))
    assert "ResourceClaimTemplate a/none does not exist" in claim_of(seen).problem
    assert "ResourceClaim a/gone does not exist" in claim_of(seen, "q").problem


def test_devices_are_counted_by_kind_and_those_that_are_allocated_are_not_free() -> None:
    spec = asks({"name": "r", "exactly": EXACTLY, "selectors": [{"cel": {"expression": BIG}}]})
    spec["devices"]["requests"][0]["exactly"] = {**EXACTLY, "selectors": [{"cel": {"expression": BIG}}]}
    seen = read(
        pod("p", "p-gpu", resourceClaimTemplateName="two"),
        resourceclaimtemplates=[template(spec)],
        resourceclaims=[claim("p-gpu", spec, "gpu-0")],
        resourceslices=[piece(device("gpu-0"), device("gpu-1"), device("gpu-2", model="h100"))],
    )
    (pool,) = devices_of(seen).pools
    assert pool.node == "n1"
    assert sorted((total, free) for _, total, free in pool.stock) == [(1, 1), (2, 1)]
    assert claim_of(seen).node == "n1"


def test_pods_on_a_node_share_a_shape_with_those_that_wait() -> None:
    spec = asks({"name": "r", "exactly": EXACTLY})
    seen = read(
        pod("p", "p-gpu", node="n1", resourceClaimTemplateName="two"),
        pod("q", resourceClaimTemplateName="two"),
        resourceclaimtemplates=[template(spec)],
        resourceclaims=[claim("p-gpu", spec, "gpu-0")],
    )
    first, second = seen.pods
    assert first.shape is second.shape


def test_a_pool_is_complete_once_all_slices_of_its_newest_generation_are_there() -> None:
    def pool(*slices: Any) -> tuple[bool, int]:
        (found,) = devices_of(read(pod("p", resourceClaimName="x"), resourceslices=slices)).pools
        return found.complete, sum(total for _, total, _ in found.stock)

    assert pool(piece(device("a"), total=2)) == (False, 1)
    assert pool(piece(device("a"), device("b"), generation=1), piece(device("a"), generation=2)) == (True, 1)


def consuming(counter_set: str, amount: str) -> dict[str, Any]:
    return {"consumesCounters": [{"counterSet": counter_set, "counters": {"slices": {"value": amount}}}]}


SLICES_OF_GPU = [{"name": "gpu-0", "counters": {"slices": {"value": "7"}}}]


def test_an_allocated_partition_takes_from_its_counters() -> None:
    spec = asks({"name": "r", "exactly": EXACTLY})
    parts = [{**device(f"part-{number}"), **consuming("gpu-0", "2")} for number in range(3)]
    of_counters = piece(node="n1", total=2, nodeName="n1", sharedCounters=SLICES_OF_GPU)
    seen = read(
        pod("p", resourceClaimName="x"),
        resourceclaims=[claim("x", spec, "part-1")],
        resourceslices=[piece(*parts, total=2), of_counters],
    )
    (pool,) = devices_of(seen).pools
    ((kind, total, free), (other, *counts)) = sorted(pool.stock, key=lambda row: row[1])
    assert pool.complete
    assert (total, free, counts) == (1, 0, [2, 2])
    assert kind == other
    (name,) = kind.consumes
    assert kind.consumes[name] == 2000
    assert kind.counters[name] == (5000, 7000)


def test_shared_devices_are_free_with_what_claims_take_of_them() -> None:
    spec = asks(
        {"name": "r", "exactly": {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "4Gi"}}}}
    )
    results = [
        {
            "request": "r",
            "driver": DRIVER,
            "pool": "n1",
            "device": "a",
            "consumedCapacity": {"memory": amount},
        }
        for amount in ("4Gi", "6Gi")
    ]
    status = {"allocation": {"devices": {"results": results}}}
    taking = reduce_device_claim(
        {"metadata": {"namespace": "a", "name": "x"}, "spec": spec, "status": status}
    )
    seen = read(
        pod("p", resourceClaimName="x"),
        resourceclaims=[taking],
        resourceslices=[piece({**device("a"), "allowMultipleAllocations": True})],
    )
    ((kind, *counts),) = devices_of(seen).pools[0].stock
    assert (kind.is_shared, counts) == (True, [1, 1])
    assert dict(kind.used) == {f"{DRIVER}/memory": amount_of("10Gi")}
    assert dict(kind.capacity) == {f"{DRIVER}/memory": "40Gi"}
    ((want,),) = [request.wants for request in claim_of(seen).requests]
    assert dict(want.capacity) == {"memory": amount_of("4Gi")}


def test_nodes_of_a_type_have_the_same_partitions() -> None:
    def of(node: str) -> Any:
        parts = {**device("part", uuid="x"), **consuming("gpu-0", "2")}
        return piece(parts, node=node, nodeName=node, sharedCounters=SLICES_OF_GPU)

    first, second = devices_of(
        read(pod("p", resourceClaimName="x"), resourceslices=[of("n1"), of("n2")])
    ).pools
    assert first.stock == second.stock


def test_devices_that_are_tainted_or_consume_unknown_counters_are_left_out() -> None:
    odd = [
        {**device("b"), "taints": [{"key": "broken", "effect": "NoSchedule"}]},
        {**device("d"), **consuming("none", "1")},
    ]
    seen = read(pod("p", resourceClaimName="x"), resourceslices=[piece(device("a"), *odd)])
    assert [total for _, total, _ in devices_of(seen).pools[0].stock] == [1]


def test_devices_of_no_node_have_the_terms_of_their_slice() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]
    made = piece(device("a"), nodeSelector={"nodeSelectorTerms": terms})
    (pool,) = devices_of(read(pod("p", resourceClaimName="x"), resourceslices=[made])).pools
    assert not pool.node
    assert [str(one) for term in pool.terms for one in term.values()] == ["zone In [z]"]


def test_a_snapshot_without_claims_has_no_devices() -> None:
    assert decode(encode("c", NOW, Observed(resourceslices=[piece(device("a"))]))).devices is None


def test_the_beta_versions_of_a_slice_are_read() -> None:
    basic = {"name": "a", "basic": {k: v for k, v in device("a").items() if k != "name"}}
    (pool,) = devices_of(read(pod("p", resourceClaimName="x"), resourceslices=[piece(basic)])).pools
    assert [total for _, total, _ in pool.stock] == [1]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (SLICES, {"driver": "d", "pool": "none"}),
        (
            SLICES,
            {
                "driver": "d",
                "pool": {"name": "p"},
                "nodeSelector": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Odd"}]}]
                },
            },
        ),
        (
            SLICES,
            {
                "driver": "d",
                "pool": {"name": "p"},
                "devices": [{"name": "x", "capacity": {"memory": {"value": "1gb"}}}],
            },
        ),
        (DEVICE_CLAIMS, {"devices": {"requests": [{"name": "r", "exactly": {"count": "many"}}]}}),
        (DEVICE_CLAIMS, {"devices": {"requests": ["gpu"]}}),
        (
            DEVICE_CLAIMS,
            {
                "devices": {
                    "requests": [{"name": "r", "exactly": {"capacity": {"requests": {"memory": "-1"}}}}]
                }
            },
        ),
        (
            SLICES,
            {
                "driver": "d",
                "pool": {"name": "p"},
                "sharedCounters": [{"name": "s", "counters": {"a": {"value": "x"}}}],
            },
        ),
        (DEVICE_CLASSES, {"selectors": [{"cel": "true"}]}),
    ],
)
def test_an_object_that_no_api_server_accepts_is_left_out(kind: WatchedKind, spec: dict[str, Any]) -> None:
    mirror = Mirror(kind)
    mirror.put({"metadata": {"namespace": "a", "name": "odd"}, "spec": spec})
    assert not mirror.objects
    (problem,) = mirror.problems.values()
    assert "odd: cannot be read and is left out" in problem
