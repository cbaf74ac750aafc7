"""Quotas bound what CapacityBuffers and ProvisioningRequests buy, together with what pods get."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.decisions.provisioning import decide
from nodesmith.decisions.provisioning.gangs import decide_gang
from nodesmith.model.kubernetes.pods import PodTemplate
from nodesmith.model.kubernetes.provisioningrequests import parse_request
from nodesmith.model.policies import NodeSettings, parse_cluster_limits
from tests.builders import EXPRESS, expression, inputs, nodepool_manifest, pods, shape, snapshot
from tests.objects.capacitybuffers import TEMPLATE, capacitybuffer
from tests.objects.nodeoverlays import overlay
from tests.objects.quotas import dollar_pool, quota_manifest
from tests.scenarios.gangs import request_manifest

FOUR = (*EXPRESS, expression("karpenter.k8s.aws/instance-cpu", "In", "4"))
ON_DEMAND = (*FOUR[1:], expression("karpenter.sh/capacity-type", "In", "on-demand"))
THREE_CPU = shape("3")
BUFFER = capacitybuffer(**TEMPLATE, replicas=5)
QUOTA: dict[str, Any] = {"quotas": (quota_manifest(),)}


@pytest.mark.parametrize(
    ("limits", "known"), [("nodes=3", {}), ("", QUOTA), ("cpu=12", {})], ids=["cluster", "quota", "cpu"]
)
@pytest.mark.parametrize(("waiting", "bought"), [(0, 3), (1, 3), (3, 3), (5, 3)])
def test_pods_and_the_room_of_buffers_stay_within_the_same_quota(
    limits: str, known: dict[str, Any], waiting: int, bought: int
) -> None:
    template = PodTemplate("PodTemplate", "room", THREE_CPU, 1)
    seen = snapshot(
        nodepools=(nodepool_manifest(requirements=FOUR),),
        pods=pods(THREE_CPU, waiting),
        capacitybuffers=(BUFFER,),
        podtemplates={template.key: template},
        **known,
    )
    plan = decide(inputs(snapshot=seen, settings=NodeSettings(cluster_limits=parse_cluster_limits(limits))))
    assert len(plan.nodes) == bought
    assert sum(not node.is_room for node in plan.nodes) == min(waiting, 3)


@pytest.mark.parametrize(("count", "bought"), [(3, 3), (4, 0)])
def test_a_request_gets_all_of_its_nodes_within_a_quota_or_none(count: int, bought: int) -> None:
    template = PodTemplate("PodTemplate", "job-0", THREE_CPU, 1)
    request = parse_request(request_manifest("job", count))
    seen = snapshot(
        nodepools=(nodepool_manifest(requirements=FOUR),),
        requests=(request,),
        podtemplates={template.key: template},
        **QUOTA,
    )
    decided = decide_gang(inputs(snapshot=seen), "default/job")
    assert decided is not None
    assert len(decided.nodes) == bought
    if not bought:
        assert "gold" in decided.gang.message


@pytest.mark.parametrize("price", ["0.0001", "9"])
def test_a_limit_in_dollars_compares_what_aws_charges_whatever_an_overlay_says(price: str) -> None:
    def nodes(limit: str, **known: Any) -> int:
        pool = dollar_pool(limit, requirements=ON_DEMAND)
        return len(
            decide(inputs(snapshot=snapshot(nodepools=(pool,), pods=pods(THREE_CPU, 5), **known))).nodes
        )

    plain, overlaid = nodes("0.5"), nodes("0.5", nodeoverlays=(overlay("own", price=price),))
    assert 0 < plain == overlaid < nodes("100")


@pytest.mark.parametrize(
    ("quota", "limit"),
    [
        (quota_manifest(limits={"nodes": "0"}, labels={"karpenter.sh/capacity-type": "on-demand"}), "100"),
        (quota_manifest(limits={"nodes": "9"}), "0.09"),
    ],
    ids=["no on-demand node", "dollars for one spot node"],
)
@pytest.mark.parametrize("sold", [["on-demand"], ["on-demand", "spot"]])
def test_spot_is_bought_where_a_limit_rules_out_on_demand_that_an_overlay_makes_no_dearer(
    quota: dict[str, Any], limit: str, sold: list[str]
) -> None:
    cheap = overlay("plan", [expression("karpenter.sh/capacity-type", "In", *sold)], price="0.001")
    pool = dollar_pool(limit, requirements=FOUR)
    seen = snapshot(nodepools=(pool,), pods=pods(THREE_CPU, 1), nodeoverlays=(cheap,), quotas=(quota,))

    plan = decide(inputs(snapshot=seen))

    (node,) = plan.nodes
    assert node.request.capacity_type == "spot"
    assert plan.unplaced == ()
