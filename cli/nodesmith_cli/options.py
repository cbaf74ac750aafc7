"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from nodesmith_cli.completion import contexts

Output = Literal["table", "json"]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
SpeedOption = Annotated[float, typer.Option(help="How many times faster than real time the clock runs.")]
RegionOption = Annotated[
    str, typer.Option(help="AWS region. Defaults to the region of the manifests' zones, or us-east-1.")
]
NoCapacityOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Offerings that EC2 has run out of, with the wildcards * and ?: m5.large:us-east-1a, spot:c7*.",
    ),
]
KeepOption = Annotated[Path | None, typer.Option(help="Folder that holds decision records.")]
ClusterOption = Annotated[
    str, typer.Option(help="Cluster name. Defaults to the cluster with the latest decision.")
]
BucketOption = Annotated[
    str, typer.Option(help="S3 bucket of a deployment. Defaults to the records of local runs.")
]
BucketRegionOption = Annotated[
    str, typer.Option(help="Region of the bucket. Defaults to the region in your AWS configuration.")
]
KubeconfigOption = Annotated[
    str,
    typer.Option(
        metavar="[CONTEXT]",
        help="Kubeconfig context or file. Defaults to the current context.",
        autocompletion=contexts,
    ),
]
