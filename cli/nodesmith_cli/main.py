"""The `nodesmith` command with its subcommands and their options. A subcommand's code is imported when it runs."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from nodesmith.errors import NodesmithError
from nodesmith_cli.access.preconditions import (
    require_kubeconfig,
)
from nodesmith_cli.commands.catalog import catalog_command
from nodesmith_cli.commands.completion import PROGRAM, VARIABLE, Shell, enable_completion
from nodesmith_cli.commands.connect import connect_command, disconnect_command, doctor_command
from nodesmith_cli.commands.costs import ledger_command, savings_command, shadow_command
from nodesmith_cli.commands.deployment import image_app, rollback_command
from nodesmith_cli.commands.explain import explain_app
from nodesmith_cli.commands.local import chaos_app, demo_command, local_app
from nodesmith_cli.commands.manifests import convert_command, hash_command, validate_command
from nodesmith_cli.commands.migration import adopt_command, migrate_command, release_command
from nodesmith_cli.commands.options import (
    BucketOption,
    BucketRegionOption,
    ClusterOption,
    ContextOption,
    DataOutputOption,
    KeepOption,
    KubeconfigOption,
    StepsOutputOption,
    WatchOption,
    YesOption,
    read_plainly,
    seconds_of,
)
from nodesmith_cli.commands.pause import pause_command, resume_command
from nodesmith_cli.commands.plan import PlanCommand, plan_command
from nodesmith_cli.commands.simulate import simulate_command
from nodesmith_cli.commands.views import top_command, ui_command
from nodesmith_formats.wording import printable_text

OK, PODS_PENDING, BAD_INPUT = 0, 1, 2
_OBJECTS_A_COLLECTION = 200_000
"""More than in functions: most commands end soon, and most computers have memory to spare."""
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a file or device that takes no more output."""

app = typer.Typer(
    name="nodesmith",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich's help formatter takes longer than everything else
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from nodesmith_cli.commands.version import short_version

        print(short_version())
        raise typer.Exit(OK)


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and its commit, and exit.",
        ),
    ] = False,
) -> None:
    """A Karpenter-compatible node autoscaler for Amazon EKS, with nothing to host."""


app.command("demo")(demo_command)


@app.command("status", short_help="Show nodes, pods and disruptions in progress.")
def status_command(
    kubeconfig: KubeconfigOption = "",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    context: ContextOption = "",
    output: DataOutputOption = "table",
    watch: WatchOption = False,
) -> None:
    """Show a cluster's nodes and pods, and its interruptions: how many seconds are left and what each one waits for.

    By default, this reads the live cluster. With --bucket or --keep, it reads the newest snapshot stored there.
    """
    from nodesmith_cli.access.selecting import chosen_kubeconfig
    from nodesmith_cli.output.watching import repeated
    from nodesmith_cli.views.explaining.commands import RecordSource

    where, chosen = RecordSource(cluster, bucket, region, keep), chosen_kubeconfig(kubeconfig, context)
    where.require(chosen)
    from nodesmith_cli.views.status import status
    from nodesmith_formats.localsystem.reaching import now_at

    raise typer.Exit(
        repeated(lambda: status(where, kubeconfig=chosen, output=output, now=now_at(chosen)), watch=watch)
    )


@app.command("check-cluster", short_help="Check what else manages nodes in a cluster.")
def check_cluster_command(
    kubeconfig: KubeconfigOption = "", context: ContextOption = "", output: DataOutputOption = "table"
) -> None:
    """Show what EKS Auto Mode, Karpenter and other software manage in a cluster, and which manifests to apply.

    This changes nothing. The exit status is 1 if something must change before nodesmith can serve the cluster.
    """
    from nodesmith_cli.access.selecting import chosen_kubeconfig

    chosen = chosen_kubeconfig(kubeconfig, context)
    require_kubeconfig(chosen)
    from nodesmith_cli.access.cluster import server_of
    from nodesmith_cli.sharing.checkcommand import check_cluster
    from nodesmith_formats.localsystem.reaching import now_at

    raise typer.Exit(check_cluster(server_of(chosen), output, now_at(chosen)))


