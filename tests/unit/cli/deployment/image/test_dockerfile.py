from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from nodesmith.errors import Rejected
from nodesmith_cli.deployment.image.dockerfile import read_recipe
from nodesmith_cli.deployment.image.wheels import MACHINES
from nodesmith_formats.shipped import shipped

ROOT = Path(__file__).parents[5]
DIGEST = f"sha256:{'0a' * 32}"
WHOLE = f"""
# A comment \\
FROM python@{DIGEST} AS base-amd64
from ghcr.io/org/python@{DIGEST} as base-arm64
FROM base-${{TARGETARCH}} AS build
ENV PYTHONPATH=/elsewhere
FROM base-${{TARGETARCH}}
ENV PYTHONPATH=/app \\
    GREETING="two words"
LABEL a.b=c
USER 1:1
EXPOSE 80 53/udp
ENTRYPOINT ["python", "-m", "x"]
"""


def test_the_forwarders_dockerfile_pins_a_base_for_each_platform_that_images_are_made_for() -> None:
    recipe = read_recipe(shipped("_image/Dockerfile", "forwarder/Dockerfile"))
    assert recipe.bases.keys() == MACHINES.keys()
    assert {base.name for base in recipe.bases.values()} == {"docker.io/library/python"}
    assert len({base.digest for base in recipe.bases.values()}) == 2
    assert recipe.entrypoint == ("python", "-m", "nodesmith_forwarder")


def test_a_dockerfile_is_read_by_its_bases_and_its_last_stage(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(WHOLE)
    recipe = read_recipe(tmp_path / "Dockerfile")
    assert {name: str(base) for name, base in recipe.bases.items()} == {
        "amd64": f"docker.io/library/python@{DIGEST}",
        "arm64": f"ghcr.io/org/python@{DIGEST}",
    }
    assert recipe.environment == {"PYTHONPATH": "/app", "GREETING": "two words"}
    assert (recipe.labels, recipe.user, recipe.ports) == ({"a.b": "c"}, "1:1", ("80/tcp", "53/udp"))


def test_a_wheel_of_nodesmith_holds_what_the_image_is_built_by() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for beside, packaged in (
        ("forwarder/Dockerfile", "Dockerfile"),
        ("requirements/forwarder.txt", "forwarder.txt"),
    ):
        assert included[beside] == f"nodesmith_formats/_image/{packaged}"
        assert shipped(f"_image/{packaged}", beside) == ROOT / beside


def test_the_forwarders_pins_hold_on_every_machine() -> None:
    """pip evaluates markers for the machine that it runs on, not for the image's platform."""
    pins = (ROOT / "requirements" / "forwarder.txt").read_text()
    assert "botocore==" in pins
    assert ";" not in pins


@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        ("USER 1:1", "", "its last stage lacks USER"),
        ("ENV PYTHONPATH=/app", "ENV PATH=/app", "its last stage lacks PYTHONPATH"),
        (f"python@{DIGEST} AS base-amd64", "python:3.13 AS base-amd64", "python:3.13: pin it"),
    ],
)
def test_a_dockerfile_that_lacks_something_is_refused(
    tmp_path: Path, line: str, instead: str, says: str
) -> None:
    (tmp_path / "Dockerfile").write_text(WHOLE.replace(line, instead))
    with pytest.raises(Rejected, match=says):
        read_recipe(tmp_path / "Dockerfile")
