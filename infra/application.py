"""The whole application: the stacks that the context asks for, checked with cdk-nag against AWS's good practices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.context.context import DEFAULT_REGION, read_context
from infra.functions.concerns import function_names
from infra.functions.function import Code
from infra.functions.trial import read_canary, trial
from infra.stacks.account import AccountStack
from infra.stacks.cluster import ClusterStack
from infra.stacks.region import RegionStack


def application(
    context: Mapping[str, Any],
    code: Code,
    output: Path,
    default_region: str = DEFAULT_REGION,
    client: Callable[[str, str], Any] = boto3.client,
) -> App:
    """Build the app. `context` holds cdk.json's defaults; values given to the cdk command (-c) take precedence.

    `default_region` is deployed if the context names no region. If the context has a `canary`, `client` (of a service,
    in a region) looks up which versions serve today. Synthesis writes the templates to `output`, and raises
    RuntimeError if cdk-nag finds anything. Raises ValueError naming what is wrong with the context.
    """
    app = App(context=dict(context), outdir=str(output))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    regions, clusters, account = (
        app.node.try_get_context(name) for name in ("regions", "clusters", "account")
    )
    parsed = read_context(regions, clusters, default_region, account)
    canary = read_canary(app.node.try_get_context("canary"))
    stacks = {
        name: RegionStack(app, region, code, trial(canary, name, function_names(region.vpcs), client))
        for name, region in parsed.regions.items()
    }
    for cluster in parsed.clusters:
        ClusterStack(app, cluster).add_stack_dependency(stacks[cluster.region])
    if parsed.account is not None:
        AccountStack(app, parsed.account)
    return app
