"""The options of `nodesmith convert`, `hash` and `validate`. Their code is imported when they run."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.access.preconditions import require_files
from nodesmith_cli.commands.options import (
    DataOutputOption,
    FilesArgument,
    FilesOption,
    RegionOption,
    output_formats,
)


def convert_command(
    files: FilesOption = None,
    more: FilesArgument = None,
    report: Annotated[
        bool, typer.Option("--report", help="Print every change and its risk to standard error.")
    ] = False,
    role: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="IAM role for AWSNodeTemplates and Provisioners that name neither a role nor an instance profile.",
        ),
    ] = "",
    instance_profile: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Instance profile for the same objects (aws.defaultInstanceProfile). Takes precedence over --role.",
        ),
    ] = "",
    kubernetes_version: Annotated[
        str, typer.Option(metavar="1.32", help="Version of the cluster. AL2 is kept before 1.33.")
    ] = "",
    output: Annotated[
        Literal["yaml", "json"], typer.Option("--output", "-o", help="Output format.")
    ] = "yaml",
) -> None:
    """Convert Karpenter manifests of any version (Provisioner, AWSNodeTemplate, v1beta1) to the current version.

    Objects are printed to standard output with their YAML comments, and unchanged objects byte for byte. Findings are
    printed to standard error. The output works with both Karpenter and nodesmith.

    The exit status is 0 if everything was converted, 1 if something needs your decision, and 2 if input is unreadable.
    """
    named = (*(files or ()), *(more or ()))
    require_files(named, "convert")
    from nodesmith.model.karpenter.conversion.nodeclasses import InstallationSettings
    from nodesmith_cli.manifests.converting.command import ConvertRequest, run

    around = InstallationSettings(_minor(kubernetes_version), role, instance_profile, for_files=True)
    raise typer.Exit(run(ConvertRequest(named, around, report), output))


def _minor(version: str) -> str:
    """Return 1.32 for 1.32, v1.32 or v1.32.4-eks-a1b2, and nothing for nothing. Raises Rejected for other text."""
    match = re.fullmatch(r"v?(\d{1,3}\.\d{1,3})(?:\.\d+[\w.+-]*)?", version, re.ASCII)
    if version and match is None:
        raise Rejected(f"--kubernetes-version {version}: write a version such as 1.32")
    return match[1] if match else ""


def _require_base64(option: str, text: str) -> None:
    """Raise Rejected for text that is not base64 in one line: any other text would give another hash."""
    try:
        b64decode(text, validate=True)
    except ValueError:
        raise Rejected(
            f"{option}: is not base64 in one line: use cluster.certificateAuthority.data of `aws eks describe-cluster`"
        ) from None


def hash_command(
    files: FilesOption = None,
    more: FilesArgument = None,
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
    named = (*(files or ()), *(more or ()))
    require_files(named, "hash")
    _require_base64("--cluster-ca-bundle", ca_bundle)
    from nodesmith_cli.manifests.hashing import run

    raise typer.Exit(run(named, ca_bundle, output))


def validate_command(
    files: FilesOption = None,
    more: FilesArgument = None,
    region: RegionOption = "",
    commitments: Annotated[
        str,
        typer.Option(metavar="FILE", help="Also check a list of Savings Plans and Reserved Instances."),
    ] = "",
    output: Annotated[str, output_formats("text", "json", "yaml")] = "text",
) -> None:
    """Report every error in manifests, with its file and line.

    Objects are checked alone and together: NodePools with their EC2NodeClass, their instance types and each other, pods
    with the NodePools that could host them, and PodDisruptionBudgets with the pods they cover.

    The exit status is 1 if there is an error, and 0 if there are only warnings.
    """
    from nodesmith_cli.manifests.validating.command import run

    named = [*(files or []), *(more or [])]
    if not (named or commitments):
        raise Rejected("nothing to read: use -f FILE (- for standard input) or --commitments FILE")
    raise typer.Exit(run(named, region, output, commitments))
