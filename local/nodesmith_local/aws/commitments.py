"""Savings Plans and Reserved Instances of the account, which moto lacks: clients read them, tests and users add them.

`with AccountCommitments().answering(): …` adds the Savings Plans service and EC2's DescribeReservedInstances to moto,
both to its server and to `mock_aws`. A plan has rates for all types of the catalogue that it applies to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from unittest.mock import patch

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response

from nodesmith_local.aws.services import Answer, serving

_SERVICE = "savingsplans"
_HOST = re.compile(r"https?://savingsplans(\..+)?\.amazonaws\.com")
_PLANS, _RATES = "/DescribeSavingsPlans", "/DescribeSavingsPlanRates"
_REGION_PREFIX = {"us-east-1": "", "us-west-2": "USW2-", "eu-west-1": "EU-", "eu-central-1": "EUC1-"}


@dataclass(slots=True)
class AccountCommitments:
    """The account's commitments. `refuses` is the error code of the response to every call, if any."""

    plans: list[dict[str, Any]] = field(default_factory=list)
    rates: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    reserved: list[dict[str, Any]] = field(default_factory=list)
    refuses: str = ""

    def buy_plan(
        self,
        id_: str,
        hourly_usd: float,
        rates: Mapping[str, float],
        region: str,
        ends: datetime,
        *,
        family: str = "",
        currency: str = "USD",
    ) -> None:
        """Add an active Savings Plan with these hourly rates by instance type: of a family if one is given."""
        family_fields = {"region": region, "ec2InstanceFamily": family} if family else {}
        self.plans.append(
            {
                "savingsPlanId": id_,
                "savingsPlanArn": f"arn:aws:savingsplans::123456789012:savingsplan/{id_}",
                "offeringId": f"offering-{id_}",
                "state": "active",
                "savingsPlanType": "EC2Instance" if family else "Compute",
                "paymentOption": "No Upfront",
                "productTypes": ["EC2"] if family else ["EC2", "Fargate", "Lambda"],
                "currency": currency,
                "commitment": f"{hourly_usd:.8f}",
                "start": "2026-01-01T00:00:00.000Z",
                "end": ends.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                **family_fields,
            }
        )
        self.rates[id_] = [_rate(kind, rate, region, currency) for kind, rate in sorted(rates.items())]

    def reserve(
        self,
        id_: str,
        instance_type: str,
        count: int,
        ends: datetime,
        *,
        zone: str = "",
        hourly_usd: float = 0.0,
    ) -> None:
        """Add active Reserved Instances of Linux on shared hardware: zonal if a zone is given, else regional."""
        self.reserved.append(
            {
                "ReservedInstancesId": id_,
                "InstanceType": instance_type,
                "InstanceCount": count,
                "ProductDescription": "Linux/UNIX",
                "InstanceTenancy": "default",
                "CurrencyCode": "USD",
                "State": "active",
                "Scope": "Availability Zone" if zone else "Region",
                "Start": datetime(2026, 1, 1, tzinfo=ends.tzinfo),
                "End": ends,
                "Duration": 31_536_000,
                "FixedPrice": 0.0,
                "UsagePrice": 0.0,
                "RecurringCharges": [{"Amount": hourly_usd, "Frequency": "Hourly"}],
                **({"AvailabilityZone": zone} if zone else {}),
            }
        )

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let moto answer these calls during the block."""

        def described(response: Any) -> ActionResult:
            return self._reserved(response.params)

        paths = (_PLANS, _RATES)
        urls = (rf"https?://savingsplans\.amazonaws\.com{path}$" for path in paths)
        with (
            serving(_SERVICE, _HOST, urls, paths, self._answer),
            patch.object(EC2Response, "describe_reserved_instances", described),
        ):
            yield

    def _answer(self, _method: str, path: str, body: bytes) -> Answer:
        parameters = json.loads(body or b"{}")
        if self.refuses:
            return 403, {"x-amzn-ErrorType": self.refuses}, json.dumps({"message": "Failed on demand."})
        if path.endswith(_RATES):
            plan_rates = self.rates.get(str(parameters["savingsPlanId"]), [])
            matching = [rate for rate in plan_rates if _fits(rate, parameters.get("filters") or ())]
            return _page(matching, parameters, "searchResults")
        states = parameters.get("states") or ["active"]
        return _page([plan for plan in self.plans if plan["state"] in states], parameters, "savingsPlans")

    def _reserved(self, parameters: Mapping[str, Any]) -> ActionResult:
        filters = {
            str(filter_["Name"]): filter_.get("Values") or () for filter_ in parameters.get("Filters") or ()
        }
        states = filters.get("state", ["active"])
        return ActionResult(
            {
                "ReservedInstances": [
                    reservation for reservation in self.reserved if reservation["State"] in states
                ]
            }
        )


def _rate(kind: str, hourly_usd: float, region: str, currency: str) -> dict[str, Any]:
    properties = {
        "instanceType": kind,
        "instanceFamily": kind.partition(".")[0],
        "region": region,
        "tenancy": "shared",
        "productDescription": "Linux/UNIX",
    }
    return {
        "rate": f"{hourly_usd:.8f}",
        "currency": currency,
        "unit": "Hrs",
        "productType": "EC2",
        "serviceCode": "AmazonEC2",
        "usageType": f"{_REGION_PREFIX.get(region, '')}BoxUsage:{kind}",
        "operation": "RunInstances",
        "properties": [{"name": name, "value": value} for name, value in properties.items()],
    }


def _fits(rate: Mapping[str, Any], filters: Sequence[Mapping[str, Any]]) -> bool:
    properties = {property_["name"]: property_["value"] for property_ in rate["properties"]} | {
        "productType": rate["productType"]
    }
    return all(properties.get(filter_["name"]) in filter_["values"] for filter_ in filters)


def _page(items: Sequence[Any], parameters: Mapping[str, Any], key: str) -> Answer:
    """Return one page of a list. The token is the number of the first item that the next page has."""
    first, page_size = int(parameters.get("nextToken") or 0), int(parameters.get("maxResults") or 1000)
    next_page = {"nextToken": str(first + page_size)} if first + page_size < len(items) else {}
    return 200, {}, json.dumps({key: list(items[first : first + page_size]), **next_page})
