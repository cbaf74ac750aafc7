"""The number of volumes that a node can attach, as a resource: pods request their volumes, and nodes offer attachments.

For Amazon EBS, the limit of each instance type is known. AWS's other drivers (EFS, FSx, S3) state no limit, so
kube-scheduler applies none. For any other driver with a limit, only existing nodes say it: `AttachLimits` has what they
report.

Sources: EC2's EbsInfo.MaximumEbsAttachments, which includes the root volume and, if the limit is shared, excludes the
NVMe disks and the first network interface; and the defaults of the EBS CSI driver, which reserves an attachment for
each of the node's own volumes, and has a limit of 39 on Xen.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.resources import Resources
from nodesmith.model.ec2.catalog import InstanceFacts
from nodesmith.model.nodeclasses.nodeconfiguration import NodeConfiguration

EBS_DRIVER = "ebs.csi.aws.com"
ATTACHABLE = "attachable-volumes-csi-"
"""The prefix of a driver's resource, followed by the driver's name."""
ATTACHABLE_EBS = ATTACHABLE + EBS_DRIVER
UNLIMITED = 2**31 - 1
"""The amount that a node offers if no limit is stated."""
_XEN_LIMIT = 39
_USUAL_LIMIT = 27
"""The limit of a type for which EC2 states none: the shared limit of most Nitro types."""


def attachable_volumes(facts: InstanceFacts, configuration: NodeConfiguration) -> int:
    """Return the number of EBS volumes of pods that a new node can attach, at least 1, as the driver reports it.

    If the limit is shared, the VPC CNI's spare network interface (WARM_ENI_TARGET 1) uses one attachment by the time
    the driver counts.
    """
    if facts.hypervisor == "xen":
        places = _XEN_LIMIT
    elif facts.ebs_attachments is None or facts.ebs_attachments_shared:
        places = (facts.ebs_attachments or _USUAL_LIMIT) - (facts.interfaces > 1)
    else:
        places = facts.ebs_attachments
    return max(1, places - configuration.volumes)


def of_a_node(resources: Resources) -> Resources:
    """Return the resources without attachable volumes, which are in a node's CSINode and not in the Node."""
    return Resources({name: amount for name, amount in resources.items() if not name.startswith(ATTACHABLE)})


_AT_LEAST = 1
"""The least for an unseen type: with 0, no node of that type would be bought, and its limit would never be learned."""


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """`stated` is driver → instance type → the lowest limit that a node of that type reports.

    The instance type is empty for nodes without one.
    """

    stated: FrozenMap[FrozenMap[int]]

    def on(self, instance_type: str) -> Resources:
        """Return the attachments of a new node. For a type without nodes, they are the lowest limit of any node."""
        return Resources(
            {
                ATTACHABLE + driver: known.get(instance_type, max(_AT_LEAST, min(known.values())))
                for driver, known in self.stated.items()
            }
        )


NO_LIMITS = AttachLimits(FrozenMap())
