"""The `nodesmith` command: which commands there are, and what each is given. Their code is imported when they run."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer

from nodesmith import __version__
from nodesmith.errors import NodesmithError
from nodesmith_cli.catalog import catalog_command
from nodesmith_cli.connectapp import connect_command, disconnect_command, doctor_command
from nodesmith_cli.convert import convert_command
from nodesmith_cli.explainapp import explain_app
from nodesmith_cli.hash import hash_command
from nodesmith_cli.image.app import image_app
from nodesmith_cli.localapp import local_app
from nodesmith_cli.options import (
    BucketOption,
    BucketRegionOption,
    ClusterOption,
    KeepOption,
    KubeconfigOption,
    OutputOption,
    SpeedOption,
)
from nodesmith_cli.pause import pause_command, resume_command
from nodesmith_cli.plan import PlanCommand, plan_command
from nodesmith_cli.preconditions import (
    require_kubeconfig,
    require_speed,
)
from nodesmith_cli.rollbackapp import rollback_command
from nodesmith_cli.spans import seconds_of
from nodesmith_cli.validate import validate_command

OK, PODS_PENDING, BAD_INPUT = 0, 1, 2

app = typer.Typer(
    name="nodesmith",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing what draws boxes around the help takes longer than all the rest
)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        print(__version__)
        raise typer.Exit(OK)


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """A node autoscaler for Kubernetes on Amazon EKS that nobody has to host."""


@app.command()
def demo(
    speed: SpeedOption = 12,
    keep: KeepOption = None,
) -> None:
    """Watch 20 pending pods get the cheapest nodes there are."""
    require_speed(speed)
    from nodesmith_cli.local.sharedclients import models_are_shared

    with models_are_shared():  # moto's import, too, reads AWS's models again and again
        from nodesmith_cli.local.commands import demo

        raise typer.Exit(demo(speed=speed, keep=keep))


@app.command("status", short_help="Tell what a cluster has, and what is under way.")
def status_command(
    kubeconfig: KubeconfigOption = "",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: OutputOption = "table",
) -> None:
    """Tell what a cluster has, and which interruptions are under way, with the seconds left and what each waits for.

    The cluster is looked at as it is now; with --bucket or --keep, as its newest snapshot there shows it.
    """
    from nodesmith_cli.explaincommands import Where

    where = Where(cluster, bucket, region, keep)
    where.require(kubeconfig)
    from nodesmith_cli.local.reaching import now_at
    from nodesmith_cli.status import status

    raise typer.Exit(status(where, kubeconfig=kubeconfig, output=output, now=now_at(kubeconfig)))


@app.command("check-cluster", short_help="Say what other software serves a cluster's NodePools.")
def check_cluster_command(kubeconfig: KubeconfigOption = "", output: OutputOption = "table") -> None:
    """Say what EKS Auto Mode, Karpenter and others have in a cluster, and which manifests to apply beside them.

    Nothing is written. Exit status 1 where something has to change before nodesmith serves the cluster.
    """
    require_kubeconfig(kubeconfig)
    from nodesmith_cli.local.reaching import now_at
    from nodesmith_cli.planning.cluster import server_of
    from nodesmith_cli.sharing.checkcommand import check_cluster

    raise typer.Exit(check_cluster(server_of(kubeconfig), output, now_at(kubeconfig)))


@app.command("uninstall", short_help="Take nodesmith and its nodes out of a cluster.")
def uninstall_command(
    kubeconfig: KubeconfigOption = "",
    timeout: Annotated[str, typer.Option(help="How long to wait for nodes to be drained and gone.")] = "30m",
    lift_finalizers: Annotated[
        bool,
        typer.Option(
            "--lift-finalizers",
            help="After the timeout let NodeClaims and Nodes go that nobody ends any more; instances stay.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = "table",
) -> None:
    """End nodesmith's NodePools, NodeClaims and nodes, wait until they are gone, then remove its rights and CRDs.

    What EKS Auto Mode, Karpenter or others have in the cluster is left alone. It can be stopped and run again. Exit
    status 1 where something is left at the end of the timeout.
    """
    patience = timedelta(seconds=seconds_of("--timeout", timeout))
    require_kubeconfig(kubeconfig)
    from nodesmith_cli.local.reaching import now_at
    from nodesmith_cli.planning.cluster import server_of
    from nodesmith_cli.sharing.removal import Settings
    from nodesmith_cli.sharing.uninstallcommand import uninstall

    settings = Settings(patience, lift_finalizers)
    clock = partial(now_at, kubeconfig)
    server = server_of(kubeconfig)
    raise typer.Exit(uninstall(server, settings, output=output, dry_run=dry_run, yes=yes, clock=clock))


app.add_typer(local_app, name="local")
app.add_typer(explain_app, name="explain")
app.add_typer(image_app, name="image")
app.command("catalog")(catalog_command)
app.command("connect", short_help="Connect an EKS cluster, so that it is served.")(connect_command)
app.command("disconnect", short_help="Take nodesmith out of a cluster and its account.")(disconnect_command)
app.command("doctor", short_help="Say what keeps a cluster from being served well.")(doctor_command)
app.command("convert", short_help="Convert manifests of any age to today's.")(convert_command)
app.command("hash", short_help="Print the hashes by which nodes drift.")(hash_command)
app.command("pause", short_help="Disrupt no node that could as well go on.")(pause_command)
app.command("resume")(resume_command)
app.command("rollback", short_help="Take a deployment back.")(rollback_command)
app.command("validate", short_help="Say all that is wrong with manifests.")(validate_command)
app.command("plan", cls=PlanCommand, short_help="Say which nodes would be bought, or go.")(plan_command)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Run the command; an error on purpose is one line on standard error and exit status 2."""
    try:
        app()
    except NodesmithError as error:
        print(f"nodesmith: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
