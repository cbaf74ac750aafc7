"""The `regions`, `clusters` and `account` of cdk.json's context: their schema, defaults and faults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.context.account import AccountContext, account_faults, read_account
from infra.context.clusters import ClusterContext, cluster_faults, duplicate_faults, read_cluster
from infra.context.regions import REGION, RegionContext, read_region, region_faults

DEFAULT_REGION = "us-east-1"
_REGION_VARIABLES = ("CDK_DEFAULT_REGION", "AWS_REGION")  # the cdk command sets the first


@dataclass(frozen=True, slots=True)
class Context:
    """What is deployed: regions by name, clusters in the order of cdk.json, each in one of the regions, and notices."""

    regions: Mapping[str, RegionContext]
    clusters: tuple[ClusterContext, ...] = field(default_factory=tuple)
    account: AccountContext | None = None


def environments_region(environment: Mapping[str, str]) -> str:
    """Return the region to deploy if cdk.json names none. Raises ValueError if a variable holds no region."""
    for name in _REGION_VARIABLES:
        region = environment.get(name, "")
        if region and not REGION.fullmatch(region):
            raise ValueError(f"{name}: expected an AWS region such as {DEFAULT_REGION}, found {region!r}")
        if region:
            return region
    return DEFAULT_REGION


def read_context(
    regions: Any, clusters: Any, default_region: str = DEFAULT_REGION, account: Any = None
) -> Context:
    """Read the context values: JSON text if `cdk -c clusters=…` sets them, None if they are not set.

    Raises ValueError with every fault: where it is, what was found and what is expected.
    """
    regions, clusters = (_json("regions", regions, {}), _json("clusters", clusters, []))
    account = _json("account", account, {})
    faults = [fault for name, entry in regions.items() for fault in region_faults(name, entry)]
    valid_regions = {name: entry for name, entry in regions.items() if isinstance(entry, dict)}
    for index, entry in enumerate(clusters):
        faults += cluster_faults(f"clusters[{index}]", entry, valid_regions)
    faults += account_faults(account) if account else ()
    if faults:
        raise ValueError("\n".join(faults))
    cluster_contexts = tuple(read_cluster(entry) for entry in clusters)
    if faults := duplicate_faults(cluster_contexts):
        raise ValueError("\n".join(faults))
    region_names = dict.fromkeys(
        [*regions, *(cluster.region for cluster in cluster_contexts)] or [default_region]
    )
    notices = read_account(account) if account else None
    return Context(
        {name: read_region(name, regions.get(name, {})) for name in region_names}, cluster_contexts, notices
    )


def _json(name: str, text: Any, default: Any) -> Any:
    """Return an object if `default` is one, otherwise a list. Raises ValueError for anything else."""
    kind = "a JSON object" if isinstance(default, dict) else "a JSON list"
    if text is None:
        return default
    value = text
    if isinstance(text, str):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{name}: expected {kind}, found {text[:80]!r} ({error})") from None
    if not isinstance(value, type(default)):
        raise ValueError(f"{name}: expected {kind}, found {str(value)[:80]!r}")
    return value
