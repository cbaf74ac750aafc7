"""`nodesmith hash`: what it is given. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from nodesmith_cli.options import OutputOption


def hash_command(
    files: Annotated[
        list[str], typer.Option("--filename", "-f", help="Manifests: file, folder, or - for standard input.")
    ],
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More of them.")] = None,
    ca_bundle: Annotated[
        str,
        typer.Option(
            "--cluster-ca-bundle",
            metavar="BASE64",
            help="The cluster's certificate authority, as EKS tells it: cluster.certificateAuthority.data.",
        ),
    ] = "",
    output: OutputOption = "table",
) -> None:
    """Print the hashes of NodePools and EC2NodeClasses by which Karpenter and nodesmith tell static drift.

    They are what the annotations karpenter.sh/nodepool-hash and karpenter.k8s.aws/ec2nodeclass-hash will hold, with
    their versions. In a cluster the hash of an EC2NodeClass covers the cluster's CA bundle too. Manifests of any age
    are read as in a cluster; objects of other kinds are left out.

    Exit status 0 where all were hashed, 1 where an object could not be, 2 where input could not be read.
    """
    from nodesmith_cli.hashing import run

    raise typer.Exit(run([*files, *(more or [])], ca_bundle, output))
