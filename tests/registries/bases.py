"""Base images for tests, uploaded with plain HTTP and without any of the code under test."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import urljoin

import requests

OCI = "application/vnd.oci.image"
DOCKER = "application/vnd.docker.distribution.manifest"
PLATFORMS = ("linux/amd64", "linux/arm64")


def digest_of(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def layer_of(files: Mapping[str, bytes]) -> tuple[bytes, str]:
    """Return a packed layer, and the digest of its uncompressed content."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0), digest_of(plain.getvalue())


@dataclass(frozen=True, slots=True)
class Remote:
    """A repository, by its address, for example http://localhost:5000/v2/x/."""

    url: str
    login: tuple[str, str] | None = None

    def put_blob(self, content: bytes) -> dict[str, Any]:
        """Store a blob, and return its descriptor without the media type."""
        digest = digest_of(content)
        begun = requests.post(f"{self.url}blobs/uploads/", auth=self.login, timeout=10)
        begun.raise_for_status()
        place = urljoin(self.url, begun.headers["Location"])
        place += f"{'&' if '?' in place else '?'}digest={digest}"
        requests.put(place, data=content, auth=self.login, timeout=10).raise_for_status()
        return {"digest": digest, "size": len(content)}

    def put_manifest(self, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Store a manifest under a tag, or under its digest if `name` is empty; return its descriptor."""
        content, kind = json.dumps(document).encode(), document["mediaType"]
        url = f"{self.url}manifests/{name or digest_of(content)}"
        headers = {"Content-Type": kind}
        requests.put(url, data=content, headers=headers, auth=self.login, timeout=10).raise_for_status()
        return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}


def put_base(
    remote: Remote,
    tag: str,
    *,
    platforms: Sequence[str] = PLATFORMS,
    python: str = "3.13.14",
    docker: bool = False,
    files: Mapping[str, bytes] = {"etc/debian_version": b"13.5\n"},
) -> str:
    """Store a base for some platforms under an index, with OCI's or Docker's types; return the index's digest."""
    entries = []
    for platform in platforms:
        system, architecture = platform.split("/")
        layer, diff_id = layer_of({**files, "etc/architecture": architecture.encode()})
        config = {
            "architecture": architecture,
            "os": system,
            "created": "2026-08-05T01:12:14Z",
            "config": {
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", f"PYTHON_VERSION={python}"],
                "Cmd": ["python3"],
            },
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
            "history": [{"created": "2026-08-05T01:12:14Z", "created_by": "a test"}],
        }
        layer_type = (
            "application/vnd.docker.image.rootfs.diff.tar.gzip" if docker else f"{OCI}.layer.v1.tar+gzip"
        )
        config_type = "application/vnd.docker.container.image.v1+json" if docker else f"{OCI}.config.v1+json"
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{DOCKER}.v2+json" if docker else f"{OCI}.manifest.v1+json",
            "config": {"mediaType": config_type, **remote.put_blob(json.dumps(config).encode())},
            "layers": [{"mediaType": layer_type, **remote.put_blob(layer)}],
        }
        reported = {"os": system, "architecture": architecture}
        entries.append({**remote.put_manifest("", manifest), "platform": reported})
    kind = f"{DOCKER}.list.v2+json" if docker else f"{OCI}.index.v1+json"
    index = {"schemaVersion": 2, "mediaType": kind, "manifests": entries}
    return str(remote.put_manifest(tag, index)["digest"])
