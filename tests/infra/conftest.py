"""The application, synthesised once for all tests."""

from __future__ import annotations

import pytest

from infra.functions.function import Code
from tests.infra.deployment import CLUSTERS, PLAIN_REGION, REGION, code_on_empty_layers, synthesise
from tests.infra.templates import Template


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    """The real functions, on placeholder layers: no template depends on the content of layers."""
    return code_on_empty_layers(tmp_path_factory.mktemp("layers"))


@pytest.fixture(scope="session")
def templates(code: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Template]:
    """Every stack's template by stack name."""
    found = sorted(synthesise(code, CLUSTERS, tmp_path_factory.mktemp("cdk.out")).glob("*.template.json"))
    return {path.name.removesuffix(".template.json"): Template.read(path) for path in found}


@pytest.fixture(scope="session")
def region(templates: dict[str, Template]) -> Template:
    """The stack of the region with a VPC, named roles, keys and parameters, an alarm topic, tracing and a dashboard."""
    return templates[f"nodesmith-{REGION}"]


@pytest.fixture(scope="session")
def plain(templates: dict[str, Template]) -> Template:
    """The stack of the region that cdk.json does not configure."""
    return templates[f"nodesmith-{PLAIN_REGION}"]


@pytest.fixture(scope="session")
def alpha(templates: dict[str, Template]) -> Template:
    """The stack of the cluster with a public endpoint."""
    return templates[f"nodesmith-{REGION}-alpha"]


@pytest.fixture(scope="session")
def beta(templates: dict[str, Template]) -> Template:
    """The stack of the cluster that is reached from the VPC."""
    return templates[f"nodesmith-{REGION}-beta"]
