"""AWS on a laptop: moto's server with corrections, and instances that boot and join the cluster.

`seam` and `fleets` make moto behave like EC2 (price order, pools without capacity, client tokens, launch template
fields, spot prices). `account` furnishes an empty account for one cluster, `kubelet` turns instances into nodes, and
`aws` assembles everything. The seam also works in process, under moto's `mock_aws`.
"""

from nodesmith_local.aws.account import Endpoint
from nodesmith_local.aws.aws import LocalAws
from nodesmith_local.aws.instances.kubelet import Kubelets
from nodesmith_local.aws.instances.pools import Pools
from nodesmith_local.aws.seam import Ec2Seam

__all__ = ["Ec2Seam", "Endpoint", "Kubelets", "LocalAws", "Pools"]
