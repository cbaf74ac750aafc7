"""Which of a family's images each instance type boots, by the requirements that aliases give to images."""

from __future__ import annotations

from functools import lru_cache

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.nodeclasses.imagealiases import alias_parameters
from nodesmith.model.ec2.instancetypes import InstanceType, image_for, instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.nodeclasses.status import Image
from nodesmith.model.schema.fields import ALIAS_FAMILIES

EKS = "/aws/service/eks/optimized-ami"
BOTTLEROCKET = "/aws/service/bottlerocket/aws-k8s"


@lru_cache(maxsize=8)
def types(family: str) -> dict[str, InstanceType]:
    return {t.name: t for t in instance_types(embedded_catalog(), NodeConfiguration(family))}


def booted(alias: str, instance_type: str, kubernetes: str) -> str:
    """Return the path of the parameter whose image a type boots, empty if none boots."""
    images = [
        Image(parameter.path, requirements=needs)
        for parameter in alias_parameters(alias, kubernetes)
        for needs in parameter.serves
    ]
    found = image_for(types(ALIAS_FAMILIES[alias.partition("@")[0]])[instance_type], images)
    return found.id if found else ""


@pytest.mark.parametrize(
    ("alias", "instance_type", "path"),
    [
        ("al2023@latest", "m5.large", f"{EKS}/1.32/amazon-linux-2023/x86_64/standard"),
        ("al2023@latest", "m6g.large", f"{EKS}/1.32/amazon-linux-2023/arm64/standard"),
        ("al2023@latest", "g5.xlarge", f"{EKS}/1.32/amazon-linux-2023/x86_64/nvidia"),
        ("al2023@latest", "g5g.xlarge", f"{EKS}/1.32/amazon-linux-2023/arm64/nvidia"),
        ("al2023@latest", "inf2.xlarge", f"{EKS}/1.32/amazon-linux-2023/x86_64/neuron"),
        ("al2023@latest", "trn1.2xlarge", f"{EKS}/1.32/amazon-linux-2023/x86_64/neuron"),
        ("al2@latest", "m5.large", f"{EKS}/1.32/amazon-linux-2/"),
        ("al2@latest", "m6g.large", f"{EKS}/1.32/amazon-linux-2-arm64/"),
        ("al2@latest", "g5.xlarge", f"{EKS}/1.32/amazon-linux-2-gpu/"),
        ("al2@latest", "inf2.xlarge", f"{EKS}/1.32/amazon-linux-2-gpu/"),
        ("al2@latest", "g5g.xlarge", ""),
        ("bottlerocket@latest", "m5.large", f"{BOTTLEROCKET}-1.32/x86_64"),
        ("bottlerocket@latest", "m6g.large", f"{BOTTLEROCKET}-1.32/arm64"),
        ("bottlerocket@latest", "g5.xlarge", f"{BOTTLEROCKET}-1.32-nvidia/x86_64"),
        ("bottlerocket@latest", "g5g.xlarge", f"{BOTTLEROCKET}-1.32-nvidia/arm64"),
        ("bottlerocket@latest", "inf2.xlarge", f"{BOTTLEROCKET}-1.32/x86_64"),
        ("windows2022@latest", "m5.large", "/aws/service/ami-windows-latest/Windows_Server-2022"),
        ("windows2022@latest", "g5.xlarge", "/aws/service/ami-windows-latest/Windows_Server-2022"),
        ("windows2019@latest", "m6g.large", ""),
    ],
)
def test_a_type_boots_the_image_with_its_architecture_and_drivers(
    alias: str, instance_type: str, path: str
) -> None:
    found = booted(alias, instance_type, "1.32")
    assert found.startswith(path)
    assert bool(found) == bool(path)


@pytest.mark.parametrize("alias", ["al2023@latest", "bottlerocket@latest", "windows2025@latest"])
def test_every_type_that_a_family_runs_on_has_at_most_one_image(alias: str) -> None:
    """Images of one alias exclude each other, so their order never matters."""
    needs = [n for parameter in alias_parameters(alias, "1.35") for n in parameter.serves]
    for kind in types(ALIAS_FAMILIES[alias.partition("@")[0]]).values():
        fitting = [each for each in needs if kind.requirements.conflict(each) is None]
        assert len(fitting) <= 1, kind.name
