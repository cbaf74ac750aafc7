"""The options of `nodesmith connect`, `disconnect` and `doctor`. Their code is imported when they run."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from nodesmith_cli.commands.options import (
    ClusterArgument,
    ClusterRegionOption,
    ProfileOption,
    StepsOutputOption,
    YesOption,
    seconds_of,
)

if TYPE_CHECKING:
    from nodesmith_cli.connecting.inspection import Environment

Kubeconfig = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="Kubeconfig file. Defaults to yours, or to an EKS token if yours is for another cluster.",
    ),
]
Context = Annotated[str, typer.Option(help="Context in the kubeconfig.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")]


def connect_command(
    cluster: ClusterArgument,
    region: ClusterRegionOption = "",
    profile: ProfileOption = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    image: Annotated[
        str,
        typer.Option(
            metavar="REF", help="Forwarder image, with a tag or digest. Defaults to the one in your ECR."
        ),
    ] = "",
    push: Annotated[
        str,
        typer.Option(
            metavar="REPOSITORY", help="Build the forwarder image and push it to this repository first."
        ),
    ] = "",
    vpc: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="VPC in cdk.json from which functions reach the API server; '' for none."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Setting of this cluster. NAME= removes it."),
    ] = None,
    node_role: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="IAM role of nodes. Defaults to KarpenterNodeRole-CLUSTER."),
    ] = None,
    observe: Annotated[
        bool,
        typer.Option(
            "--observe",
            help="Only watch the cluster, without the right to change anything: see nodesmith shadow.",
        ),
    ] = False,
    set_authentication_mode: Annotated[
        bool,
        typer.Option(
            "--set-authentication-mode", help="Switch the cluster to access entries. This cannot be undone."
        ),
    ] = False,
    tag: Annotated[
        bool,
        typer.Option("--tag/--no-tag", help="Tag the cluster's subnets and security group for discovery."),
    ] = True,
    timeout: Annotated[str, typer.Option(help="How long to wait for the first snapshot.")] = "10m",
    yes: YesOption = False,
    dry_run: Dry = False,
    output: StepsOutputOption = "table",
) -> None:
    """Connect an EKS cluster: check it, create what is missing in AWS and in the cluster, and wait until it is served.

    Everything is checked before anything changes. Run it again to repair a connection or change a setting; what is
    already correct stays as it is. The exit status is 1 if a check fails, or if no snapshot arrives within the timeout.
    """
    patience = timedelta(seconds=seconds_of("--timeout", timeout))
    from nodesmith.errors import Rejected
    from nodesmith_cli.connecting.optionchecks import parsed_settings, refuse_image, refuse_vpc_name

    if image and push:
        raise Rejected("--image and --push are mutually exclusive")
    if image:
        refuse_image(image)
    refuse_vpc_name(vpc)
    settings = parsed_settings(setting or ())
    if profile:
        os.environ["AWS_PROFILE"] = (
            profile  # for code that looks up credentials by itself, such as the image push
        )
    from functools import partial

    from nodesmith_cli.connecting import printing
    from nodesmith_cli.connecting.connectcommand import ConnectOptions, connect
    from nodesmith_cli.connecting.images import push as push_image
    from nodesmith_cli.connecting.request import ConnectRequest

    request = ConnectRequest(
        cluster,
        vpc=vpc,
        node_role=node_role,
        settings=settings,
        image=image or push,
        is_to_switch_mode=set_authentication_mode,
        is_to_tag=tag,
        observes=observe,
    )
    options = ConnectOptions(
        output, dry_run, not yes, patience, partial(push_image, push, printing.say) if push else None
    )
    raise typer.Exit(connect(request, around(region, profile, kubeconfig, context), options))


def around(region: str, profile: str, kubeconfig: str, context: str) -> Environment:
    """Return the environment of a command, from the options that name it. Raises Rejected."""
    import time

    from nodesmith_cli.access.awssession import AwsSession
    from nodesmith_cli.connecting.inspection import Environment

    session = AwsSession(region, profile)
    return Environment(
        session.client,
        session.region,
        session.credentials,
        lambda: datetime.now(UTC),
        time.sleep,
        kubeconfig,
        context,
    )


def disconnect_command(
    cluster: ClusterArgument,
    region: ClusterRegionOption = "",
    profile: ProfileOption = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    keep_nodes: Annotated[
        bool,
        typer.Option("--keep-nodes", help="Leave nodes running. Nothing drains or replaces them any more."),
    ] = False,
    keep_data: Annotated[
        bool,
        typer.Option("--keep-data", help="Keep the ledger, decisions and snapshots in the table and bucket."),
    ] = False,
    delete_node_role: Annotated[
        bool, typer.Option("--delete-node-role", help="Delete the node role, if connect created it.")
    ] = False,
    timeout: Annotated[str, typer.Option(help="How long to wait for deletions in the cluster.")] = "30m",
    yes: YesOption = False,
    dry_run: Dry = False,
    output: StepsOutputOption = "table",
) -> None:
    """Disconnect an EKS cluster: remove what connect and the functions created, in the cluster and in AWS.

    This fails while the cluster has nodes of nodesmith; remove them with `nodesmith uninstall`. You can interrupt this
    command and run it again. The exit status is 1 if something is left.
    """
    patience = timedelta(seconds=seconds_of("--timeout", timeout))
    from nodesmith_cli.connecting.disconnectcommand import DisconnectOptions, disconnect
    from nodesmith_cli.connecting.steps.leftovers import KeepOptions

    keeping = KeepOptions(keep_nodes, keep_data, not delete_node_role)
    options = DisconnectOptions(keeping, output, dry_run, not yes, patience)
    raise typer.Exit(disconnect(cluster, around(region, profile, kubeconfig, context), options))


def doctor_command(
    cluster: ClusterArgument,
    region: ClusterRegionOption = "",
    profile: ProfileOption = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: StepsOutputOption = "table",
) -> None:
    """Find what keeps nodesmith from serving a cluster well, with the command that fixes each problem.

    This changes nothing. The exit status is 1 if there is anything to fix.
    """
    from nodesmith_cli.connecting.doctorcommand import doctor

    raise typer.Exit(doctor(cluster, around(region, profile, kubeconfig, context), output))
