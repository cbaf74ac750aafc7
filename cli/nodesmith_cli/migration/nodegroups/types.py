"""The instance types and capacity types of groups as requirements of a NodePool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from nodesmith.model.apimachinery.labels import (
    AWS_DOMAIN,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    RESERVED,
    SPOT,
)
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts
from nodesmith_cli.migration.nodegroups.fields import Account, Path
from nodesmith_cli.migration.nodegroups.groups import NODEGROUP, SCALING_GROUP, TEMPLATE

Requirement = dict[str, Any]
_MIXED = (SCALING_GROUP, "MixedInstancesPolicy")
_DISTRIBUTION = (*_MIXED, "InstancesDistribution")
_OVERRIDES = (*_MIXED, "LaunchTemplate", "Overrides")
_GROUPS_DEFAULT = "t3.medium"
"""The type of a managed node group that names none."""
_BY_PRICE = (
    "nodesmith buys what is cheapest, and of spot capacity also what is least likely to be interrupted"
)
_OLD_GENERATION = "2"
_MAKERS = {"intel": "intel", "amd": "amd", "amazon-web-services": "aws", "apple": "apple"}
_NO_LABEL = "no label of nodes says this"


def allows(key: str, *values: str, operator: str = "In") -> Requirement:
    """Return a requirement."""
    return {"key": key, "operator": operator, "values": list(values)}


def type_requirements(account: Account, catalog: Catalog) -> tuple[list[Requirement], str]:
    """Return the requirements of instance types, and the reason why there is no type that nodesmith knows, or ""."""
    attributes = _attributes(account)
    if attributes is not None:
        path, wanted = attributes
        return list(_of_attributes(path, wanted, account, catalog)), ""
    paths = [
        (path, names)
        for path, names in (
            ((NODEGROUP, "instanceTypes"), account.get(NODEGROUP, "instanceTypes")),
            (_OVERRIDES, _of_overrides(account)),
            ((TEMPLATE, "InstanceType"), account.get(TEMPLATE, "InstanceType")),
        )
        if names
    ]
    path, names = paths[0] if paths else ((), [_GROUPS_DEFAULT])
    listed = [names] if isinstance(names, str) else list(names)
    catalog_types = [name for name in dict.fromkeys(listed) if name in catalog.facts]
    unknown = [name for name in dict.fromkeys(listed) if name not in catalog.facts]
    _report_types(account, path, catalog_types, unknown, catalog)
    for other, _ in paths[1:]:
        account.lost(other, "other fields of the group name the types: nothing to do", is_quiet=True)
    if not catalog_types:
        return [], f"nodesmith's catalogue of {catalog.region} has no instance type {', '.join(unknown)}"
    return [allows(INSTANCE_TYPE, *catalog_types)], ""


def _report_types(
    account: Account, path: Path, catalog_types: list[str], unknown: list[str], catalog: Catalog
) -> None:
    became = f"NodePool requirement {INSTANCE_TYPE} In {', '.join(catalog_types)}"
    notes = [f"unknown type {name}{did_you_mean(name, catalog.facts)} is left out" for name in unknown]
    if path == _OVERRIDES:
        notes += _override_notes(account)
    if notes:
        account.changed(path, became, "; ".join(notes))
    else:
        account.record_kept(path, became)


def _of_overrides(account: Account) -> list[str]:
    """Return the types of overrides, except those with a template or image of their own, if others are left."""
    overrides = account.get(*_OVERRIDES) or []
    plain = [override for override in overrides if not _has_own_template(override)]
    return [override["InstanceType"] for override in plain or overrides if override.get("InstanceType")]


def _has_own_template(override: Mapping[str, Any]) -> bool:
    return bool(override.get("LaunchTemplateSpecification") or override.get("ImageId"))


def _override_notes(account: Account) -> Iterator[str]:
    overrides = account.get(*_OVERRIDES) or []
    if any(override.get("WeightedCapacity") not in (None, "1") for override in overrides):
        yield "weights have no equal, since nodesmith counts what pods request"
    own = [str(override.get("InstanceType")) for override in overrides if _has_own_template(override)]
    if own:
        yield f"types with a launch template or image of their own need another NodePool: {', '.join(own)}"


def _attributes(account: Account) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the attributes that select instance types, with their path: those of the first override that has any."""
    for override in account.get(*_OVERRIDES) or []:
        if override.get("InstanceRequirements"):
            return _OVERRIDES, override["InstanceRequirements"]
    wanted = account.get(TEMPLATE, "InstanceRequirements")
    return ((TEMPLATE, "InstanceRequirements"), wanted) if wanted else None


