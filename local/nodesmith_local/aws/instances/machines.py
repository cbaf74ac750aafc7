"""moto's EC2 instances, accessed inside the process by the machine simulation."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2 import ec2_backends
from moto.ec2.models.instances import InstanceState

from nodesmith.model.karpenter.ownership import CLUSTER_TAG
from nodesmith.model.nodeclasses.instancesettings import GIB
from nodesmith_local.aws.instances.nodes import DATA_DEVICE, Machine

_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


class MotoMachines:
    """The instances of one region whose cluster tag satisfies `of`."""

    def __init__(self, region: str, of: Callable[[str], bool] = lambda cluster: True) -> None:  # noqa: ARG005
        self._region = region
        self._of = of
        self._known: dict[str, Machine] = {}

    def all(self) -> Iterator[Machine]:
        """Yield every instance that EC2 still lists, including terminated ones.

        Instances are cached, since calls are many and changes few. moto tags an instance shortly after creating it, so
        an instance without the tag is read again.
        """
        for instance in list(self._backend.all_instances()):
            machine = self._known.get(instance.id)
            if machine is None or machine.state != instance.state or not machine.cluster:
                machine = self._known[instance.id] = self._machine(instance)
            if self._of(machine.cluster):
                yield machine

    def become(self, instance_id: str, state: str) -> None:
        """Move an instance into another state, unless it has been terminated."""
        instance = self._backend.get_instance_by_id(instance_id)
        if instance is not None and instance.state != "terminated":
            instance._state = InstanceState(state, _CODES[state])  # noqa: SLF001

    @property
    def _backend(self) -> Any:
        return ec2_backends[DEFAULT_ACCOUNT_ID][self._region]

    def _machine(self, instance: Any) -> Machine:
        return Machine(
            id=instance.id,
            instance_type=instance.instance_type,
            zone=instance.placement.zone,
            region=self._region,
            state=instance.state,
            user_data=_plain(instance.user_data),
            private_dns_name=instance.private_dns_name,
            private_ip=instance.private_ip,
            ipv6=next((ip for nic in instance.nics.values() for ip in nic.ipv6_addresses), ""),
            launched_at=_aware(instance.launch_time),
            root_volume_bytes=_root_volume_bytes(instance),
            data_volume_bytes=_data_volume_bytes(instance),
            image_id=instance.image_id,
            image_name=getattr(self._backend.amis.get(instance.image_id), "name", "") or "",
            cluster=self._backend.tags.get(instance.id, {}).get(CLUSTER_TAG, ""),
        )


def _plain(user_data: Any) -> str:
    return base64.b64decode(user_data.as_bytes()).decode(errors="replace") if user_data else ""


def _root_volume_bytes(instance: Any) -> int:
    volumes = dict(instance.get_block_device_mapping)
    root = volumes.get(instance.root_device_name) or next(iter(volumes.values()), None)
    return int(root.size) * GIB if root is not None and root.size else 20 * GIB


def _data_volume_bytes(instance: Any) -> int:
    volume = dict(instance.get_block_device_mapping).get(DATA_DEVICE)
    return int(volume.size) * GIB if volume is not None and volume.size else 0


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
