"""The whole application: the stacks that the context asks for, under AWS's own rules of good practice (cdk-nag)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.cluster import ClusterStack
from infra.context import DEFAULT_REGION, read_context
from infra.functions import Code
from infra.region import RegionStack


def application(
    context: Mapping[str, Any], code: Code, output: Path, default_region: str = DEFAULT_REGION
) -> App:
    """Build the app. `context` are cdk.json's defaults; what the cdk command gives (-c) goes before.

    `default_region` is deployed where the context names no region. Synthesis writes the templates to `output`, and
    raises RuntimeError when cdk-nag finds anything. Raises ValueError saying what is wrong with the context.
    """
    app = App(context=dict(context), outdir=str(output))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    regions, clusters = (app.node.try_get_context(name) for name in ("regions", "clusters"))
    found = read_context(regions, clusters, default_region)
    stacks = {name: RegionStack(app, region, code) for name, region in found.regions.items()}
    for cluster in found.clusters:
        ClusterStack(app, cluster).add_stack_dependency(stacks[cluster.region])
    return app