def _of_attributes(
    path: Path, wanted: Mapping[str, Any], account: Account, catalog: Catalog
) -> Iterator[Requirement]:
    """Yield the requirements of attributes. They are reported as one field, with the attributes that have no label."""
    lost: list[str] = []
    yield from _ranges(wanted)
    if makers := wanted.get("CpuManufacturers"):
        yield allows(f"{AWS_DOMAIN}/instance-cpu-manufacturer", *(_MAKERS.get(m, m) for m in makers))
    if "current" in (generations := wanted.get("InstanceGenerations") or ()) and len(generations) == 1:
        yield allows(f"{AWS_DOMAIN}/instance-generation", _OLD_GENERATION, operator="Gt")
        lost.append(f"current generations are those above {_OLD_GENERATION}")
    yield from _choices(wanted)
    yield from _named_types(wanted, catalog, lost)
    yield from _accelerators(wanted, lost)
    if wanted.get("MemoryGiBPerVCpu"):
        families = sorted(_families_of_ratio(wanted, catalog))
        if families:
            yield allows(f"{AWS_DOMAIN}/instance-family", *families)
        lost.append("MemoryGiBPerVCpu became the families with that ratio")
    lost += [
        f"{name}: {_NO_LABEL}" for name, value in sorted(wanted.items()) if value and name not in _LABELLED
    ]
    lost += [
        f"{name}: {_BY_PRICE}"
        for name in sorted(wanted)
        if "PricePercentage" in name or "AsPercentage" in name
    ]
    if path == _OVERRIDES and len(account.get(*_OVERRIDES) or []) > 1:
        lost.append("only the first override's attributes are used: write another NodePool for the others")
    became = "NodePool requirements"
    if lost:
        account.changed(path, became, "; ".join(lost))
    else:
        account.record_kept(path, became)


_RANGES = {
    "VCpuCount": ("instance-cpu", 1),
    "MemoryMiB": ("instance-memory", 1),
    "BaselineEbsBandwidthMbps": ("instance-ebs-bandwidth", 1),
    "NetworkBandwidthGbps": ("instance-network-bandwidth", 1000),
    "TotalLocalStorageGB": ("instance-local-nvme", 1),
}
"""Attribute → the label with the same meaning, and how many of the label's units are one of the attribute's."""


_LABELLED = frozenset(
    "CpuManufacturers InstanceGenerations BareMetal BurstablePerformance LocalStorage AllowedInstanceTypes "
    "ExcludedInstanceTypes AcceleratorTypes AcceleratorCount AcceleratorNames AcceleratorManufacturers "
    "MemoryGiBPerVCpu RequireEncryptionInTransit SpotMaxPricePercentageOverLowestPrice "
    "OnDemandMaxPricePercentageOverLowestPrice MaxSpotPriceAsPercentageOfOptimalOnDemandPrice".split()
) | set(_RANGES)
"""The attributes that become requirements, or that are reported on their own."""


def _ranges(wanted: Mapping[str, Any]) -> Iterator[Requirement]:
    for name, (label, factor) in _RANGES.items():
        bounds = wanted.get(name) or {}
        low, high = bounds.get("Min"), bounds.get("Max")
        if low:
            yield allows(f"{AWS_DOMAIN}/{label}", str(int(low * factor)), operator="Gte")
        if high is not None:
            yield allows(f"{AWS_DOMAIN}/{label}", str(int(high * factor)), operator="Lte")


def _choices(wanted: Mapping[str, Any]) -> Iterator[Requirement]:
    """Yield requirements for attributes that are excluded, included or required. EC2's defaults apply."""
    match wanted.get("BareMetal", "excluded"):
        case "excluded":
            yield allows(f"{AWS_DOMAIN}/instance-hypervisor", "nitro", "xen")
        case "required":
            yield allows(f"{AWS_DOMAIN}/instance-hypervisor", "nitro", "xen", operator="NotIn")
    match wanted.get("BurstablePerformance", "excluded"):
        case "excluded":
            yield allows(f"{AWS_DOMAIN}/instance-category", "t", operator="NotIn")
        case "required":
            yield allows(f"{AWS_DOMAIN}/instance-category", "t")
    match wanted.get("LocalStorage", "included"):
        case "required" if not (wanted.get("TotalLocalStorageGB") or {}).get("Min"):
            yield allows(f"{AWS_DOMAIN}/instance-local-nvme", "0", operator="Gt")
        case "excluded":
            yield {"key": f"{AWS_DOMAIN}/instance-local-nvme", "operator": "DoesNotExist"}
    if wanted.get("RequireEncryptionInTransit"):
        yield allows(f"{AWS_DOMAIN}/instance-encryption-in-transit-supported", "true")


def _named_types(wanted: Mapping[str, Any], catalog: Catalog, lost: list[str]) -> Iterator[Requirement]:
    """Yield requirements for types that are allowed or excluded by name, with wildcards."""
    for attribute, operator in (("AllowedInstanceTypes", "In"), ("ExcludedInstanceTypes", "NotIn")):
        patterns = wanted.get(attribute) or ()
        matching = sorted(
            name for name in catalog.facts if any(fnmatchcase(name, pattern) for pattern in patterns)
        )
        if matching:
            yield allows(INSTANCE_TYPE, *matching, operator=operator)
        unmatched = [
            pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in catalog.facts)
        ]
        if unmatched:
            lost.append(f"{attribute}: no known type is {', '.join(unmatched)}")