@app.command("uninstall", short_help="Remove nodesmith and its nodes from a cluster.")
def uninstall_command(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    timeout: Annotated[str, typer.Option(help="How long to wait for nodes to drain and terminate.")] = "30m",
    lift_finalizers: Annotated[
        bool,
        typer.Option(
            "--lift-finalizers",
            help="After the timeout, remove the finalizers of the remaining NodeClaims and Nodes. "
            "Their instances keep running.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
    ] = False,
    yes: YesOption = False,
    output: StepsOutputOption = "table",
) -> None:
    """Delete nodesmith's NodePools, NodeClaims and nodes, wait until they are gone, then remove its RBAC and CRDs.

    Resources of EKS Auto Mode, Karpenter and other software are left alone. You can interrupt this command and run it
    again. The exit status is 1 if nodes are left when the timeout expires.
    """
    from nodesmith_cli.access.selecting import chosen_kubeconfig

    patience = timedelta(seconds=seconds_of("--timeout", timeout))
    kubeconfig = chosen_kubeconfig(kubeconfig, context)
    require_kubeconfig(kubeconfig)
    from nodesmith_cli.access.cluster import server_of
    from nodesmith_cli.sharing.removal import Settings
    from nodesmith_cli.sharing.uninstallcommand import uninstall
    from nodesmith_formats.localsystem.reaching import now_at

    settings = Settings(patience, lift_finalizers)
    clock = partial(now_at, kubeconfig)
    server = server_of(kubeconfig)
    raise typer.Exit(uninstall(server, settings, output=output, dry_run=dry_run, yes=yes, clock=clock))


app.add_typer(local_app, name="local")
app.add_typer(chaos_app, name="chaos")
app.add_typer(explain_app, name="explain")
app.add_typer(image_app, name="image")
app.command("catalog")(catalog_command)
app.command("connect", short_help="Connect an EKS cluster to nodesmith.")(connect_command)
app.command("disconnect", short_help="Remove nodesmith from a cluster and its account.")(disconnect_command)
app.command("doctor", short_help="Diagnose problems with a connected cluster.")(doctor_command)
app.command("adopt", short_help="Take over Karpenter's nodes while they run.")(adopt_command)
app.command("release", short_help="Hand all nodes back to Karpenter.")(release_command)
app.command("convert", short_help="Convert old Karpenter manifests to current ones.")(convert_command)
app.command("hash", short_help="Print the hashes used to detect drift.")(hash_command)
app.command("migrate", cls=PlanCommand, short_help="Convert node groups to NodePools, and drain them.")(
    migrate_command
)
app.command("pause", short_help="Stop voluntary disruption.")(pause_command)
app.command("resume", short_help="Resume voluntary disruption.")(resume_command)
app.command("rollback", short_help="Roll back to an earlier release.")(rollback_command)
app.command("validate", short_help="Report every error in manifests.")(validate_command)
app.command("plan", cls=PlanCommand, short_help="Show which nodes would be launched or removed.")(
    plan_command
)
app.command("savings", short_help="Show what a live cluster costs, and what it would cost.")(savings_command)
app.command("simulate", short_help="Replay what happened with other NodePools, prices or settings.")(
    simulate_command
)

app.command("shadow", short_help="Show an observed cluster beside its shadow.")(shadow_command)
app.command("ledger", short_help="Show what nodes have cost, by owner, and what moves saved.")(ledger_command)
app.command("top", short_help="Watch nodes, pods, prices and moves live.")(top_command)
app.command("ui", short_help="Show a cluster as a local web page.")(ui_command)


@app.command("version", short_help="Print the version and its commit.")
def version_command(output: DataOutputOption = "table") -> None:
    """Print the version, its commit, and the versions of the formats that it reads and writes."""
    from nodesmith_cli.commands.version import print_version

    print_version(output)


@app.command("schema", short_help="Print the JSON schema of a report or record.")
def schema_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A kind of document. Lists all if absent.")
    ] = "",
) -> None:
    """Print the JSON schema of a kind of document, or list all kinds. Editors complete and check documents by it.

    A document names its schema in `$schema`.
    """
    from nodesmith_cli.output.documents.schemas import print_schema

    print_schema(name)


@app.command("completion", short_help="Print a script for shell completion.")
def completion_command(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="The shell that will read the script.")],
) -> None:
    """Print a script for your shell that completes commands, options and the names of kubeconfig contexts.

    For bash: `source <(nodesmith completion bash)`. For zsh: `source <(nodesmith completion zsh)`. For fish:
    `nodesmith completion fish | source`. For PowerShell: `nodesmith completion powershell | Out-String |
    Invoke-Expression`. `kubectl nodesmith` is completed by kubectl's own script.
    """
    from nodesmith_cli.commands.completion import print_script

    print_script(main, shell)


def _only(first: Sequence[str]) -> typer.Typer:
    """Return the app with only the subcommand that the first argument names: making all of them takes time."""
    commands = [command for command in app.registered_commands if command.name in first]
    groups = [group for group in app.registered_groups if group.name in first]
    if VARIABLE in os.environ or not (commands or groups):
        return app
    found = copy(app)
    found.registered_commands, found.registered_groups = commands, groups
    return found


def _save_time() -> None:
    """Collect garbage rarely, not at all at the end, and let numpy start no threads.

    In `nodesmith plan` for 1,000 pods, this saves a fifth of the time: few objects are in cycles, matrices are small.
    """
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    atexit.register(gc.freeze)  # the interpreter's last collection leaves out what is frozen
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _open_closed_streams() -> None:
    """Open standard streams that were closed before the start, as daemons do: such input is empty, output is lost."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _write_any_character() -> None:
    """Let standard output take what a locale without UTF-8 cannot write: a terminal shows `?`, a file is UTF-8."""
    out = sys.stdout
    if isinstance(out, TextIOWrapper) and out.encoding.lower() not in {"utf-8", "utf8"}:
        out.reconfigure(encoding=None if out.isatty() else "utf-8", errors="replace")


def main() -> None:
    """Run the command. An expected error prints one line to standard error and exits with status 2.

    So does output that cannot be written, such as to a full disk.
    """
    _save_time()
    _open_closed_streams()
    _write_any_character()
    if VARIABLE in os.environ:
        enable_completion()
    is_plugin = Path(sys.argv[0]).stem == "kubectl-nodesmith"
    try:
        command = read_plainly(get_command(_only(sys.argv[1:2])))
        try:
            command(
                prog_name="kubectl nodesmith" if is_plugin and VARIABLE not in os.environ else PROGRAM,
                color=False if os.environ.get("NO_COLOR") else None,
            )
        finally:
            sys.stdout.flush()
    except NodesmithError as error:
        print(f"nodesmith: {printable_text(str(error))}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"nodesmith: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
