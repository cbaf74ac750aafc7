"""Amazon Application Recovery Controller: the zonal shifts of clusters that are registered with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from botocore.config import Config
from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import all_errors, error_code, rows
from nodesmith.errors import Rejected, Transient
from nodesmith.model.ec2.zonalshifts import ZonalShift, cluster_of, shifted_zone_ids, shifts_of

_SERVICE = "arc-zonal-shift"
ARC_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=2, read_timeout=5)
"""Configuration of ARC's client: a run must not wait for long in a VPC without a route to ARC."""
_UNKNOWN = frozenset({"ResourceNotFoundException"})


class ClusterShifts:
    """The zonal shifts of one cluster. `client` returns the boto3 client of a service, and is called on first use."""

    def __init__(self, client: Callable[[str], Any], cluster: str) -> None:
        self._client, self._cluster = client, cluster
        self._arn = ""

    def read(self, now: datetime) -> tuple[ZonalShift, ...] | None:
        """Return the shifts in effect, none for a cluster that is not registered; None if they cannot be read."""
        try:
            return self._read(now)
        except (Transient, Rejected):
            return None

    def _read(self, now: datetime) -> tuple[ZonalShift, ...]:
        arn = self._arn or self._found()
        if not arn:
            return ()
        with all_errors("arc-zonal-shift:GetManagedResource"):
            try:
                resource = self._client(_SERVICE).get_managed_resource(resourceIdentifier=arn)
            except ClientError as error:
                if error_code(error) in _UNKNOWN:
                    return ()
                raise
        self._arn = arn
        return shifts_of(resource, self._names(), now) if shifted_zone_ids(resource) else ()

    def _found(self) -> str:
        """Return the cluster's ARN, empty if EKS does not know the cluster."""
        with all_errors("eks:DescribeCluster"):
            try:
                return str(self._client("eks").describe_cluster(name=self._cluster)["cluster"]["arn"])
            except ClientError as error:
                if error_code(error) in _UNKNOWN:
                    return ""
                raise

    def _names(self) -> dict[str, str]:
        """Return the names of the region's zones, by id and by name: ARC documents both as "the Availability Zone"."""
        with all_errors("ec2:DescribeAvailabilityZones"):
            zones = self._client("ec2").describe_availability_zones()["AvailabilityZones"]
        names = [zone["ZoneName"] for zone in zones]
        return {
            **{zone["ZoneId"]: zone["ZoneName"] for zone in zones},
            **dict(zip(names, names, strict=True)),
        }


class RegionShifts:
    """The clusters of a region that are shifted away from a zone. `client` returns the boto3 client of ARC."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def clusters(self) -> frozenset[str]:
        """Return the names of all EKS clusters with a shift in effect. Raises Transient, Rejected."""
        with all_errors("arc-zonal-shift:ListManagedResources"):
            found = rows(self._client(), "list_managed_resources", "items")
            return frozenset(
                name for each in found if shifted_zone_ids(each) and (name := cluster_of(each["arn"]))
            )
