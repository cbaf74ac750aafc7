"""`nodesmith connect` applies what `kubectl kustomize forwarder/` prints."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodesmith_cli.connecting.manifests import Served, forwarder_settings, manifests
from nodesmith_local.controlplane import find_binaries
from tests.e2e.incluster.container import ROOT

IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/nodesmith-forwarder"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
SERVED = Served(
    "web",
    "eu-west-1",
    "nodesmith-123456789012-eu-west-1-an",
    "https://sqs.eu-west-1.amazonaws.com/123456789012",
    "shared",
    f"{IMAGE}@{DIGEST}",
)


def kustomized(folder: Path) -> list[dict[str, Any]]:
    command = [str(find_binaries() / "kubectl"), "kustomize", str(folder)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(text))


def by_name(objects: list[dict[str, Any]]) -> Mapping[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with the settings that the docs tell users to fill in."""
    for folder in ("forwarder", "overlays"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    settings = "".join(f"{name}={value}\n" for name, value in forwarder_settings(SERVED).items())
    (tmp_path / "forwarder" / "forwarder.env").write_text(settings)
    path = tmp_path / "forwarder" / "kustomization.yaml"
    kustomization = yaml.safe_load(path.read_text())
    kustomization["images"] = [{"name": "nodesmith-forwarder", "newName": IMAGE, "digest": DIGEST}]
    path.write_text(yaml.safe_dump(kustomization))
    return tmp_path


def test_connect_applies_what_kustomize_makes_of_the_forwarders_folder(checkout: Path) -> None:
    assert by_name(manifests(SERVED)) == by_name(kustomized(checkout / "forwarder"))


def test_beside_foreign_crds_connect_applies_what_the_overlay_makes(checkout: Path) -> None:
    made = by_name(manifests(SERVED, shared_crds=False))
    assert made == by_name(kustomized(checkout / "overlays" / "shared-crds"))
