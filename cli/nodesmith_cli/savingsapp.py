"""The options of `nodesmith savings`. Its code is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.options import AllNamespacesOption, ContextOption, KubeconfigOption, ReportOutputOption
from nodesmith_cli.preconditions import require_kubeconfig, require_region
from nodesmith_cli.selecting import chosen_kubeconfig, selection


def savings_command(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    selector: Annotated[
        str,
        typer.Option(
            "--selector",
            "-l",
            metavar="LABELS",
            help="Only nodes that the label selector matches, with their pods, as if there were no others.",
        ),
    ] = "",
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", metavar="NAME", help="Refused: nodes belong to pods of several namespaces."
        ),
    ] = "",
    all_namespaces: AllNamespacesOption = False,
    region: Annotated[
        str, typer.Option(help="AWS region of the prices. Defaults to the region of the nodes.")
    ] = "",
    spot_prices: Annotated[
        Literal["auto", "aws", "estimate"],
        typer.Option(
            help="Read spot prices from EC2, or estimate them. auto reads them if there are credentials."
        ),
    ] = "auto",
    write_nodepools: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the NodePools that the plan uses, assumed ones included."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="CPU seconds for further moves, and as many for the costs of constraints.")
    ] = 4.0,
    commitments: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Savings Plans and Reserved Instances, whose use costs nothing more: a list, as in cdk.json.",
        ),
    ] = "",
    output: ReportOutputOption = "table",
) -> None:
    """Show what a live cluster costs, what it would cost on nodesmith's nodes, and where the money is.

    This reads the cluster with list requests alone. Any software may manage its nodes: Karpenter, Cluster Autoscaler,
    node groups, EKS Auto Mode or others. It changes nothing, and nothing must be installed. What may not be read is
    reported, and the rest goes on.

    The exit status is 0 if there is a report, and 2 if the cluster cannot be read or none of its nodes has a price.
    """
    kubeconfig = chosen_kubeconfig(kubeconfig, context)
    chosen = selection(namespace, all_namespaces, selector)
    if namespace:
        raise Rejected(
            f"-n {namespace}: pods of several namespaces share nodes, so one of them has no price of its own; use "
            "`nodesmith ledger --by namespace` for what each has cost, or -l to select nodes"
        )
    require_kubeconfig(kubeconfig)
    require_region(region)
    if not seconds >= 0:
        raise Rejected(f"--seconds {seconds:g}: must not be negative")
    from nodesmith_cli.savings.running import Wanted, run

    wanted = Wanted(kubeconfig, region, spot_prices, write_nodepools, seconds, commitments, selector, chosen)
    raise typer.Exit(run(wanted, output))
