"""The result of a push: the image by digest, and the outcome of each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nodesmith_cli.deployment.image.references import Reference

PartResult = Literal["there", "mounted", "uploaded", "missing"]
"""The part existed, was mounted from another repository, was uploaded, or is missing (in a dry run)."""


@dataclass(frozen=True, slots=True)
class PushedPart:
    """A blob or a manifest. `size` is in bytes."""

    what: str
    digest: str
    size: int
    result: PartResult


@dataclass(frozen=True, slots=True)
class PushedImage:
    """An image that was pushed, or would be in a dry run. `target` has its tag, and `digest` is that of its index.

    `manifests` has the digests and `bases` the base images by digest, each by platform.
    """

    target: Reference
    digest: str
    manifests: Mapping[str, str]
    bases: Mapping[str, str]
    parts: Sequence[PushedPart]
    is_dry: bool = False

    @property
    def reference_by_digest(self) -> str:
        """The immutable reference to use in Kubernetes manifests."""
        return str(self.target.by_digest(self.digest))

    def report(self) -> dict[str, Any]:
        """Return the result as JSON data."""
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
                {"what": part.what, "digest": part.digest, "size": part.size, "state": part.result}
                for part in self.parts
            ],
        }
