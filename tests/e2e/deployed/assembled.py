"""The synthesised templates that deployment tests read, unchanged or with a setting changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.e2e.deployed.assembly import Assembly
from tests.e2e.deployed.stacks import Stacks
from tests.infra.templates import Template

NAME, REGION = "nodesmith-local", "us-east-1"
QUEUE = "AWS::SQS::Queue"
Edit = Callable[[str], str]


def changed(kind: str, named: str, **properties: Any) -> Edit:
    """Change properties of all resources of a type whose logical ID starts with `named`; None removes a property."""

    def edit(text: str) -> str:
        template = json.loads(text)
        found = [
            each
            for id_, each in template["Resources"].items()
            if each["Type"] == kind and id_.startswith(named)
        ]
        assert found
        for each in found:
            each["Properties"] = {
                key: value for key, value in {**each["Properties"], **properties}.items() if value is not None
            }
        return json.dumps(template)

    return edit


def unchanged(text: str) -> str:
    """Change nothing."""
    return text


def region_template(assembly: Assembly, edit: Edit = unchanged) -> Template:
    """Return the region's template with its references resolved."""
    return _stacks(edit(assembly.region_template()), assembly.cluster_templates()).region


def cluster_template(assembly: Assembly, edit: Edit = unchanged) -> Template:
    """Return the template of the only cluster with its references resolved."""
    texts = {name: edit(text) for name, text in assembly.cluster_templates().items()}
    (template,) = _stacks(assembly.region_template(), texts).clusters.values()
    return template


def _stacks(region: str, clusters: Mapping[str, str]) -> Stacks:
    return Stacks.read(region, clusters, REGION, "https://sqs.us-east-1.amazonaws.com")
