"""The application, synthesised once for all tests."""

from __future__ import annotations

import pytest

from infra.cluster import LAYERS
from infra.functions import Code
from tests.infra.deployment import CLUSTERS, REGION, ROOT, synthesise
from tests.infra.templates import Template


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    """The real functions, on layers that stand for the built ones: no template depends on what is in them."""
    folder = tmp_path_factory.mktemp("layers")
    layers = {name: folder / name for name in LAYERS}
    for name, layer in layers.items():
        (layer / "python").mkdir(parents=True)
        (layer / "python" / f"{name}.txt").write_text(name)
    return Code(ROOT / "functions", layers)


@pytest.fixture(scope="session")
def templates(code: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Template]:
    """Every stack's template by stack name."""
    found = sorted(synthesise(code, CLUSTERS, tmp_path_factory.mktemp("cdk.out")).glob("*.template.json"))
    return {path.name.removesuffix(".template.json"): Template.read(path) for path in found}


@pytest.fixture(scope="session")
def account(templates: dict[str, Template]) -> Template:
    """The account stack."""
    return templates[f"nodesmith-{REGION}"]


@pytest.fixture(scope="session")
def alpha(templates: dict[str, Template]) -> Template:
    """The stack of the plain cluster."""
    return templates[f"nodesmith-{REGION}-alpha"]


@pytest.fixture(scope="session")
def beta(templates: dict[str, Template]) -> Template:
    """The stack of the cluster in a VPC, with settings and an alarm topic."""
    return templates[f"nodesmith-{REGION}-beta"]
