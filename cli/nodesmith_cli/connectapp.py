"""`nodesmith connect`, `disconnect` and `doctor`: what they are given. Their code is imported when they run."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from nodesmith_cli.options import OutputOption
from nodesmith_cli.spans import seconds_of

if TYPE_CHECKING:
    from nodesmith_cli.connecting.looking import Around

_Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="The EKS cluster.")]
_Region = Annotated[str, typer.Option(help="Its region; else that of your AWS settings.")]
_Profile = Annotated[str, typer.Option(help="The profile of your AWS settings.")]
_Kubeconfig = Annotated[
    str,
    typer.Option(
        metavar="FILE", help="A kubeconfig; else the usual one, or an EKS token where that one does not fit."
    ),
]
_Context = Annotated[str, typer.Option(help="A context of the kubeconfig.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_Dry = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


def connect_command(
    cluster: _Cluster,
    region: _Region = "",
    profile: _Profile = "",
    kubeconfig: _Kubeconfig = "",
    context: _Context = "",
    image: Annotated[
        str,
        typer.Option(metavar="REF", help="The forwarder's image, with tag or digest; else that in your ECR."),
    ] = "",
    push: Annotated[
        str, typer.Option(metavar="REPOSITORY", help="Build the forwarder's image and push it there first.")
    ] = "",
    vpc: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The VPC of cdk.json in which functions reach the API server; '' for none."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of this cluster; NAME= takes it away."),
    ] = None,
    node_role: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The IAM role of nodes; else KarpenterNodeRole-CLUSTER."),
    ] = None,
    set_authentication_mode: Annotated[
        bool,
        typer.Option(
            "--set-authentication-mode", help="Switch a cluster to access entries. There is no way back."
        ),
    ] = False,
    tag: Annotated[
        bool,
        typer.Option("--tag/--no-tag", help="Tag the cluster's subnets and security group for discovery."),
    ] = True,
    timeout: Annotated[str, typer.Option(help="How long to wait for the first snapshot.")] = "10m",
    yes: _Yes = False,
    dry_run: _Dry = False,
    output: OutputOption = "table",
) -> None:
    """Connect an EKS cluster: check it, make what is missing in AWS and in the cluster, wait until it is served.

    All is checked before anything is written. Run it again to mend what is broken, or to change a setting: what is as
    it is to be is left alone. Exit status 1 where something hinders it, or no snapshot came within the timeout.
    """
    patience = timedelta(seconds=seconds_of("--timeout", timeout))
    from nodesmith.errors import Rejected
    from nodesmith_cli.connecting.given import parsed_settings, refuse_image, refuse_vpc_name

    if image and push:
        raise Rejected("--image and --push: give one of them")
    if image:
        refuse_image(image)
    refuse_vpc_name(vpc)
    settings = parsed_settings(setting or ())
    if profile:
        os.environ["AWS_PROFILE"] = profile  # for whatever looks for credentials by itself, as pushing does
    from functools import partial

    from nodesmith_cli.connecting import told
    from nodesmith_cli.connecting.connectcommand import How, connect
    from nodesmith_cli.connecting.images import push as push_image
    from nodesmith_cli.connecting.wanted import Wanted

    wanted = Wanted(
        cluster,
        vpc=vpc,
        node_role=node_role,
        settings=settings,
        image=image or push,
        is_to_switch_mode=set_authentication_mode,
        is_to_tag=tag,
    )
    how = How(output, dry_run, not yes, patience, partial(push_image, push, told.say) if push else None)
    raise typer.Exit(connect(wanted, _around(region, profile, kubeconfig, context), how))


def _around(region: str, profile: str, kubeconfig: str, context: str) -> Around:
    import time

    from nodesmith_cli.connecting.clients import AwsSession
    from nodesmith_cli.connecting.looking import Around

    session = AwsSession(region, profile)
    return Around(
        session.client,
        session.region,
        session.credentials,
        lambda: datetime.now(UTC),
        time.sleep,
        kubeconfig,
        context,
    )


def disconnect_command(
    cluster: _Cluster,
    region: _Region = "",
    profile: _Profile = "",
    kubeconfig: _Kubeconfig = "",
    context: _Context = "",
    keep_nodes: Annotated[
        bool, typer.Option("--keep-nodes", help="Leave nodes running that nobody will drain or replace.")
    ] = False,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Leave ledger, decisions and snapshots in table and bucket.")
    ] = False,
    delete_node_role: Annotated[
        bool, typer.Option("--delete-node-role", help="Delete the role for nodes, if connect has made it.")
    ] = False,
    timeout: Annotated[
        str, typer.Option(help="How long to wait for what is deleted in the cluster.")
    ] = "30m",
    yes: _Yes = False,
    dry_run: _Dry = False,
    output: OutputOption = "table",
) -> None:
    """Disconnect an EKS cluster: take away what connect and the functions have made, in the cluster and in AWS.

    It refuses while nodes are left; `nodesmith uninstall` ends them. It can be stopped and run again. Exit status 1
    where something is left.
    """
    patience = timedelta(seconds=seconds_of("--timeout", timeout))
    from nodesmith_cli.connecting.disconnectcommand import HowToLeave, disconnect
    from nodesmith_cli.connecting.leftovers import Keeping

    keeping = Keeping(keep_nodes, keep_data, not delete_node_role)
    how = HowToLeave(keeping, output, dry_run, not yes, patience)
    raise typer.Exit(disconnect(cluster, _around(region, profile, kubeconfig, context), how))


def doctor_command(
    cluster: _Cluster,
    region: _Region = "",
    profile: _Profile = "",
    kubeconfig: _Kubeconfig = "",
    context: _Context = "",
    output: OutputOption = "table",
) -> None:
    """Say what keeps a cluster from being served, or from being served well, each with the command that mends it.

    Nothing is written. Exit status 1 where anything has to be mended.
    """
    from nodesmith_cli.connecting.doctorcommand import doctor

    raise typer.Exit(doctor(cluster, _around(region, profile, kubeconfig, context), output))
