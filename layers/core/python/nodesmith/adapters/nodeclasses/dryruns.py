"""Dry runs: checks whether EC2 permits launching nodes of an EC2NodeClass, without launching any.

As in Karpenter, a launch template is created, and CreateFleet and RunInstances are called with DryRun. A denial becomes
a condition. Other errors say nothing about the EC2NodeClass, because the instance type may not be sold there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.aws.calls import DENIED, error_code, error_message, transient_errors
from nodesmith.adapters.ec2.fleetcalls import fleet_request
from nodesmith.decisions.launch.templates import Build, launch_template
from nodesmith.model.apimachinery.labels import ARCH, AWS_DOMAIN, ON_DEMAND, TENANCY
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.ec2.instancetypes import DEDICATED_TENANCY
from nodesmith.model.ec2.launches import LaunchRequest, LaunchTemplate, Override
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.karpenter.ownership import instance_tags, tag_list
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo, Image, NodeClassStatus, Unresolved
from nodesmith.settings import DRY_RUN_NODEPOOL

BELIEVED = timedelta(minutes=30)
"""How long a result is valid for the same EC2NodeClass with the same resolution, as in Karpenter."""
_TYPES = {"amd64": "m5.large", "arm64": "m6g.large"}
"""The instance types of dry runs by image architecture: Karpenter's fallbacks."""
_ACCELERATORS = (f"{AWS_DOMAIN}/instance-gpu-count", f"{AWS_DOMAIN}/instance-accelerator-count")
_MAX_PODS = 29


class DryRuns:
    """Runs dry runs and caches the results: None if EC2 permits all calls, else the reason and the message."""

    def __init__(self, client: Callable[[str], Any], cluster: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._cluster = cluster
        self._now = now
        self._said: dict[str, tuple[object, datetime, tuple[str, str] | None]] = {}

    def check(
        self,
        nodeclass: EC2NodeClass,
        status: NodeClassStatus,
        cluster: ClusterInfo,
        *,
        dedicated: bool = False,
    ) -> None:
        """Raise Unresolved if EC2 denies a call, Transient if EC2 could not be reached."""
        ids = (
            status.instance_profile,
            *(image.id for image in status.images),
            *(subnet.id for subnet in status.subnets),
            *(group.id for group in status.security_groups),
        )
        key = nodeclass.content, tuple(sorted(nodeclass.annotations.items())), ids, dedicated
        known = self._said.get(nodeclass.name)
        if known is None or known[0] != key or self._now() - known[1] >= BELIEVED:
            known = key, self._now(), self._denial(nodeclass, status, cluster, dedicated)
            self._said[nodeclass.name] = known
        if known[2] is not None:
            raise Unresolved(*known[2])

    def _denial(
        self, nodeclass: EC2NodeClass, status: NodeClassStatus, cluster: ClusterInfo, dedicated: bool
    ) -> tuple[str, str] | None:
        claim = NodeClaim(
            f"{DRY_RUN_NODEPOOL}-{nodeclass.name}",
            DRY_RUN_NODEPOOL,
            NodeClassRef(nodeclass.name),
            self._now(),
            Phase.PENDING,
            self._now(),
            requirements=Requirements.from_labels({TENANCY: DEDICATED_TENANCY} if dedicated else {}),
        )
        image = next(filter(_needs_no_accelerator, status.images), status.images[0])
        architecture = image.requirements.get(ARCH)
        arch = next((a for a in _TYPES if architecture is None or architecture.allows(a)), "amd64")
        build = Build(image.id, _MAX_PODS)
        template = launch_template(claim, ON_DEMAND, build, nodeclass, status, cluster)
        tags = instance_tags(claim, nodeclass, self._cluster)
        overrides = tuple(Override(template.name, _TYPES[arch], s.zone, s.id, 0.0) for s in status.subnets)
        ec2 = self._client("ec2")
        asked = LaunchRequest(claim.name, ON_DEMAND, overrides, tags, context=nodeclass.context)
        fleet = fleet_request(asked, self._cluster)
        del fleet["ClientToken"]  # a dry run must not use up the token
        return (
            _denied("CreateLaunchTemplate", lambda: _create(ec2, template))
            or _denied("CreateFleet", lambda: ec2.create_fleet(**fleet, DryRun=True))
            or self._runs(template, tags, overrides)
        )

    def _runs(
        self, template: LaunchTemplate, tags: Mapping[str, str], overrides: tuple[Override, ...]
    ) -> tuple[str, str] | None:
        """Try each subnet and return None once one is permitted. Otherwise return the first denial."""
        first: tuple[str, str] | None = None
        ec2 = self._client("ec2")
        for override in overrides:
            asked = _run_request(template, tags, override)
            denied = _denied("RunInstances", partial(ec2.run_instances, **asked))
            if denied is None:
                return None
            first = first or denied
        return first


def _needs_no_accelerator(image: Image) -> bool:
    """Return whether the types of dry runs, which have no accelerators, boot an image."""
    return all(
        image.requirements[key].tolerates_absence for key in _ACCELERATORS if key in image.requirements
    )


def _create(ec2: Any, template: LaunchTemplate) -> None:
    tags = [{"ResourceType": "launch-template", "Tags": tag_list(template.tags)}]
    ec2.create_launch_template(
        LaunchTemplateName=template.name, LaunchTemplateData=template.data, TagSpecifications=tags
    )


def _run_request(template: LaunchTemplate, tags: Mapping[str, str], override: Override) -> dict[str, Any]:
    interfaces = [{**each, "SubnetId": override.subnet_id} for each in template.data["NetworkInterfaces"]]
    kinds = ("instance", "volume", "network-interface")
    return {
        "DryRun": True,
        "MinCount": 1,
        "MaxCount": 1,
        "LaunchTemplate": {"LaunchTemplateName": template.name, "Version": "1"},
        "InstanceType": override.instance_type,
        "NetworkInterfaces": interfaces,
        "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in kinds],
    }


def _denied(action: str, ask: Callable[[], object]) -> tuple[str, str] | None:
    """Return the condition's reason and message where EC2 denies a call. Raises Transient for what may pass."""
    try:
        with transient_errors(f"ec2:{action} (dry run)"):
            ask()
    except (ClientError, BotoCoreError) as error:
        if error_code(error) in DENIED:
            message = f"ec2:{action}: {error_code(error)}: {error_message(error)}"
            return f"{action}AuthCheckFailed", message
    return None
