"""The options of `nodesmith hash`. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from nodesmith_cli.options import DataOutputOption


def hash_command(
    files: Annotated[
        list[str],
        typer.Option("--filename", "-f", help="Manifests: a file, a folder, or - for standard input."),
    ],
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="Manifests, like -f.")] = None,
    ca_bundle: Annotated[
        str,
        typer.Option(
            "--cluster-ca-bundle",
            metavar="BASE64",
            help="Certificate authority of the cluster: cluster.certificateAuthority.data in EKS.",
        ),
    ] = "",
    output: DataOutputOption = "table",
) -> None:
    """Print the NodePool and EC2NodeClass hashes that Karpenter and nodesmith use to detect static drift.

    These are the values of the annotations karpenter.sh/nodepool-hash and karpenter.k8s.aws/ec2nodeclass-hash, with
    their versions. In a cluster, the hash of an EC2NodeClass also covers the cluster's CA bundle. Manifests of any
    version are accepted; objects of other kinds are ignored.

    The exit status is 0 if all objects were hashed, 1 if one could not be hashed, and 2 if input is unreadable.
    """
    from nodesmith_cli.hashing import run

    raise typer.Exit(run([*files, *(more or [])], ca_bundle, output))
