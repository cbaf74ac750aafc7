"""EC2NodeClass, karpenter.k8s.aws/v1: how nodes are launched on EC2, and the selectors of existing AWS resources.

An AMI alias such as `al2023@v20260115` has a version, which is checked by the rules of each family's images.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.problems import Parsed, ParseOnce
from nodesmith.model.hashes import (
    CERTIFICATE_AUTHORITY,
    NODECLASS_HASH,
    NODECLASS_HASH_VERSION,
    bundle_digest,
    content_hash,
    hash_in_cluster,
    nodeclass_digests,
    nodeclass_hash,
)
from nodesmith.model.nodeclasses.instancesettings import (
    AL2023,
    DEFAULT_BLOCK_DEVICES,
    DEFAULT_KUBELET,
    DEFAULT_METADATA_OPTIONS,
    GIB,
    WINDOWS_FAMILIES,
    BlockDevice,
    BlockDeviceMapping,
    ConnectionTracking,
    KubeletConfiguration,
    MetadataOptions,
    NetworkInterface,
    read_kubelet,
)
from nodesmith.model.schema.fields import ALIAS_FAMILIES
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS, EC2_NODE_CLASS_OF_DEFAULT_ROLE
from nodesmith.model.schema.reading import read_manifest


class SubnetSelectorTerm(NamedTuple):
    """Subnets by id, or by tags (the value `*` matches any value)."""

    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""


class SecurityGroupSelectorTerm(NamedTuple):
    """Security groups by id, by group name (not the Name tag), or by tags."""

    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""
    name: str = ""


class CapacityReservationSelectorTerm(NamedTuple):
    """Capacity reservations by id, or by tags, owner and instance match criteria."""

    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""
    owner_id: str = ""
    instance_match_criteria: str = ""


class PlacementGroupSelector(NamedTuple):
    """One placement group, by name or by id."""

    name: str = ""
    id: str = ""


class AMISelectorTerm(NamedTuple):
    """Machine images by alias (`al2023@latest`), id, name, SSM parameter or tags."""

    alias: str = ""
    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""
    name: str = ""
    owner: str = ""
    ssm_parameter: str = ""


NODE_TEMPLATE = "nodesmith.dev/nodetemplate"
"""Annotation: the name of the AWSNodeTemplate in the cluster that this EC2NodeClass was converted from."""
DEFAULT_ROLE = "nodesmith.dev/default-role"
"""Annotation: the EC2NodeClass was converted from an object that names no role, and uses the first node role."""


@dataclass(frozen=True, slots=True)
class EC2NodeClass:
    """An EC2NodeClass with its defaults filled in."""

    name: str
    ami_family: str = AL2023
    """Resolved: `spec.amiFamily`, else the family of the alias."""
    ami_selector_terms: tuple[AMISelectorTerm, ...] = ()
    subnet_selector_terms: tuple[SubnetSelectorTerm, ...] = ()
    security_group_selector_terms: tuple[SecurityGroupSelectorTerm, ...] = ()
    capacity_reservation_selector_terms: tuple[CapacityReservationSelectorTerm, ...] = ()
    placement_group_selector: PlacementGroupSelector | None = None
    associate_public_ip_address: bool | None = None
    ip_prefix_count: int | None = None
    user_data: str = ""
    role: str = ""
    instance_profile: str = ""
    tags: Mapping[str, str] = NO_ITEMS
    kubelet: KubeletConfiguration = DEFAULT_KUBELET
    block_device_mappings: tuple[BlockDeviceMapping, ...] = ()
    instance_store_policy: str = ""
    network_interfaces: tuple[NetworkInterface, ...] = ()
    detailed_monitoring: bool | None = None
    metadata_options: MetadataOptions = DEFAULT_METADATA_OPTIONS
    connection_tracking: ConnectionTracking | None = None
    nested_virtualization: str = ""
    context: str = ""
    annotations: Mapping[str, str] = NO_ITEMS
    uid: str = ""
    generation: int = 0
    hash: str = ""
    """Karpenter's hash of the fields whose change replaces nodes (static drift). `hash_in` adds the CA bundle."""
    digests: Mapping[str, str] = NO_ITEMS
    """Digests of the fields that `hash` covers, see `nodeclass_digests`."""
    content: str = ""
    """Hash of the whole object, see `content_hash`."""
    deleting: bool = False
    obstacle: str = ""
    """Why it is not Ready by its status, whichever software wrote that; empty if the status does not say so."""

    def hash_in(self, ca_bundle: str) -> str:
        """Return the hash as in the annotations of a cluster with this CA bundle, which is in base64."""
        return hash_in_cluster(self.hash, ca_bundle)

    def digests_in(self, ca_bundle: str) -> dict[str, str]:
        """Return the digests of what `hash_in` covers."""
        return {**self.digests, CERTIFICATE_AUTHORITY: bundle_digest(ca_bundle)}

    @property
    def stated_hash(self) -> str:
        """The hash in its annotations, empty if they have none of the current version."""
        version = self.annotations.get(f"{NODECLASS_HASH}-version")
        return self.annotations.get(NODECLASS_HASH, "") if version == NODECLASS_HASH_VERSION else ""

    @property
    def block_devices(self) -> tuple[BlockDeviceMapping, ...]:
        """The mappings to launch with: the user's, else the family's defaults."""
        return self.block_device_mappings or DEFAULT_BLOCK_DEVICES[self.ami_family]

    @property
    def root_volume_bytes(self) -> int:
        """The size of the volume that holds pods' ephemeral storage, unless they are on instance store.

        It is the mapping marked rootVolume, else the family's own device (the last mapping for Custom), else the
        family's default.
        """
        marked = next((m for m in self.block_device_mappings if m.root_volume), None)
        usual = next((m for m in reversed(self.block_device_mappings) if self._holds_pods(m)), None)
        for mapping in (marked, usual, *reversed(DEFAULT_BLOCK_DEVICES[self.ami_family])):
            size = mapping.ebs.volume_size_bytes if mapping and mapping.ebs else None
            if size:
                return size
        return 20 * GIB

    def _holds_pods(self, mapping: BlockDeviceMapping) -> bool:
        usual = DEFAULT_BLOCK_DEVICES[self.ami_family]
        return not usual or mapping.device_name == usual[-1].device_name


