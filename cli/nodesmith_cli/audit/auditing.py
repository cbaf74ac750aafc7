"""The entry point of the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.policies import NodeSettings
from nodesmith_cli.audit.checks.accounts import check_pods, check_prices, check_requests
from nodesmith_cli.audit.checks.choices import AdmittingMachines, check_min_values
from nodesmith_cli.audit.checks.fitting import check_places, check_unplaced
from nodesmith_cli.audit.checks.nodepools import check_limits, check_reservations, check_weights
from nodesmith_cli.audit.checks.volumes import check_volumes
from nodesmith_cli.audit.outcome import outcome
from nodesmith_cli.audit.reading.cluster import read_cluster
from nodesmith_cli.audit.reading.plans import read_plan
from nodesmith_cli.audit.topology.antiaffinity import AntiAffinityTerms, check_anti_affinity
from nodesmith_cli.audit.topology.peers import Peers
from nodesmith_cli.audit.topology.together import check_company
from nodesmith_cli.audit.violations import Violation


def audit(
    manifests: Sequence[Mapping[str, Any]],
    catalog: Catalog,
    plan: Mapping[str, Any],
    *,
    settings: NodeSettings | None = None,
) -> list[Violation]:
    """Check a plan (the JSON of `nodesmith plan`) against the objects and the catalogue that it was made from.

    `manifests` are as an API server returns them, with workloads already expanded to pods. Returns the violations,
    sorted, or nothing if the plan is correct. Never raises, even for malformed plans and manifests.
    """
    rules = settings or NodeSettings()
    cluster = read_cluster(manifests, _default_spreads(rules))
    result = outcome(cluster, catalog, read_plan(plan), rules)
    check_pods(result)
    check_prices(result)
    check_requests(result)
    check_places(result)
    check_limits(result)
    check_reservations(result)
    suiting = AdmittingMachines(result)
    check_min_values(result, suiting, strict=rules.min_values_policy == "Strict")
    check_volumes(result)
    peers = Peers(result)
    aversions = AntiAffinityTerms(result, peers)
    check_weights(result, aversions, peers, suiting)
    check_anti_affinity(result, aversions)
    check_company(result, peers)
    check_unplaced(result, aversions)
    return sorted(set(result.violations))


def _default_spreads(rules: NodeSettings) -> list[Mapping[str, Any]]:
    return [
        {
            "topologyKey": spread.topology_key,
            "maxSkew": spread.max_skew,
            "whenUnsatisfiable": "DoNotSchedule" if spread.hard else "ScheduleAnyway",
        }
        for spread in rules.default_spreads
    ]
