"""The region, zones and cluster name of a local run, derived from the zones and tags in its manifests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import ALIASES, REGION, ZONE, normalised
from nodesmith.model.nodeclasses.nodeclasses import AMISelectorTerm, EC2NodeClass, parse_nodeclass
from nodesmith.registration import CLUSTER_NAME

DEFAULT_REGION = "us-east-1"
DEFAULT_CLUSTER = "nodesmith-local"
DISCOVERY_TAG = "karpenter.sh/discovery"
USUAL_ZONES = 3
LONGEST_NAME = 64
_REGION_OF_ZONE = re.compile(r"([a-z]{2,}(?:-[a-z]+)+-\d+)(?:[a-z]|-.+)")
_NAMES = {ZONE, REGION, *(old for old, name in ALIASES.items() if name in {ZONE, REGION})}
"""Labels of zones and regions"""
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def region_of(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Return the region whose zones the manifests name, us-east-1 if they name none.

    Preferences of pods count only if nothing else names a zone and they all name one region. Raises Rejected if the
    manifests name zones of several regions, since a cluster lives in one.
    """
    labels, preferences = list[tuple[str, str]](), list[tuple[str, str]]()
    for manifest in manifests:
        _collect(manifest, labels, preferences)
    regions = _regions(labels)
    if len(regions) > 1:
        zones = ", ".join(regions[region] for region in sorted(regions))
        raise Rejected(
            f"the manifests name zones of {len(regions)} regions ({zones}): choose one with --region"
        )
    preferred = regions or _regions(preferences)
    return next(iter(preferred)) if len(preferred) == 1 else DEFAULT_REGION


def _regions(labels: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the regions that labels name, each with the first value that names it."""
    regions: dict[str, str] = {}
    for name, value in labels:
        if name not in _NAMES:
            continue
        key = normalised(name)
        match = _REGION_OF_ZONE.fullmatch(value) if key == ZONE else None
        if match or key == REGION:
            regions.setdefault(match.group(1) if match else value, value)
    return regions


def zones_of(manifests: Iterable[Mapping[str, Any]], region: str, sold_in: Iterable[str]) -> tuple[str, ...]:
    """Return the zones in which the cluster has subnets: three as usual, and those that the manifests name.

    `sold_in` are the region's zones.
    """
    region_zones = sorted(sold_in)
    named_zones = {
        value for manifest in manifests for key, value in _labels(manifest) if normalised(key) == ZONE
    }
    return tuple(
        zone
        for zone in region_zones
        if zone in named_zones or zone in _usual_zones(region_zones, named_zones, region)
    )


def _usual_zones(region_zones: list[str], named_zones: set[str], region: str) -> list[str]:
    """Return three zones: those that are named first, then the region's own before local zones (us-west-2-lax-1a)."""
    ordered = sorted(
        region_zones, key=lambda zone: (zone not in named_zones, len(zone) > len(region) + 1, zone)
    )
    return ordered[:USUAL_ZONES]


def cluster_of(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Return the cluster name by which EC2NodeClasses select subnets and groups (`karpenter.sh/discovery`).

    The local network carries that tag, so that manifests of a real cluster find it. Return the default name if the
    manifests name none, or if it is among them.
    """
    nodeclasses = [m for m in manifests if m.get("kind") in {"EC2NodeClass", "AWSNodeTemplate"}]
    names = Counter(
        value
        for nodeclass in nodeclasses
        for key, value in _labels(nodeclass.get("spec"))
        if key == DISCOVERY_TAG and CLUSTER_NAME.fullmatch(value)
    )
    if not names or DEFAULT_CLUSTER in names:
        return DEFAULT_CLUSTER
    return names.most_common(1)[0][0]


def numbered(name: str, number: int) -> str:
    """Return the name of the `number`th of several things: `web`, `web-2`, `web-3`.

    A suffixed name is shortened to the maximum length of cluster names.
    """
    return name if number == 1 else f"{name[: LONGEST_NAME - 2]}-{number}"


def selected_tags(nodeclasses: Iterable[Mapping[str, Any]]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the tags by which EC2NodeClasses select subnets, and those for security groups, first values only.

    The local network also gets these tags, with `x` for each wildcard. The cluster's name comes from `cluster_of`
    instead, and tags with an unfilled `${VARIABLE}` are ignored.
    """
    parsed = _parsed(nodeclasses)
    subnets = [term.tags for nodeclass in parsed for term in nodeclass.subnet_selector_terms]
    groups = [term.tags for nodeclass in parsed for term in nodeclass.security_group_selector_terms]
    return _first_values(subnets), _first_values(groups)


def selected_images(nodeclasses: Iterable[Mapping[str, Any]]) -> list[AMISelectorTerm]:
    """Return the terms by which EC2NodeClasses select images."""
    return [term for nodeclass in _parsed(nodeclasses) for term in nodeclass.ami_selector_terms]


def _parsed(manifests: Iterable[Mapping[str, Any]]) -> list[EC2NodeClass]:
    """Return the EC2NodeClasses that can be parsed."""
    return [nodeclass for manifest in manifests if (nodeclass := parse_nodeclass(manifest).value)]


def _first_values(selected: Iterable[Mapping[str, str]]) -> dict[str, str]:
    first_values: dict[str, str] = {}
    for key, value in (pair for tags in selected for pair in tags.items()):
        if key != DISCOVERY_TAG and "${" not in value:
            first_values.setdefault(key, re.sub("[*?]", "x", value))
    return first_values


def _labels(value: Any) -> list[tuple[str, str]]:
    """Return every pair of key and text in a manifest: map entries, and keys with values of label expressions."""
    pairs: list[tuple[str, str]] = []
    _collect(value, pairs, pairs)
    return pairs


def _collect(value: Any, pairs: list[tuple[str, str]], preferred: list[tuple[str, str]]) -> None:
    """Add the pairs of key and text in `value` to `pairs`, those of preferences to `preferred`."""
    if isinstance(value, dict):
        key, values = value.get("key"), value.get("values")
        if isinstance(key, str) and isinstance(values, list):
            pairs += [(key, text) for text in values if isinstance(text, str)]
        for name, inner in value.items():
            if isinstance(inner, str):
                pairs.append((str(name), inner))
            elif isinstance(inner, dict | list):
                _collect(inner, preferred if name == _PREFERRED else pairs, preferred)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, pairs, preferred)
