"""Access to the API server: tokens, and the kubeconfigs that contain them."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import Any

from nodesmith_formats.localsystem.contexts import kubeconfig_of

CONTROLLERS = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
MASTERS = "system:masters"
_CONTEXT = "nodesmith-local"


def kubeconfig(url: str, ca_bundle: str, token: str) -> dict[str, Any]:
    """Return a kubeconfig with one context, `nodesmith-local`."""
    return kubeconfig_of(_CONTEXT, url, token, ca_bundle=ca_bundle)


def write_access(folder: Path, url: str, admin_token: str, webhook: dict[str, Any]) -> None:
    """Write tokens.csv for kube-apiserver, a kubeconfig for each of its users, and the webhook's kubeconfig.

    The folder must already contain the certificates.
    """
    users = {
        "admin": ("nodesmith-local", MASTERS, admin_token),
        "controllers": (CONTROLLERS, "", secrets.token_urlsafe(24)),
        "scheduler": (SCHEDULER, "", secrets.token_urlsafe(24)),
        "kwok": ("kwok", MASTERS, secrets.token_urlsafe(24)),
    }
    rows = [f'{token},{user},{user},"{group}"\n' for user, group, token in users.values()]
    _write(folder / "tokens.csv", "".join(rows))
    authority = ca_bundle(folder)
    for name, (_, _, token) in users.items():
        _write(folder / f"{name}.kubeconfig", json.dumps(kubeconfig(url, authority, token)))
    _write(folder / "webhook.kubeconfig", json.dumps(webhook))


def ca_bundle(folder: Path) -> str:
    """Return the certificate authority's certificate, PEM in base64."""
    return base64.b64encode((folder / "ca.crt").read_bytes()).decode()


def _write(path: Path, content: str) -> None:
    path.touch(mode=0o600)
    path.write_text(content)
