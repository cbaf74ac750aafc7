"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

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
ClusterOption = Annotated[str, typer.Option(help="The cluster; else the one that decided last.")]
BucketOption = Annotated[str, typer.Option(help="A deployment's bucket; else the records of local runs.")]
BucketRegionOption = Annotated[str, typer.Option(help="The bucket's region; else that of your AWS settings.")]
KubeconfigOption = Annotated[
    str,
    typer.Option(
        metavar="[CONTEXT]", help="The cluster: a context or a kubeconfig file; else the current one."
    ),
]
