"""The JSON documents of an image, as in the OCI image specification: configuration, manifest and index.

The same parts always give the same bytes, regardless of the time and the machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from nodesmith.errors import Rejected
from nodesmith_cli.deployment.image.dockerfile import Recipe
from nodesmith_cli.deployment.image.layers import Layer

Document = Mapping[str, Any]

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
LAYER_TYPES = {
    "application/vnd.docker.image.rootfs.diff.tar.gzip": LAYER,
    **{kind: kind for kind in (_OCI_LAYER, LAYER, f"{_OCI_LAYER}+zstd")},
}
"""The supported media types of a base's layers, with their OCI names. Docker's layers have the same bytes."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The descriptor of a blob or document: its media type, digest, and size in bytes."""

    media_type: str
    digest: str
    size: int

    def document(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A document, encoded for pushing."""

    content: bytes
    descriptor: Descriptor


def descriptor_in(document: Any, where: str) -> Descriptor:
    """Parse a descriptor. Raises Rejected if it is invalid, or if its digest is not SHA-256."""
    match document:
        case {"mediaType": str(kind), "digest": str(digest), "size": int(size)} if is_digest(digest):
            return Descriptor(kind, digest, size)
    raise Rejected(
        f"{where}: {str(document)[:200]} is not a descriptor with mediaType, size and a sha256 digest"
    )


def is_digest(text: str) -> bool:
    """Return whether a text is a SHA-256 digest in a registry's notation."""
    kind, _, rest = text.partition(":")
    return kind == "sha256" and len(rest) == 64 and set(rest) <= set("0123456789abcdef")


def encode(document: Document, media_type: str) -> Encoded:
    """Encode a document."""
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return Encoded(content, Descriptor(media_type, f"sha256:{sha256(content).hexdigest()}", len(content)))


def configuration(base: Document, recipe: Recipe, layers: Sequence[Layer], version: str) -> Encoded:
    """Return the base's configuration, extended by the layers and the recipe. It keeps the base's creation time."""
    settings = dict(base.get("config") or {})
    inherited = dict(variable.split("=", 1) for variable in settings.get("Env") or ())
    environment = {**inherited, **recipe.environment}
    labels = {
        **(settings.get("Labels") or {}),
        **recipe.labels,
        "org.opencontainers.image.version": version,
    }
    settings.pop("Cmd", None)  # as in Docker, an ENTRYPOINT resets the base's CMD
    settings |= {
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "User": recipe.user,
        "ExposedPorts": {port: {} for port in recipe.ports},
        "Entrypoint": list(recipe.entrypoint),
        "Labels": labels,
    }
    created = base.get("created", "1970-01-01T00:00:00Z")
    history = [
        {"created": created, "created_by": f"nodesmith image push: {archive.what}"} for archive in layers
    ]
    kept = {key: base[key] for key in ("architecture", "os", "os.version", "variant") if key in base}
    diff_ids = [*base["rootfs"]["diff_ids"], *(layer.diff_id for layer in layers)]
    document = {
        **kept,
        "created": created,
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [*(base.get("history") or ()), *history],
    }
    return encode(document, CONFIG)


def manifest(config: Descriptor, layers: Sequence[Descriptor], annotations: Mapping[str, str]) -> Encoded:
    """Return the manifest of one platform's image."""
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.document(),
        "layers": [layer.document() for layer in layers],
        "annotations": annotations,
    }
    return encode(document, MANIFEST)


def index(manifests: Mapping[str, Descriptor], annotations: Mapping[str, str]) -> Encoded:
    """Return the index of manifests by platform (linux/arm64)."""
    entries = []
    for platform, descriptor in sorted(manifests.items()):
        system, architecture = platform.split("/")
        variant = {"variant": "v8"} if architecture == "arm64" else {}
        named = {"os": system, "architecture": architecture, **variant}
        entries.append({**descriptor.document(), "platform": named})
    document = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": entries,
        "annotations": annotations,
    }
    return encode(document, INDEX)
