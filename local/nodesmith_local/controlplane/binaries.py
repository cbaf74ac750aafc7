"""Source of the control plane's programs: a folder that the user names, or the checkout's Go module."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from nodesmith.errors import Rejected
from nodesmith_local.controlplane.building import Build

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
ASSETS = "KUBEBUILDER_ASSETS"
_CHECKOUT = Path(__file__).parents[3]


def find_binaries(on_step: Callable[[str], None] = print, checkout: Path = _CHECKOUT) -> Path:
    """Return the folder that holds all programs; `on_step` receives progress messages while they are built.

    The environment variable KUBEBUILDER_ASSETS names a folder that has them (envtest's convention); then nothing is
    built. Raises Rejected with the remedy if they can be neither found nor built.
    """
    assets = os.environ.get(ASSETS)
    if assets:
        return _complete(Path(assets).expanduser())
    modules = checkout / "tests" / "e2e" / "controlplane"
    if not (modules / "go.mod").is_file():
        raise Rejected(
            f"a real control plane is built from a checkout of nodesmith, but this is an installed package: "
            f"run it from a checkout, or set {ASSETS} to a folder with {', '.join(PROGRAMS)}"
        )
    build = Build(modules, checkout / "build" / "controlplane", PROGRAMS)
    build.make(on_step)
    return build.folder


def _complete(folder: Path) -> Path:
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    if missing:
        raise Rejected(
            f"{ASSETS}={folder}: lacks {', '.join(missing)}: add the missing programs (executable), "
            f"or unset {ASSETS} to have all of them built with Go"
        )
    return folder.resolve()
