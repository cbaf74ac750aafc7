"""The options of `nodesmith ui`. Its code is imported when it runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.options import (
    BucketRegionOption,
    ContextOption,
    KeepOption,
    KubeconfigOption,
)
from nodesmith_cli.preconditions import require_kubeconfig, require_page_server
from nodesmith_cli.selecting import chosen_kubeconfig

_LAST_PORT = 65535


def ui_command(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    cluster: Annotated[str, typer.Option(help="Name of the EKS cluster, with --bucket or --keep.")] = "",
    bucket: Annotated[str, typer.Option(help="S3 bucket of a deployment, to show its decisions.")] = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1. 0 chooses a free one.")] = 0,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare",
            help="Find the lower bound with `nodesmith savings`, every quarter of an hour.",
        ),
    ] = True,
) -> None:
    """Show a cluster as a local web page: now, why, what next, proof, health and history.

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
    from nodesmith_cli.explaincommands import Where
    from nodesmith_cli.ui.running import Wanted, run
    from nodesmith_formats.localsystem.reaching import now_at

    wanted = Wanted(Where(cluster, bucket, region, keep), kubeconfig, port, opens, compare)
    raise typer.Exit(run(wanted, partial(now_at, kubeconfig)))
