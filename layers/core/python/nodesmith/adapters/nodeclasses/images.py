"""Machine images that an EC2NodeClass's amiSelectorTerms select, by id, name, tags, SSM parameter or alias.

An alias (`al2023@latest`) stands for the SSM parameters under which EKS, Bottlerocket and Windows publish their images,
and for each image's requirements on instance types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code, rows
from nodesmith.adapters.nodeclasses.selectedresources import tag_filters, term_text
from nodesmith.model.apimachinery.labels import ARCH, AWS_DOMAIN, OS, WINDOWS_BUILD
from nodesmith.model.apimachinery.requirements import Requirement, Requirements, requirement
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.instancetypes import KUBERNETES_ARCH, WINDOWS_BUILDS
from nodesmith.model.nodeclasses.nodeclasses import LATEST, AMISelectorTerm, version_fault
from nodesmith.model.nodeclasses.status import Image, Unresolved

_SHOWN = 3
_RELEASE = re.compile(r"-(v[0-9]+(?:\.[0-9]+\.[0-9]+)?)(?:-[0-9a-f]+)?$")
_NO_PARAMETER = frozenset({"ParameterNotFound", "ParameterVersionNotFound", "ValidationException"})


@dataclass(frozen=True, slots=True)
class _Found:
    """An image with the creation date that ranks it among images for the same instance types."""

    image: Image
    created: str


def images(
    client: Callable[[str], Any], terms: Sequence[AMISelectorTerm], kubernetes: str, now: datetime
) -> tuple[Image, ...]:
    """Return the images that any term selects, newest first, one for each set of requirements. Raises Unresolved.

    Among images with equal requirements, one that is not deprecated wins, then the newest, then the greatest name.
    """
    serves = _served_by_alias(client, terms, kubernetes)
    ids = {*serves, *_named_ids(client, terms)}
    described = [*_by_ids(client("ec2"), ids), *_by_filters(client("ec2"), terms)]
    best: dict[Requirements, _Found] = {}
    for raw in described:
        for found in _found(raw, serves, now):
            rival = best.get(found.image.requirements)
            if rival is None or _worth(found) > _worth(rival):
                best[found.image.requirements] = found
    if not best:
        raise Unresolved("AMINotFound", _nothing_found(client, terms, kubernetes))
    by_id = sorted(best.values(), key=lambda f: (f.image.id, _canonical(f.image.requirements)))
    return tuple(f.image for f in sorted(by_id, key=lambda f: f.created, reverse=True))


def _served_by_alias(
    client: Callable[[str], Any], terms: Iterable[AMISelectorTerm], kubernetes: str
) -> dict[str, tuple[Requirements, ...]]:
    served: dict[str, tuple[Requirements, ...]] = {}
    for term in terms:
        for parameter in alias_parameters(term.alias, kubernetes) if term.alias else ():
            image_id = _parameter(client, parameter.path)
            if image_id:
                served[image_id] = (*served.get(image_id, ()), *parameter.serves)
    return served


def _named_ids(client: Callable[[str], Any], terms: Iterable[AMISelectorTerm]) -> Iterator[str]:
    for term in terms:
        if term.id:
            yield term.id
        elif term.ssm_parameter:
            value = _parameter(client, term.ssm_parameter)
            if value.startswith("ami-"):
                yield value


def _parameter(client: Callable[[str], Any], name: str) -> str:
    """Return a parameter's value, or an empty string if it does not exist. The condition then names the term."""
    try:
        return str(client("ssm").get_parameter(Name=name)["Parameter"]["Value"])
    except ClientError as error:
        if error_code(error) in _NO_PARAMETER:
            return ""
        raise


def _by_ids(ec2: Any, ids: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    wanted = sorted(ids)
    return _describe(ec2, Filters=[{"Name": "image-id", "Values": wanted}]) if wanted else iter(())


def _by_filters(ec2: Any, terms: Iterable[AMISelectorTerm]) -> Iterator[Mapping[str, Any]]:
    for term in terms:
        if term.id or term.alias or term.ssm_parameter:
            continue
        filters = tag_filters(term.tags)
        owners = [term.owner] if term.owner else []
        if term.name:
            filters.append({"Name": "name", "Values": [term.name]})
            owners = owners or ["self", "amazon"]
        yield from _describe(ec2, Filters=filters, **({"Owners": owners} if owners else {}))


def _describe(ec2: Any, **query: Any) -> Iterator[Mapping[str, Any]]:
    query["Filters"] = [*query["Filters"], {"Name": "state", "Values": ["available"]}]
    asked = {**query, "IncludeDeprecated": True, "PaginationConfig": {"PageSize": 1000}}
    return rows(ec2, "describe_images", "Images", **asked)


def _found(
    raw: Mapping[str, Any], serves: Mapping[str, tuple[Requirements, ...]], now: datetime
) -> Iterator[_Found]:
    arch = KUBERNETES_ARCH.get(str(raw.get("Architecture", "")))
    if arch is None:
        return
    ends = raw.get("DeprecationTime")
    deprecated = bool(ends) and parse_time(str(ends)) <= now
    for needs in serves.get(raw["ImageId"], (Requirements.of(arch_requirement(arch)),)):
        image = Image(raw["ImageId"], str(raw.get("Name", "")), needs, deprecated)
        yield _Found(image, str(raw.get("CreationDate", "")))


def _worth(found: _Found) -> tuple[bool, str, str]:
    return not found.image.deprecated, found.created, found.image.name


def _newest_release(client: Callable[[str], Any], alias: str, kubernetes: str) -> str:
    """Return the newest version of an alias's images, empty if there is none."""
    family, _, version = alias.partition("@")
    if version == LATEST:
        return ""
    served = _served_by_alias(client, (AMISelectorTerm(alias=f"{family}@{LATEST}"),), kubernetes)
    names = (str(raw.get("Name", "")) for raw in _by_ids(client("ec2"), served))
    return max((found[1] for found in map(_RELEASE.search, names) if found), default="")


def deprecation_notice(found: Iterable[Image]) -> str:
    """Return which of the images are deprecated, for a condition's message; empty if none is."""
    names = sorted({image.name or image.id for image in found if image.deprecated})
    if not names:
        return ""
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return f"deprecated, and nothing newer is selected: {shown}"


def _canonical(requirements: Requirements) -> tuple[str, ...]:
    return tuple(str(requirements[key]) for key in sorted(requirements))


def _nothing_found(client: Callable[[str], Any], terms: Sequence[AMISelectorTerm], kubernetes: str) -> str:
    shown = "; ".join(map(term_text, terms))
    alias = next((term.alias for term in terms if term.alias), "")
    remedy = "check id, name, owner and tags, and that the image is available in this region"
    if alias:
        newest = _newest_release(client, alias, kubernetes)
        hint = f"use {newest}, the newest, or @latest" if newest else "try @latest"
        remedy = f"no such release exists for Kubernetes {kubernetes}: {hint}"
    return f"no image matches spec.amiSelectorTerms [{shown}]: {remedy}"


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
    """An SSM parameter that holds an image id, with the requirement sets that this image serves."""

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
