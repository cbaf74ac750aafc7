"""The implementation of `nodesmith shadow`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.keys import shadow_key
from nodesmith.model.costs.shadow import NODESMITH, Shadow, read_shadow
from nodesmith_cli.costs.shadowing.output import as_csv, page, show
from nodesmith_cli.costs.shadowing.report import report
from nodesmith_cli.output.printing import print_data
from nodesmith_cli.output.progress import progress
from nodesmith_cli.output.reporting.delivery import deliver
from nodesmith_cli.output.terminal import console

OK = 0
"""The file that `-o html` writes if standard output is a terminal."""


def stored_shadow(read: Callable[[str], bytes | None], cluster: str) -> Shadow:
    """Return the stored shadow of a cluster. `read` returns an object by its key.

    Raises Rejected if the cluster is not observed, or nothing is stored yet.
    """
    key = shadow_key(cluster)
    data = read(key)
    if data is None:
        raise Rejected(
            f"cluster {cluster!r}: nothing is kept of it. `nodesmith connect {cluster} --observe` begins to watch it; "
            "the first look comes within a minute of its first snapshot"
        )
    return read_shadow(data, key)


def print_shadow(
    shadow: Shadow, days: int, output: str, kubeconfig: str = "", *, is_audited: bool = False
) -> int:
    """Print the report, and return the exit status. Raises Rejected, Transient."""
    shadow_report = report(shadow, days)
    if is_audited:
        with progress("checking the shadow against the cluster", key="shadow-audit"):
            shadow_report["audit"] = _audited(shadow, kubeconfig)
    _print(shadow_report, output)
    return OK


def _audited(shadow: Shadow, kubeconfig: str) -> dict[str, Any]:
    """Check where nodesmith's shadow has the pods of the live cluster."""
    from nodesmith.adapters.catalog.catalogs import embedded_catalog
    from nodesmith_cli.access.cluster import server_of
    from nodesmith_cli.costs.savings.analysis import parsed_nodes
    from nodesmith_cli.costs.savings.nodeprices import region_of_nodes
    from nodesmith_cli.costs.savings.reading import read_cluster
    from nodesmith_cli.costs.shadowing.placements import checked

    fleet = shadow.fleets.get(NODESMITH)
    if fleet is None:
        raise Rejected(f"cluster {shadow.cluster!r}: there is no shadow of it to check yet")
    cluster = read_cluster(server_of(kubeconfig), f"cluster {kubeconfig}".rstrip())
    nodes, _ = parsed_nodes(cluster.of_kind("Node"))
    catalog = embedded_catalog(region_of_nodes(nodes))
    return checked(fleet, [document.manifest for document in cluster.documents], catalog)


def _print(shadow_report: dict[str, Any], output: str) -> None:
    match output:
        case "json":
            print_data(shadow_report, output, "shadow")
        case "csv":
            sys.stdout.write(as_csv(shadow_report))
        case "html":
            deliver(page(shadow_report), "shadow")
        case _:
            show(console(), shadow_report)
