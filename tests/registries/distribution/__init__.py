"""The CNCF's registry (distribution), built with Go into build/registry: 30 seconds the first time, then cached."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from nodesmith_local.controlplane.process import Process
from tests.patience import eventually
from tests.registries.bases import Remote

HERE, BUILT = Path(__file__).parent, Path("build/registry/registry").absolute()
# From `htpasswd -B`: the registry accepts only bcrypt, which the standard library does not have.
LOGIN = ("ci", "secret")
_HTPASSWD = "ci:$2a$04$8z03l6FxbXI0u05gzbEhY.UEagsQtRqiYhxrBPJIQzxGdoR5yUcbC\n"


def build() -> Path:
    """Build the registry unless it is current. Raises RuntimeError without Go, or with Go's error message."""
    if shutil.which("go") is None:
        raise RuntimeError(
            "the tests of `nodesmith image push` with a real registry need Go: https://go.dev/dl"
        )
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(BUILT), "."]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"building the registry: {done.stderr}")
    return BUILT


@contextmanager
def running(folder: Path, certificates: Path | None = None) -> Iterator[Remote]:
    """Run a registry with its files in `folder`, and yield its address; with certificates, use TLS and the login."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    http: dict[str, object] = {"addr": address, "secret": "any"}
    auth = {}
    if certificates is not None:
        http["tls"] = {
            "certificate": str(certificates / "serving.crt"),
            "key": str(certificates / "serving.key"),
        }
        (folder / "htpasswd").write_text(_HTPASSWD)
        auth = {"auth": {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}}
    settings = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": http,
        **auth,
    }
    (folder / "config.yml").write_text(json.dumps(settings))  # JSON is YAML
    remote = Remote(f"{'https' if certificates else 'http'}://{address}", LOGIN if certificates else None)
    log = folder / "registry.log"
    process = Process([build(), "serve", folder / "config.yml"], log)
    try:
        eventually(lambda: _answers(remote), "the registry answers", 20.0, log.read_text)
        yield remote
    finally:
        process.stop()


def _answers(remote: Remote) -> bool:
    try:
        return requests.get(f"{remote.url}/v2/", auth=remote.login, timeout=5).ok
    except requests.RequestException:
        return False
