"""Capacity that is nearly exhausted: subnet addresses and quotas of EC2 and Lambda. Pure, except for QuotaReading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code, rows
from nodesmith.model.functions import Concern
from nodesmith_cli.access.awssession import AwsCaller
from nodesmith_cli.connecting.checks.findings import Finding, error, info, warning
from nodesmith_cli.connecting.observed import Account

FEW_ADDRESSES = 16
NEARLY = 0.8
QUOTAS = {"on-demand": "L-1216C47A", "spot": "L-34B43A08"}
"""Quotas of vCPUs of standard instances (A, C, D, H, I, M, R, T, Z), by capacity type. Most nodes belong to them."""
CONCURRENT = 2 * len(Concern)
"""nodesmith runs at most two of each function concurrently."""
_STANDARD = re.compile(r"(?:[acdhmrtz]|i[ms]?)\d")


@dataclass(frozen=True, slots=True)
class Quotas:
    """Quotas and their use. `vcpus` and `used` are by capacity type; an unknown quota is missing.

    `concurrency` is Lambda's unreserved concurrency, or None if unknown.
    """

    vcpus: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    concurrency: int | None = None
    denied: tuple[str, ...] = ()


def subnet_findings(account: Account) -> Iterator[Finding]:
    """Yield a finding for each of the cluster's subnets with few free addresses."""
    for subnet in account.subnets:
        if subnet.discovery != account.cluster.name or subnet.free_addresses >= FEW_ADDRESSES:
            continue
        detail = f"has {subnet.free_addresses} free addresses ({subnet.zone})"
        remedy = "add a subnet with the tag karpenter.sh/discovery, or enable prefix delegation"
        make = error if not subnet.free_addresses else warning
        yield make("subnet-addresses", f"subnet {subnet.id}", detail, remedy)


def quota_findings(quotas: Quotas, region: str) -> Iterator[Finding]:
    """Yield a finding for each quota that is nearly exhausted."""
    for denied in quotas.denied:
        yield info("quotas", "quotas", f"not checked: {denied}")
    for capacity, quota in quotas.vcpus.items():
        used = quotas.used.get(capacity, 0)
        if used >= NEARLY * quota:
            command = (
                f"aws service-quotas request-service-quota-increase --region {region} --service-code ec2 "
                f"--quota-code {QUOTAS[capacity]} --desired-value {max(64, round(2 * quota))}"
            )
            detail = f"{used} of {quota:.0f} vCPUs are in use"
            yield warning("vcpu-quota", f"EC2 quota of {capacity} vCPUs", detail, command)
    if quotas.concurrency is not None and quotas.concurrency < CONCURRENT:
        yield warning(
            "lambda-concurrency",
            "Lambda quota of concurrent executions",
            f"{quotas.concurrency} are available to all functions, and nodesmith may need {CONCURRENT}",
            f"aws service-quotas request-service-quota-increase --region {region} --service-code lambda "
            "--quota-code L-B99A9384 --desired-value 1000",
        )


class QuotaReading(AwsCaller):
    """Reads quotas and their use."""

    def quotas(self) -> Quotas:
        """Return the quotas of EC2 and Lambda. Raises Transient, Rejected."""
        vcpus = {name: value for name, code in QUOTAS.items() if (value := self._quota(code)) is not None}
        used = self._used()
        return Quotas(vcpus, used, self._concurrency(), tuple(self.denied))

    def _quota(self, code: str) -> float | None:
        def read() -> float | None:
            try:
                response = self.client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode=code)
            except ClientError as refused:
                if error_code(refused) not in ("NoSuchResourceException", "NoSuchResource"):
                    raise
                return None
            return float(response["Quota"]["Value"])

        return self.ask("servicequotas:GetServiceQuota", f"ec2/{code}", read, None)

    def _used(self) -> dict[str, int]:
        def read() -> dict[str, int]:
            states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
            reservations = rows(self.client("ec2"), "describe_instances", "Reservations", Filters=states)
            used = dict.fromkeys(QUOTAS, 0)
            for instance in (each for reservation in reservations for each in reservation["Instances"]):
                used["spot" if instance.get("InstanceLifecycle") == "spot" else "on-demand"] += _vcpus(
                    instance
                )
            return used

        return self.ask("ec2:DescribeInstances", "*", read, dict[str, int]())

    def _concurrency(self) -> int | None:
        def read() -> int | None:
            limits = self.client("lambda").get_account_settings()["AccountLimit"]
            return int(limits["UnreservedConcurrentExecutions"])

        return self.ask("lambda:GetAccountSettings", "*", read, None)


def _vcpus(instance: Mapping[str, Any]) -> int:
    """Return the vCPUs of an instance, or 0 if another quota covers it."""
    options = instance.get("CpuOptions") or {}
    is_counted = _STANDARD.match(str(instance.get("InstanceType")))
    return int(options.get("CoreCount", 0)) * int(options.get("ThreadsPerCore", 1)) if is_counted else 0
