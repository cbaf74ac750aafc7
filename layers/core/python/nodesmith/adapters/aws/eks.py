"""EKS: the cluster that new nodes join, bearer tokens for its API server, and zonal shifts of clusters.

The cluster is described as far as settings lack values. Amazon Application Recovery Controller (ARC) knows the shifts
of clusters that are registered with it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import DENIED, all_errors, as_transient, error_code, error_message, rows
from nodesmith.errors import Rejected, Transient
from nodesmith.model.ec2.zonalshifts import ZonalShift, cluster_of, shifted_zone_ids, shifts_of
from nodesmith.model.nodeclasses.status import ClusterInfo
from nodesmith.settings import Settings

_SETTINGS = {
    "endpoint": "CLUSTER_ENDPOINT",
    "ca_bundle": "CLUSTER_CA_BUNDLE",
    "service_cidr": "CLUSTER_SERVICE_CIDR",
    "version": "CLUSTER_VERSION",
}
_VERSION = re.compile(r"\d+\.\d+")
_UNKNOWN = DENIED | {"ResourceNotFoundException"}


def cluster_info(client: Callable[[str], Any], settings: Settings) -> ClusterInfo:
    """Describe the cluster. Raises Transient, or Rejected that names every setting that neither source has."""
    values = {
        "endpoint": settings.cluster_endpoint,
        "ca_bundle": settings.cluster_ca_bundle,
        "service_cidr": settings.cluster_service_cidr,
        "version": settings.cluster_version,
    }
    trouble = ""
    if not all(values.values()):
        described, trouble = _describe(client, settings.cluster_name)
        values = {name: value or described.get(name, "") for name, value in values.items()}
    missing = [variable for name, variable in _SETTINGS.items() if not values[name]]
    if missing:
        raise Rejected(
            f"cluster {settings.cluster_name!r} in {settings.region}: {trouble or 'EKS returns incomplete data'}: "
            f"set {', '.join(missing)}, or correct CLUSTER_NAME"
        )
    if not _VERSION.fullmatch(values["version"]):
        raise Rejected(f"CLUSTER_VERSION={values['version']!r}: write the minor version, such as 1.33")
    network = _service_network(values["service_cidr"])
    family = "ipv6" if network.version == 6 else "ipv4"
    # EKS assigns the tenth address of the service range to its DNS Service, and nodeadm assumes it.
    return ClusterInfo(
        settings.cluster_name,
        values["endpoint"],
        values["ca_bundle"],
        values["service_cidr"],
        values["version"],
        ip_family=family,
        dns_ip=str(network[10]),
    )


def _service_network(cidr: str) -> Any:
    try:
        network = ip_network(cidr)
    except ValueError as error:
        raise Rejected(
            f"CLUSTER_SERVICE_CIDR={cidr!r}: {error}; write a range such as 10.100.0.0/16"
        ) from None
    if network.num_addresses <= 10:
        raise Rejected(
            f"CLUSTER_SERVICE_CIDR={cidr!r}: too small for a cluster; write a range such as 10.100.0.0/16"
        )
    return network


def _describe(client: Callable[[str], Any], name: str) -> tuple[Mapping[str, str], str]:
    """Return the values that EKS has, and the reason if it has none. Raises Transient."""
    with as_transient("eks:DescribeCluster"):
        try:
            cluster = client("eks").describe_cluster(name=name)["cluster"]
        except ClientError as error:
            if error_code(error) not in _UNKNOWN:
                raise
            return {}, f"EKS returned {error_code(error)} ({error_message(error)})"
    network = cluster.get("kubernetesNetworkConfig") or {}
    ipv6 = network.get("ipFamily") == "ipv6"
    return {
        "endpoint": cluster.get("endpoint", ""),
        "ca_bundle": (cluster.get("certificateAuthority") or {}).get("data", ""),
        "service_cidr": network.get("serviceIpv6Cidr" if ipv6 else "serviceIpv4Cidr", ""),
        "version": cluster.get("version", ""),
    }, ""


# Format (aws-iam-authenticator): `k8s-aws-v1.` followed by the unpadded base64url of a presigned URL of the
# regional endpoint. The signature covers the header `x-k8s-aws-id`, the cluster's name. A token is valid for 15
# minutes.
_PREFIX = "k8s-aws-v1."
_KEPT_FOR = timedelta(minutes=14)
_URL_EXPIRES_SECONDS = 60


_SUFFIXES = {
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "eu-isoe-": "cloud.adc-e.uk",
    "us-isof-": "csp.hci.ic.gov",
}
"""The domains of AWS's partitions, by the beginning of their regions' names; all others share one."""


def dns_suffix(region: str) -> str:
    """Return the domain of a region's endpoints."""
    return next((domain for start, domain in _SUFFIXES.items() if region.startswith(start)), "amazonaws.com")


def eks_token(credentials: Credentials, cluster: str, region: str) -> str:
    """Return a new token."""
    request = AWSRequest(
        method="GET",
        url=f"https://sts.{region}.{dns_suffix(region)}/?Action=GetCallerIdentity&Version=2011-06-15",
        headers={"x-k8s-aws-id": cluster},
    )
    frozen = credentials.get_frozen_credentials()
    signer = SigV4QueryAuth(frozen, "sts", region, expires=_URL_EXPIRES_SECONDS)
    signer.add_auth(request)
    return _PREFIX + base64.urlsafe_b64encode(str(request.url).encode()).decode().rstrip("=")


class EksToken:
    """A callable that returns a token and renews it before it expires."""

    def __init__(
        self,
        credentials: Credentials,
        cluster: str,
        region: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._credentials = credentials
        self._cluster = cluster
        self._region = region
        self._clock = clock
        self._token = ""
        self._until = datetime.min.replace(tzinfo=UTC)

    def __call__(self) -> str:
        now = self._clock()
        if now >= self._until:
            self._token = eks_token(self._credentials, self._cluster, self._region)
            self._until = now if self._end_first() else now + _KEPT_FOR
        return self._token

    def _end_first(self) -> bool:
        """Return whether the credentials expire before a token that they sign: they could not be renewed in time."""
        ends = getattr(self._credentials, "refresh_needed", None)
        return ends is not None and bool(ends(refresh_in=_KEPT_FOR.total_seconds()))


_SERVICE = "arc-zonal-shift"
ARC_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=2, read_timeout=5)
"""Configuration of ARC's client: a run must not wait for long in a VPC without a route to ARC."""
_UNREGISTERED = frozenset({"ResourceNotFoundException"})


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
        arn = self._arn or self._cluster_arn()
        if not arn:
            return ()
        with all_errors("arc-zonal-shift:GetManagedResource"):
            try:
                resource = self._client(_SERVICE).get_managed_resource(resourceIdentifier=arn)
            except ClientError as error:
                if error_code(error) in _UNREGISTERED:
                    return ()
                raise
        self._arn = arn
        return shifts_of(resource, self._names(), now) if shifted_zone_ids(resource) else ()

    def _cluster_arn(self) -> str:
        """Return the cluster's ARN, empty if EKS does not know the cluster."""
        with all_errors("eks:DescribeCluster"):
            try:
                return str(self._client("eks").describe_cluster(name=self._cluster)["cluster"]["arn"])
            except ClientError as error:
                if error_code(error) in _UNREGISTERED:
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
            resources = rows(self._client(), "list_managed_resources", "items")
            return frozenset(
                name
                for resource in resources
                if shifted_zone_ids(resource) and (name := cluster_of(resource["arn"]))
            )
