"""The base image of one platform: its configuration and layers, all verified by digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodesmith.errors import Rejected
from nodesmith_cli.deployment.image.documents import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    INDEX,
    LAYER_TYPES,
    MANIFEST,
    Descriptor,
    descriptor_in,
    is_digest,
)
from nodesmith_cli.deployment.image.references import Reference
from nodesmith_cli.deployment.image.registry import Manifest, Repository

_OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Base:
    """A base image. `reference` has the digest of its manifest, and `python` is its Python version, such as 3.13."""

    reference: Reference
    config: Mapping[str, Any]
    layers: Sequence[Descriptor]
    python: str


def read_base(repository: Repository, tag_or_digest: str, platform: str) -> Base:
    """Read the base image for a platform (linux/arm64), directly or through an index. Raises Rejected, Transient."""
    manifest = repository.manifest(tag_or_digest)
    if manifest.descriptor.media_type in {INDEX, DOCKER_INDEX}:
        manifest = repository.manifest(_chosen(manifest, platform, repository.reference).digest)
    reference = repository.reference.by_digest(manifest.descriptor.digest)
    if manifest.descriptor.media_type not in {MANIFEST, DOCKER_MANIFEST}:
        raise Rejected(f"{reference}: {manifest.descriptor.media_type!r} is not an image")
    config = repository.document(descriptor_in(manifest.document.get("config"), str(reference)))
    if (its := f"{config.get('os')}/{config.get('architecture')}") != platform:
        raise Rejected(
            f"{reference} is for {its}, not for {platform}: use --base with an image for both, or --platform"
        )
    return Base(reference, config, _layers(manifest, config, reference), _python(config, reference))


def _chosen(index: Manifest, platform: str, reference: Reference) -> Descriptor:
    """Return the index entry for a platform. Of several variants, this is the first, as in Docker."""
    where = str(reference.by_digest(index.descriptor.digest))
    offered: dict[str, Any] = {}
    for entry in index.document.get("manifests") or ():
        stated = entry.get("platform") or {}
        offered.setdefault(f"{stated.get('os')}/{stated.get('architecture')}", entry)
    if platform not in offered:
        there = ", ".join(sorted(offered.keys() - {"unknown/unknown"})) or "none"
        raise Rejected(f"{where} has no image for {platform}; available: {there}")
    return descriptor_in(offered[platform], where)


def _layers(manifest: Manifest, config: Mapping[str, Any], reference: Reference) -> tuple[Descriptor, ...]:
    layers = [descriptor_in(document, str(reference)) for document in manifest.document.get("layers") or ()]
    if odd := [layer.media_type for layer in layers if layer.media_type not in LAYER_TYPES]:
        raise Rejected(f"{reference}: a layer of type {odd[0]!r} cannot be copied")
    diff_ids = (config.get("rootfs") or {}).get("diff_ids") or ()
    if len(diff_ids) != len(layers) or not all(is_digest(str(diff_id)) for diff_id in diff_ids):
        raise Rejected(
            f"{reference}: has {len(layers)} layers, but {len(diff_ids)} layer digests in its configuration"
        )
    return tuple(
        Descriptor(LAYER_TYPES[descriptor.media_type], descriptor.digest, descriptor.size)
        for descriptor in layers
    )


def _python(config: Mapping[str, Any], reference: Reference) -> str:
    """Return the version in the environment of Python's official images. Raises Rejected if it is missing."""
    stated = dict(variable.partition("=")[::2] for variable in (config.get("config") or {}).get("Env") or ())
    version = stated.get("PYTHON_VERSION", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) != 2:
        raise Rejected(f"{reference} is not an official Python image: its environment has no PYTHON_VERSION")
    if numbers < _OLDEST_PYTHON:
        raise Rejected(f"{reference} has Python {version}; the forwarder needs 3.11 or newer")
    return ".".join(map(str, numbers))