def parse_nodeclass(manifest: Mapping[str, object]) -> Parsed[EC2NodeClass]:
    """Read an EC2NodeClass and report all of its problems. Never raises."""
    read = read_manifest(
        EC2_NODE_CLASS_OF_DEFAULT_ROLE if _gets_default_role(manifest) else EC2_NODE_CLASS, manifest
    )
    if read.report.fatal:
        return Parsed(None, read.report.problems)
    family = _ami_family(read.spec)
    return Parsed(
        EC2NodeClass(
            **read.identity,
            **_attributes({name: item for name, item in read.spec.items() if name not in _BUILT}),
            **_built(read.spec),
            ami_family=family,
            annotations=FrozenMap(read.metadata.get("annotations")),
            hash=nodeclass_hash(read.spec, family),
            digests=FrozenMap(nodeclass_digests(read.spec, family)),
            content=content_hash(read),
            obstacle=_shown_obstacle(manifest),
        ),
        read.report.problems,
    )


parse_nodeclasses = ParseOnce(parse_nodeclass)


def _gets_default_role(manifest: Mapping[str, object]) -> bool:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return isinstance(annotations, Mapping) and annotations.get(DEFAULT_ROLE) == "true"


def shown_ready(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return an EC2NodeClass's Ready condition, None if it has none or if that is of an earlier generation."""
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    ready: Mapping[str, Any] | None = next(
        (condition for condition in conditions if condition.get("type") == "Ready"), None
    )
    generation = int((manifest.get("metadata") or {}).get("generation") or 0)
    is_of_old = ready is not None and int(ready.get("observedGeneration") or generation) < generation
    return None if is_of_old else ready


def _shown_obstacle(manifest: Mapping[str, Any]) -> str:
    ready = shown_ready(manifest)
    if ready is None or ready.get("status") == "True":
        return ""
    return str(ready.get("message") or ready.get("reason") or f"Ready is {ready.get('status')}")


_TERMS = {
    "subnetSelectorTerms": SubnetSelectorTerm,
    "securityGroupSelectorTerms": SecurityGroupSelectorTerm,
    "capacityReservationSelectorTerms": CapacityReservationSelectorTerm,
    "amiSelectorTerms": AMISelectorTerm,
    "networkInterfaces": NetworkInterface,
}
_BUILT = (
    *_TERMS,
    "amiFamily",
    "placementGroupSelector",
    "kubelet",
    "blockDeviceMappings",
    "metadataOptions",
    "connectionTracking",
    "cpuOptions",
)


def _built(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are neither text nor numbers."""
    built: dict[str, Any] = {
        _attribute(name): tuple(term(**_attributes(item)) for item in spec.get(name, ()))
        for name, term in _TERMS.items()
    }
    built["block_device_mappings"] = tuple(
        _block_device(item) for item in spec.get("blockDeviceMappings", ())
    )
    built["metadata_options"] = MetadataOptions(**_attributes(spec["metadataOptions"]))
    built["nested_virtualization"] = spec.get("cpuOptions", {}).get("nestedVirtualization", "")
    if "kubelet" in spec:
        built["kubelet"] = read_kubelet(spec["kubelet"])
    if "placementGroupSelector" in spec:
        built["placement_group_selector"] = PlacementGroupSelector(**spec["placementGroupSelector"])
    if "connectionTracking" in spec:
        timeouts = _attributes(spec["connectionTracking"])
        built["connection_tracking"] = ConnectionTracking(**{f"{k}_seconds": v for k, v in timeouts.items()})
    return built


def _block_device(item: Mapping[str, Any]) -> BlockDeviceMapping:
    ebs = BlockDevice(**_attributes(item["ebs"])) if "ebs" in item else None
    return BlockDeviceMapping(item.get("deviceName", ""), ebs, item.get("rootVolume", False))


def _attributes(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest's fields under their Python names, with frozen maps."""
    return {_attribute(n): FrozenMap(v) if isinstance(v, Mapping) else v for n, v in fields.items()}


@lru_cache(maxsize=256)
def _attribute(field: str) -> str:
    """Return the Python name of a manifest's field: kmsKeyID → kms_key_id."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", field.replace("IPv6", "Ipv6"))
    return words.lower()


def _ami_family(spec: Mapping[str, Any]) -> str:
    alias = next((term["alias"] for term in spec["amiSelectorTerms"] if "alias" in term), "")
    return str(spec["amiFamily"] if "amiFamily" in spec else ALIAS_FAMILIES[alias.partition("@")[0]])


LATEST = "latest"
_DATED = re.compile(r"v[0-9]{8}")
_NUMBERED = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-f]+)?")


def version_fault(alias: str) -> str:
    """Return why no image can ever have the version of an alias, empty if one can or if the family is unknown."""
    family, _, version = alias.partition("@")
    if version == LATEST or family not in _VERSIONS:
        return ""
    is_version, example = _VERSIONS[family]
    if is_version(version):
        return ""
    return f"alias {alias}: {version!r} is not a version of its images: use {LATEST} or {example}"


def _is_dated(version: str) -> bool:
    if not _DATED.fullmatch(version):
        return False
    try:
        datetime.strptime(f"{version}+0000", "v%Y%m%d%z")
    except ValueError:
        return False
    return True


def _is_numbered(version: str) -> bool:
    return _NUMBERED.fullmatch(version) is not None


_DATE = (_is_dated, "a date such as v20250821")
_VERSIONS: dict[str, tuple[Callable[[str], bool], str]] = {
    "al2": _DATE,
    "al2023": _DATE,
    "bottlerocket": (_is_numbered, "a release such as v1.50.0"),
}


SHARED: tuple[str, ...] = ("default",)
"""The tenancy of nodes unless a NodePool or pods ask for another: hardware that is shared with other accounts."""


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """The part of an EC2NodeClass that affects what a node of an instance type offers. Hashable."""

    ami_family: str = AL2023
    root_volume_bytes: int = 20 * GIB
    instance_store_policy: str = ""
    kubelet: KubeletConfiguration = DEFAULT_KUBELET
    network_interfaces: tuple[NetworkInterface, ...] = ()
    connection_tracking: bool = False
    nested_virtualization: bool = False
    placement_group: bool = False
    volumes: int = 1
    """number of EBS volumes that a node is launched with, including the root volume"""
    tenancies: tuple[str, ...] = SHARED
    """the tenancies that nodes may be bought with, `default` and `dedicated`: each has prices of its own"""
    one_interface: bool = False
    """True if a node gets a public address, which EC2 assigns only where it has a single network interface"""

    @classmethod
    def of(cls, nodeclass: EC2NodeClass, tenancies: tuple[str, ...] = SHARED) -> NodeConfiguration:
        """Return the configuration of an EC2NodeClass, for nodes with these tenancies."""
        return cls(
            ami_family=nodeclass.ami_family,
            root_volume_bytes=nodeclass.root_volume_bytes,
            instance_store_policy=nodeclass.instance_store_policy,
            kubelet=nodeclass.kubelet,
            network_interfaces=nodeclass.network_interfaces,
            connection_tracking=nodeclass.connection_tracking is not None,
            nested_virtualization=nodeclass.nested_virtualization == "enabled",
            placement_group=nodeclass.placement_group_selector is not None,
            volumes=max(1, len(nodeclass.block_devices)),
            tenancies=tenancies,
            one_interface=bool(nodeclass.associate_public_ip_address),
        )

    @property
    def windows(self) -> bool:
        """True for the Windows families."""
        return self.ami_family in WINDOWS_FAMILIES
