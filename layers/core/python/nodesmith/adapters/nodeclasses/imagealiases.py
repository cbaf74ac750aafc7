"""AMI aliases (`al2023@latest`): their SSM parameters, and each image's requirements on instance types.

EKS, Bottlerocket and Windows publish their images under these parameter paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from nodesmith.model.apimachinery.labels import ARCH, AWS_DOMAIN, OS, WINDOWS_BUILD
from nodesmith.model.apimachinery.requirements import Requirement, Requirements, requirement
from nodesmith.model.ec2.instancetypes import KUBERNETES_ARCH, WINDOWS_BUILDS
from nodesmith.model.nodeclasses.nodeclasses import version_fault
from nodesmith.model.nodeclasses.status import Unresolved

_GPU, _ACCELERATOR = f"{AWS_DOMAIN}/instance-gpu-count", f"{AWS_DOMAIN}/instance-accelerator-count"
_VARIANTS = {
    "standard": (requirement(_GPU, "DoesNotExist"), requirement(_ACCELERATOR, "DoesNotExist")),
    "nvidia": (requirement(_GPU, "Exists"),),
    "neuron": (requirement(_ACCELERATOR, "Exists"),),
}
_EKS = "/aws/service/eks/optimized-ami"
AL2_ENDED = date(2025, 11, 26)
"""The day on which EKS published its last images of Amazon Linux 2."""
_LAST_AL2, _FIRST_WINDOWS_2025 = (1, 32), (1, 35)


@dataclass(frozen=True, slots=True)
class ImageParameter:
    """An SSM parameter that holds an image id, and the sets of requirements that this image serves."""

    path: str
    serves: tuple[Requirements, ...]


def alias_parameters(alias: str, kubernetes: str) -> tuple[ImageParameter, ...]:
    """Return the parameters of an alias for a Kubernetes minor version such as `1.33`. Raises Unresolved."""
    fault = version_fault(alias)
    if fault:
        raise Unresolved("AMINotFound", fault)
    family, _, version = alias.partition("@")
    release = tuple(int(part) for part in kubernetes.split(".")[:2])
    if family == "al2" and release > _LAST_AL2:
        raise Unresolved(
            "UnsupportedAlias",
            f"alias {alias}: EKS ended AL2 on {AL2_ENDED:%d %B %Y}, and built no image for Kubernetes {kubernetes} "
            f"(the last ones are for {'.'.join(map(str, _LAST_AL2))}): use al2023@latest",
        )
    if family == "windows2025" and release < _FIRST_WINDOWS_2025:
        raise Unresolved(
            "UnsupportedAlias", f"alias {alias}: requires Kubernetes 1.35 or later, found {kubernetes}"
        )
    match family:
        case "al2023":
            return tuple(_al2023(kubernetes, version))
        case "al2":
            return tuple(_al2(kubernetes, version))
        case "bottlerocket":
            return tuple(_bottlerocket(kubernetes, version))
        case "windows2019" | "windows2022" | "windows2025":
            return (_windows(kubernetes, family.removeprefix("windows")),)
        case _:
            raise Unresolved(
                "UnsupportedAlias",
                f"alias {alias}: unknown family {family!r}: use al2023, al2, bottlerocket or windows2019/2022/2025",
            )


def _al2023(kubernetes: str, version: str) -> Iterator[ImageParameter]:
    for machine, arch in KUBERNETES_ARCH.items():
        for variant in ("standard", "nvidia", "neuron"):
            if (arch, variant) == ("arm64", "neuron"):
                continue
            pinned = f"amazon-eks-node-al2023-{machine}-{variant}-{kubernetes}-{version}"
            leaf = "recommended" if version == "latest" else pinned
            path = f"{_EKS}/{kubernetes}/amazon-linux-2023/{machine}/{variant}/{leaf}/image_id"
            yield ImageParameter(path, (_needs(arch, variant),))


def _al2(kubernetes: str, version: str) -> Iterator[ImageParameter]:
    images = (
        ("", "", "amd64", ("standard",)),
        ("-arm64", "arm64-", "arm64", ("standard",)),
        ("-gpu", "gpu-", "amd64", ("nvidia", "neuron")),
    )
    for suffix, infix, arch, variants in images:
        leaf = "recommended" if version == "latest" else f"amazon-eks-{infix}node-{kubernetes}-{version}"
        path = f"{_EKS}/{kubernetes}/amazon-linux-2{suffix}/{leaf}/image_id"
        yield ImageParameter(path, tuple(_needs(arch, variant) for variant in variants))


def _bottlerocket(kubernetes: str, version: str) -> Iterator[ImageParameter]:
    for machine, arch in KUBERNETES_ARCH.items():
        plain = ("standard", "neuron") if arch == "amd64" else ("standard",)
        for suffix, variants in (("", plain), ("-nvidia", ("nvidia",))):
            leaf = f"{machine}/{version.removeprefix('v')}/image_id"
            path = f"/aws/service/bottlerocket/aws-k8s-{kubernetes}{suffix}/{leaf}"
            yield ImageParameter(path, tuple(_needs(arch, variant) for variant in variants))


def _windows(kubernetes: str, year: str) -> ImageParameter:
    name = f"Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}"
    build = requirement(WINDOWS_BUILD, "In", [WINDOWS_BUILDS[f"Windows{year}"]])
    needs = Requirements.of(requirement(OS, "In", ["windows"]), build, arch_requirement("amd64"))
    return ImageParameter(f"/aws/service/ami-windows-latest/{name}/image_id", (needs,))


def arch_requirement(arch: str) -> Requirement:
    """Return the requirement of an architecture, given by its Kubernetes name."""
    return requirement(ARCH, "In", [arch])


def _needs(arch: str, variant: str) -> Requirements:
    return Requirements.of(arch_requirement(arch), *_VARIANTS[variant])
