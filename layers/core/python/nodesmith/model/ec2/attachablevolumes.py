"""How many volumes a node can attach, as a resource: a pod asks for its volumes, a node offers its places for them.

Of Amazon EBS it is known of each type. AWS's other drivers (EFS, FSx, S3) state no limit, and kube-scheduler knows none
then; of any driver that does, `attachlimits` has what nodes tell.

Sources: EC2's EbsInfo.MaximumEbsAttachments, which holds the root volume and, where the limit is shared, leaves out
the NVMe disks and the first network interface; the EBS CSI driver's defaults, by which a node keeps as many places as
it has volumes of its own, and 39 on Xen.
"""

from __future__ import annotations

from nodesmith.model.apimachinery.resources import Resources
from nodesmith.model.ec2.catalog import InstanceFacts
from nodesmith.model.nodeclasses.nodeconfiguration import NodeConfiguration

EBS_DRIVER = "ebs.csi.aws.com"
ATTACHABLE = "attachable-volumes-csi-"
"""The resource of a driver: this, and its name."""
ATTACHABLE_EBS = ATTACHABLE + EBS_DRIVER
UNLIMITED = 2**31 - 1
"""What a node offers where nobody states a limit."""
_XEN_LIMIT = 39
_USUAL_LIMIT = 27
"""Of a type for which EC2 does not state one: the limit of most Nitro types, shared."""


def attachable_volumes(facts: InstanceFacts, configuration: NodeConfiguration) -> int:
    """Return how many EBS volumes a new node will take from pods; never less than 1, as the driver never says less.

    Of a shared limit the VPC CNI's spare network interface (WARM_ENI_TARGET 1) takes one place when the driver counts.
    """
    if facts.hypervisor == "xen":
        places = _XEN_LIMIT
    elif facts.ebs_attachments is None or facts.ebs_attachments_shared:
        places = (facts.ebs_attachments or _USUAL_LIMIT) - (facts.interfaces > 1)
    else:
        places = facts.ebs_attachments
    return max(1, places - configuration.volumes)


def of_a_node(resources: Resources) -> Resources:
    """Leave out the places for volumes: a Node does not show them, its CSINode does."""
    return Resources({name: amount for name, amount in resources.items() if not name.startswith(ATTACHABLE)})
