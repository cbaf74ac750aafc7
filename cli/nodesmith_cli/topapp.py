"""The options of `nodesmith top`. Its code is imported when it runs."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.options import (
    AllNamespacesOption,
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    SelectorOption,
)
from nodesmith_cli.preconditions import require_kubeconfig
from nodesmith_cli.selecting import chosen_kubeconfig, selection

Order = Literal["name", "price", "cpu", "memory", "pods", "age", "state", "group", "type", "zone"]


def top_command(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    all_namespaces: AllNamespacesOption = False,
    selector: SelectorOption = "",
    cluster: Annotated[str, typer.Option(help="Name of the EKS cluster, for pause and resume.")] = "",
    region: Annotated[
        str,
        typer.Option(help="Region of the cluster, for pause and resume. Defaults to your AWS configuration."),
    ] = "",
    sort: Annotated[Order, typer.Option(help="Order of the nodes.")] = "name",
    words: Annotated[
        str, typer.Option("--filter", help="Show only nodes whose line contains these words.")
    ] = "",
    plain: Annotated[
        bool, typer.Option("--plain", help="Print sentences, without colour, bars or cursor movements.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Print one look and exit.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between looks of --plain and -o json.")] = 10.0,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare",
            help="Find the lower bound with `nodesmith savings`, every quarter of an hour.",
        ),
    ] = True,
    output: Annotated[
        Literal["screen", "json"], typer.Option("--output", "-o", help="json prints one document a line.")
    ] = "screen",
) -> None:
    """Show a cluster's nodes live: use, price, age and state, pending pods with what is in their way, and moves.

    With -l, only nodes that the selector matches are listed, and with -n only pending pods of that namespace.
    Any software may manage the nodes. This watches the cluster with your own rights, and writes only what you confirm.
    Keys: s sorts, / filters, Enter opens a node and then a pod, Tab shows pending pods, Space freezes, c cordons, p
    pauses disruption, q quits. If standard output is not a terminal, --plain is assumed.
    """
    only = selection(namespace, all_namespaces, selector)
    kubeconfig = chosen_kubeconfig(kubeconfig, context)
    require_kubeconfig(kubeconfig)
    if not every >= 1:
        raise Rejected(f"--every {every:g}: must be at least 1 second")
    from nodesmith_cli.top.running import Wanted, run
    from nodesmith_formats.localsystem.reaching import now_at

    shown = "plain" if output == "screen" and (plain or once or not sys.stdout.isatty()) else output
    wanted = Wanted(kubeconfig, cluster, region, sort, words, every, int(once), compare and not once, only)
    raise typer.Exit(run(wanted, shown, partial(now_at, kubeconfig)))
