"""Figures of the deployment: the number of resources, those that cost money, and violations of isolation."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.infra.deployment import (
    CLUSTERS,
    PLAIN_REGION,
    REGION,
    REGIONS,
    code_on_empty_layers,
    synthesise,
)
from tests.infra.isolation import violations
from tests.infra.templates import Template

UNBILLED = frozenset({"AWS::EKS::AccessEntry", "AWS::EKS::PodIdentityAssociation", "AWS::SSM::Parameter"})
"""What AWS does not charge for; of parameters, only those of the standard tier."""
_ALARM = "AWS::CloudWatch::Alarm"


@dataclass(frozen=True, slots=True)
class Figures:
    """`region_resources` and `region_alarms`, which are among them, count a region without VPCs."""

    region_resources: int
    region_alarms: int
    cluster_resources: int
    cluster_billed: int
    isolation_violations: int


def billed(template: Template) -> list[str]:
    """Return the logical ids of the resources that may cost something."""
    return [
        id_
        for id_, each in template.resources.items()
        if each["Type"] not in UNBILLED or each["Properties"].get("Tier", "Standard") != "Standard"
    ]


def figures() -> Figures:
    """Synthesise the tests' deployment, which takes some seconds, and count."""
    with tempfile.TemporaryDirectory() as folder:
        code = code_on_empty_layers(Path(folder) / "layers")
        output = synthesise(code, CLUSTERS, Path(folder) / "cdk.out", REGIONS)
        plain, region, cluster = (
            Template.read(output / f"nodesmith-{name}.template.json")
            for name in (PLAIN_REGION, REGION, f"{REGION}-alpha")
        )
    return counted(plain, region, cluster)


def counted(plain: Template, region: Template, cluster: Template) -> Figures:
    """Count in the templates of a plain region, of one with every option set, and of a cluster."""
    kinds = Counter(each["Type"] for each in plain.resources.values())
    return Figures(
        region_resources=kinds.total(),
        region_alarms=kinds[_ALARM],
        cluster_resources=len(cluster.resources),
        cluster_billed=len(billed(cluster)),
        isolation_violations=len(violations(region)),
    )
