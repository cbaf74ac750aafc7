"""`nodesmith plan`: what it is given. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from nodesmith.errors import Rejected
from nodesmith_cli.preconditions import STDIN, require_files, require_kubeconfig, require_region

_KUBECONFIG = "--kubeconfig"


class PlanCommand(TyperCommand):
    """Lets --kubeconfig stand alone, for the current context."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for at, argument in enumerate(args):
            alone = at + 1 == len(args) or args[at + 1].startswith("-")
            if argument == _KUBECONFIG and alone:
                args = [*args[:at], f"{_KUBECONFIG}=", *args[at + 1 :]]
        return super().parse_args(ctx, args)


def plan_command(
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--filename", "-f", help="Manifests: file, folder, or - for standard input; .gz is unpacked."
        ),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More of them.")] = None,
    catalog: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="What can be bought: KWOK's format or that of `nodesmith catalog -o json`."
        ),
    ] = "",
    region: Annotated[
        str,
        typer.Option(
            help="The region, where no catalogue is given; else that of the zones in the files, else us-east-1."
        ),
    ] = "",
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            _KUBECONFIG,
            metavar="[CONTEXT]",
            help="Read the live cluster too: a context, a kubeconfig file, or nothing for the current context.",
        ),
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Buy from these NodePools only.")
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Check the plan, pod by pod, with a program of its own.")
    ] = False,
    consolidate: Annotated[
        bool,
        typer.Option(
            "--consolidate", help="Say which nodes would go, and what would come in their stead, instead."
        ),
    ] = False,
    output: Annotated[
        Literal["table", "json", "yaml"], typer.Option("--output", "-o", help="How to print the plan.")
    ] = "table",
) -> None:
    """Decide on manifests: which nodes to buy for the pods in them, at what price, and why not for others.

    Nothing is bought and nothing written. Files hold pods and workloads, NodePools, and whatever else of a cluster
    there is: `kubectl get pods,nodes,… -A -o json` will do. Every pod without a node is pending. Without an
    EC2NodeClass, one in zones a to c of the region is assumed.

    What a deployment's settings say of decisions is read from the environment: PREFERENCE_POLICY, MIN_VALUES_POLICY,
    FRAGILITY_TOLERANCE, SCHEDULER_CONFIG, VM_MEMORY_OVERHEAD_PERCENT, RESERVED_ENIS, PREFIX_DELEGATION.

    With --consolidate the question is which nodes that are there could become fewer or cheaper ones: each move with
    what it saves and disrupts, and for every other node the rule that keeps it.

    Exit status 0 where there is a plan, 1 where --audit finds it wrong, 2 where there is nothing to plan from.
    """
    named = (*(files or ()), *(more or ()))
    if kubeconfig is not None:
        require_kubeconfig(kubeconfig)
    elif not named:
        raise Rejected(f"nothing to read: name files with -f ({STDIN} is standard input), or --kubeconfig")
    else:
        require_files(named, "plan from")
    if not catalog:
        require_region(region)
    from nodesmith_cli.planning.running import Wanted, run

    wanted = Wanted(named, catalog, region, kubeconfig, tuple(pool or ()), audit, consolidate)
    raise typer.Exit(run(wanted, output))
