"""Machine images that an EC2NodeClass's amiSelectorTerms select."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code, rows
from nodesmith.adapters.nodeclasses.imagealiases import alias_parameters, arch_requirement
from nodesmith.adapters.nodeclasses.selectedresources import tag_filters, term_text
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.instancetypes import KUBERNETES_ARCH
from nodesmith.model.nodeclasses.nodeclasses import LATEST, AMISelectorTerm
from nodesmith.model.nodeclasses.status import Image, Unresolved

_SHOWN = 3
_RELEASE = re.compile(r"-(v[0-9]+(?:\.[0-9]+\.[0-9]+)?)(?:-[0-9a-f]+)?$")
_NO_PARAMETER = frozenset({"ParameterNotFound", "ParameterVersionNotFound", "ValidationException"})


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An image and its creation date, which ranks it among images for the same instance types."""

    image: Image
    created: str


def images(
    client: Callable[[str], Any], terms: Sequence[AMISelectorTerm], kubernetes: str, now: datetime
) -> tuple[Image, ...]:
    """Return the images that any term selects, newest first, one for each set of requirements. Raises Unresolved.

    Among images with equal requirements, those not deprecated win, then the newest, then the one with the last name.
    """
    serves = _served_by_alias(client, terms, kubernetes)
    ids = {*serves, *_named_ids(client, terms)}
    described = [*_by_ids(client("ec2"), ids), *_by_filters(client("ec2"), terms)]
    best: dict[Requirements, _Candidate] = {}
    for raw in described:
        for candidate in _candidates(raw, serves, now):
            rival = best.get(candidate.image.requirements)
            if rival is None or _rank(candidate) > _rank(rival):
                best[candidate.image.requirements] = candidate
    if not best:
        raise Unresolved("AMINotFound", _no_image(client, terms, kubernetes))
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
    sorted_ids = sorted(ids)
    return _describe(ec2, Filters=[{"Name": "image-id", "Values": sorted_ids}]) if sorted_ids else iter(())


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
    parameters = {**query, "IncludeDeprecated": True, "PaginationConfig": {"PageSize": 1000}}
    return rows(ec2, "describe_images", "Images", **parameters)


def _candidates(
    raw: Mapping[str, Any], serves: Mapping[str, tuple[Requirements, ...]], now: datetime
) -> Iterator[_Candidate]:
    arch = KUBERNETES_ARCH.get(str(raw.get("Architecture", "")))
    if arch is None:
        return
    ends = raw.get("DeprecationTime")
    deprecated = bool(ends) and parse_time(str(ends)) <= now
    for requirements in serves.get(raw["ImageId"], (Requirements.of(arch_requirement(arch)),)):
        image = Image(raw["ImageId"], str(raw.get("Name", "")), requirements, deprecated)
        yield _Candidate(image, str(raw.get("CreationDate", "")))


def _rank(candidate: _Candidate) -> tuple[bool, str, str]:
    return not candidate.image.deprecated, candidate.created, candidate.image.name


def _newest_release(client: Callable[[str], Any], alias: str, kubernetes: str) -> str:
    """Return the newest version of an alias's images, empty if there is none."""
    family, _, version = alias.partition("@")
    if version == LATEST:
        return ""
    served = _served_by_alias(client, (AMISelectorTerm(alias=f"{family}@{LATEST}"),), kubernetes)
    names = (str(raw.get("Name", "")) for raw in _by_ids(client("ec2"), served))
    return max((match[1] for match in map(_RELEASE.search, names) if match), default="")


def deprecation_notice(selected: Iterable[Image]) -> str:
    """Return which of the images are deprecated, for a condition's message; empty if none is."""
    names = sorted({image.name or image.id for image in selected if image.deprecated})
    if not names:
        return ""
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return f"deprecated, and nothing newer is selected: {shown}"


def _canonical(requirements: Requirements) -> tuple[str, ...]:
    return tuple(str(requirements[key]) for key in sorted(requirements))


def _no_image(client: Callable[[str], Any], terms: Sequence[AMISelectorTerm], kubernetes: str) -> str:
    shown = "; ".join(map(term_text, terms))
    alias = next((term.alias for term in terms if term.alias), "")
    remedy = "check id, name, owner and tags, and that the image is available in this region"
    if alias:
        newest = _newest_release(client, alias, kubernetes)
        hint = f"use {newest}, the newest, or @latest" if newest else "try @latest"
        remedy = f"no such release exists for Kubernetes {kubernetes}: {hint}"
    return f"no image matches spec.amiSelectorTerms [{shown}]: {remedy}"
