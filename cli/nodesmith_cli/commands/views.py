"""The options of `nodesmith top` and `nodesmith ui`. Their code is imported when they run."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.access.preconditions import require_kubeconfig, require_page_server
from nodesmith_cli.access.selecting import chosen_kubeconfig, selection
from nodesmith_cli.commands.options import (
    AllNamespacesOption,
    BucketRegionOption,
    CompareOption,
    ContextOption,
    KeepOption,
    KubeconfigOption,
    NamespaceOption,
    SelectorOption,
)

_LAST_PORT = 65535
_LONGEST_INTERVAL_SECONDS = 86_400
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
    once: Annotated[bool, typer.Option("--once", help="Print the cluster once, and exit.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between outputs of --plain and -o json.")] = 10.0,
    compare: CompareOption = True,
    output: Annotated[
        Literal["screen", "json"], typer.Option("--output", "-o", help="json prints one document a line.")
    ] = "screen",
) -> None:
    """Show a cluster's nodes live: use, price, age and state, pending pods and why they wait, and moves.

    With -l, only nodes that the selector matches are listed, and with -n only pending pods of that namespace.
    Any software may manage the nodes. This watches the cluster with your own rights, and writes only what you confirm.
    Keys: s sorts, / filters, Enter opens a node and then a pod, Tab shows pending pods, Space freezes, c cordons, p
    pauses disruption, q quits. If standard output is not a terminal, --plain is assumed.
    """
    only = selection(namespace, all_namespaces, selector)
    kubeconfig = chosen_kubeconfig(kubeconfig, context)
    require_kubeconfig(kubeconfig)
    if not 1 <= every <= _LONGEST_INTERVAL_SECONDS:
        raise Rejected(f"--every {every:g}: must be between 1 and {_LONGEST_INTERVAL_SECONDS} seconds")
    from nodesmith_cli.views.top.running import TopRequest, run
    from nodesmith_formats.localsystem.reaching import now_at

    shown = "plain" if output == "screen" and (plain or once or not sys.stdout.isatty()) else output
    request = TopRequest(
        kubeconfig, cluster, region, sort, words, every, int(once), compare and not once, only
    )
    raise typer.Exit(run(request, shown, partial(now_at, kubeconfig)))


def ui_command(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    cluster: Annotated[str, typer.Option(help="Name of the EKS cluster, with --bucket or --keep.")] = "",
    bucket: Annotated[str, typer.Option(help="S3 bucket of a deployment, to show its decisions.")] = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1. 0 chooses a free one.")] = 0,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    compare: CompareOption = True,
) -> None:
    """Show a cluster as a local web page, with the views Now, Why, Next, Proof, Health and History.

    It watches the cluster with your own rights, as `nodesmith top` does, and writes nothing. With --bucket and
    --cluster it also reads the decisions and the ledger of a deployment, with your own AWS credentials. The page is
    served on 127.0.0.1 only, to the one browser that follows the link.
    """
    require_page_server()
    kubeconfig = chosen_kubeconfig(kubeconfig, context)
    require_kubeconfig(kubeconfig)
    if not 0 <= port <= _LAST_PORT:
        raise Rejected(f"--port {port}: must be between 0 and {_LAST_PORT}")
    if (cluster or region) and not (bucket or keep):
        option = "--cluster" if cluster else "--region"
        raise Rejected(f"{option} requires --bucket or --keep; use --kubeconfig to choose a live cluster")
    from nodesmith_cli.views.explaining.commands import RecordSource
    from nodesmith_cli.views.ui.running import UiRequest, run
    from nodesmith_formats.localsystem.reaching import now_at

    request = UiRequest(RecordSource(cluster, bucket, region, keep), kubeconfig, port, opens, compare)
    raise typer.Exit(run(request, partial(now_at, kubeconfig)))
