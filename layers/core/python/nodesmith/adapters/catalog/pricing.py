"""Current data from EC2 and the AWS Price List: instance types with their facts, the zones that offer them, and prices.

Each method calls AWS and returns the complete answer from all pages. It raises Transient if a retry may help, or
Rejected if not. Sources of the queries: the API references of EC2 and the Price List.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import boto3
from botocore.config import Config

from nodesmith.adapters.aws.calls import all_errors, rows
from nodesmith.adapters.catalog.catalogs import PublishedLimits, published_limits
from nodesmith.errors import Rejected, Transient
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.catalog import (
    DEDICATED,
    DEDICATED_WINDOWS,
    LINUX,
    WINDOWS,
    Accelerator,
    InstanceFacts,
    NeuronDevice,
)
from nodesmith.model.ec2.instancetypes import KUBERNETES_ARCH

_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 6}, connect_timeout=5, read_timeout=30)
_LINUX_SPOT = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_WINDOWS_SPOT = ("Windows", "Windows (Amazon VPC)")
_LINUX = {"operatingSystem": "Linux"}
_WINDOWS = {"operatingSystem": "Windows", "licenseModel": "No License required"}
"""Windows with its licence: the price list has prices for licences of one's own as well, which are those of Linux."""
_SHARED = {"tenancy": "Shared", "productFamily": "Compute Instance"}
_DEDICATED = {"tenancy": "Dedicated", "productFamily": "Compute Instance"}
_METAL = {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"}
"""Bare metal is listed as dedicated only. Its price does not depend on the tenancy."""
_QUERIES = {
    LINUX: (_LINUX, _SHARED),
    WINDOWS: (_WINDOWS, _SHARED),
    DEDICATED: (_LINUX, _DEDICATED),
    DEDICATED_WINDOWS: (_WINDOWS, _DEDICATED),
}


def price_list_region(region: str) -> str | None:
    """Return the region whose Price List endpoint serves `region`, or None (GovCloud, isolated regions)."""
    if region.startswith("us-gov-") or "-iso" in region:
        return None
    nearest = {"ap": "ap-south-1", "cn": "cn-northwest-1", "eu": "eu-central-1", "eusc": "eusc-de-east-1"}
    return nearest.get(region.partition("-")[0], "us-east-1")


def aws_market(region: str, *, isolated_vpc: bool = False) -> AwsMarket:
    """Return a region's market, using the environment's credentials. The price list is out of reach if isolated."""
    nearest = None if isolated_vpc else price_list_region(region)
    session = boto3.Session(region_name=region)
    price_list = session.client("pricing", region_name=nearest, config=_CONFIG) if nearest else None
    return AwsMarket(region, session.client("ec2", config=_CONFIG), price_list, published_limits())


@dataclass(frozen=True, slots=True)
class AwsMarket:
    """One region's market. If `price_list` is None because no endpoint is reachable, on-demand prices are empty."""

    region: str
    ec2: Any
    price_list: Any | None
    limits: PublishedLimits

    def facts(self) -> Mapping[str, InstanceFacts]:
        """Describe all instance types that Kubernetes nodes can use."""
        filters = [
            {"Name": "supported-virtualization-type", "Values": ["hvm"]},
            {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
        ]
        types = _listed(self.ec2, "describe_instance_types", "InstanceTypes", Filters=filters)
        all_facts = (instance_facts(described, self.limits) for described in types)
        return {facts.name: facts for facts in all_facts if facts}

    def zones(self) -> Mapping[str, str]:
        """Return zone ids by zone name."""
        with all_errors("DescribeAvailabilityZones"):
            answer = self.ec2.describe_availability_zones()
        return {zone["ZoneName"]: zone["ZoneId"] for zone in answer["AvailabilityZones"]}

    def offered(self) -> Mapping[str, frozenset[str]]:
        """Return the zones that offer each instance type, by type."""
        zones: dict[str, set[str]] = {}
        call, key = "describe_instance_type_offerings", "InstanceTypeOfferings"
        for row in _listed(self.ec2, call, key, LocationType="availability-zone"):
            zones.setdefault(row["InstanceType"], set()).add(row["Location"])
        return {name: frozenset(names) for name, names in zones.items()}

    def spot_prices(self, now: datetime, *, windows: bool = False) -> Mapping[tuple[str, str], float]:
        """Return the hourly spot price, for Linux or Windows, of each type and zone as of `now`."""
        latest: dict[tuple[str, str], tuple[datetime, float]] = {}
        parameters = {
            "ProductDescriptions": list(_WINDOWS_SPOT if windows else _LINUX_SPOT),
            "StartTime": now,
        }
        for row in _listed(self.ec2, "describe_spot_price_history", "SpotPriceHistory", **parameters):
            place, price = (row["InstanceType"], row["AvailabilityZone"]), float(row["SpotPrice"])
            if price > 0:
                quoted = row["Timestamp"], price
                latest[place] = max(quoted, latest.get(place, quoted))
        return {place: price for place, (_, price) in latest.items()}

    def on_demand_prices(self) -> Mapping[str, float]:
        """Return the hourly on-demand price of each type, for Linux on shared hardware, in the region's currency."""
        if self.price_list is None:
            return {}
        prices = self._prices(LINUX, self.region)
        if not prices:
            raise Transient(f"GetProducts: the price list has no on-demand prices for {self.region}", "Empty")
        return prices

    def prices_of(self, product: str, places: Iterable[str]) -> Mapping[str, Mapping[str, float]]:
        """Return the hourly on-demand prices of a product by place and type; without places that have none."""
        if self.price_list is None:
            return {}
        prices_by_place = {place: self._prices(product, place) for place in places}
        return {place: prices for place, prices in prices_by_place.items() if prices}

    def _prices(self, product: str, place: str) -> dict[str, float]:
        currency = "CNY" if self.region.startswith("cn-") else "USD"
        system, hardware = _QUERIES[product]
        prices: dict[str, float] = {}
        for kind in (hardware, _METAL):
            parameters = {**system, **kind}
            prices.update(filter(None, (_priced(row, currency) for row in self._products(place, parameters))))
        return prices

    def _products(self, place: str, kind: Mapping[str, str]) -> Iterator[str]:
        criteria = {
            "regionCode": place,
            "serviceCode": "AmazonEC2",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            "marketoption": "OnDemand",
            **kind,
        }
        filters = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in criteria.items()
        ]
        parameters = {"ServiceCode": "AmazonEC2", "Filters": filters}
        return _listed(self.price_list, "get_products", "PriceList", **parameters)


def _priced(product: str, currency: str) -> tuple[str, float] | None:
    """Return the instance type and hourly price of a product, or None if it has no price. Raises Rejected."""
    try:
        read = json.loads(product)
        price = _hourly(read, currency)
        return (read["product"]["attributes"]["instanceType"], price) if price else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Rejected(f"GetProducts: {product[:60]!r} cannot be read ({error!r})") from error


def _hourly(product: Mapping[str, Any], currency: str) -> float | None:
    """Return the first non-zero price per unit, or None. A zero price belongs to a bundle, not to an instance."""
    terms = product.get("terms", {}).get("OnDemand", {}).values()
    dimensions = (d for term in terms for d in term.get("priceDimensions", {}).values())
    prices = (float(d.get("pricePerUnit", {}).get(currency, 0)) for d in dimensions)
    return next((price for price in prices if price > 0), None)


def _listed(client: Any, call: str, key: str, **parameters: Any) -> Iterator[Any]:
    """Yield the rows of a list. Raises Rejected if AWS refuses the call, so that the results of other calls survive."""
    with all_errors(call):
        yield from rows(client, call, key, **parameters)


def instance_facts(described: Mapping[str, Any], limits: PublishedLimits) -> InstanceFacts | None:
    """Return the facts of one DescribeInstanceTypes entry, or None if Kubernetes nodes cannot use the type.

    Usable types have HVM virtualisation and an x86_64 or arm64 processor. Raises Rejected, naming the type, if EC2
    omits a fact that labels or capacity need.
    """
    try:
        return _facts(described, limits)
    except KeyError as missing:
        name = described.get("InstanceType", "?")
        raise Rejected(f"InstanceType/{name}: EC2 did not return {missing.args[0]}") from missing


def _facts(described: Mapping[str, Any], limits: PublishedLimits) -> InstanceFacts | None:
    name, processor, network = described["InstanceType"], described["ProcessorInfo"], described["NetworkInfo"]
    arch = next(filter(None, map(KUBERNETES_ARCH.get, processor["SupportedArchitectures"])), None)
    if arch is None or "hvm" not in described.get("SupportedVirtualizationTypes", ()):
        return None
    storage = described.get("InstanceStorageInfo", {})
    clock = processor.get("SustainedClockSpeedInGhz")
    return InstanceFacts(
        name=name,
        arch=arch,
        vcpus=described["VCpuInfo"]["DefaultVCpus"],
        memory_mib=described["MemoryInfo"]["SizeInMiB"],
        capacity_types=tuple(c for c in (ON_DEMAND, SPOT) if c in described["SupportedUsageClasses"]),
        interfaces=_default_card(network)["MaximumNetworkInterfaces"],
        ipv4_per_interface=network["Ipv4AddressesPerInterface"],
        network_cards=network.get("MaximumNetworkCards", 1),
        efa_interfaces=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        ena=network.get("EnaSupport") in ("required", "supported"),
        encryption_in_transit=network.get("EncryptionInTransitSupported", False),
        hypervisor=described.get("Hypervisor", ""),
        cpu_manufacturer=processor.get("Manufacturer", "").lower().replace(" ", "-"),
        clock_mhz=round(clock * 1000) if clock else None,
        nested_virtualization="nested-virtualization" in processor.get("SupportedFeatures", ()),
        ebs_bandwidth_mbps=_ebs_bandwidth_mbps(described.get("EbsInfo", {})),
        local_storage_gb=storage.get("TotalSizeInGB", 0),
        local_storage_nvme=storage.get("NvmeSupport") in ("required", "supported"),
        gpus=_accelerators(described.get("GpuInfo", {}).get("Gpus", ())),
        inference_accelerators=_accelerators(
            described.get("InferenceAcceleratorInfo", {}).get("Accelerators", ())
        ),
        neuron_devices=_neuron_devices(described.get("NeuronInfo", {})),
        network_bandwidth_mbps=limits.network_bandwidth_mbps.get(name) or _baseline_mbps(network),
        branch_interfaces=limits.branch_interfaces.get(name, 0),
        ebs_attachments=described.get("EbsInfo", {}).get("MaximumEbsAttachments"),
        ebs_attachments_shared=described.get("EbsInfo", {}).get("AttachmentLimitType") == "shared",
        card_interfaces=_other_cards(network),
    )


def _default_card(network: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the default card, whose interfaces alone carry pods. A type without cards counts as one card."""
    index = network.get("DefaultNetworkCardIndex", 0)
    cards = (c for c in network.get("NetworkCards", ()) if c["NetworkCardIndex"] == index)
    return next(cards, network)


def _other_cards(network: Mapping[str, Any]) -> int | None:
    index = network.get("DefaultNetworkCardIndex", 0)
    cards = (c for c in network.get("NetworkCards", ()) if c["NetworkCardIndex"] != index)
    return min((card["MaximumNetworkInterfaces"] for card in cards), default=None)


def _baseline_mbps(network: Mapping[str, Any]) -> int | None:
    gbps = [card.get("BaselineBandwidthInGbps") for card in network.get("NetworkCards", ())]
    return round(sum(gbps) * 1000) if gbps and None not in gbps else None


def _ebs_bandwidth_mbps(ebs: Mapping[str, Any]) -> int | None:
    if ebs.get("EbsOptimizedSupport") != "default":
        return None
    bandwidth: int | None = ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps")
    return bandwidth


def _accelerators(accelerators: Any) -> tuple[Accelerator, ...]:
    return tuple(
        Accelerator(a["Name"], a["Manufacturer"], a["Count"], a.get("MemoryInfo", {}).get("SizeInMiB", 0))
        for a in accelerators
    )


def _neuron_devices(neuron: Mapping[str, Any]) -> tuple[NeuronDevice, ...]:
    return tuple(
        NeuronDevice(d["Name"], d["Count"], d.get("CoreInfo", {}).get("Count", 0))
        for d in neuron.get("NeuronDevices", ())
    )
