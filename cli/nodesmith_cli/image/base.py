"""The base image of one platform: its configuration and its layers, checked by digest all the way down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodesmith.errors import Rejected
from nodesmith_cli.image.documents import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    INDEX,
    LAYER_TYPES,
    MANIFEST,
    Descriptor,
    descriptor_in,
    is_digest,
)
from nodesmith_cli.image.references import Reference
from nodesmith_cli.image.registry import Manifest, Repository

_OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Base:
    """What an image is put on. `reference` has the digest of the manifest, `python` is its version (3.13)."""

    reference: Reference
    config: Mapping[str, Any]
    layers: Sequence[Descriptor]
    python: str


def read_base(repository: Repository, tag_or_digest: str, platform: str) -> Base:
    """Read the manifest for a platform (linux/arm64), by itself or through an index. Raises Rejected, Transient."""
    found = repository.manifest(tag_or_digest)
    if found.descriptor.media_type in {INDEX, DOCKER_INDEX}:
        found = repository.manifest(_chosen(found, platform, repository.reference).digest)
    reference = repository.reference.by_digest(found.descriptor.digest)
    if found.descriptor.media_type not in {MANIFEST, DOCKER_MANIFEST}:
        raise Rejected(f"{reference}: {found.descriptor.media_type!r} is no image")
    config = repository.document(descriptor_in(found.document.get("config"), str(reference)))
    if (its := f"{config.get('os')}/{config.get('architecture')}") != platform:
        raise Rejected(
            f"{reference} is for {its}, not for {platform}: name an image with both in --base, or --platform"
        )
    return Base(reference, config, _layers(found, config, reference), _python(config, reference))


def _chosen(index: Manifest, platform: str, reference: Reference) -> Descriptor:
    """Choose the entry for a platform; where several variants are offered the first, as Docker does."""
    where = str(reference.by_digest(index.descriptor.digest))
    offered: dict[str, Any] = {}
    for entry in index.document.get("manifests") or ():
        told = entry.get("platform") or {}
        offered.setdefault(f"{told.get('os')}/{told.get('architecture')}", entry)
    if platform not in offered:
        there = ", ".join(sorted(offered.keys() - {"unknown/unknown"})) or "none"
        raise Rejected(f"{where} has no image for {platform}; it has: {there}")
    return descriptor_in(offered[platform], where)


def _layers(manifest: Manifest, config: Mapping[str, Any], reference: Reference) -> tuple[Descriptor, ...]:
    layers = [descriptor_in(each, str(reference)) for each in manifest.document.get("layers") or ()]
    if odd := [layer.media_type for layer in layers if layer.media_type not in LAYER_TYPES]:
        raise Rejected(f"{reference}: a layer of type {odd[0]!r} cannot be copied")
    diff_ids = (config.get("rootfs") or {}).get("diff_ids") or ()
    if len(diff_ids) != len(layers) or not all(is_digest(str(each)) for each in diff_ids):
        raise Rejected(
            f"{reference}: {len(layers)} layers, and {len(diff_ids)} digests of them in its configuration"
        )
    return tuple(Descriptor(LAYER_TYPES[each.media_type], each.digest, each.size) for each in layers)


def _python(config: Mapping[str, Any], reference: Reference) -> str:
    """Read the version that Python's official images tell in their environment."""
    told = dict(variable.partition("=")[::2] for variable in (config.get("config") or {}).get("Env") or ())
    version = told.get("PYTHON_VERSION", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) != 2:
        raise Rejected(f"{reference} is none of Python's images: its environment has no PYTHON_VERSION")
    if numbers < _OLDEST_PYTHON:
        raise Rejected(f"{reference} has Python {version}; the forwarder needs 3.11 or newer")
    return ".".join(map(str, numbers))
