"""Corrections to moto's EC2: fleets, spot prices, and failures on demand.

`with Ec2Seam(catalog): …` patches moto's EC2 responses in this process, both for its server and for `mock_aws`.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from types import TracebackType
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.spot_requests import SpotInstanceRequest
from moto.ec2.models.subnets import Subnet
from moto.ec2.responses.fleets import Fleets
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.launch_templates import LaunchTemplates
from moto.ec2.responses.spot_instances import SpotInstances
from moto.ec2.utils import filter_dict_attribute_mapping

from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith_local.aws.instances.fleets import Market, create_fleet
from nodesmith_local.aws.instances.pools import Pools

_FLEET_PARAMETERS = (
    "LaunchTemplateConfigs TargetCapacitySpecification TagSpecifications SpotOptions OnDemandOptions Type Context"
).split()
_PATCHED: Mapping[str, tuple[type, str]] = {
    "CreateFleet": (Fleets, "create_fleet"),
    "CreateLaunchTemplate": (LaunchTemplates, "create_launch_template"),
    "DescribeInstances": (InstanceResponse, "describe_instances"),
    "DescribeSpotPriceHistory": (SpotInstances, "describe_spot_price_history"),
    "StartInstances": (InstanceResponse, "start_instances"),
}
for _filter in ("event.code", "instance-status.status", "system-status.status"):
    filter_dict_attribute_mapping.setdefault(_filter, "untold.code")  # moto's instances have no events
# The property that moto reads to filter requests by this name.
SpotInstanceRequest.status_code = property(lambda request: request.status["Code"])  # type: ignore[attr-defined]


Subnet.ipv6_cidr_block_association_set = property(  # type: ignore[method-assign, assignment]
    lambda subnet: _ipv6_blocks(subnet)
)


def _ipv6_blocks(subnet: Any) -> list[dict[str, Any]]:
    """Return a subnet's IPv6 blocks. moto writes the state as the text of a dictionary."""
    return [
        {
            "ipv6CidrBlock": block["ipv6CidrBlock"],
            "associationId": block["associationId"],
            "ipv6CidrBlockState": {"state": block["ipv6CidrBlockState"]["State"]},
        }
        for block in subnet.ipv6_cidr_block_associations.values()
    ]


class Ec2Seam:
    """EC2's behaviour for moto. `pools` may be emptied and restocked at any time."""

    def __init__(
        self,
        catalog: Catalog,
        pools: Pools | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.pools = pools or Pools()
        self._now = now
        self._catalog = catalog
        self._tokens: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        self._faults: dict[str, list[str]] = {}
        self._faults_inside: list[str] = []
        self._originals: dict[str, Callable[..., ActionResult]] = {}
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()

    @cached_property
    def _prices(self) -> dict[OfferingKey, float]:
        return {
            OfferingKey(offering.capacity_type, name, offering.zone): offering.price_hourly_usd
            for name, offerings in self._catalog.offerings.items()
            for offering in offerings
        }

    def fail(self, operation: str, code: str, times: int = 1) -> None:
        """Let the next calls of an operation fail with an EC2 error code such as `RequestLimitExceeded`.

        Raises ValueError for an operation that the seam does not patch.
        """
        if operation not in _PATCHED:
            raise ValueError(f"{operation}: only {', '.join(_PATCHED)} can fail on demand")
        self._faults.setdefault(operation, []).extend([code] * times)

    def fail_inside(self, code: str, times: int = 1) -> None:
        """Let the next new fleets return this error for each pool, and no instance."""
        self._faults_inside.extend([code] * times)

    def __enter__(self) -> Ec2Seam:
        ours = {
            "CreateFleet": self._create_fleet,
            "DescribeSpotPriceHistory": self._spot_prices,
            "StartInstances": self._start_instances,
        }
        for operation, (holder, method) in _PATCHED.items():
            self._originals[operation] = original = getattr(holder, method)
            setattr(holder, method, self._patched(operation, ours.get(operation, original)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for operation, (holder, method) in _PATCHED.items():
            setattr(holder, method, self._originals.pop(operation))

    def _patched(
        self, operation: str, answer: Callable[[Any], ActionResult]
    ) -> Callable[[Any], ActionResult]:
        def respond(response: Any) -> ActionResult:
            self.calls[operation] += 1
            faults = self._faults.get(operation)
            if faults:
                raise EC2ClientError(faults.pop(0), "Failed on demand.")
            return answer(response)

        return respond

    def _create_fleet(self, response: Any) -> ActionResult:
        request = {name: response._get_param(name) for name in _FLEET_PARAMETERS}  # noqa: SLF001
        if request["Type"] != "instant":
            original: ActionResult = self._originals["CreateFleet"](response)
            return original
        response.error_on_dryrun()
        # moto's instances are not thread-safe, and EC2 does not promise an order of arrival anyway.
        with self._lock:
            return ActionResult(self._once(response, request))

    def _start_instances(self, response: Any) -> ActionResult:
        """Start instances, as EC2 does: only those that are stopped, and only while their pools have capacity."""
        for id_ in response._get_param("InstanceIds", []):  # noqa: SLF001
            instance = response.ec2_backend.get_instance_by_id(id_)
            if instance is None or instance.state in ("pending", "running"):
                continue
            if instance.state != "stopped":
                message = f"The instance '{id_}' is not in a state from which it can be started."
                raise EC2ClientError("IncorrectInstanceState", message)
            pool = OfferingKey(ON_DEMAND, instance.instance_type, instance.placement.zone)
            if not self.pools.has(pool):
                raise EC2ClientError("InsufficientInstanceCapacity", "Insufficient capacity.")
        original: ActionResult = self._originals["StartInstances"](response)
        return original

    def _once(self, response: Any, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first call's answer for a repeated client token.

        Raises EC2's IdempotentParameterMismatch if the parameters differ.
        """
        token = response._get_param("ClientToken")  # noqa: SLF001
        fingerprint = json.dumps(request, sort_keys=True, default=str)
        key = (response.region, token)
        if token and key in self._tokens:
            first, response_body = self._tokens[key]
            if first != fingerprint:
                message = "The client token was used before, with other parameters."
                raise EC2ClientError("IdempotentParameterMismatch", message)
            return response_body
        fault = self._faults_inside.pop(0) if self._faults_inside else ""
        market = Market(self._now(), self._prices.get, self.pools.has, fault, self.pools.refusal)
        response_body = create_fleet(response.ec2_backend, request, market)
        if token:
            self._tokens[key] = fingerprint, response_body
        return response_body

    def _spot_prices(self, response: Any) -> ActionResult:
        types = set(response._get_param("InstanceTypes", []))  # noqa: SLF001
        filters = response._filters_from_querystring()  # noqa: SLF001
        zones = set(filters.get("availability-zone", ()))
        products = set(response._get_param("ProductDescriptions", [])) or {"Linux/UNIX"}  # noqa: SLF001
        zones |= {zone for zone in [response._get_param("AvailabilityZone")] if zone}  # noqa: SLF001
        types |= set(filters.get("instance-type", ()))
        history = [
            {
                "InstanceType": pool.instance_type,
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": f"{price:.6f}",
                "AvailabilityZone": pool.zone,
                "Timestamp": self._now(),
            }
            for pool, price in self._prices.items()
            if pool.capacity_type == SPOT
            and "Linux/UNIX" in products
            and (not types or pool.instance_type in types)
            and (not zones or pool.zone in zones)
        ]
        return ActionResult({"SpotPriceHistory": history})
