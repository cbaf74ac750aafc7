"""The whole application: the stacks that the context asks for, under AWS's own rules of good practice (cdk-nag)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.account import AccountStack
from infra.cluster import ClusterStack
from infra.context import read_clusters
from infra.functions import Code


def application(context: Mapping[str, Any], code: Code, output: Path) -> App:
    """Build the app. `context` are cdk.json's defaults; what the cdk command gives (-c) goes before.

    Synthesis writes the templates to `output`, and raises RuntimeError when cdk-nag finds anything.
    Raises ValueError saying what is wrong with the context.
    """
    app = App(context=dict(context), outdir=str(output))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    clusters = read_clusters(app.node.try_get_context("clusters"))
    accounts: dict[str, AccountStack] = {}
    for cluster in clusters:
        if cluster.region not in accounts:
            here = [each for each in clusters if each.region == cluster.region]
            topic = next((each.alarm_topic_arn for each in here if each.alarm_topic_arn), "")
            kept = max((each.interruption_concurrency or 0 for each in here), default=0)
            accounts[cluster.region] = AccountStack(app, cluster.region, code, topic, kept or None)
        ClusterStack(app, cluster, code).add_stack_dependency(accounts[cluster.region])
    return app
