"""The `nodesmith` command: which commands there are, and what each is given. Their code is imported when they run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from nodesmith import __version__
from nodesmith.errors import NodesmithError
from nodesmith_cli.catalog import catalog_command
from nodesmith_cli.convert import convert_command
from nodesmith_cli.pause import pause_command, resume_command
from nodesmith_cli.plan import PlanCommand, plan_command
from nodesmith_cli.validate import validate_command

OK, PODS_PENDING, BAD_INPUT = 0, 1, 2

app = typer.Typer(
    name="nodesmith",
    help="A node autoscaler for Kubernetes on Amazon EKS that nobody has to host.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing what draws boxes around the help takes longer than all the rest
)
local_app = typer.Typer(help="The whole system on this machine: no cloud, no cluster.", no_args_is_help=True)
explain_app = typer.Typer(help="What was decided, and why.", no_args_is_help=True)

Output = Literal["table", "json"]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the outcome.")]
SpeedOption = Annotated[float, typer.Option(help="How many times as fast as life the clock runs.")]
RegionOption = Annotated[
    str, typer.Option(help="The region; else that of the zones in the manifests, else us-east-1.")
]
NoCapacityOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Pools that EC2 has run out of, with * and ?: m5.large:us-east-1a, spot:c7*.",
    ),
]
KeepOption = Annotated[Path | None, typer.Option(help="Folder for the records of decisions.")]


@app.command()
def demo(
    speed: SpeedOption = 10,
    keep: KeepOption = None,
) -> None:
    """Watch 20 pending pods get the cheapest nodes there are."""
    from nodesmith_cli.local.sharedmodels import models_are_shared

    with models_are_shared():  # moto's import, too, reads AWS's models again and again
        from nodesmith_cli.local.commands import demo

        raise typer.Exit(demo(speed=speed, keep=keep))


@local_app.command("run")
def local_run(
    files: Annotated[
        list[str], typer.Option("--filename", "-f", help="Manifests: file, folder, or - for standard input.")
    ],
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More of them.")] = None,
    region: RegionOption = "",
    longest: Annotated[
        str, typer.Option("--for", help="Give up after this much of the cluster's time.")
    ] = "5m",
    speed: SpeedOption = 10,
    no_capacity: NoCapacityOption = None,
    output: OutputOption = "table",
    keep: KeepOption = None,
    bare: Annotated[bool, typer.Option("--bare", help="Apply the files only, no default NodePool.")] = False,
) -> None:
    """Apply manifests, run until quiet, report. Exit status 1 where pods stay pending, 2 where input was bad."""
    from nodesmith_cli.local.sharedmodels import models_are_shared

    with models_are_shared():  # moto's import, too, reads AWS's models again and again
        from nodesmith_cli.local.commands import run

        raise typer.Exit(
            run(
                [*files, *(more or [])],
                region=region,
                longest=longest,
                speed=speed,
                no_capacity=no_capacity or [],
                output=output,
                keep=keep,
                bare=bare,
            )
        )


@local_app.command("up")
def local_up(
    files: Annotated[
        list[str] | None, typer.Option("--filename", "-f", help="Manifests to begin with.")
    ] = None,
    region: RegionOption = "",
    control_plane: Annotated[
        Literal["embedded", "real"],
        typer.Option(help="The API server in memory and stand-ins, or Kubernetes' own programs and kwok."),
    ] = "embedded",
    speed: SpeedOption = 1,
    no_capacity: NoCapacityOption = None,
    port: Annotated[int, typer.Option(help="Port of the API server; 0 takes a free one.")] = 0,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Where to write the kubeconfig [default: ~/.kube/nodesmith-local]")
    ] = None,
    keep: KeepOption = None,
    bare: Annotated[bool, typer.Option("--bare", help="Apply no default NodePool and EC2NodeClass.")] = False,
) -> None:
    """Run a cluster until Ctrl-C: use kubectl on it and watch nodes come."""
    from nodesmith_cli.local.sharedmodels import models_are_shared

    with models_are_shared():  # moto's import, too, reads AWS's models again and again
        from nodesmith_cli.local.upcommand import up

        raise typer.Exit(
            up(
                files or [],
                region=region,
                speed=speed,
                no_capacity=no_capacity or [],
                port=port,
                kubeconfig=kubeconfig,
                keep=keep,
                bare=bare,
                control_plane=control_plane,
            )
        )


@local_app.command("interrupt")
def local_interrupt(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Its name, its NodeClaim's, or its instance id.")
    ],
    within: Annotated[
        str, typer.Option("--in", help="When EC2 takes it: the warning comes two minutes ahead, or later.")
    ] = "2m",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="What `local up` wrote [default: ~/.kube/nodesmith-local]"),
    ] = None,
) -> None:
    """Let EC2 announce, to a `local up` that runs, that it takes a spot node; and take it."""
    from nodesmith_cli.local.interruptcommand import interrupt

    raise typer.Exit(interrupt(node, within=within, kubeconfig=kubeconfig))


ClusterOption = Annotated[str, typer.Option(help="The cluster; else the one that decided last.")]
BucketOption = Annotated[str, typer.Option(help="A deployment's bucket; else the records of local runs.")]
BucketRegionOption = Annotated[str, typer.Option(help="The bucket's region; else that of your AWS settings.")]


@app.command("status")
def status_command(
    kubeconfig: Annotated[
        str,
        typer.Option(
            metavar="[CONTEXT]", help="The cluster: a context or a kubeconfig file; else the current one."
        ),
    ] = "",
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
    from nodesmith_cli.local.reaching import now_at
    from nodesmith_cli.status import status

    where = Where(cluster, bucket, region, keep)
    raise typer.Exit(status(where, kubeconfig=kubeconfig, output=output, now=now_at(kubeconfig)))


@explain_app.command("decision")
def explain_decision(
    decision: Annotated[
        str, typer.Argument(metavar="ID", help="Its id, a part of it that is unique, or `latest`.")
    ] = "latest",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    file: Annotated[Path | None, typer.Option(help="A record by itself, compressed or not.")] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Decide again from the same inputs; exit status 1 if it differs.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """Tell one decision: what it buys, at what price, and why.

    With its inputs, and the reason for each pod that was not placed.
    """
    from nodesmith_cli.explaincommands import Where, show

    where = Where(cluster, bucket, region, keep)
    raise typer.Exit(show(decision, where, file=file, output=output, replay=replay))


@explain_app.command("decisions")
def explain_decisions(
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: OutputOption = "table",
) -> None:
    """List the decisions of a cluster, oldest first."""
    from nodesmith_cli.explaincommands import Where, show_all

    raise typer.Exit(show_all(Where(cluster, bucket, region, keep), output))


@explain_app.command("pod")
def explain_pod(
    pod: Annotated[
        str, typer.Argument(metavar="[NAMESPACE/]NAME", help="The pod; without a namespace, in `default`.")
    ],
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    last: Annotated[
        int, typer.Option(min=1, help="How many decisions to look through at most, newest first.")
    ] = 1000,
    output: OutputOption = "table",
) -> None:
    """Tell what stands in the way of a pod, or which node it gets, by the newest decision that speaks of it.

    Exit status 1 where none does and the cluster's newest snapshot does not know the pod either.
    """
    from datetime import UTC, datetime

    from nodesmith_cli.explaincommands import Where, show_pod

    where = Where(cluster, bucket, region, keep)
    raise typer.Exit(show_pod(pod, where, last=last, output=output, now=datetime.now(UTC)))


@explain_app.command("nodepool")
def explain_nodepool(
    nodepool: Annotated[str, typer.Argument(metavar="[NAME]", help="The NodePool; else all.")] = "",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: OutputOption = "table",
) -> None:
    """Tell how a NodePool comes to its instance types: how many each of its requirements removes, what is left."""
    from nodesmith_cli.explaincommands import Where, show_nodepools

    raise typer.Exit(show_nodepools(nodepool, Where(cluster, bucket, region, keep), output))


@explain_app.command("node")
def explain_node(
    node: Annotated[
        str,
        typer.Argument(metavar="[NAME]", help="Node, NodeClaim or instance id; else all that are ending."),
    ] = "",
    kubeconfig: Annotated[
        str,
        typer.Option(
            metavar="[CONTEXT]", help="The cluster: a context or a kubeconfig file; else the current one."
        ),
    ] = "",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: OutputOption = "table",
) -> None:
    """Tell why a node is not gone yet: the one thing it waits for, since when, and what it costs an hour.

    Of a node that is not ending: its NodeClaim, phase, age and price, and the pods that nobody may ever evict.
    The cluster is looked at as it is now; with --bucket or --keep, as its newest snapshot there shows it.
    Exit status 1 where there is no such node.
    """
    from datetime import UTC, datetime

    from nodesmith_cli.explaincommands import Where
    from nodesmith_cli.explainnodecommand import show_nodes

    where, now = Where(cluster, bucket, region, keep), datetime.now(UTC)
    raise typer.Exit(show_nodes(node, where, kubeconfig=kubeconfig, output=output, now=now))


app.add_typer(local_app, name="local")
app.add_typer(explain_app, name="explain")
app.command("catalog")(catalog_command)
app.command("convert")(convert_command)
app.command("pause")(pause_command)
app.command("resume")(resume_command)
app.command("validate")(validate_command)
app.command("plan", cls=PlanCommand)(plan_command)


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
