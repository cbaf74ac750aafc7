"""SpendingLimits in words: how much of each limit its clusters use, and since when it has been nearly used up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from nodesmith.decisions.readiness.launchconditions import NEAR_LIMIT
from nodesmith.errors import Rejected, Transient
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ledger.region import Region
from nodesmith.model.limits.quotas import used_in_words
from nodesmith.model.limits.spendinglimits import SpendingLimit
from nodesmith.model.policies import USD_PER_MONTH
from nodesmith_cli.access.ledger import TABLE

Report = Mapping[str, Any]
NEARLY_PERCENT = 80


def read_region(client: Any) -> tuple[Region | None, str]:
    """Read what clusters share, through a boto3 DynamoDB client. Returns None and the reason if that fails."""
    from nodesmith.adapters.aws.calls import all_errors
    from nodesmith.adapters.dynamodb.regionitems import DynamoSharedLimits

    try:
        with all_errors(f"DynamoDB table {TABLE!r}"):
            return DynamoSharedLimits(client, TABLE).region(), ""
    except (Rejected, Transient) as error:
        return None, str(error)


def limit_reports(region: Region, now: datetime, nodepools: Sequence[Mapping[str, Any]] = ()) -> list[Report]:
    """Return SpendingLimits with their use, sorted by name. `nodepools` show since when they are nearly used up."""
    return [report for limit in region.limits for report in _reports(region, limit, now, nodepools)]


def _reports(
    region: Region, limit: SpendingLimit, now: datetime, nodepools: Sequence[Mapping[str, Any]]
) -> Iterator[Report]:
    quota = limit.quota
    if quota.fault:
        yield {"name": quota.owner, "fault": f"{quota.fault}: {quota.remedy}"}
        return
    used = region.reported_use(limit, now)
    for resource, most in sorted(quota.limits.items()):
        since = _near_since(quota.owner, nodepools)
        if not since and resource == USD_PER_MONTH:
            since = format_time(now.replace(day=1, hour=0, minute=0, second=0, microsecond=0))
        yield {
            "name": quota.owner,
            "resource": resource,
            "used": used_in_words(resource, used[resource], most),
            "percent": used[resource] * 100 // most if most else 100,
            "since": since,
            "clusters": list(limit.clusters) or None,
        }


def _near_since(owner: str, nodepools: Sequence[Mapping[str, Any]]) -> str:
    """Return the time since which a NodePool shows that a limit is nearly used up; empty if none does."""
    return min(
        (
            str(condition.get("lastTransitionTime") or "")
            for pool in nodepools
            for condition in (pool.get("status") or {}).get("conditions") or ()
            if condition.get("type") == NEAR_LIMIT
            and condition.get("status") == "True"
            and owner in str(condition.get("message"))
        ),
        default="",
    )


def limit_lines(reports: Sequence[Report]) -> Iterator[str]:
    """Yield a line for each limit."""
    for report in reports:
        if "fault" in report:
            yield f"{report['name']} cannot be read, so nothing is bought that it may select: {report['fault']}"
            continue
        since = f" since {report['since']}" if report["since"] else ""
        yield f"{report['name']}: {report['used']} used ({report['percent']} %){since}"
