"""The SSM parameters under which EKS, Bottlerocket and Windows publish their images."""

from __future__ import annotations

import pytest

from nodesmith.adapters.nodeclasses.imagealiases import alias_parameters
from nodesmith.model.nodeclasses.status import Unresolved

EKS = "/aws/service/eks/optimized-ami/1.32"


def paths(alias: str, kubernetes: str = "1.32") -> list[str]:
    return [parameter.path for parameter in alias_parameters(alias, kubernetes)]


def test_al2023_has_five_images_and_the_newest_are_recommended() -> None:
    assert paths("al2023@latest") == [
        f"{EKS}/amazon-linux-2023/x86_64/standard/recommended/image_id",
        f"{EKS}/amazon-linux-2023/x86_64/nvidia/recommended/image_id",
        f"{EKS}/amazon-linux-2023/x86_64/neuron/recommended/image_id",
        f"{EKS}/amazon-linux-2023/arm64/standard/recommended/image_id",
        f"{EKS}/amazon-linux-2023/arm64/nvidia/recommended/image_id",
    ]


def test_a_pinned_release_has_its_own_parameter() -> None:
    name = "amazon-eks-node-al2023-arm64-standard-1.32-v20240807"
    assert f"{EKS}/amazon-linux-2023/arm64/standard/{name}/image_id" in paths("al2023@v20240807")
    assert f"{EKS}/amazon-linux-2-arm64/amazon-eks-arm64-node-1.32-v20240807/image_id" in paths(
        "al2@v20240807"
    )


def test_bottlerocket_drops_the_v_of_a_version() -> None:
    assert paths("bottlerocket@v1.50.0") == [
        "/aws/service/bottlerocket/aws-k8s-1.32/x86_64/1.50.0/image_id",
        "/aws/service/bottlerocket/aws-k8s-1.32-nvidia/x86_64/1.50.0/image_id",
        "/aws/service/bottlerocket/aws-k8s-1.32/arm64/1.50.0/image_id",
        "/aws/service/bottlerocket/aws-k8s-1.32-nvidia/arm64/1.50.0/image_id",
    ]


def test_a_windows_image_requires_the_build_of_its_year() -> None:
    (parameter,) = alias_parameters("windows2022@latest", "1.32")
    name = "Windows_Server-2022-English-Core-EKS_Optimized-1.32"
    assert parameter.path == f"/aws/service/ami-windows-latest/{name}/image_id"
    assert parameter.serves[0]["node.kubernetes.io/windows-build"].values == {"10.0.20348"}


@pytest.mark.parametrize(
    ("alias", "kubernetes", "said"),
    [
        (
            "al2@latest",
            "1.33",
            r"26 November 2025.* Kubernetes 1.33 \(the last ones are for 1.32\): use al2023@latest",
        ),
        ("windows2025@latest", "1.34", "1.35"),
        ("ubuntu@latest", "1.33", "unknown family 'ubuntu'"),
    ],
)
def test_an_alias_without_an_image_is_refused_with_the_reason(alias: str, kubernetes: str, said: str) -> None:
    with pytest.raises(Unresolved, match=said) as caught:
        alias_parameters(alias, kubernetes)
    assert caught.value.reason == "UnsupportedAlias"


def test_images_without_accelerator_drivers_exclude_types_with_accelerators() -> None:
    standard, nvidia, neuron = (p.serves[0] for p in alias_parameters("al2023@latest", "1.33")[:3])
    gpu, accelerator = "karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-accelerator-count"
    assert standard[gpu].is_empty
    assert standard[accelerator].is_empty
    assert nvidia[gpu].allows("8")
    assert neuron[accelerator].allows("16")


@pytest.mark.parametrize(
    ("alias", "example"),
    [
        ("al2023@20250821", "v20250821"),
        ("al2023@vfoo", "v20250821"),
        ("al2023@v20251340", "v20250821"),
        ("al2023@v2025082", "v20250821"),
        ("al2023@v\u0662\u0660250821", "v20250821"),
        ("al2@v1.2.3", "v20250821"),
        ("bottlerocket@v20250821", "v1.50.0"),
    ],
)
def test_a_version_that_no_image_can_have_is_refused_with_an_example(alias: str, example: str) -> None:
    with pytest.raises(Unresolved, match=f"use latest or .* {example}") as caught:
        alias_parameters(alias, "1.32")
    assert caught.value.reason == "AMINotFound"
    assert repr(alias.partition("@")[2]) in caught.value.message


@pytest.mark.parametrize(
    "alias",
    [
        "al2023@v20250821",
        "al2@v20240229",
        "bottlerocket@1.20.3",
        "bottlerocket@v1.20.3-5d9ac849",
        "al2023@latest",
    ],
)
def test_any_valid_version_is_looked_up(alias: str) -> None:
    assert alias_parameters(alias, "1.32")