def _accelerators(wanted: Mapping[str, Any], lost: list[str]) -> Iterator[Requirement]:
    count = wanted.get("AcceleratorCount") or {}
    kinds = wanted.get("AcceleratorTypes") or ()
    label = "instance-accelerator" if tuple(kinds) == ("inference",) else "instance-gpu"
    if count.get("Max") == 0 or (not count and not kinds and not wanted.get("AcceleratorNames")):
        yield {"key": f"{AWS_DOMAIN}/instance-gpu-count", "operator": "DoesNotExist"}
        yield {"key": f"{AWS_DOMAIN}/instance-accelerator-count", "operator": "DoesNotExist"}
        return
    yield allows(f"{AWS_DOMAIN}/{label}-count", str(count.get("Min") or 1), operator="Gte")
    if count.get("Max") is not None:
        yield allows(f"{AWS_DOMAIN}/{label}-count", str(count["Max"]), operator="Lte")
    if names := wanted.get("AcceleratorNames"):
        yield allows(f"{AWS_DOMAIN}/{label}-name", *names)
    if makers := wanted.get("AcceleratorManufacturers"):
        yield allows(f"{AWS_DOMAIN}/{label}-manufacturer", *(_MAKERS_OF_GPUS.get(m, m) for m in makers))
    if "fpga" in kinds:
        lost.append(f"fpga: {_NO_LABEL}")


_MAKERS_OF_GPUS = {"amazon-web-services": "aws"}


def _families_of_ratio(wanted: Mapping[str, Any], catalog: Catalog) -> Iterator[str]:
    """Yield the families in which all types of the wanted sizes have GiB of memory per vCPU within the bounds."""
    ratios: dict[str, list[float]] = {}
    for name, facts in catalog.facts.items():
        if isinstance(facts, InstanceFacts) and facts.vcpus and _has_size(wanted, facts):
            ratios.setdefault(name.partition(".")[0], []).append(facts.memory_mib / 1024 / facts.vcpus)
    return (
        family
        for family, ratio in ratios.items()
        if all(_within(wanted["MemoryGiBPerVCpu"], r) for r in ratio)
    )


def _has_size(wanted: Mapping[str, Any], facts: InstanceFacts) -> bool:
    return _within(wanted.get("VCpuCount") or {}, facts.vcpus) and _within(
        wanted.get("MemoryMiB") or {}, facts.memory_mib
    )


def _within(bounds: Mapping[str, Any], value: float) -> bool:
    most = bounds.get("Max")
    return (bounds.get("Min") or 0) <= value and (most is None or value <= most)


def capacity_types(account: Account) -> list[str]:
    """Return the capacity types of a group, and account for everything that decides between them."""
    unique_types = list(dict.fromkeys(_capacity_types(account)))
    became = f"NodePool requirement {CAPACITY_TYPE} In {', '.join(unique_types)}"
    account.record_kept((NODEGROUP, "capacityType"), became)
    account.record_kept((TEMPLATE, "InstanceMarketOptions", "MarketType"), became)
    account.lost((TEMPLATE, "InstanceMarketOptions", "SpotOptions", "MaxPrice"), _MAX_PRICE)
    account.lost(
        (TEMPLATE, "InstanceMarketOptions", "SpotOptions"),
        "nodesmith requests spot instances that terminate when interrupted",
    )
    _distribution(account, became)
    return unique_types


_MAX_PRICE = "limit what the NodePool costs by the annotation nodesmith.dev/limit-usd-per-hour"


def _capacity_types(account: Account) -> Iterable[str]:
    kind = str(account.get(NODEGROUP, "capacityType") or "")
    market = str(account.get(TEMPLATE, "InstanceMarketOptions", "MarketType") or "")
    if kind == "CAPACITY_BLOCK" or market == "capacity-block":
        return (RESERVED,)
    if kind == "SPOT" or market == "spot":
        return (SPOT,)
    if account.get(*_DISTRIBUTION) is None:
        return (ON_DEMAND,)
    base = int(account.get(*_DISTRIBUTION, "OnDemandBaseCapacity") or 0)
    share = account.get(*_DISTRIBUTION, "OnDemandPercentageAboveBaseCapacity")
    if share is None or int(share) == 100:
        return (ON_DEMAND,)
    return (SPOT,) if int(share) == 0 and not base else (SPOT, ON_DEMAND)


def _distribution(account: Account, became: str) -> None:
    is_mixed = "spot, on-demand" in became
    for name in ("OnDemandBaseCapacity", "OnDemandPercentageAboveBaseCapacity"):
        if is_mixed:
            reason = (
                "no number of nodes is kept on-demand: "
                "pods that need it select karpenter.sh/capacity-type: on-demand"
            )
            account.changed((*_DISTRIBUTION, name), became, reason)
        else:
            account.record_kept((*_DISTRIBUTION, name), became)
    for name in (
        "OnDemandAllocationStrategy",
        "SpotAllocationStrategy",
        "SpotInstancePools",
        "DistributionSegments",
    ):
        account.changed((*_DISTRIBUTION, name), "the cheapest offering", _BY_PRICE, is_quiet=True)
    account.lost((*_DISTRIBUTION, "SpotMaxPrice"), _MAX_PRICE)
