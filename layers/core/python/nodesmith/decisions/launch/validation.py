"""Which EC2NodeClasses cannot be launched from, checked before anything is bought."""

from __future__ import annotations

from datetime import UTC, datetime

from nodesmith.decisions.launch.obstacles import Obstacle, family_obstacle
from nodesmith.decisions.launch.templates import USER_DATA_LIMIT_BYTES, user_data
from nodesmith.decisions.launch.userdata.al2023 import check_node_configs
from nodesmith.decisions.launch.userdata.starting import MalformedUserData, Start
from nodesmith.model.apimachinery.labels import NODECLASS, NODEPOOL, ON_DEMAND
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.karpenter.ownership import (
    CLUSTER_TAG,
    FLEET_TAG,
    KEEP_VOLUMES_TAG,
    MANAGED_BY_TAG,
    NODECLAIM_TAG,
)
from nodesmith.model.nodeclasses.instancesettings import AL2023
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, version_fault
from nodesmith.model.nodeclasses.status import ClusterInfo

_OUR_TAGS = frozenset(
    {CLUSTER_TAG, FLEET_TAG, MANAGED_BY_TAG, KEEP_VOLUMES_TAG, NODEPOOL, NODECLAIM_TAG, NODECLASS}
)
_MAX_OWN_TAGS = 41  # EC2 allows 50 on a resource; a launch adds up to nine of nodesmith's
_MAX_TAG_KEY, _MAX_TAG_VALUE = 128, 256


def launch_obstacle(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    """Return the first problem of the NodeClass that prevents every launch, None if there is none."""
    return (
        family_obstacle(nodeclass, cluster)
        or _no_such_image(nodeclass)
        or _no_cidr(nodeclass, cluster)
        or _bad_tag(nodeclass)
        or _bad_volume(nodeclass)
        or _bad_address(nodeclass, cluster)
        or _bad_user_data(nodeclass, cluster)
    )


def _no_such_image(nodeclass: EC2NodeClass) -> Obstacle | None:
    faults = (version_fault(term.alias) for term in nodeclass.ami_selector_terms if term.alias)
    fault = next(filter(None, faults), "")
    field = "spec.amiSelectorTerms"
    return Obstacle("AMINotFound", f"{field}: {fault}", field) if fault else None


def _no_cidr(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    if cluster.service_cidr or nodeclass.ami_family != AL2023:
        return None
    return Obstacle(
        "ClusterCIDRResolutionFailed",
        "the cluster's service CIDR is unknown: allow eks:DescribeCluster or set CLUSTER_SERVICE_CIDR",
    )


def _bad_tag(nodeclass: EC2NodeClass) -> Obstacle | None:
    """Return the first tag that exceeds EC2's limits or that nodesmith finds its instances by.

    Case does not matter, since IAM's conditions ignore it.
    """
    for key, value in sorted(nodeclass.tags.items()):
        wrong = None
        if key.lower() in _OUR_TAGS or key.lower().startswith("kubernetes.io/cluster"):
            wrong = "is set by nodesmith itself: remove it"
        elif key.lower().startswith("aws:"):
            wrong = "begins with aws:, which AWS keeps for itself: rename it"
        elif not 1 <= len(key) <= _MAX_TAG_KEY or len(value) > _MAX_TAG_VALUE:
            wrong = f"is too long or empty: keys have 1–{_MAX_TAG_KEY} characters, values at most {_MAX_TAG_VALUE}"
        if wrong:
            message = f"spec.tags[{key[:_MAX_TAG_KEY]!r}] {wrong}"
            return Obstacle("TagValidationFailed", message, f"spec.tags[{key}]")
    if len(nodeclass.tags) > _MAX_OWN_TAGS:
        return Obstacle(
            "TagValidationFailed",
            f"spec.tags has {len(nodeclass.tags)} tags: EC2 leaves room for {_MAX_OWN_TAGS}",
            "spec.tags",
        )
    return None


def _bad_volume(nodeclass: EC2NodeClass) -> Obstacle | None:
    from nodesmith.decisions.launch.volumesandaddresses import volume_obstacle

    return volume_obstacle(nodeclass.block_device_mappings)


def _bad_address(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    from nodesmith.decisions.launch.volumesandaddresses import address_obstacle

    return address_obstacle(nodeclass, cluster)


def _bad_user_data(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    try:
        size = len(nodeclass.user_data.encode())
        if size <= USER_DATA_LIMIT_BYTES:  # user data that is too large by itself need not be parsed
            size = len(user_data(Start(_PLAIN_CLAIM, ON_DEMAND, 110, nodeclass, cluster)).encode())
            if nodeclass.ami_family == AL2023:
                check_node_configs(nodeclass.user_data)
    except MalformedUserData as error:
        return Obstacle("UserDataInvalid", f"spec.userData: {error}", "spec.userData", error.line)
    except UnicodeEncodeError as error:
        return Obstacle("UserDataInvalid", f"spec.userData: {error}", "spec.userData")
    if size <= USER_DATA_LIMIT_BYTES:
        return None
    return Obstacle(
        "UserDataSizeLimitExceeded",
        f"spec.userData: with the cluster's own settings it has {size} bytes, but EC2 accepts {USER_DATA_LIMIT_BYTES}: "
        "fetch the larger part from S3 at boot",
        "spec.userData",
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The smallest possible claim: user data that is too large with it is too large with any claim.
_PLAIN_CLAIM = NodeClaim("", "", NodeClassRef(""), _EPOCH, Phase.PENDING, _EPOCH)
