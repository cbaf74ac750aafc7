"""AWS: Savings Plans and Reserved Instances of an account or of its payer, and what runs on demand in a region.

Sources: the API references of Savings Plans (DescribeSavingsPlans, DescribeSavingsPlanRates) and EC2
(DescribeReservedInstances, DescribeInstances). Each call reads all pages. It raises Transient if a retry may help, or
Rejected if not, such as for a right that the role does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nodesmith.adapters.aws.calls import all_errors, rows
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.ownership import MANAGED_BY_TAG
from nodesmith.model.ledger.commitments import Commitment, CommitmentKind, quarter_units

_LINUX = frozenset({"Linux/UNIX", "Linux/UNIX (Amazon VPC)"})
_PLANS = {"Compute": CommitmentKind.COMPUTE, "EC2Instance": CommitmentKind.EC2_INSTANCE}
_MICRO = 1_000_000
_PAGE = 1000
_MOST_PAGES = 100
SESSION_NAME = "nodesmith-commitments"


@dataclass(frozen=True, slots=True)
class AwsCommitments:
    """The commitments of one account. `client` returns the boto3 client of a service."""

    region: str
    client: Callable[[str], Any]
    of_payer: bool = False

    def of_payer_through(self, role_arn: str, session: Callable[[Mapping[str, str]], Any]) -> AwsCommitments:
        """Return those of the payer, read with a role there. `session` makes clients of temporary credentials."""
        with all_errors(f"sts:AssumeRole {role_arn}"):
            answer = self.client("sts").assume_role(RoleArn=role_arn, RoleSessionName=SESSION_NAME)
        return AwsCommitments(self.region, session(answer["Credentials"]), of_payer=True)

    def savings_plans(self) -> list[Commitment]:
        """Return the active Savings Plans that apply to instances of the region."""
        client, commitments = self.client("savingsplans"), []
        rates: dict[str, FrozenMap[int]] = {}
        with all_errors("savingsplans:DescribeSavingsPlans"):
            plans = list(_pages(client, "describe_savings_plans", "savingsPlans", states=["active"]))
        for plan in plans:
            kind = _PLANS.get(plan["savingsPlanType"])
            is_here = kind is CommitmentKind.COMPUTE or plan.get("region") == self.region
            if kind is None or not is_here:
                continue
            _require_usd(plan["savingsPlanId"], plan["currency"])
            offering = plan["offeringId"]
            if offering not in rates:  # all plans of one offering have its rates
                rates[offering] = self._rates(client, plan["savingsPlanId"])
            commitments.append(self._plan(plan, kind, rates[offering]))
        return commitments

    def _plan(self, plan: Mapping[str, Any], kind: CommitmentKind, rates: FrozenMap[int]) -> Commitment:
        hourly = float(plan["commitment"])
        return Commitment(
            plan["savingsPlanId"],
            kind,
            round(hourly * _MICRO),
            parse_time(plan["end"]),
            plan.get("ec2InstanceFamily", "") if kind is CommitmentKind.EC2_INSTANCE else "",
            rates=rates,
            hourly_usd=hourly,
            of_payer=self.of_payer,
        )

    def _rates(self, client: Any, plan: str) -> FrozenMap[int]:
        """Return the hourly rates of Linux on shared hardware in the region, by type."""
        criteria = {
            "region": self.region,
            "productDescription": "Linux/UNIX",
            "tenancy": "shared",
            "productType": "EC2",
        }
        filters = [{"name": name, "values": [value]} for name, value in criteria.items()]
        parameters = {"savingsPlanId": plan, "filters": filters}
        rates: dict[str, int] = {}
        with all_errors("savingsplans:DescribeSavingsPlanRates"):
            for rate in _pages(client, "describe_savings_plan_rates", "searchResults", **parameters):
                about = {property_["name"]: property_["value"] for property_ in rate["properties"]}
                # The same types have rates for use within and without capacity reservations: they are equal.
                if "BoxUsage" in rate["usageType"] and rate["unit"] == "Hrs" and about.get("instanceType"):
                    rates[about["instanceType"]] = round(float(rate["rate"]) * _MICRO)
        return FrozenMap(rates)

    def reserved_instances(self, vcpus: Mapping[str, int]) -> list[Commitment]:
        """Return the active Reserved Instances of Linux on shared hardware. `vcpus` are those of bare metal types."""
        with all_errors("ec2:DescribeReservedInstances"):
            answer = self.client("ec2").describe_reserved_instances(
                Filters=[{"Name": "state", "Values": ["active"]}]
            )
        return [
            self._reserved(reservation, vcpus)
            for reservation in answer["ReservedInstances"]
            if reservation["ProductDescription"] in _LINUX
            and reservation.get("InstanceTenancy", "default") == "default"
        ]

    def _reserved(self, reservation: Mapping[str, Any], vcpus: Mapping[str, int]) -> Commitment:
        _require_usd(reservation["ReservedInstancesId"], reservation.get("CurrencyCode", "USD"))
        kind, count, zone = (
            reservation["InstanceType"],
            reservation["InstanceCount"],
            reservation.get("AvailabilityZone", ""),
        )
        is_zonal = bool(zone) and reservation.get("Scope") != "Region"
        amount = count if is_zonal else count * quarter_units(kind, vcpus.get(kind, 0))
        recurring = sum(
            float(r["Amount"]) for r in reservation.get("RecurringCharges", ()) if r["Frequency"] == "Hourly"
        )
        upfront = float(reservation.get("FixedPrice", 0.0)) * 3600 / max(1, reservation.get("Duration", 1))
        return Commitment(
            reservation["ReservedInstancesId"],
            CommitmentKind.ZONAL if is_zonal else CommitmentKind.REGIONAL,
            amount,
            _utc(reservation["End"]),
            kind,
            zone if is_zonal else "",
            hourly_usd=round(count * (upfront + recurring), 6),
            of_payer=self.of_payer,
        )

    def running(self) -> dict[str, dict[tuple[str, str], float]]:
        """Return what runs on demand, Linux on shared hardware: by cluster of nodesmith (or ""), type and zone."""
        by_cluster: dict[str, dict[tuple[str, str], float]] = {}
        filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        with all_errors("ec2:DescribeInstances"):
            parameters = {"Filters": filters, "PaginationConfig": {"PageSize": _PAGE}}
            for reservation in rows(self.client("ec2"), "describe_instances", "Reservations", **parameters):
                for instance in reservation["Instances"]:
                    if _is_linux_on_demand(instance):
                        cluster = _cluster_of(instance)
                        key = instance["InstanceType"], instance["Placement"]["AvailabilityZone"]
                        counts = by_cluster.setdefault(cluster, {})
                        counts[key] = counts.get(key, 0.0) + 1
        return by_cluster


def _pages(client: Any, call: str, key: str, **parameters: Any) -> Iterator[Any]:
    """Yield the items of all pages; botocore has no paginator for these calls."""
    token: dict[str, str] = {}
    for _ in range(_MOST_PAGES):
        answer = getattr(client, call)(**parameters, **token, maxResults=_PAGE)
        yield from answer[key]
        if not answer.get("nextToken"):
            return
        token = {"nextToken": answer["nextToken"]}
    raise Rejected(f"{key}: more than {_MOST_PAGES} pages of {_PAGE}")


def _is_linux_on_demand(instance: Mapping[str, Any]) -> bool:
    platform = instance.get("PlatformDetails", "Linux/UNIX")
    is_default = instance["Placement"].get("Tenancy", "default") == "default"
    return not instance.get("InstanceLifecycle") and platform == "Linux/UNIX" and is_default


def _cluster_of(instance: Mapping[str, Any]) -> str:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    return str(tags.get(MANAGED_BY_TAG, ""))


def _require_usd(name: str, currency: str) -> None:
    if currency != "USD":
        raise Rejected(f"{name}: its currency is {currency}; only commitments in USD are known here")


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
