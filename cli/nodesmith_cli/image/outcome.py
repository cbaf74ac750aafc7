"""What a push comes to: the image by its digest, and what became of each of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nodesmith_cli.image.references import Reference

Fate = Literal["there", "mounted", "uploaded", "missing"]
"""It was there, was taken over inside the registry, was uploaded; in a dry run: it would be sent."""


@dataclass(frozen=True, slots=True)
class PushedPart:
    """A blob or a manifest, its size in bytes."""

    what: str
    digest: str
    size: int
    fate: Fate


@dataclass(frozen=True, slots=True)
class PushedImage:
    """An image that was pushed, or in a dry run would be. `target` has its tag, `digest` is its index's.

    `manifests` has the digest, `bases` the base by digest, each by platform.
    """

    target: Reference
    digest: str
    manifests: Mapping[str, str]
    bases: Mapping[str, str]
    parts: Sequence[PushedPart]
    is_dry: bool = False

    @property
    def reference_by_digest(self) -> str:
        """What a manifest of Kubernetes should name: the same bytes for ever."""
        return str(self.target.by_digest(self.digest))

    def told(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "reference": self.reference_by_digest,
            "tagged": str(self.target),
            "digest": self.digest,
            "dryRun": self.is_dry,
            "platforms": {
                platform: {"digest": digest, "base": self.bases[platform]}
                for platform, digest in self.manifests.items()
            },
            "parts": [
                {"what": part.what, "digest": part.digest, "size": part.size, "state": part.fate}
                for part in self.parts
            ],
        }
