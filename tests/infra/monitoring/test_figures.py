"""The size of the deployment: small for a region, and nothing billed per cluster."""

from __future__ import annotations

import json

from tests.infra.figures import Figures, billed, counted
from tests.infra.templates import Template

MOST_OF_A_REGION, MOST_OF_A_CLUSTER = 91, 9


def test_a_region_without_vpcs_has_at_most_the_counted_resources(plain: Template) -> None:
    assert len(plain.resources) <= MOST_OF_A_REGION <= 95


def test_a_cluster_has_few_resources_and_none_that_is_billed(alpha: Template, beta: Template) -> None:
    for template in (alpha, beta):
        assert len(template.resources) <= MOST_OF_A_CLUSTER <= 12
        assert billed(template) == []


def test_a_parameter_of_the_advanced_tier_is_billed_and_so_is_a_queue(
    alpha: Template, plain: Template
) -> None:
    raw = json.loads(alpha.text)
    raw["Resources"]["Registration"]["Properties"]["Tier"] = "Advanced"
    assert billed(Template.parse(json.dumps(raw))) == ["Registration"]
    queues = {id_ for id_, each in plain.resources.items() if each["Type"] == "AWS::SQS::Queue"}
    assert len(queues) == 2
    assert queues <= set(billed(plain))


def test_the_figures_match_the_templates(plain: Template, region: Template, alpha: Template) -> None:
    assert counted(plain, region, alpha) == Figures(
        region_resources=len(plain.resources),
        region_alarms=len(plain.of_type("CloudWatch::Alarm")),
        cluster_resources=len(alpha.resources),
        cluster_billed=0,
        isolation_violations=0,
    )
