"""The options of `nodesmith plan`. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from nodesmith.errors import Rejected
from nodesmith_cli.access.preconditions import STDIN, require_every_file, require_kubeconfig, require_region
from nodesmith_cli.access.selecting import chosen_kubeconfig, selection
from nodesmith_cli.commands.options import (
    AllNamespacesOption,
    ContextOption,
    FilesArgument,
    ListOutputOption,
    NamespaceOption,
    SelectorOption,
)

_KUBECONFIG = "--kubeconfig"


class PlanCommand(TyperCommand):
    """A command that accepts --kubeconfig without a value, for the current context."""

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
            "--filename",
            "-f",
            help="Manifests: a file, a folder, or - for standard input. Decompresses .gz files.",
        ),
    ] = None,
    more: FilesArgument = None,
    catalog: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Instance types, in KWOK's format or that of `nodesmith catalog -o json`.",
        ),
    ] = "",
    region: Annotated[
        str,
        typer.Option(
            help="AWS region, without --catalog. Defaults to the region of the manifests' zones, or us-east-1."
        ),
    ] = "",
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            _KUBECONFIG,
            metavar="[CONTEXT]",
            help="Also read a live cluster: a context, a kubeconfig file, or no value for the current context.",
        ),
    ] = None,
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    all_namespaces: AllNamespacesOption = False,
    selector: SelectorOption = "",
    shifted: Annotated[
        list[str] | None,
        typer.Option(
            "--shifted-zone",
            metavar="ZONE",
            help="Plan as if the cluster were shifted away from this zone, in addition to shifts that NodePools show.",
        ),
    ] = None,
    commitments: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Savings Plans and Reserved Instances to use first: a list in YAML or JSON, as in cdk.json.",
        ),
    ] = "",
    pool: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Launch nodes from these NodePools only.")
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Verify the plan with an independent program.")
    ] = False,
    consolidate: Annotated[
        bool,
        typer.Option("--consolidate", help="Show which nodes would be removed or replaced, instead."),
    ] = False,
    output: ListOutputOption = "table",
) -> None:
    """Show which nodes would be launched for the pods in manifests, at what price, and why any pods stay pending.

    This changes nothing. The manifests contain pods or workloads, NodePools, and other objects of a cluster, such as
    the output of `kubectl get pods,nodes,… -A -o json`. Every pod without a node is pending. Without an EC2NodeClass,
    one in zones a to c of the region is assumed.

    The settings that affect decisions are read from the environment: PREFERENCE_POLICY, MIN_VALUES_POLICY,
    FRAGILITY_TOLERANCE, SCHEDULER_CONFIG, VM_MEMORY_OVERHEAD_PERCENT, RESERVED_ENIS, PREFIX_DELEGATION,
    WINDOWS_PREFIX_DELEGATION, CLUSTER_SERVICE_CIDR (its IP family; by default that of the nodes in the manifests).

    With -n or -l, nodes are planned for those pending pods alone.

    With --consolidate, show instead which existing nodes could be removed or replaced by cheaper ones: each move with
    what it saves and disrupts, and for every other node the rule that keeps it.

    The exit status is 0 if there is a plan, 1 if --audit finds an error in it, and 2 if the input is unusable.
    """
    named = (*(files or ()), *(more or ()))
    pods = selection(namespace, all_namespaces, selector)
    if context:
        kubeconfig = chosen_kubeconfig(kubeconfig or "", context)
    if kubeconfig is None and not named:
        raise Rejected(f"nothing to read: use -f FILE ({STDIN} for standard input) or --kubeconfig")
    require_every_file(named)
    if kubeconfig is not None:
        require_kubeconfig(kubeconfig)
    if not catalog:
        require_region(region)
    from nodesmith_cli.planning.running import PlanRequest, run

    pools, zones = tuple(pool or ()), tuple(shifted or ())
    request = PlanRequest(
        named, catalog, region, kubeconfig, pools, audit, consolidate, zones, commitments, pods
    )
    raise typer.Exit(run(request, output))
