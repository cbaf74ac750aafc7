"""Kueue's controllers, built with Go into build/kueue: five minutes the first time, then cached; and its CRDs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from nodesmith_local.controlplane.process import Process

HERE, BUILT = Path(__file__).parent, Path(__file__).parents[3] / "build" / "kueue" / "kueue"
_CRDS = {
    "sigs.k8s.io/kueue": "config/components/crd/bases",
    "k8s.io/autoscaler/cluster-autoscaler/apis": "config/crd",
}
"""Module → its folder with CRDs."""
_FLAGS = ("-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags=-s -w")


def build() -> Path:
    """Build Kueue unless it is current. Raises RuntimeError without Go, or with Go's error message."""
    if shutil.which("go") is None:
        raise RuntimeError("the scenarios with Kueue need Go: https://go.dev/dl")
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    _go("build", *_FLAGS, "-o", str(BUILT), ".")
    return BUILT


def crds() -> list[dict[str, Any]]:
    """Return the CRDs of Kueue and of ProvisioningRequest, as their modules ship them."""
    found = []
    for module, folder in _CRDS.items():
        where = Path(json.loads(_go("mod", "download", "-json", module))["Dir"]) / folder
        found += [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(where.glob("*.yaml"))]
    return [each for each in found if each["kind"] == "CustomResourceDefinition"]


@contextmanager
def running(kubeconfig: Path, folder: Path) -> Iterator[None]:
    """Run the controllers against a cluster; their log goes to `folder`."""
    process = Process([build(), "--kubeconfig", kubeconfig, "--zap-log-level", "info"], folder / "kueue.log")
    try:
        yield
    finally:
        process.stop()


def _go(*arguments: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOGC": "off", "GOMEMLIMIT": "2GiB"}
    done = subprocess.run(
        ["go", *arguments],  # noqa: S607 as in the shell
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"go {' '.join(arguments)}: {done.stderr}")
    return done.stdout
