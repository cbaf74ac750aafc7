"""The implementation of `nodesmith savings`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.errors import NodesmithError, Rejected
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.kubernetes.nodes import Node
from nodesmith_cli.access.cluster import server_of
from nodesmith_cli.access.preconditions import usual_kubeconfig
from nodesmith_cli.access.selecting import EVERYTHING, Selection
from nodesmith_cli.costs.commitments import commitments_in, with_commitments
from nodesmith_cli.costs.savings.analysis import Prepared, analysed, parsed_nodes, prepared
from nodesmith_cli.costs.savings.nodeprices import region_of_nodes, with_spot_prices
from nodesmith_cli.costs.savings.page import savings_page
from nodesmith_cli.costs.savings.reading import read_cluster, read_usage
from nodesmith_cli.costs.savings.report import report
from nodesmith_cli.costs.savings.table import WIDTH, show
from nodesmith_cli.output.printing import print_data
from nodesmith_cli.output.progress import progress
from nodesmith_cli.output.reporting.delivery import deliver
from nodesmith_cli.output.safeconsole import SafeConsole
from nodesmith_cli.planning.alternatives import for_seconds
from nodesmith_cli.planning.running import node_settings
from nodesmith_formats.localsystem.contexts import kubeconfig_file
from nodesmith_formats.wording import printable

OK = 0
_HEADER = (
    "# Assumed by `nodesmith savings` from the cluster's present nodes. Before you apply this, set role and selectors\n"
    "# of the EC2NodeClass to those of your cluster.\n"
)
_SHOWN = 10
_USAGE_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SavingsRequest:
    """What to do. `spot_prices` is auto, aws or estimate; `seconds` limits each optional part of
    the analysis."""

    kubeconfig: str = ""
    region: str = ""
    spot_prices: str = "auto"
    nodepools_file: Path | None = None
    seconds: float = 4.0
    commitments: str = ""
    selector: str = ""
    selection: Selection = EVERYTHING
    """Which nodes the report is about, and the text that says so."""


def run(request: SavingsRequest, output: str) -> int:
    """Read the cluster, analyse it, print the result, and return the exit status.

    Raises Rejected or Transient if the cluster cannot be read or nothing in it has a price.
    """
    side, at = _console(sys.stderr), datetime.now(UTC)
    server = server_of(request.kubeconfig)
    with progress("reading the cluster", to=side, key="savings-reading"):
        cluster = read_cluster(server, f"cluster {request.kubeconfig}".rstrip())
        usage = read_usage(server_of(request.kubeconfig, patience_seconds=_USAGE_PATIENCE_SECONDS))
    if not request.selection.is_all:
        cluster = cluster.of_nodes(request.selection, request.selector)
    nodes, faults = parsed_nodes(cluster.of_kind("Node"))
    catalog, spot = _priced_catalog(request, nodes, side)
    with progress("building the inputs", to=side, key="savings-inputs", size=len(nodes)):
        ready = prepared(cluster, nodes, catalog, node_settings(os.environ), at)
        if request.commitments:
            paid = commitments_in(request.commitments, catalog, at)
            ready = replace(ready, inputs=with_commitments(ready.inputs, paid))
    with progress("comparing", to=side, key="savings", size=len(nodes)):
        analysis = analysed(ready, usage, lambda: for_seconds(request.seconds))
    savings_report = report(
        analysis,
        cluster,
        usage,
        catalog,
        context=context_name(request.kubeconfig),
        spot=spot,
        at=at,
        selector=request.selector,
    )
    savings_report["faults"] = [*faults, *savings_report["faults"]]
    for fault in savings_report["faults"][:_SHOWN]:
        side.print(printable(fault), style="yellow")
    if len(savings_report["faults"]) > _SHOWN:
        side.print(f"and {len(savings_report['faults']) - _SHOWN} more: see -o json", style="yellow")
    if request.nodepools_file is not None:
        _write_nodepools(request.nodepools_file, ready, side)
    _print(savings_report, output)
    return OK


def context_name(kubeconfig: str) -> str:
    """Return the name of a context: the given one, or the current one of the kubeconfig that was read."""
    from kubernetes.config import ConfigException, list_kube_config_contexts

    if kubeconfig and not kubeconfig_file(kubeconfig):
        return kubeconfig
    try:
        _, current = list_kube_config_contexts(kubeconfig or usual_kubeconfig())  # type: ignore[no-untyped-call]
    except ConfigException:
        return ""
    return str((current or {}).get("name") or "")


def _priced_catalog(request: SavingsRequest, nodes: list[Node], side: Console) -> tuple[Catalog, str]:
    """Return the catalogue of the cluster's region, and the source of its spot prices: EC2 or estimates."""
    if not nodes:
        raise Rejected("the cluster has no nodes, so there is nothing to compare")
    region = request.region or region_of_nodes(nodes)
    if not region:
        raise Rejected("no node names its region by label or provider id: use --region")
    catalog = embedded_catalog(region)
    if request.spot_prices == "estimate" or (request.spot_prices == "auto" and not has_credentials()):
        return catalog, "estimates"
    with progress("reading spot prices", to=side, key="spot-prices"):
        try:
            return with_spot_prices(catalog, current_spot_prices(region)), "EC2"
        except NodesmithError as error:
            if request.spot_prices == "aws":
                raise
            side.print(printable(f"spot prices are estimated: {error}"), style="yellow")
            return catalog, "estimates"


def has_credentials() -> bool:
    """Return whether AWS credentials are configured. Those of an instance are found within two seconds, or not."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    try:
        return Session().get_credentials() is not None
    except BotoCoreError:
        return False


def current_spot_prices(region: str) -> Mapping[tuple[str, str], float]:
    """Return current spot prices by type and zone. Raises Rejected or Transient if EC2 does not return them."""
    from botocore.exceptions import BotoCoreError

    from nodesmith.adapters.catalog.pricing import aws_market
    from nodesmith_cli.access.awsclients import aws_client

    # Without credentials, this fails at once and explains how to log in.
    aws_client("ec2", region)
    try:
        return aws_market(region).spot_prices(datetime.now(UTC))
    except BotoCoreError as error:  # such as an unknown profile
        raise Rejected(f"AWS configuration: {error}") from None


def _write_nodepools(file: Path, ready: Prepared, side: Console) -> None:
    """Write assumed NodePools and their EC2NodeClass as YAML. Raises Rejected."""
    if not ready.are_assumed:
        side.print(f"{file}: not written, because the plan uses the cluster's own NodePools")
        return
    text = "---\n".join(yaml.safe_dump(dict(nodepool), sort_keys=False) for nodepool in ready.nodepools)
    _write(file, _HEADER + text)
    side.print(f"NodePools written to {file}")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Rejected(f"{file}: cannot be written: {error.strerror}") from None


def _print(savings_report: Mapping[str, Any], output: str) -> None:
    match output:
        case "html":
            deliver(savings_page(savings_report), "savings")
        case "table":
            show(_console(sys.stdout), savings_report)
        case _:
            print_data(savings_report, output, "savings")


def _console(file: Any) -> Console:
    """Return a console on a stream: as wide as the terminal, or 80 columns without colour."""
    width = None if file.isatty() else WIDTH
    return SafeConsole(file=file, width=width, highlight=False, markup=False, emoji=False)
