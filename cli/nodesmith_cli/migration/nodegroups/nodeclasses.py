"""The EC2NodeClass of a group: its image, user data, network, volumes and everything else that EC2 is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nodesmith.decisions.launch.userdata.starting import MalformedUserData
from nodesmith.model.nodeclasses.instancesettings import DEFAULT_BLOCK_DEVICES
from nodesmith_cli.migration.nodegroups.fields import Account, Path
from nodesmith_cli.migration.nodegroups.groups import NODEGROUP, SCALING_GROUP, TEMPLATE, Group, GroupContext
from nodesmith_cli.migration.nodegroups.images import Chosen, chosen
from nodesmith_cli.migration.nodegroups.network import interfaces_of, security_groups_of, subnets_of
from nodesmith_cli.migration.nodegroups.userdata import Carried, carried, decoded

_USER_DATA = (TEMPLATE, "UserData")
_SSH = "nodes have no key: use Session Manager, or add the public key to spec.userData"
_OTHERS_TAGS = ("aws:", "eks:", "kubernetes.io/cluster/", "k8s.io/", "karpenter.sh/", "karpenter.k8s.aws/")
_EBS = {
    "DeleteOnTermination": "deleteOnTermination",
    "Encrypted": "encrypted",
    "Iops": "iops",
    "KmsKeyId": "kmsKeyID",
    "SnapshotId": "snapshotID",
    "Throughput": "throughput",
    "VolumeInitializationRate": "volumeInitializationRate",
    "VolumeType": "volumeType",
}
_METADATA = {
    "HttpEndpoint": "httpEndpoint",
    "HttpProtocolIpv6": "httpProtocolIPv6",
    "HttpPutResponseHopLimit": "httpPutResponseHopLimit",
    "HttpTokens": "httpTokens",
}


class GeneratedNodeClass(NamedTuple):
    """The spec of an EC2NodeClass, and what its user data and image say of the nodes."""

    spec: dict[str, Any]
    images: Chosen
    user_data: Carried
    obstacle: str = ""


def nodeclass_of(group: Group, context: GroupContext, account: Account) -> GeneratedNodeClass | str:
    """Return the EC2NodeClass of a group, or the reason why there can be none."""
    try:
        text = decoded(str(account.get(*_USER_DATA) or ""))
        images = chosen(group, context, account, text)
    except MalformedUserData:
        text, images = "", chosen(group, context, account, "")
    if images is None:
        return "it names no image that can be selected: set ImageId in its launch template"
    subnets = subnets_of(context, account)
    if not subnets:
        return "it names no subnets, and its zones have no default subnets"
    data = _user_data(text, images, account)
    spec: dict[str, Any] = {
        **_role(account),
        "amiSelectorTerms": [images.term],
        **({} if images.has_alias else {"amiFamily": images.family}),
        "subnetSelectorTerms": [{"id": subnet} for subnet in subnets],
        "securityGroupSelectorTerms": list(security_groups_of(context, account)),
        **({"userData": data.text} if data.text else {}),
        **({"kubelet": data.kubelet} if data.kubelet else {}),
        **_volumes(images, account),
        **({"instanceStorePolicy": "RAID0"} if data.joins_disks else {}),
        "metadataOptions": _metadata(group, images, account),
        **interfaces_of(account),
        **_reservations(account),
        **_placement(account),
        **_tags(account),
        **_others(account),
    }
    _without_equal(account)
    if "role" not in spec and "instanceProfile" not in spec:
        return "it has neither a role nor an instance profile"
    return GeneratedNodeClass(spec, images, data)


def _role(account: Account) -> dict[str, Any]:
    if arn := account.get(NODEGROUP, "nodeRole"):
        name = str(arn).rpartition("/")[2]
        reason = "the role must be one of the cluster's node roles: nodesmith connect --node-role"
        account.record_kept((NODEGROUP, "nodeRole"), f"EC2NodeClass spec.role: {name}", reason)
        account.lost(
            (TEMPLATE, "IamInstanceProfile"), "the node group's role applies: nothing to do", is_quiet=True
        )
        return {"role": name}
    profile = account.get(TEMPLATE, "IamInstanceProfile") or {}
    name = str(profile.get("Name") or str(profile.get("Arn") or "").rpartition("/")[2])
    account.record_kept((TEMPLATE, "IamInstanceProfile"), f"EC2NodeClass spec.instanceProfile: {name}")
    return {"instanceProfile": name} if name else {}


def _user_data(text: str, images: Chosen, account: Account) -> Carried:
    became = "EC2NodeClass spec.userData, merged with what joins the node"
    try:
        decoded(str(account.get(*_USER_DATA) or ""))
        user_data = carried(text, images.family)
    except MalformedUserData as error:
        account.lost(_USER_DATA, f"it cannot be merged: {error}. Correct it and set spec.userData")
        return Carried()
    moved = [
        name
        for name, value in (
            ("spec.kubelet", user_data.kubelet),
            ("labels", user_data.labels),
            ("taints", user_data.taints),
            ("instanceStorePolicy", user_data.joins_disks),
        )
        if value
    ]
    notes = [*user_data.notes, *([f"{', '.join(moved)} set from it"] if moved else [])]
    if notes:
        account.changed(_USER_DATA, became if user_data.text else "removed", "; ".join(notes))
    else:
        account.record_kept(_USER_DATA, became)
    return user_data


def _volumes(images: Chosen, account: Account) -> dict[str, Any]:
    became = "EC2NodeClass spec.blockDeviceMappings"
    size = account.get(NODEGROUP, "diskSize")
    mappings = account.get(TEMPLATE, "BlockDeviceMappings") or []
    path = (TEMPLATE, "BlockDeviceMappings")
    usable = [mapping for mapping in mappings if mapping.get("Ebs") and _has_size(mapping["Ebs"])]
    if mappings:
        account.lost(
            (NODEGROUP, "diskSize"), "the launch template's volumes apply: nothing to do", is_quiet=True
        )
        if notes := [*_volume_notes(mappings, usable)]:
            account.changed(path, became, "; ".join(notes))
        else:
            account.record_kept(path, became)
        return {"blockDeviceMappings": [_mapping(mapping) for mapping in usable]} if usable else {}
    usual = DEFAULT_BLOCK_DEVICES[images.family]
    if not size or not usual:
        account.lost((NODEGROUP, "diskSize"), "set spec.blockDeviceMappings: the image's device is unknown")
        return {}
    account.record_kept((NODEGROUP, "diskSize"), f"{became}: {usual[-1].device_name} of {size}Gi")
    sizes = {mapping.device_name: mapping.ebs.volume_size for mapping in usual if mapping.ebs}
    sizes[usual[-1].device_name] = f"{size}Gi"
    return {"blockDeviceMappings": [_volume(device, gibibytes) for device, gibibytes in sizes.items()]}


def _volume_notes(
    mappings: Iterable[Mapping[str, Any]], usable: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    left_out = [str(mapping.get("DeviceName")) for mapping in mappings if mapping not in usable]
    if left_out:
        reason = (
            "mappings need an EBS volume with a size or snapshot; instance store disks: instanceStorePolicy"
        )
        yield f"{', '.join(left_out)} left out: {reason}"
    others = sorted({name for mapping in usable for name in mapping["Ebs"]} - {*_EBS, "VolumeSize"})
    if others:
        yield f"{', '.join(others)}: no equal"


def _volume(device: str, size: str) -> dict[str, Any]:
    return {"deviceName": device, "ebs": {"volumeSize": size, "volumeType": "gp3", "encrypted": True}}


def _has_size(ebs: Mapping[str, Any]) -> bool:
    return bool(ebs.get("VolumeSize") or ebs.get("SnapshotId"))


def _mapping(mapping: Mapping[str, Any]) -> dict[str, Any]:
    ebs = mapping["Ebs"]
    made = {ours: ebs[name] for name, ours in _EBS.items() if ebs.get(name) is not None}
    if "snapshotID" not in made:
        made.pop("volumeInitializationRate", None)
    if size := ebs.get("VolumeSize"):
        made["volumeSize"] = f"{size}Gi"
    return {"deviceName": mapping["DeviceName"], "ebs": made}


def _metadata(group: Group, images: Chosen, account: Account) -> dict[str, Any]:
    """Return the options of the metadata service. Without any, nodes keep the defaults that they had so far."""
    given = account.get(TEMPLATE, "MetadataOptions") or {}
    for name, ours in _METADATA.items():
        account.record_kept((TEMPLATE, "MetadataOptions", name), f"EC2NodeClass spec.metadataOptions.{ours}")
    tags = (TEMPLATE, "MetadataOptions", "InstanceMetadataTags")
    if given.get("InstanceMetadataTags") == "enabled":
        account.lost(tags, "read the tags from EC2, or pass the values in spec.userData")
    else:
        account.record_kept(tags, "tags are not in the metadata")
    account.about({(TEMPLATE, "MetadataOptions", "State"): "the state of the options"})
    made = {ours: given[name] for name, ours in _METADATA.items() if given.get(name) is not None}
    is_strict = images.family in ("AL2023", "Bottlerocket")
    usual = {
        "httpTokens": "required" if is_strict else "optional",
        "httpPutResponseHopLimit": 2 if group.is_managed or is_strict else 1,
    }
    return {**usual, **made}


def _reservations(account: Account) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for source in (TEMPLATE, SCALING_GROUP):
        path = (source, "CapacityReservationSpecification")
        target = account.get(*path, "CapacityReservationTarget") or {}
        one, group = (target.get(f"CapacityReservation{name}") for name in ("Id", "ResourceGroupArn"))
        ids = [one, *(target.get("CapacityReservationIds") or ())]
        arns = [group, *(target.get("CapacityReservationResourceGroupArns") or ())]
        if terms := [{"id": id_} for id_ in ids if id_]:
            fields["capacityReservationSelectorTerms"] = terms
            account.record_kept(
                path, "EC2NodeClass spec.capacityReservationSelectorTerms, capacity type reserved"
            )
        elif any(arns):
            account.lost(
                path, "tag the group's reservations and select them by spec.capacityReservationSelectorTerms"
            )
        elif account.get(*path, "CapacityReservationPreference") == "none":
            account.record_kept(path, "no reservation is used unless it is selected")
        else:
            reason = "open reservations are used only if spec.capacityReservationSelectorTerms selects them"
            account.lost(
                path,
                reason,
                is_quiet=account.get(*path, "CapacityReservationPreference") in (None, "default"),
            )
    return fields


def _placement(account: Account) -> dict[str, Any]:
    name, id_ = account.get(TEMPLATE, "Placement", "GroupName"), account.get(TEMPLATE, "Placement", "GroupId")
    name = name or account.get(SCALING_GROUP, "PlacementGroup")
    became = "EC2NodeClass spec.placementGroupSelector"
    template = (TEMPLATE, "Placement")
    for path in ((*template, "GroupName"), (*template, "GroupId"), (SCALING_GROUP, "PlacementGroup")):
        account.record_kept(path, became)
    for name_ in ("HostId", "Affinity", "SpreadDomain", "HostResourceGroupArn"):
        account.lost(
            (TEMPLATE, "Placement", name_), "dedicated hosts cannot be chosen: keep the group for them"
        )
    if id_:
        return {"placementGroupSelector": {"id": id_}}
    return {"placementGroupSelector": {"name": name}} if name else {}


def _tags(account: Account) -> dict[str, Any]:
    """Return the tags that instances get so far: those of the launch template, and those that the group passes on."""
    tags: dict[str, str] = {}
    path: Path = (TEMPLATE, "TagSpecifications")
    for entry in account.get(*path) or []:
        if entry.get("ResourceType") in ("instance", "volume"):
            tags |= {tag["Key"]: tag.get("Value", "") for tag in entry.get("Tags") or ()}
    own = {key: value for key, value in tags.items() if _is_theirs(key)}
    target = "EC2NodeClass spec.tags, for all resources"
    if len(own) < len(tags):
        account.changed(path, target, "nodesmith sets the tags of cluster and owner itself", is_quiet=True)
    else:
        account.record_kept(path, target)
    passed = {
        tag["Key"]: tag.get("Value", "")
        for tag in account.get(SCALING_GROUP, "Tags") or ()
        if tag.get("PropagateAtLaunch") and _is_theirs(tag["Key"])
    }
    account.lost(
        (NODEGROUP, "tags"),
        "they are on the node group, not on nodes: add them to spec.tags if wanted",
        is_quiet=True,
    )
    whole = {**passed, **own}
    return {"tags": dict(sorted(whole.items()))} if whole else {}


def _is_theirs(key: str) -> bool:
    return not key.lower().startswith(_OTHERS_TAGS)


def _others(account: Account) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    monitoring = account.get(TEMPLATE, "Monitoring", "Enabled")
    account.record_kept((TEMPLATE, "Monitoring", "Enabled"), "EC2NodeClass spec.detailedMonitoring")
    account.lost((TEMPLATE, "Monitoring", "MetricCategoryIds"), "categories of metrics cannot be chosen")
    if monitoring is not None:
        fields["detailedMonitoring"] = bool(monitoring)
    nested = account.get(TEMPLATE, "CpuOptions", "NestedVirtualization")
    account.record_kept((TEMPLATE, "CpuOptions", "NestedVirtualization"), "EC2NodeClass spec.cpuOptions")
    if nested:
        fields["cpuOptions"] = {"nestedVirtualization": nested}
    context = account.get(SCALING_GROUP, "Context")
    account.record_kept((SCALING_GROUP, "Context"), "EC2NodeClass spec.context")
    if context:
        fields["context"] = context
    return fields


_TEMPLATE_LOSSES: Mapping[str, str] = {
    "KeyName": _SSH,
    "CreditSpecification": "burstable types use the account's default: aws ec2 modify-default-credit-specification",
    "CpuOptions": "cores and threads cannot be chosen: set them in spec.userData, or exclude such types",
    "LicenseSpecifications": "licences cannot be attached: keep the group for these nodes",
    "EnclaveOptions": "Nitro Enclaves cannot be enabled: keep the group for these nodes",
    "PrivateDnsNameOptions": "nodes get the names that the subnet gives them: set it on the subnet",
    "MaintenanceOptions": "nodesmith replaces failing nodes by nodesmith.dev/node-repair",
    "NetworkPerformanceOptions": "bandwidth weighting cannot be set",
    "SecondaryInterfaces": "secondary interfaces cannot be attached",
    "HibernationOptions": "nodes never hibernate",
    "DisableApiTermination": "nodesmith must be able to terminate nodes: protect pods by karpenter.sh/do-not-disrupt",
    "DisableApiStop": "nodesmith never stops nodes",
    "ElasticGpuSpecifications": "use a GPU instance type",
    "ElasticInferenceAccelerators": "use an Inferentia instance type",
    "KernelId": "images boot their own kernel",
    "RamDiskId": "images boot their own kernel",
    "Operator": "another service manages the launch template: keep the group for these nodes",
    "ClassicLinkVPCId": "EC2 has ended ClassicLink",
    "ClassicLinkVPCSecurityGroups": "EC2 has ended ClassicLink",
}
_OFF = (False, {"Enabled": False}, {"Configured": False}, {"AutoRecovery": "default"})


def _without_equal(account: Account) -> None:
    """Account for launch template fields without an equivalent. Features that are switched off need none."""
    for name, remedy in _TEMPLATE_LOSSES.items():
        is_off = account.get(TEMPLATE, name) in _OFF
        if is_off:
            account.record_kept((TEMPLATE, name), "off, as by default")
        else:
            account.lost((TEMPLATE, name), remedy)
    account.record_kept((TEMPLATE, "EbsOptimized"), "instance types are EBS-optimized by default")
    if account.get(TEMPLATE, "InstanceInitiatedShutdownBehavior") == "stop":
        reason = "a node that shuts itself down is replaced"
        account.changed((TEMPLATE, "InstanceInitiatedShutdownBehavior"), "terminate", reason, is_quiet=True)
    else:
        account.record_kept(
            (TEMPLATE, "InstanceInitiatedShutdownBehavior"), "a node that shuts down is replaced"
        )
    for name in ("ec2SshKey", "sourceSecurityGroups"):
        account.lost((NODEGROUP, "remoteAccess", name), _SSH)
    account.about({(TEMPLATE, "CreatedTime"): "when the configuration was created"})
